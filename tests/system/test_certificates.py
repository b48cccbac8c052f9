"""The certificate of the webhooks over its life: renewed, repaired, shared, never in the way."""

import asyncio
import base64
import ssl
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.pki.fake_secrets import MADE_BY_US
from tests.system.certs import BROKEN, legacy, made
from tests.system.guarded import NO_DOWNSCALE
from tests.system.hooked import (
    PROBE,
    TLS_FLAGS,
    fetch_secret,
    hook_up,
    put_secret,
    secret_body,
    shake_hands,
    trusting,
)
from tests.system.starts import running
from tests.system.waits import wait_line, wait_page, wait_true
from tests.world.api import LEASES, SECRETS, VALIDATING_HOOKS, Json
from tests.world.clients import Route, Workload
from tests.world.hooks import Hooks, Registration
from tests.world.manifests import LEASE, SECRET, webhook_rights
from tests.world.observed import Request
from tests.world.operatorproc import OperatorProcess
from tests.world.pki import make_pki
from tests.world.world import World

pytestmark = pytest.mark.controlplane

EXPIRATION: Final = "-server-tls.self-signed-cert.expiration"
LIFE: Final = timedelta(seconds=4)
ROTATIONS: Final = 12
# So that the Secret is read every two seconds.
SHORT_LIFE: Final = timedelta(seconds=3)
# Of the ways to break a Secret so many are tried on a running operator; each costs such a read.
WHILE_RUNNING: Final = 12
# A new CA is published a twelfth of a life before it is used; half of that is for our own watch.
STILL_USED: Final = LIFE.total_seconds() / 12 / 2
PROBE_PAUSE: Final = 0.1


@dataclass(slots=True)
class Observed:
    """What clients saw, bundle by bundle and leaf by leaf."""

    port: int
    bundles: list[bytes] = field(default_factory=list)
    """Each that was in a configuration, in order."""
    since: list[float] = field(default_factory=list)
    """When each was first seen."""
    leaves: list[bytes] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def record_bundle(self, bundle: bytes) -> None:
        """Record what a configuration holds now."""
        if bundle and bundle not in self.bundles[-1:]:
            self.bundles.append(bundle)
            self.since.append(time.monotonic())

    async def probe(self) -> None:
        """Connect once with each bundle that a client may still use."""
        oldest = time.monotonic() - STILL_USED
        for number, bundle in enumerate(self.bundles):
            is_last = number + 1 == len(self.bundles)
            if not is_last and self.since[number + 1] < oldest:
                continue
            try:
                leaf = await shake_hands(self.port, trusting(bundle))
            except (ssl.SSLError, OSError) as error:
                self.problems.append(f"bundle {number}, leaf {len(self.leaves)}: {error}")
                continue
            if leaf not in self.leaves:
                self.leaves.append(leaf)


async def _follow_bundles(world: World, hooks: Hooks, seen: Observed) -> None:
    name = hooks.name("no-downscale")
    async for event in world.api.follow(VALIDATING_HOOKS):
        if event.type != "DELETED" and event.object["metadata"]["name"] == name:
            config = event.object["webhooks"][0]["clientConfig"]
            seen.record_bundle(base64.b64decode(config.get("caBundle", "")))


