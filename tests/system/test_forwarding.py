"""Two operators on one namespace, and all reviews sent to the replica that does not act."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.system.budgeted import create_budgets
from tests.system.evictions import Answered, Caller, calling
from tests.system.guarded import Guarded, prepared_zone
from tests.system.hooked import TLS_FLAGS, fetch_secret, send_bytes, trusting
from tests.system.test_failover import TAKE_OVER_LIMIT, acts
from tests.system.waits import read_metric, wait_line, wait_true
from tests.world.api import LEASES, Answer
from tests.world.budgets import evict, grouped_zones, zone_budget
from tests.world.clients import Route
from tests.world.drains import CREATED
from tests.world.hooks import NO_DOWNSCALE, POD_EVICTION, PREPARE_DOWNSCALE, Registration
from tests.world.manifests import LEASE
from tests.world.operatorproc import OperatorProcess
from tests.world.pki import make_pki
from tests.world.world import World

pytestmark = pytest.mark.controlplane

ADDRESS: Final = "grafana.com/rollout-operator-address"
HOOKS: Final = (NO_DOWNSCALE, PREPARE_DOWNSCALE, POD_EVICTION)
GROUP: Final = "ingester"
TRY_AGAIN: Final = 429
EVICTION_LIMIT: Final = timedelta(seconds=5)
"""After which the API server gives the webhook up."""


class Replicas(msgspec.Struct, frozen=True, kw_only=True):
    """Two operators; the API server knows the one that follows."""

    world: World
    leader: OperatorProcess
    follower: OperatorProcess
    guarded: Guarded

    async def evict(self, pod: str) -> Answer:
        """Request an eviction from the API server."""
        return await evict(self.world.api, self.world.namespace, pod)

    async def count_forwarded(self, outcome: str) -> int:
        """Return how many reviews the follower was to pass on, by what became of them."""
        name = "rollout_operator_forwarded_reviews_total"
        hooks = ("admission_pod_eviction", "admission_prepare_downscale")
        counts = [
            await read_metric(self.follower, name, hook=hook, outcome=outcome) for hook in hooks
        ]
        return int(sum(count or 0 for count in counts))

    async def set_address(self, address: str) -> None:
        """Edit the address in the Lease."""
        patch = {"metadata": {"annotations": {ADDRESS: address}}}
        await self.world.patch(LEASES, LEASE, patch)

    async def wait_address(self, address: str) -> None:
        """Wait until the Lease has this address."""

        async def is_there() -> bool:
            lease = await self.world.get(LEASES, LEASE)
            return bool(lease["metadata"].get("annotations", {}).get(ADDRESS) == address)

        await wait_true(f"{address} in the lease", is_there)


async def replicate(world: World, *, requested: int = 1, flags: tuple[str, ...] = ()) -> Replicas:
    """Create three zones under a budget, and two operators; return once webhooks are called.

    The API server knows the one that follows, or with `requested=0` the one that leads.
    """
    pods = await world.serve_pods()
    await create_budgets(world, [zone_budget(GROUP, {"rollout-group": GROUP})])
    await world.grant_webhooks()
    zones = [prepared_zone(pods, zone, wait="1h") for zone in grouped_zones(GROUP)]
    probe, *_ = await world.create(*zones)
    operators = leader, follower = [await world.operator(*TLS_FLAGS, *flags) for _ in range(2)]
    hooks = await world.register(Registration(port=operators[requested].tls_port, hooks=HOOKS))
    await hooks.wait_injected()
    await hooks.wait_called(probe)
    assert await acts(leader)
    assert not await acts(follower)
    guarded = Guarded(world=world, pods=pods, operator=leader, hooks=hooks)
    return Replicas(world=world, leader=leader, follower=follower, guarded=guarded)


async def test_dep92_the_replica_that_leads_decides_whichever_gets_the_review(world: World) -> None:
    """DEP-92, D-71: evictions and downscales get its verdicts, in its words, by way of another."""
    replicas = await replicate(world)
    assert (await replicas.evict(f"{GROUP}-zone-a-0")).status in CREATED
    refused = await replicas.evict(f"{GROUP}-zone-b-0")
    assert refused.status == TRY_AGAIN
    assert f"{GROUP}-zone-a" in refused.message
    await world.wait_ready([f"{GROUP}-zone-{letter}" for letter in "abc"])

    scaled = await replicas.guarded.workload(f"{GROUP}-zone-c").scale(2, Route.MERGE)
    assert scaled.status == 200, scaled
    assert [call.pod for call in replicas.guarded.pods.calls] == [f"{GROUP}-zone-c-2"]
    await replicas.guarded.wait_recorded(f"{GROUP}-zone-c")
    refused = await replicas.guarded.workload(f"{GROUP}-zone-b").scale(2, Route.SCALE_MERGE)
    assert refused.status >= 400, refused
    assert "downscale of statefulsets" in refused.message

    assert await replicas.count_forwarded("answered") >= 4
    for outcome in ("unreachable", "late", "unusable", "too_many"):
        assert await replicas.count_forwarded(outcome) == 0
    decided = "rollout_operator_reviews_total"
    assert await read_metric(replicas.follower, decided, reason="pods_prepared") is None
    assert await read_metric(replicas.follower, decided, reason="not_elected") is None
    await replicas.guarded.assert_judged()


async def test_dep92_a_leader_that_dies_is_waited_for(world: World) -> None:
    """DEP-92, LI-08: 429 until another one leads, which then decides rightly; nothing between."""
    replicas = await replicate(world)
    replicas.leader.kill()
    began = time.monotonic()
    answers: list[Answer] = []
    while not answers or answers[-1].status == TRY_AGAIN:
        answers.append(await replicas.evict(f"{GROUP}-zone-a-0"))
        assert time.monotonic() - began < TAKE_OVER_LIMIT.total_seconds()
    assert answers[-1].status in CREATED, answers[-1]
    assert all(answer.body["details"]["retryAfterSeconds"] == 2 for answer in answers[:-1])
    assert any("could not be reached; try again" in answer.message for answer in answers[:-1])
    assert await acts(replicas.follower)
    assert (await replicas.evict(f"{GROUP}-zone-b-0")).status == TRY_AGAIN
    await world.judge.assert_clean()


async def test_dep92_a_leader_that_is_frozen_is_given_up_in_time(world: World) -> None:
    """DEP-92: the refusal is out before the API server's own time-out; one warning says so."""
    replicas = await replicate(world)
    replicas.leader.pause()
    began = time.monotonic()
    answers = await asyncio.gather(
        *(replicas.evict(f"{GROUP}-zone-{letter}-0") for letter in "abc")
    )
    assert time.monotonic() - began < EVICTION_LIMIT.total_seconds()
    replicas.leader.resume()
    assert [answer.status for answer in answers] == [TRY_AGAIN] * 3
    # Over the connection that there is, and where a new one is needed.
    for why in ("did not answer within", "could not be reached"):
        assert any(why in answer.message for answer in answers), answers
    text = "Replica that leads does not answer reviews"
    assert "level=warn" in await wait_line(replicas.follower, text)
    warned = [line for line in replicas.follower.log_lines() if text in line and "=warn" in line]
    assert len(warned) == 1

    async def is_allowed() -> bool:
        return (await replicas.evict(f"{GROUP}-zone-a-0")).status in CREATED

    await wait_true("an eviction allowed", is_allowed)
    await wait_line(replicas.follower, "Reviews are answered by the replica that leads again")
    assert await acts(replicas.leader)
    await world.judge.assert_clean()


