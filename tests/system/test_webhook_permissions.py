"""What the webhooks add to the operator's rights: all of it is used, and no other is asked for.

Each right is taken away in turn: what then does not work is said with verb and resource, nothing
else stops, and it goes on by itself when the right is back.
"""

from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.system.grants import shipped_grants
from tests.system.guarded import LAST_DOWNSCALE, TLS_FLAGS, Guarded, guard, prepared_zone
from tests.system.hooked import fetch_secret, shake_hands, trusting, wait_true
from tests.system.looks import wait_page
from tests.system.starts import wait_line
from tests.system.webhook_grants import (
    HOOKS_GROUP,
    Right,
    drop,
    restore,
    rights_of,
    shipped_rights,
)
from tests.world.api import CLUSTER_ROLES, ROLES, STATEFULSETS
from tests.world.clients import Route
from tests.world.hooks import Registration
from tests.world.manifests import ACCOUNT, SECRET
from tests.world.operatorproc import OperatorProcess
from tests.world.scene import World

pytestmark = pytest.mark.controlplane

VALIDATING: Final = "validatingwebhookconfigurations"
MUTATING: Final = "mutatingwebhookconfigurations"
PLURALS: Final = pytest.mark.parametrize("plural", [VALIDATING, MUTATING])
# A refused watch or write is tried again after 30 s at the latest.
AFTER_REFUSAL: Final = timedelta(seconds=60)
SHORT_LIFE: Final = "-server-tls.self-signed-cert.expiration=5s"


def _on_hooks(verb: str, plural: str) -> Right:
    return Right(group=HOOKS_GROUP, resource=plural, verb=verb)


def _on_secret(verb: str) -> Right:
    return Right(group="", resource="secrets", verb=verb, name="" if verb == "create" else SECRET)


async def _guarded(world: World, *flags: str) -> Guarded:
    """Return an operator and one set of three whose pods are prepared."""
    pods = await world.serve_pods()
    return await guard(world, prepared_zone(pods, ZoneSpec(name="a")), pods=pods, flags=flags)


async def test_sec17_the_rights_are_what_is_used_and_no_more(world: World) -> None:
    """SEC-17, SEC-18, SEED-100: the first start, a renewal, a wiped bundle and two downscales."""
    guarded = await _guarded(world, SHORT_LIFE)
    workload = guarded.workload("a")
    for route, count in ((Route.SCALE_MERGE, 2), (Route.MERGE, 1)):
        assert (await workload.scale(count, route)).status == 200
        await wait_true("recorded", lambda: _is_recorded(world))
    first = await fetch_secret(world)

    async def is_renewed() -> bool:
        return (await fetch_secret(world))["cert"] != first["cert"]

    await wait_true("renewed", is_renewed)
    await guarded.operator.terminate()
    calls = await world.judge.calls()
    used = {(call.verb, call.resource) for call in calls}
    wanted = {(each.verb, each.resource) for each in shipped_rights()}
    assert wanted - used == set(), "granted and never used"
    assert used - wanted - shipped_grants() == set(), "used and not granted"
    assert {call.code for call in calls} <= {0, 200, 201, 404, 409}
    assert {call.name for call in calls if call.resource == "secrets"} <= {SECRET, ""}


async def test_sec17_the_world_grants_what_is_shipped(world: World) -> None:
    """SEC-17: what all tests run under is the shipped component's rights, no more."""
    await world.grant_webhooks()
    found = await world.api.get(ROLES, world.namespace, f"{ACCOUNT}-webhooks")
    cluster = await world.api.get(CLUSTER_ROLES, "", f"{ACCOUNT}-{world.namespace}-webhooks")
    assert rights_of(found) | rights_of(cluster) == shipped_rights()


async def test_sec17_patch_pods(world: World) -> None:
    """SEC-17, W-13: downscales go on; that a crash would forget them is told, once."""
    await world.grant_webhooks()
    await drop(world, Right(group="", resource="pods", verb="patch"))
    guarded = await _after_drop(world)
    for count in (2, 1):
        answer = await guarded.workload("a").scale(count, Route.MERGE)
        assert answer.status == 200, answer
        assert guarded.pods.calls_to(f"a-{count}", "POST")
        await _wait_replicas(world, count)
    told = [line for line in guarded.operator.log_lines() if "not noted on pods" in line]
    assert len(told) == 1
    assert "level=warn" in told[0]
    assert Right(group="", resource="pods", verb="patch").told in told[0]