async def test_si19_rotations_and_a_change_of_ca_under_load(world: World) -> None:
    """SI-19, LI-13, D-30, SEED-101: no client that trusts a published bundle is ever turned away.

    The CA that is there at the start lasts for a few leaves only: the next is published beside it
    before anything is served by it.
    """
    await world.grant_webhooks()
    first = made(expiration=LIFE, ca_life=LIFE * 5)
    await put_secret(world, secret_body(first))
    hooked = await hook_up(
        world,
        flags=(f"{EXPIRATION}={LIFE.seconds}s",),
        registration={"hooks": ("no-downscale",)},
    )
    await world.label(PROBE.name, **{NO_DOWNSCALE: "true"})
    workload = Workload(api=world.api, namespace=world.namespace, name=PROBE.name)
    seen = Observed(port=hooked.operator.tls_port)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(_follow_bundles(world, hooked.hooks, seen))
        async with asyncio.timeout(LIFE.total_seconds() * ROTATIONS * 2):
            while len(seen.leaves) <= ROTATIONS and not seen.problems:
                await seen.probe()
                answer = await workload.scale(0, Route.MERGE, is_dry_run=True)
                if answer.status != 400 or "has the label" not in answer.message:
                    seen.problems.append(f"the API server was turned away: {answer}")
                await asyncio.sleep(PROBE_PAUSE)
        following.cancel()
    assert seen.problems == []
    second = (await fetch_secret(world))["ca"]
    assert second != first["ca"]
    assert [bundle.count(b"BEGIN CERT") for bundle in seen.bundles] == [1, 2, 1]
    assert seen.bundles[0] == first["ca"]
    assert seen.bundles[-1] == second
    assert first["ca"] in seen.bundles[1]
    assert second in seen.bundles[1]


async def test_li13_a_broken_secret_is_healed_while_running(world: World) -> None:
    """LI-13, SI-19, FP-33: whatever it is made; what is served stays good all the while."""
    await world.grant_webhooks()
    hooked = await hook_up(world, flags=(f"{EXPIRATION}={SHORT_LIFE.seconds}s",))
    port = hooked.operator.tls_port
    for name, breakage in list(BROKEN.items())[:WHILE_RUNNING]:
        good = await fetch_secret(world)
        await world.api.replace(SECRETS, world.namespace, SECRET, secret_body(breakage(good)))
        await wait_true(f"healed: {name}", lambda: _is_healthy(world, port), timedelta(seconds=60))
        stored = (await fetch_secret(world))["ca"]
        assert all(stored in bundle for bundle in await hooked.hooks.wait_injected()), name
    assert hooked.operator.is_running
    assert len([line for line in hooked.operator.log_lines() if "is ready" in line]) == 1


async def test_li13_a_broken_secret_is_healed_at_the_start(world: World) -> None:
    """LI-13, FP-33, SEED-096: no start fails by it; a good one is used again as it is."""
    await world.grant_webhooks()
    await world.create(PROBE)
    async with OperatorProcess(world.launch(*TLS_FLAGS)) as operator:
        for name, breakage in list(BROKEN.items())[WHILE_RUNNING:]:
            operator.kill()
            # Dead, it remembers nothing: its label shows that the Secret is its own.
            body = secret_body(breakage(made()), labels=MADE_BY_US)
            await world.api.replace(SECRETS, world.namespace, SECRET, body)
            operator.start()
            await operator.wait_ready()
            assert await _is_healthy(world, operator.tls_port), name
        before = await world.get(SECRETS, SECRET)
        assert await operator.terminate() == 0
        operator.start()
        await operator.wait_ready()
        after = await world.get(SECRETS, SECRET)
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert await _is_healthy(world, operator.tls_port)


FOREIGN: Final = legacy(issued_to="etcd.example")
OTHERS: Final[Mapping[str, Json]] = {
    "under our keys": secret_body({**FOREIGN, "password": b"hunter2"}),
    "as cert-manager does": secret_body(
        {"tls.crt": FOREIGN["cert"], "tls.key": FOREIGN["key"], "ca.crt": FOREIGN["ca"]},
        type="kubernetes.io/tls",
    ),
    "no certificate": secret_body({"password": b"hunter2"}),
    "immutable": secret_body(FOREIGN, immutable=True),
}
FLAG: Final = "-server-tls.self-signed-cert.secret-name"