async def test_dep94_one_that_ends_is_called_without_a_failure(world: World) -> None:
    """DEP-94, DEP-92, LI-08: as in an upgrade; what still comes is answered by way of the next."""
    replicas = await replicate(world, requested=0, flags=("-server-tls.shutdown-delay=10s",))
    ending = asyncio.create_task(replicas.leader.terminate())
    await wait_line(replicas.leader, "Released the lease")
    answers: list[Answer] = []
    began = time.monotonic()
    while not answers or answers[-1].status == TRY_AGAIN:
        answers.append(await replicas.evict(f"{GROUP}-zone-a-0"))
        scaled = await replicas.guarded.workload(f"{GROUP}-zone-b").scale(4, Route.MERGE)
        assert scaled.status == 200, "what needs no memory is answered all the time"
    assert answers[-1].status in CREATED, answers[-1]
    assert time.monotonic() - began < 8, "it does not wait for the end"
    assert not await replicas.leader.is_ready()
    assert await acts(replicas.follower)
    refused = await replicas.evict(f"{GROUP}-zone-c-0")
    assert (refused.status, f"{GROUP}-zone-" in refused.message) == (TRY_AGAIN, True)
    assert not ending.done()
    assert await ending == 0
    await world.judge.assert_clean()


async def test_dep92_an_edit_of_the_lease_gains_refusals(world: World, tmp_path: Path) -> None:
    """DEP-92, D-68: no review reaches a stranger, and none is answered by him."""
    replicas = await replicate(world)
    address = f"127.0.0.1:{replicas.leader.peer_port}"
    await replicas.wait_address(address)
    replicas.leader.pause()  # it would write its own address again
    requesting = calling(world, replicas.follower, limit=timedelta(seconds=1))
    async with requesting as caller, stranger(tmp_path) as (port, heard):
        await replicas.set_address(f"127.0.0.1:{port}")
        await _request_until(replicas, caller, "did not prove to be one of ours")
        await replicas.set_address(f"localhost:{replicas.leader.peer_port}")
        await _request_until(replicas, caller, "this replica does not decide that; try again")
        assert heard == []
    replicas.leader.resume()
    await replicas.wait_address(address)
    async with calling(world, replicas.follower) as caller:

        async def is_allowed() -> bool:
            return (await caller.evict(world.namespace, f"{GROUP}-zone-a-0")).is_allowed

        await wait_true("an eviction allowed", is_allowed)


