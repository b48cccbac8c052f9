"""Several replicas on a simulated cluster: exactly one acts, and another one soon after its end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from rollout_lab.model.history import Called
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import LEASES, JsonObject
from tests.operator.acting import ZONES, change, create, is_rolled_out
from tests.virtual_time import elapsed, in_virtual_time

CHANGED = frozenset({"create", "update", "patch", "delete"})


@in_virtual_time
async def test_one_of_two_acts_and_the_other_one_soon_after_a_crash() -> None:
    """LI-08, SI-22, D-70: within 20 s of a crash, and nothing is written by the other before."""
    async with replicas(2) as (sandbox, processes):
        leader, other = sort_by_leading(processes)
        await change(sandbox)
        await asyncio.sleep(1)
        assert {writer for _, writer in list_writes(sandbox)} == {leader.name}
        leader.crash()
        crashed_at = sandbox.elapsed()
        await asyncio.sleep(120)
        first = next(at for at, writer in list_writes(sandbox) if writer == other.name)
        assert first - crashed_at < timedelta(seconds=20)
        assert all(at <= crashed_at for at, writer in list_writes(sandbox) if writer == leader.name)
        assert is_rolled_out(sandbox)


@in_virtual_time
async def test_the_lease_is_released_at_the_end_and_taken_at_once() -> None:
    """LI-08, DEP-94: within two seconds after a process got SIGTERM."""
    async with replicas(2) as (sandbox, processes):
        leader, other = sort_by_leading(processes)
        began = elapsed()
        await leader.stop()
        while not acts(other):  # noqa: ASYNC110 (a state, no event)
            await asyncio.sleep(0.01)
        assert elapsed() - began < timedelta(seconds=2)
        assert (await read_lease(sandbox))["leaseTransitions"] == 1


@in_virtual_time
async def test_a_process_that_is_cut_off_writes_nothing_after_another_one_acts() -> None:
    """SI-22, FP-18: and begins anew once it learns of the other."""
    async with replicas(2) as (sandbox, processes):
        leader, other = sort_by_leading(processes)
        leader.link.is_cut = True
        await asyncio.sleep(11)
        assert not acts(leader)
        assert not acts(other)
        await asyncio.sleep(9)
        assert acts(other)
        starts = leader.starts
        leader.link.is_cut = False
        await change(sandbox)
        await asyncio.sleep(120)
        assert leader.starts == starts + 1
        assert {writer for _, writer in list_writes(sandbox)} == {other.name}
        assert is_rolled_out(sandbox)


@in_virtual_time
async def test_a_process_that_was_cut_off_goes_on_where_no_other_one_acts() -> None:
    """LI-01: no other replica has acted, so that all that it remembers is right."""
    async with replicas(1) as (sandbox, (process,)):
        process.link.is_cut = True
        await asyncio.sleep(60)
        assert not acts(process)
        process.link.is_cut = False
        await change(sandbox)
        await asyncio.sleep(60)
        assert process.starts == 1
        assert is_rolled_out(sandbox)


@in_virtual_time
async def test_one_that_does_not_act_says_where_to_see_what_is_done() -> None:
    """DEP-93, D-40: it posts no state itself, as it looks after no group."""
    async with replicas(2) as (_, processes):
        leader, other = sort_by_leading(processes)
        await asyncio.sleep(5)
        (line,) = list_election(other)
        assert line.startswith(f"election: acts: {leader.name}")
        assert line.endswith("; what it does is on its own page")
        assert other.entries() == ()
        assert list_election(leader) == ["election: acts: this process"]
        assert leader.entries() != ()


def list_election(process: SimulatedProcess) -> Sequence[str]:
    """Return what the head of the page says of the election."""
    lines = process.telemetry.health.list_descriptions()
    return [line for line in lines if line.startswith("election: ")]


@asynccontextmanager
async def replicas(
    count: int,
) -> AsyncIterator[tuple[Sandbox, Sequence[SimulatedProcess]]]:
    """Run a group of two zones, and so many processes until one of them acts."""
    async with Sandbox() as sandbox:
        await create(sandbox, *(ZoneSpec(name=name, replicas=2) for name in ZONES))
        await asyncio.sleep(30)
        processes = [
            sandbox.process(f"operator-{number}", elects=True) for number in range(1, count + 1)
        ]
        for process in processes:
            process.start()
        async with asyncio.timeout(30):
            while not any(map(acts, processes)):  # noqa: ASYNC110 (a state, no event)
                await asyncio.sleep(0.1)
        yield sandbox, processes


def acts(process: SimulatedProcess) -> bool:
    """Return whether a process may act by its own knowledge."""
    return process.is_running and process.acts


def sort_by_leading(processes: Sequence[SimulatedProcess]) -> Sequence[SimulatedProcess]:
    """Return the processes, the one that acts first."""
    assert sum(map(acts, processes)) == 1
    return sorted(processes, key=acts, reverse=True)


async def read_lease(sandbox: Sandbox) -> JsonObject:
    """Return what the Lease says."""
    (lease,) = sandbox.api.list(LEASES, sandbox.namespace)
    spec = lease["spec"]
    assert isinstance(spec, dict)
    return spec


def list_writes(sandbox: Sandbox) -> Sequence[tuple[timedelta, str]]:
    """Return when which process changed anything but the Lease."""
    return [
        (called.at, called.actor)
        for called in sandbox.history.list_all(Called)
        if called.actor.startswith("operator-")
        and called.request.verb in CHANGED
        and called.request.resource != LEASES
    ]
