"""Rollouts on the real control plane, under the shipped Role, watched by the judge.

In every one the judge sees no violation of SI-01 to SI-08 and the rollout ends (LI-01 to LI-04).
Here is what the controller of StatefulSets, and a process that is killed or stopped, have a part
in; all else is told in `tests/planning/rollout`, `tests/controllers` and `tests/simulation`.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, three_zones

from tests.system.waits import wait_reason
from tests.world.api import PODS, STATEFULSETS, Json
from tests.world.kubelet import Behaviour, Kind, by_image, image_of
from tests.world.operatorproc import OperatorProcess
from tests.world.sets import create_zones
from tests.world.world import World

pytestmark = pytest.mark.controlplane

CRASHING: Final = Behaviour(kind=Kind.CRASH_LOOP, ready_after=timedelta(milliseconds=50))
HELD: Final = Behaviour(kind=Kind.NEVER_READY)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a world in which one operator rolls out several."""

    world: World
    operator: OperatorProcess
    name: str
    zones: Sequence[ZoneSpec]

    @property
    def names(self) -> list[str]:
        return [zone.name for zone in self.zones]

    async def list_deletes(self) -> list[str]:
        """Return the names of the pods of this group that the operator has deleted, in order."""
        deletes = [one.name for one in await self.world.judge.deletes() if one.is_done]
        return [name for name in deletes if name.startswith(f"{self.name}-")]


async def go_zone_by_zone(t: Group) -> None:
    """SEED-001, SEED-002, SEED-056, SEED-059, D-10, W-24: each pod once, zone after zone, by name.

    Desired ordinals come from `spec.ordinals.start`.
    """
    await t.world.roll(t.names, "v2")
    mine = await t.list_deletes()
    wanted = [
        f"{zone.name}-{(zone.first_ordinal or 0) + number}"
        for zone in t.zones
        for number in range(zone.replicas or 0)
    ]
    assert sorted(mine) == sorted(wanted)
    zones = [name.rpartition("-")[0] for name in mine]
    assert zones == sorted(zones), "zone after zone, by name"


async def wait_until_available(t: Group) -> None:
    """D-11, W-27: the next pod waits for `minReadySeconds`."""
    await t.world.roll(t.names, "v2")
    mine = [one for one in await t.world.judge.restarts() if one.zone in t.names]
    gaps = [
        after.deleted - before.ready
        for before, after in itertools.pairwise(mine)
        if before.ready is not None
    ]
    assert len(gaps) == 3
    # The condition's time has whole seconds: a pod may count up to a second early.
    assert min(gaps) > 0.9


async def heal_ordered_sets(t: Group) -> None:
    """LI-10, FP-30, W-03: the controller will not recreate pod 2 before pod 0 is ready."""
    await t.world.set_image(t.names, "bad")
    await t.world.wait_image(f"{t.names[0]}-0", "bad")
    await wait_reason(t.operator, t.name, "CrashLoopBackOff")
    await t.world.roll(t.names, "v2")


async def heal_two_zones(t: Group) -> None:
    """LI-10, D-88: a bad revision has come to a second zone, where a pod was lost."""
    lost = f"{t.names[2]}-1"
    await t.world.set_image(t.names, "bad")
    await t.world.wait_image(f"{t.names[0]}-0", "bad")
    await t.world.delete(PODS, lost)
    await t.world.wait_image(lost, "bad")
    await t.world.roll(t.names, "v2")
    assert lost in await t.list_deletes()


async def leave_while_short(t: Group) -> None:
    """SI-26, D-82, FP-28: no other zone is touched until it is back and whole."""
    pod, zone = f"{t.names[0]}-0", replace(t.zones[0], image="v2")
    await t.world.set_image(t.names, "v2")
    await t.world.wait_image(pod, "v2")
    await t.world.delete(STATEFULSETS, zone.name, propagation="Orphan")
    await wait_reason(t.operator, t.name, "zone_left_short")
    await t.world.wait_until(lambda now: zone.name if zone.name in now.sets else "")
    await create_zones(t.world.api, t.world.namespace, [zone])
    await t.world.kubelet.make_ready(pod)
    await t.world.wait_rolled(t.names)


Story = Callable[[Group], Coroutine[None, None, None]]
# By the name of the group: what happens to it, and its zones.
STORIES: Final[Mapping[str, tuple[Story, Sequence[ZoneSpec]]]] = {
    "small": (go_zone_by_zone, three_zones("small")),
    "later": (
        go_zone_by_zone,
        [
            replace(zone, first_ordinal=start)
            for zone, start in zip(three_zones("later"), (0, 5, 100), strict=True)
        ],
    ),
    "available": (
        wait_until_available,
        [
            replace(zone, min_ready=timedelta(seconds=2))
            for zone in three_zones("available", replicas=2)[:2]
        ],
    ),
    "ordered": (
        heal_ordered_sets,
        three_zones("ordered", pod_management="OrderedReady", max_unavailable=2),
    ),
    "healed": (heal_two_zones, three_zones("healed")),
    "left": (leave_while_short, three_zones("left", replicas=2)),
}


def is_held(pod: Json) -> bool:
    """Return whether a pod is the first new one of the zone that leaves."""
    return pod["metadata"]["name"] == "left-zone-a-0" and image_of(pod) == "v2"


async def test_groups_roll_side_by_side_whatever_happens_to_them(world: World) -> None:
    """LI-01, LI-09, SEED-055, SI-01 to SI-08: see the stories, each about a group of its own."""
    images = by_image({"bad": CRASHING})
    world.kubelet.choose = lambda pod: HELD if is_held(pod) else images(pod)
    await world.create(*(zone for _, zones in STORIES.values() for zone in zones))
    operator = await world.operator()
    async with asyncio.TaskGroup() as tasks:
        for name, (story, zones) in STORIES.items():
            group = Group(world=world, operator=operator, name=name, zones=zones)
            tasks.create_task(story(group), name=name)
    await world.judge.assert_clean()
