"""A rollout and a downscale of one group exclude each other (D-25, SEED-110, SEED-111)."""

import asyncio
import copy

import pytest
from msgspec.structs import replace

from rollout_operator.controllers.executor import Report
from rollout_operator.model.objects import Group
from rollout_operator.model.outcome import Code, ReplacePods, Verdict
from rollout_operator.planning.rollout import plan_group
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import GROUP, World, part, three_zones


def _roll(world: World, name: str) -> None:
    """Give a zone a new template: all its pods are outdated."""
    one = copy.deepcopy(world.client.objects["statefulsets", name])
    part(one, "status").update(updateRevision="new", updatedReplicas=0)
    world.client.put("statefulsets", one)
    world.sync()


async def _roll_out(world: World) -> Report:
    """Carry out what the caches call for, planned before any downscale was reserved."""
    group: Group = replace(world.memory.observer.observe(GROUP), downscale=None)
    (action,) = plan_group(group).actions
    assert isinstance(action, ReplacePods)
    return await world.memory.executor.carry_out(group, action)


async def _meet(world: World, call: str, *, rolls_first: bool) -> tuple[Verdict, Report]:
    """Begin one, and the other as soon as the first makes a call of this kind.

    In between zone b gets its new template.
    """
    reached, started = asyncio.Event(), asyncio.Event()

    async def stop_once(made: str) -> None:
        if made.startswith(call) and not reached.is_set():
            reached.set()
            await started.wait()

    world.client.pause = stop_once
    async with asyncio.TaskGroup() as tasks:
        if rolls_first:
            _roll(world, "zone-b")
            rolling = tasks.create_task(_roll_out(world))
            await reached.wait()
            requesting = tasks.create_task(world.send_request("zone-a", 3))
        else:
            requesting = tasks.create_task(world.send_request("zone-a", 3))
            await reached.wait()
            _roll(world, "zone-b")
            rolling = tasks.create_task(_roll_out(world))
        for _ in range(20):
            await asyncio.sleep(0)
        started.set()
    return requesting.result(), rolling.result()


@pytest.mark.parametrize("call", ["list pods", "patch pods"])
@in_virtual_time
async def test_a_downscale_that_reads_first_wins(call: str) -> None:
    """The rollout begins between the downscale's read and its reservation, or after that, while the
    pods are being called: it sees the reservation.
    """
    world = three_zones()
    verdict, report = await _meet(world, call, rolls_first=False)
    assert verdict.is_allowed
    assert world.client.deleted == []
    assert report.deleted == 0
    assert report.is_contradicted
    assert {reason.code for reason in report.reasons} == {Code.SNAPSHOT_CHANGED}


@in_virtual_time
async def test_a_rollout_that_reads_first_wins() -> None:
    """The downscale waits with its read until the pod has been deleted, and is refused."""
    world = three_zones()
    verdict, report = await _meet(world, "delete pods", rolls_first=True)
    assert report.deleted == 1
    assert (verdict.is_allowed, verdict.reason.code) == (False, Code.OTHER_ZONE_NOT_READY)
    assert world.calls.calls == []
    kinds = [call.split()[0] for call in world.client.calls]
    assert kinds == ["list", "list", "delete", "list", "list"]