async def test_d31_a_secret_of_another_application_is_left_alone(world: World) -> None:
    """D-31, LI-13: not a byte of it is changed; not ready, says why, and goes on once it is gone.

    Neither does the operator end, which would help as little, nor publish a CA that is not its own.
    The shipped Secret, applied over it, does not make it the operator's.
    """
    await world.grant_webhooks()
    hooks = await world.register(Registration(port=1, hooks=("no-downscale",)))
    for name, body in OTHERS.items():
        await put_secret(world, body)
        if body.get("type", "Opaque") == "Opaque":  # else the API server refuses another type
            await world.grant_webhooks()
        before = await world.get(SECRETS, SECRET)
        async with OperatorProcess(world.launch(*TLS_FLAGS)) as operator:
            line = await wait_line(operator, "Leaving the certificate's secret alone")
            assert "level=error" in line, name
            assert f"secret {world.namespace}/{SECRET}: not ours" in line, name
            assert FLAG in line, name
            status, page = await operator.fetch("/ready")
            assert status == 500, name
            assert f"secret {world.namespace}/{SECRET}: not ours" in page, name
            assert FLAG in page, name
            assert await world.get(SECRETS, SECRET) == before, name
            assert await operator.terminate() == 0, name
    config = (await hooks.fetch("no-downscale"))["webhooks"][0]["clientConfig"]
    assert "caBundle" not in config


async def test_li13_what_a_person_does_about_it(world: World) -> None:
    """LI-13: an empty one makes room while the operator waits; no restart is needed.

    A good one that is immutable is served, an empty one cannot be filled; no write is tried.
    """
    await world.grant_webhooks()
    await put_secret(world, OTHERS["under our keys"])
    async with OperatorProcess(world.launch(*TLS_FLAGS)) as operator:
        await wait_line(operator, "Leaving the certificate's secret alone")
        await world.api.replace(SECRETS, world.namespace, SECRET, secret_body({"cert": b""}))
        await operator.wait_ready(timedelta(seconds=60))
        assert await _is_healthy(world, operator.tls_port)
    before = len(await _list_updates(world))
    good, empty = (secret_body(data, immutable=True) for data in (legacy(), {}))
    await put_secret(world, good)
    async with running(world.launch(*TLS_FLAGS)) as operator:
        assert await _is_healthy(world, operator.tls_port)
    await put_secret(world, empty)
    async with OperatorProcess(world.launch(*TLS_FLAGS)) as operator:
        line = await wait_line(operator, "Leaving the certificate's secret alone")
        assert f"secret {world.namespace}/{SECRET}: immutable" in line
        await wait_page(operator, "/ready", 500, "immutable")
    assert len(await _list_updates(world)) == before


async def test_li13_a_secret_that_was_deleted_is_reported_before_a_restart_needs_it(
    world: World,
) -> None:
    """LI-13, D-40: the shipped rights let only a person make it again; all is served until then."""
    world.may_be_forbidden = True
    await world.grant_webhooks()
    operator = await world.operator(*TLS_FLAGS)
    await world.delete(SECRETS, SECRET)
    way_out = f"kubectl create secret generic {SECRET} --namespace {world.namespace}"
    await wait_page(operator, "/status", 200, way_out)
    assert await operator.is_ready()
    await world.post(SECRETS, secret_body({}))
    await wait_page(operator, "/status", 200, "ready", lacking=way_out)
    assert await _is_healthy(world, operator.tls_port)


async def _list_updates(world: World) -> list[Request]:
    calls = await world.judge.calls()
    return [call for call in calls if (call.verb, call.resource) == ("update", "secrets")]


async def test_dep17_a_secret_of_the_version_before_is_used_as_it_is(world: World) -> None:
    """DEP-17, D-06, TLS-04: RSA, PKCS#1, no key of the CA: same certificate, caBundle is its ca.

    Also with the shipped empty one applied over it.
    """
    await world.grant_webhooks()
    data = legacy()
    await put_secret(world, secret_body(data))
    await world.grant_webhooks()
    before = await world.get(SECRETS, SECRET)
    hooked = await hook_up(world)
    for bundle in await hooked.hooks.wait_injected():
        assert bundle == data["ca"]
        leaf = await shake_hands(hooked.operator.tls_port, trusting(bundle))
        assert leaf == ssl.PEM_cert_to_DER_cert(data["cert"].decode())
    assert await world.get(SECRETS, SECRET) == before


