"""Marks of new pods: D-67, D-66, LI-11."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rollout_operator.controllers.newcomers import MARK_AFTER, RETRY, Marks
from rollout_operator.guards.newcomers import Arrivals
from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.errors import ApiError, Conflict, Unreachable
from rollout_operator.model.names import NEWCOMER
from tests.builders import pod, sts
from tests.virtual_time import VirtualClock, in_virtual_time


class Door:
    """Takes patches, and shows them in the cache at once."""

    def __init__(self, seen: Callable[[str], None]) -> None:
        self.errors: list[ApiError] = []
        self.patches: list[tuple[str, JsonObject]] = []
        self._seen = seen

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
    ) -> bytes:
        if self.errors:
            raise self.errors.pop(0)
        assert isinstance(patch, dict)
        self.patches.append((name, patch))
        self._seen(name)
        return b"{}"


class World:
    def __init__(self) -> None:
        self.pods, sets = PodStore(), StatefulSetStore()
        sets.replace_all([sts("a", 1)])
        self.arrivals = Arrivals(sets, self.pods)
        self.arrivals.on_set(None, sts("a", 1))
        self.door = Door(self.show)
        self.marks = Marks(self.arrivals, self.door, VirtualClock())

    def add(self, ordinal: int) -> None:
        for old, new in self.pods.upsert(pod("a", ordinal, "L")):
            self.arrivals.on_pod(old, new)

    def become_ready(self, ordinal: int) -> None:
        for old, new in self.pods.upsert(pod("a", ordinal, "l", resource_version="2")):
            self.arrivals.on_pod(old, new)

    def show(self, name: str) -> None:
        ordinal = int(name.rpartition("-")[2])
        one = pod("a", ordinal, "L", resource_version="3", is_newcomer=True)
        for old, new in self.pods.upsert(one):
            self.arrivals.on_pod(old, new)


def running(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @in_virtual_time
    async def run() -> None:
        world = World()
        task = asyncio.create_task(world.marks.run())
        await test(world)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run.__name__ = test.__name__
    return run


@running
async def test_d67_a_pod_that_does_not_become_ready_is_marked_with_its_own_uid(
    world: World,
) -> None:
    world.add(1)
    await asyncio.sleep(MARK_AFTER.total_seconds() + 1)

    metadata = {"uid": "uid-a-1", "annotations": {NEWCOMER: "uid-a-1"}}
    assert world.door.patches == [("zone-a-1", {"metadata": metadata})]


@running
async def test_li11_one_that_becomes_ready_costs_no_write(world: World) -> None:
    world.add(1)
    world.become_ready(1)
    await asyncio.sleep(3600)

    assert world.door.patches == []


@running
async def test_li11_a_mark_is_written_once(world: World) -> None:
    world.add(1)
    await asyncio.sleep(3600)

    assert len(world.door.patches) == 1


@running
async def test_what_fails_is_tried_again_and_one_that_is_gone_holds_nothing_up(
    world: World,
) -> None:
    world.door.errors = [Conflict("another UID"), Unreachable("no answer")]
    world.add(1)
    world.add(2)
    await asyncio.sleep((2 * (MARK_AFTER + RETRY)).total_seconds())

    assert {name for name, _ in world.door.patches} == {"zone-a-1", "zone-a-2"}
