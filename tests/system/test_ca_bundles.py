"""The CA in webhook configurations: written where it belongs, kept there, and nowhere else."""

import asyncio
import base64
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import pytest

from tests.system.certs import made
from tests.system.hooked import (
    TLS_FLAGS,
    fetch_secret,
    put_secret,
    secret_body,
    shake_hands,
    trusting,
)
from tests.system.starts import running
from tests.system.waits import read_metric, wait_line, wait_true
from tests.world.api import CLUSTER_ROLES, ApiError
from tests.world.hooks import INJECT_LABEL, NAMESPACE_LABEL, Hooks, Registration
from tests.world.judge import HOOKS
from tests.world.manifests import ACCOUNT
from tests.world.operatorproc import OperatorProcess
from tests.world.outreach import judge_outreach
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# Eight at once, then one in half a minute.
MOST_WRITES: Final = 10
WIPE_FOR: Final = timedelta(seconds=12)
WIPE_EVERY: Final = timedelta(milliseconds=200)
POLICY: Final = "kube_validating_webhook_failure_policy"


async def _wipe(world: World, hooks: Hooks) -> None:
    """Take the bundle out of the first webhook of each configuration, as an old manifest would."""
    for hook in hooks.wanted.hooks:
        patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        with suppress(ApiError):  # it is not there
            await world.api.patch(hooks.resource(hook), "", hooks.name(hook), patch, kind="json")


async def _bundle_writes(world: World) -> int:
    calls = await world.judge.calls()
    return sum(call.verb == "patch" and call.resource in HOOKS for call in calls)


async def test_si20_bundles_come_back_and_nothing_else_is_touched(world: World) -> None:
    """T-13 row 3, SEED-097, SEED-099, SI-20, CA-02, CA-06: before, after, wiped; foreign ones."""
    await world.grant_webhooks()
    before = await world.register(Registration(port=1))
    foreign = await world.register(
        Registration(port=1, hooks=("foreign",), labels={NAMESPACE_LABEL: world.namespace})
    )
    other = await world.register(
        Registration(
            port=1,
            hooks=("other",),
            labels={INJECT_LABEL: "true", NAMESPACE_LABEL: f"{world.namespace}-other"},
        )
    )
    kept = [await each.fetch(each.wanted.hooks[0]) for each in (foreign, other)]
    async with running(world.launch(*TLS_FLAGS)):
        first = await before.wait_injected()
        after = await world.register(Registration(port=1, hooks=("later",)))
        assert await after.wait_injected() == first[:1]
        assert first == [(await fetch_secret(world))["ca"]] * 2
        for hooks in (before, after):
            await _wipe(world, hooks)
            assert (await hooks.wait_injected())[0] == first[0]
        assert [await each.fetch(each.wanted.hooks[0]) for each in (foreign, other)] == kept
        assert await judge_outreach(world.judge, [], []) == []
    assert await _bundle_writes(world) <= 6


async def test_d31_the_bundle_of_another_server_is_left_as_it_is(world: World) -> None:
    """D-31, SI-20: hooks of one labelled configuration that call other servers, byte for byte.

    CA-10, METR-40: failure policies follow configurations; the label of the CA is not requested.
    """
    await world.grant_webhooks()
    hooks = await world.register(Registration(port=1, hooks=("shared",)))
    before = (await hooks.fetch("shared"))["webhooks"][0]
    bundle = base64.b64encode(made()["ca"]).decode()
    service = {"name": "elsewhere", "namespace": world.namespace, "port": 443}
    others = [
        {"url": "https://elsewhere.example:1/x", "caBundle": bundle},
        {"service": service, "caBundle": bundle},
        {"url": "https://elsewhere.example:1/y"},
    ]
    for number, config in enumerate(others):
        hook = {**before, "name": f"other-{number}.grafana.com", "clientConfig": config}
        patch = [{"op": "add", "path": "/webhooks/-", "value": hook}]
        resource, name = hooks.resource("shared"), hooks.name("shared")
        await world.api.patch(resource, "", name, patch, kind="json")
    kept = (await hooks.fetch("shared"))["webhooks"][1:]
    async with running(world.launch(*TLS_FLAGS)) as operator:

        async def is_ours_injected() -> bool:
            ours = (await hooks.fetch("shared"))["webhooks"][0]["clientConfig"]
            return "caBundle" in ours

        await wait_true("injected", is_ours_injected)
        line = await wait_line(operator, "Leaving the CA bundle of other servers alone")
        assert "elsewhere.example" in line
        await _assert_policies_follow(world, operator)
    assert (await hooks.fetch("shared"))["webhooks"][1:] == kept
    assert await _bundle_writes(world) == 1


