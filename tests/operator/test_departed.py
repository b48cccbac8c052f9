"""A zone that leaves its group while it is short still counts, on a simulated cluster (SI-26)."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.kube.api import PODS
from rollout_operator.lab.model.history import Called
from rollout_operator.lab.process import SimulatedProcess
from rollout_operator.lab.world import Sandbox
from rollout_operator.lab.zones import three_zones
from rollout_operator.model.names import GROUP_LABEL
from rollout_operator.model.outcome import Code, Reason
from tests.simulation.scenarios_people import People
from tests.virtual_time import in_virtual_time

A, B, C = three_zones()
SICK = f"{A.name}-1"
HOLD = timedelta(minutes=10)
Leave = Callable[[People], Awaitable[None]]


@asynccontextmanager
async def short_group(
    *, args: Sequence[str] = ()
) -> AsyncIterator[tuple[People, SimulatedProcess]]:
    """Run a group with one pod of zone a down, and a rollout of b and c that waits for it."""
    async with Sandbox() as sandbox:
        people = People(sandbox=sandbox, rng=random.Random(0))
        for zone in (A, B, C):
            await people.create(zone)
        process = sandbox.process(args=args)
        process.start()
        await asyncio.sleep(30)
        sandbox.cluster.fail_pod(SICK)
        await asyncio.sleep(5)
        for zone in (B, C):
            await people.set_image(zone.name, "v2")
        await asyncio.sleep(20)
        yield people, process


async def delete_without_pods(people: People) -> None:
    await people.delete(A.name, orphans=True)


async def delete_with_pods(people: People) -> None:
    await people.delete(A.name)


async def take_label_off(people: People) -> None:
    await people.label(A.name, GROUP_LABEL, None)


async def move_to_another_group(people: People) -> None:
    await people.label(A.name, GROUP_LABEL, "other")


async def take_label_off_and_delete(people: People) -> None:
    await take_label_off(people)
    await delete_with_pods(people)


async def delete_and_create_outside(people: People) -> None:
    await delete_without_pods(people)
    await asyncio.sleep(5)
    await people.create(replace(A, group=None))


LEAVES: Sequence[Leave] = (
    delete_without_pods,
    delete_with_pods,
    take_label_off,
    move_to_another_group,
    take_label_off_and_delete,
    delete_and_create_outside,
)


@in_virtual_time
@pytest.mark.parametrize("leave", LEAVES, ids=lambda leave: leave.__name__)
async def test_si26_a_zone_that_leaves_short_holds_the_others_for_ten_minutes(leave: Leave) -> None:
    """SI-26: until then no pod of another zone goes, and the reason names zone, pods and time."""
    async with short_group() as (people, process):
        left_at = people.sandbox.elapsed()
        await leave(people)
        await asyncio.sleep(60)
        assert not list_deletes(people.sandbox)
        wait = find_leading(process)
        assert (wait.code, wait.zone) == (Code.ZONE_LEFT_SHORT, A.name)
        await asyncio.sleep((HOLD - timedelta(seconds=70)).total_seconds())
        assert not list_deletes(people.sandbox)
        await asyncio.sleep(120)
        first = min(list_deletes(people.sandbox))
        assert HOLD <= first - left_at < HOLD + timedelta(seconds=8)


def list_deletes(sandbox: Sandbox) -> Sequence[timedelta]:
    """Return when the operator deleted pods."""
    return [
        called.at
        for called in sandbox.history.list_all(Called)
        if called.actor.startswith("operator-")
        and (called.request.verb, called.request.resource) == ("delete", PODS)
        and called.status < 400
    ]


def find_leading(process: SimulatedProcess) -> Reason:
    """Return the first reason for which the group waits."""
    (state,) = [entry for entry in process.entries() if entry.plan.group == "ingester"]
    return state.plan.waits[0]