async def test_dep92_an_address_that_is_another_replica_s_by_now(world: World) -> None:
    """DEP-92: that one does not lead, says so, and passes nothing on; its refusal is the answer."""
    replicas = await replicate(world)
    await replicas.wait_address(f"127.0.0.1:{replicas.leader.peer_port}")
    before = await replicas.count_forwarded("answered")
    replicas.leader.pause()  # it would write its own address again
    async with calling(world, replicas.follower, limit=timedelta(seconds=1)) as caller:
        # Of two replicas only the called replica is left: it calls itself.
        await replicas.set_address(f"127.0.0.1:{replicas.follower.peer_port}")

        async def is_answered() -> bool:
            answer = await caller.evict(world.namespace, f"{GROUP}-zone-a-0")
            assert (answer.is_allowed, answer.code) == (False, TRY_AGAIN), answer
            return await replicas.count_forwarded("answered") > before

        await wait_true("answered by another one", is_answered, timedelta(seconds=8))
    replicas.leader.resume()
    await replicas.wait_address(f"127.0.0.1:{replicas.leader.peer_port}")


async def test_dep92_only_replicas_are_answered_on_their_port(world: World) -> None:
    """DEP-92: who trusts our CA without a certificate of it learns nothing but that it is there."""
    await world.grant_webhooks()
    operator = await world.operator(*TLS_FLAGS)
    client = trusting((await fetch_secret(world))["ca"])
    request = (
        b"POST /admission/pod-eviction HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert await send_bytes(operator.peer_port, client, request) == b""
    assert (await send_bytes(operator.tls_port, client, request)).startswith(b"HTTP/1.1 400 ")


async def test_dep92_without_a_port_for_replicas_reviews_are_refused(world: World) -> None:
    """DEP-92, DEP-93: as with manifests that do not name the pod's address; one line says why."""
    await world.grant_webhooks()
    flags = (*TLS_FLAGS, "-server-tls.peer-port=0")
    leader, follower = [await world.operator(*flags) for _ in range(2)]
    async with calling(world, follower) as caller:
        answer = await caller.evict(world.namespace, "pod-0")
    assert (answer.is_allowed, answer.code) == (False, TRY_AGAIN)
    assert "this replica does not decide that; try again" in answer.message
    text = 'msg="No reviews are passed on to this replica" why="-server-tls.peer-port is 0"'
    for operator in (leader, follower):
        assert sum(text in line for line in operator.log_lines()) == 1
    async with calling(world, leader) as caller:
        assert (await caller.evict(world.namespace, "pod-0")).is_allowed, "there is no such pod"


async def test_dep91_one_that_works_alone_ends_at_once(world: World) -> None:
    """DEP-91, DEP-94: no other one answers meanwhile, and the next may wait for its end."""
    await world.grant_webhooks()
    alone = ("-leader-election.enabled=false", "-server-tls.shutdown-delay=10s")
    operator = await world.operator(*TLS_FLAGS, *alone)
    began = time.monotonic()
    assert await operator.terminate() == 0
    assert time.monotonic() - began < 8


@asynccontextmanager
async def stranger(folder: Path) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Run a TLS server with a certificate for our name, of a CA of its own; yield what it hears."""
    pki = make_pki(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pki.cert, pki.key)
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1 << 16))
        writer.transport.abort()

    server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


async def _request_until(replicas: Replicas, caller: Caller, text: str) -> None:
    """Review an eviction until it is refused in these words; it must never be allowed."""
    found: list[Answered] = []

    async def is_reported() -> bool:
        found.append(await caller.evict(replicas.world.namespace, f"{GROUP}-zone-a-0"))
        assert (found[-1].is_allowed, found[-1].code) == (False, TRY_AGAIN), found[-1]
        return text in found[-1].message

    await wait_true(lambda: f"{text!r}: {found[-3:]}", is_reported, timedelta(seconds=8))