async def _assert_policies_follow(world: World, operator: OperatorProcess) -> None:
    """CA-10, METR-40: created, changed, deleted."""
    labels = {NAMESPACE_LABEL: world.namespace}
    hooks = await world.register(Registration(port=1, labels=labels))
    for hook in hooks.wanted.hooks:

        async def is_shown(policy: str, hook: str = hook) -> bool:
            return await _has_policy(operator, hooks, hook, policy)

        await wait_true(f"failing: {hook}", lambda: is_shown("Fail"))
        patch = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
        await world.api.patch(hooks.resource(hook), "", hooks.name(hook), patch, kind="json")
        await wait_true(f"ignored: {hook}", lambda: is_shown("Ignore"))
        await world.api.delete(hooks.resource(hook), "", hooks.name(hook))
        await wait_true(f"gone: {hook}", lambda: is_shown(""))


async def test_fp34_a_fight_over_the_bundle_is_bounded(world: World) -> None:
    """FP-34, LI-11, LI-13: a co-writer each 200 ms; meanwhile a deleted Secret is filled again."""
    await world.grant_webhooks()
    operator = await world.operator(*TLS_FLAGS)
    hooks = await world.register(Registration(port=1, hooks=("no-downscale",)))
    (bundle,) = await hooks.wait_injected()
    before = await fetch_secret(world)
    served = await shake_hands(operator.tls_port, trusting(bundle))
    await put_secret(world, secret_body({}))
    with suppress(TimeoutError):
        async with asyncio.timeout(WIPE_FOR.total_seconds()):
            while True:
                await _wipe(world, hooks)
                await asyncio.sleep(WIPE_EVERY.total_seconds())
    assert 3 <= await _bundle_writes(world) <= MOST_WRITES
    line = await wait_line(operator, "Another client keeps changing the CA bundle")
    assert f"configuration={hooks.name('no-downscale')}" in line
    assert await hooks.wait_injected() == [bundle], "it wins in the end"

    async def is_back() -> bool:
        return await fetch_secret(world) == before

    await wait_true("back, from memory, so that no client notices", is_back)
    assert await shake_hands(operator.tls_port, trusting(bundle)) == served


async def _limit_rights(world: World, names: Sequence[str]) -> None:
    """Limit the operator's rights on configurations to some names."""
    role = await world.api.get(CLUSTER_ROLES, "", f"{ACCOUNT}-{world.namespace}-webhooks")
    for rule in role["rules"]:
        rule["resourceNames"] = list(names)
    await world.api.replace(CLUSTER_ROLES, "", role["metadata"]["name"], role)


async def test_seed102_named_configurations_need_rights_to_no_others(world: World) -> None:
    """SEED-102, SEC-18: list and watch of one name each; with such rights and no others."""
    await world.grant_webhooks()
    names = [f"{hook}-{world.namespace}" for hook in ("no-downscale", "prepare-downscale")]
    flag = f"-webhooks.ca-bundle-names={','.join(names)}"
    await _limit_rights(world, names)
    async with running(world.launch(*TLS_FLAGS, flag)) as operator:
        named = await world.register(Registration(port=1))
        unnamed = await world.register(Registration(port=1, hooks=("unnamed",)))
        await named.wait_injected()
        await _wipe(world, named)
        await named.wait_injected()
        assert (await unnamed.fetch("unnamed"))["webhooks"][0]["clientConfig"].keys() == {"url"}
        assert "is forbidden" not in operator.log.read_text()
    calls = [call for call in await world.judge.calls() if call.resource in HOOKS]
    assert {call.code for call in calls} <= {0, 200}
    assert all(call.name in names for call in calls), calls


async def test_seed098_turned_off_nothing_is_written(world: World) -> None:
    """SEED-098: no patch; the certificate is kept in its Secret all the same."""
    await world.grant_webhooks()
    flag = "-webhooks.update-ca-bundle=false"
    async with running(world.launch(*TLS_FLAGS, flag)) as operator:
        hooks = await world.register(Registration(port=1))
        data = await fetch_secret(world)
        await shake_hands(operator.tls_port, trusting(data["ca"]))
        await wait_true("seen", lambda: _has_policy(operator, hooks, "no-downscale", "Fail"))
        found = (await hooks.fetch("no-downscale"))["webhooks"][0]["clientConfig"]
        assert "caBundle" not in found
    assert await _bundle_writes(world) == 0


async def _has_policy(operator: OperatorProcess, hooks: Hooks, hook: str, policy: str) -> bool:
    """Say whether the metric shows this policy for a hook; empty means no series at all."""
    name = f"{hooks.name(hook)}.grafana.com"
    values = {
        each: await read_metric(operator, POLICY, webhook=name, policy=each)
        for each in ("Fail", "Ignore")
    }
    if not policy:
        return set(values.values()) == {None}
    return values[policy] == 1 and set(values.values()) == {1, 0}