async def test_sec17_patch_statefulsets(world: World) -> None:
    """SEC-17: a downscale by `/scale` happens, and is recorded once the right is back."""
    guarded = await _guarded(world)
    right = Right(group="apps", resource="statefulsets", verb="patch")
    before = await drop(world, right)
    assert (await guarded.workload("a").scale(2, Route.SCALE_MERGE)).status == 200
    line = await wait_line(guarded.operator, "Downscale is not settled yet", right.told)
    assert "level=warn" in line
    await restore(world, right, before)
    await wait_true("recorded", lambda: _is_recorded(world), AFTER_REFUSAL)


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_sec17_secrets_at_the_start(world: World, verb: str) -> None:
    """SEC-17, W-22: without a certificate it is not ready and says why; then it goes on."""
    await world.grant_webhooks()
    right = _on_secret(verb)
    before = await drop(world, right)
    async with OperatorProcess(world.launch(*TLS_FLAGS)) as operator:
        line = await wait_line(operator, "Looking after the certificate failed", right.told)
        assert "level=warn" in line
        await wait_page(operator, "/ready", 500, "")
        await restore(world, right, before)
        await operator.wait_ready()
        await shake_hands(operator.tls_port, trusting((await fetch_secret(world))["ca"]))


async def test_sec17_update_secrets(world: World) -> None:
    """SEC-17, LI-13: what is served goes on being served; the renewal is told, then made."""
    await world.grant_webhooks()
    operator = await world.operator(*TLS_FLAGS, "-server-tls.self-signed-cert.expiration=9s")
    right = _on_secret("update")
    before = await drop(world, right)
    held = await fetch_secret(world)
    await wait_line(operator, "Looking after the certificate failed", right.told)
    await shake_hands(operator.tls_port, trusting(held["ca"]))
    await restore(world, right, before)

    async def is_renewed() -> bool:
        return (await fetch_secret(world))["cert"] != held["cert"]

    await wait_true("renewed", is_renewed)
    await shake_hands(operator.tls_port, trusting(held["ca"]))


async def test_sec17_patch_configurations(world: World) -> None:
    """SEC-17: it serves all the same, and the log names each that has no bundle."""
    await world.grant_webhooks()
    rights = [_on_hooks("patch", plural) for plural in (VALIDATING, MUTATING)]
    for right in rights:
        await drop(world, right)
    operator = await world.operator(*TLS_FLAGS)
    await world.register(Registration(port=1))
    for right in rights:
        line = await wait_line(operator, "CA bundle not written", right.told)
        assert "level=warn" in line
    assert operator.is_running
    assert (await operator.fetch("/ready"))[0] == 200


@PLURALS
@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_sec17_follow_configurations(world: World, verb: str, plural: str) -> None:
    """SEC-17: reviews are served without; a missing watch is an error in the log."""
    await world.grant_webhooks()
    right = _on_hooks(verb, plural)
    before = await drop(world, right)
    operator = await world.operator(*TLS_FLAGS)
    await wait_line(operator, right.told)
    data = await fetch_secret(world)
    await shake_hands(operator.tls_port, trusting(data["ca"]))
    hooks = await world.register(Registration(port=1))
    await restore(world, right, before)
    await hooks.wait_injected(AFTER_REFUSAL)
    assert operator.is_running


async def _after_drop(world: World) -> Guarded:
    """Return what `_guarded` does, where the rights are there already, and not whole."""
    pods = await world.serve_pods()
    await world.create(prepared_zone(pods, ZoneSpec(name="a")))
    operator = await world.operator(*TLS_FLAGS)
    hooks = await world.register(Registration(port=operator.tls_port))
    await hooks.wait_injected()
    await hooks.wait_called("a")
    return Guarded(world=world, pods=pods, operator=operator, hooks=hooks)


async def _is_recorded(world: World) -> bool:
    found = await world.api.get(STATEFULSETS, world.namespace, "a")
    return LAST_DOWNSCALE in found["metadata"]["annotations"]


async def _wait_replicas(world: World, count: int) -> None:
    async def is_there() -> bool:
        found = await world.api.get(STATEFULSETS, world.namespace, "a")
        return bool(found["status"].get("replicas") == count)

    await wait_true(f"{count} replicas", is_there)
