"""Pods that come back: whoever keeps on disk that it is to go is told that it stays (LI-05).

A downscale is taken back while its pods are on their way out. The API server gives their names to
new pods, with the same volumes.
"""

import copy

import pytest

from tests.controllers.downscales.granted import write
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import SECOND, World, come_to_rest, part, pod, three_zones

GOING = ("zone-a-3", "zone-a-4")


async def _scale_down(world: World) -> None:
    """Let a downscale from 5 to 3 happen; its pods are terminating."""
    assert (await world.ask("zone-a", 3)).is_allowed
    world.commit("zone-a", 3)
    for name in GOING:
        one = copy.deepcopy(world.client.objects["pods", name])
        part(one, "metadata")["deletionTimestamp"] = "2026-01-02T03:05:00Z"
        world.client.put("pods", one)
    await world.watch()


async def _come_back(world: World, *, runs: bool = True) -> None:
    for name in GOING:
        world.client.objects.pop(("pods", name), None)
        one = pod("zone-a", int(name[-1]), uid=f"uid-new-{name[-1]}")
        if not runs:
            part(one, "status")["podIP"] = ""
        world.client.put("pods", one)
    await world.watch()


@pytest.mark.parametrize("waits", [1, 50, 300])
@pytest.mark.parametrize("crashes", [False, True], ids=["lives on", "crashes"])
@in_virtual_time
async def test_li05_taken_back_while_pods_are_terminating(waits: int, *, crashes: bool) -> None:
    """LI-05: the pods are long on their way out; those that follow are told once, when they run."""
    world = three_zones()
    async with world.controlling():
        await _scale_down(world)
        await world.pass_time(waits)
        await write(world, 5)
        if not crashes:
            await world.pass_time(100)
            assert world.calls.names("DELETE") == [], "the pods that go are not called"
            assert world.memory.downscales.backlog.count() == 2
            await _see_them_told(world)
    if crashes:
        world.restart()
        async with world.controlling():
            await _see_them_told(world)


async def _see_them_told(world: World) -> None:
    await _come_back(world, runs=False)
    await world.pass_time(100)
    assert world.calls.names("DELETE") == [], "they do not run yet"
    await _come_back(world)
    await world.pass_time(100)
    assert sorted(world.calls.names("DELETE")) == list(GOING)
    told = {call.uid for call in world.calls.confirmed if call.method == "DELETE"}
    assert told == {"uid-new-3", "uid-new-4"}
    await come_to_rest(world)


@in_virtual_time
async def test_a_downscale_that_nobody_takes_back_is_forgotten_with_its_pods() -> None:
    """LI-01: nobody is owed anything while they go, nor a minute after they have gone."""
    world = three_zones()
    async with world.controlling():
        await _scale_down(world)
        await world.pass_time(300)
        assert world.memory.downscales.backlog.count() == 0
        for name in GOING:
            world.remove_pod(name)
        await world.watch()
        await world.pass_time(100)
        assert world.memory.downscales.list_sets() == []
        assert world.noted() == []
        world.commit("zone-a", 5)
        await _come_back(world)
        await world.pass_time(100)
        assert world.calls.names("DELETE") == []
        await come_to_rest(world)


@pytest.mark.parametrize(("waits", "told"), [(50, list(GOING)), (70, [])])
@pytest.mark.parametrize("unseen", [0, 29])
@in_virtual_time
async def test_li05_whoever_comes_back_within_a_minute_is_told(
    waits: int, told: list[str], unseen: int
) -> None:
    """LI-05: the minute begins when they have gone, however long ago they were looked at last."""
    world = three_zones()
    async with world.controlling():
        await _scale_down(world)
        await world.pass_time(50)
        await world.clock.sleep(unseen * SECOND)
        for name in GOING:
            world.remove_pod(name)
        await world.watch()
        await world.pass_time(waits)
        world.commit("zone-a", 5)
        await _come_back(world)
        await world.pass_time(100)
        assert sorted(world.calls.names("DELETE")) == told
        await come_to_rest(world)


@in_virtual_time
async def test_si12_who_is_to_go_again_is_not_told_that_it_stays() -> None:
    """SI-12: 5, 3, 5, and 3 again before the new pods have been told."""
    world = three_zones()
    async with world.controlling():
        await _scale_down(world)
        await world.pass_time(50)
        await write(world, 5)
        await _come_back(world, runs=False)
        await world.pass_time(50)
        await _come_back(world)
        world.calls.calls.clear()
        await world.ask("zone-a", 3)
        await write(world, 3)
        first = world.calls.calls[:1]
        await world.pass_time(100)
        posts = [index for index, one in enumerate(world.calls.calls) if one.method == "POST"]
        assert first
        assert "DELETE" not in [one.method for one in world.calls.calls[min(posts, default=0) :]]