async def test_rbac07_the_shipped_secret_is_filled_and_stays_so(world: World) -> None:
    """RBAC-07, DEP-82: by the shipped rights, which create none; applied again nothing changes."""
    await world.grant_webhooks()
    operator = await world.operator(*TLS_FLAGS)
    before = await world.get(SECRETS, SECRET)
    assert set(before["data"]) >= {"ca", "cert", "key"}
    assert before["metadata"]["labels"].items() >= MADE_BY_US.items()
    (shipped,) = (one for one in webhook_rights(world.namespace) if one["kind"] == "Secret")
    # As `kubectl apply --server-side` does, and without it where nothing else had changed.
    for kind in ("apply", "merge"):
        await world.patch(SECRETS, SECRET, shipped, kind=kind)
        after = await world.get(SECRETS, SECRET)
        assert after["data"] == before["data"], kind
        assert after["metadata"]["labels"] == before["metadata"]["labels"], kind
    assert await _is_healthy(world, operator.tls_port)
    assert not [
        call
        for call in await world.judge.calls()
        if (call.verb, call.resource) == ("create", "secrets")
    ]


async def test_fp33_two_that_start_at_once_end_with_one_secret(world: World) -> None:
    """FP-33, TLS-13, TLS-14: both serve what is stored, whichever came first."""
    await world.grant_webhooks()
    async with AsyncExitStack() as stack:
        launches = [world.launch(*TLS_FLAGS) for _ in range(3)]
        operators = [await stack.enter_async_context(OperatorProcess(each)) for each in launches]
        for operator in operators:
            await operator.wait_ready()
        data = await fetch_secret(world)
        stored = ssl.PEM_cert_to_DER_cert(data["cert"].decode())
        for operator in operators:
            assert await shake_hands(operator.tls_port, trusting(data["ca"])) == stored


async def test_dep19_files_are_served_and_read_again(world: World, tmp_path: Path) -> None:
    """DEP-19, SEED-095, W-25: no Secret and no bundle is touched.

    DEP-92: no reviews are passed on by such a certificate; reported once, with why.
    """
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (make_pki(folder) for folder in folders)
    flags = (
        "-server-tls.enabled=true",
        "-server-tls.self-signed-cert.enabled=false",
        "-webhooks.update-ca-bundle=false",
        f"-server-tls.cert-file={one.cert}",
        f"-server-tls.key-file={one.key}",
    )
    await world.grant_webhooks()
    async with running(world.launch(*flags)) as operator:
        await shake_hands(operator.tls_port, trusting(one.ca.read_bytes()))
        one.cert.write_bytes(two.cert.read_bytes())
        one.key.write_bytes(two.key.read_bytes())

        async def is_exchanged() -> bool:
            try:
                await shake_hands(operator.tls_port, trusting(two.ca.read_bytes()))
            except ssl.SSLError:
                return False
            return True

        await wait_true("exchanged", is_exchanged, timedelta(seconds=30))
        assert "PRIVATE" not in operator.log.read_text()
        (line,) = [line for line in operator.log_lines() if "No reviews are passed on" in line]
        assert "not of a CA of ours: -server-tls.self-signed-cert.enabled is false" in line
        lease = await world.get(LEASES, LEASE)
        assert "annotations" not in lease["metadata"], "nothing is to be reached there"
    calls = [call for call in await world.judge.calls() if call.resource != "leases"]
    assert not [call for call in calls if call.resource == "secrets" or call.verb == "patch"]


async def _is_healthy(world: World, port: int) -> bool:
    """Say whether the Secret is whole, and what is served verifies by it and is in it."""
    data = await fetch_secret(world)
    if not {"ca", "cert", "key"} <= data.keys():
        return False
    try:
        leaf = await shake_hands(port, trusting(data["ca"]))
        stored = ssl.PEM_cert_to_DER_cert(data["cert"].decode())
    except (ssl.SSLError, ValueError):
        return False
    return leaf == stored
