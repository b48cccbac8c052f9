"""Rollouts on the real control plane, under the shipped Role, watched by the judge.

In every one the judge sees no violation of SI-01 to SI-08 and the rollout ends (LI-01).
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, three_zones

from tests.system.waits import wait_reason
from tests.world.api import PODS, STATEFULSETS
from tests.world.kubelet import NORMAL, Behaviour, Kind, by_image, image_of
from tests.world.operatorproc import OperatorProcess
from tests.world.sets import PAUSED, create_zones
from tests.world.world import World

pytestmark = pytest.mark.controlplane


# Pods of a zone, and how many of them may be down.
SIZES: Final[Mapping[str, tuple[int, int | str | None]]] = {
    "small": (3, None),
    "single": (4, 1),
    "triple": (7, 3),
    "half": (6, "50%"),
}


async def test_li01_plain_rollouts(world: World) -> None:
    """SEED-001, SEED-002, SEED-056, SEED-059, LI-01: each pod once, zone after zone, by name.

    Groups side by side.
    """
    groups = {
        group: three_zones(group, replicas=replicas, max_unavailable=limit)
        for group, (replicas, limit) in SIZES.items()
    }
    names = await world.create(*(zone for zones in groups.values() for zone in zones))
    await world.operator()
    await world.roll(names, "v2")
    deletes = [one.name for one in await world.judge.deletes() if one.is_done]
    for group, (replicas, _) in SIZES.items():
        mine = [name for name in deletes if name.startswith(group)]
        wanted = [f"{zone.name}-{n}" for zone in groups[group] for n in range(replicas)]
        assert sorted(mine) == sorted(wanted)
        zones = [name.rpartition("-")[0] for name in mine]
        assert zones == sorted(zones), "zone after zone, by name"
    await world.judge.assert_clean()


async def test_li01_quiet_after_the_rollout(world: World) -> None:
    """LI-01, LI-11: nothing more is written once the group is rolled out, whatever wakes it."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await world.roll(names, "v2")
    await wait_reason(operator, "ingester", "up_to_date")
    before = [call for call in await world.judge.calls() if call.verb not in {"watch"}]
    await world.annotate(names[0], **{PAUSED: "maybe"})
    await wait_reason(operator, "ingester", "is neither")
    assert [call for call in await world.judge.calls() if call.verb not in {"watch"}] == before


STUCK: Final = {
    "never": Kind.NEVER_READY,
    "gate": Kind.GATE_CLOSED,
    "claims": Kind.NO_STATUSES,
    "pending": Kind.PENDING,
    "failed": Kind.FAILED,
}


async def test_fp27_a_pod_that_does_not_become_ready_stops_the_rollout(world: World) -> None:
    """FP-27, D-11, W-26: and the next template gets past it. Groups side by side."""
    world.kubelet.choose = by_image({group: Behaviour(kind=kind) for group, kind in STUCK.items()})
    names = {group: await world.create(*three_zones(group)) for group in STUCK}
    operator = await world.operator()
    for group, zones in names.items():
        await world.set_image(zones, group)
    for group, zones in names.items():
        await world.wait_image(f"{zones[0]}-0", group)
        await wait_reason(operator, group, f"is waiting for {zones[0]}-0 (")
    await world.roll([name for zones in names.values() for name in zones], "v2")
    await world.judge.assert_clean()


CRASHING: Final = Behaviour(kind=Kind.CRASH_LOOP, ready_after=timedelta(milliseconds=50))


async def test_li10_a_crashing_revision_is_healed_by_the_next(world: World) -> None:
    """LI-10, W-03, D-14: no human hand between a bad template and the corrected one."""
    world.kubelet.choose = by_image({"bad": CRASHING})
    names = await world.create(*three_zones())
    operator = await world.operator()
    await world.set_image(names, "bad")
    await world.wait_image(f"{names[0]}-0", "bad")
    await wait_reason(operator, "ingester", "CrashLoopBackOff")
    await world.roll(names, "v2")
    # A pod that crashes is written to all the while: a delete of it may be refused, and sent again.
    deletes = [one.name for one in await world.judge.deletes() if one.is_done]
    assert deletes[:2] == [f"{names[0]}-0"] * 2
    assert len(deletes) == 10, "the bad revision got one pod, and only that one went twice"
    await world.judge.assert_clean()


class RolloutCase(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a world in which one operator rolls out several."""

    world: World
    operator: OperatorProcess
    group: str
    names: list[str]
    """Of the zones."""

    async def list_deletes(self) -> list[str]:
        """Return the names of the pods of this group that the operator has deleted, in order."""
        deletes = await self.world.judge.deletes()
        return [one.name for one in deletes if one.name.startswith(f"{self.group}-")]

    async def wait_reason(self, what: str) -> None:
        """Wait until the operator gives this reason."""
        await wait_reason(self.operator, self.group, what)

    async def collect_images(self) -> set[str]:
        """Return the images of the pods of this group."""
        pods = await self.world.api.items(PODS, self.world.namespace)
        mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{self.group}-")]
        return {image_of(pod) for pod in mine}


async def roll_back(t: RolloutCase) -> None:
    """SEED-103, ROLL-33, FP-28: pods of the abandoned revision are found and rolled back."""
    await t.world.set_image(t.names, "slow")
    await t.world.wait_image(f"{t.names[0]}-1", "slow")
    await t.world.roll(t.names, "v1")
    assert await t.collect_images() == {"v1"}
    touched = {name.rpartition("-")[0] for name in await t.list_deletes()}
    assert touched == {t.names[0]}, "no pod of the other zones was ever touched"


async def heal_what_crashes_by_itself(t: RolloutCase) -> None:
    """LI-10, D-14, SI-04: three of three pods crash at the old revision; one goes at a time."""
    for ordinal in range(3):
        await t.world.kubelet.crash(f"{t.names[1]}-{ordinal}")
    await t.world.roll(t.names, "v2")
    assert (await t.list_deletes())[0].startswith(t.names[1]), "the short zone goes first"


async def heal_ordered_sets(t: RolloutCase) -> None:
    """LI-10, FP-30: the controller will not recreate pod 2 before pod 0 is ready."""
    await t.world.set_image(t.names, "bad")
    await t.world.wait_image(f"{t.names[0]}-0", "bad")
    await t.world.roll(t.names, "v2")


async def heal_two_zones(t: RolloutCase) -> None:
    """LI-10, D-88: a bad revision has come to a second zone, where a pod was lost."""
    lost = f"{t.names[2]}-1"
    await t.world.set_image(t.names, "bad")
    await t.world.wait_image(f"{t.names[0]}-0", "bad")
    await t.world.delete(PODS, lost)
    await t.world.wait_image(lost, "bad")
    await t.world.roll(t.names, "v2")
    assert lost in await t.list_deletes()
    assert await t.collect_images() == {"v2"}


async def leave_a_paused_zone(t: RolloutCase) -> None:
    """T-01 rows 24 and 25, SEED-021: pausing and going on take effect at once."""
    await t.world.annotate(t.names[1], **{PAUSED: "true"})
    await t.world.set_image(t.names, "v2")
    await t.world.wait_adopted([t.names[0], t.names[2]])
    await t.wait_reason(f"{t.names[1]} is paused: 3 outdated pods wait")
    assert not [name for name in await t.list_deletes() if name.startswith(t.names[1])]
    await t.world.annotate(t.names[1], **{PAUSED: None})
    await t.world.wait_adopted(t.names)


async def wait_for_a_paused_zone(t: RolloutCase) -> None:
    """D-13, W-32: and its recovery sets them free without another event (SEED-057)."""
    await t.world.annotate(t.names[2], **{PAUSED: "true"})
    await t.world.kubelet.make_unready(f"{t.names[2]}-1")
    await t.wait_reason("paused_zone_not_ready")
    await t.world.set_image(t.names[:2], "v2")
    await t.wait_reason(f"{t.names[0]} and {t.names[1]} wait")
    assert await t.list_deletes() == []
    await t.world.kubelet.make_ready(f"{t.names[2]}-1")
    await t.world.wait_adopted(t.names[:2])


async def wait_for_a_pod_elsewhere(t: RolloutCase) -> None:
    """SEED-057, T-01 row 20: an unready pod stops it, and its recovery resumes it."""
    await t.world.kubelet.make_unready(f"{t.names[2]}-0")
    await t.wait_reason(f"{t.names[2]}-0")
    await t.world.set_image(t.names[:2], "v2")
    await t.wait_reason(f"{t.names[0]} and {t.names[1]} wait")
    assert await t.list_deletes() == []
    await t.world.kubelet.make_ready(f"{t.names[2]}-0")
    await t.world.wait_adopted(t.names)


async def leave_a_stray_pod(t: RolloutCase) -> None:
    """FP-32, SI-06, SEED-113, W-01: of the same labels; neither deleted nor counted."""
    name = f"{t.names[0]}-stray"
    meta = {"name": name, "labels": {"app": "unrelated"}}
    spec = {"containers": [{"name": "app", "image": "v0"}]}
    await t.world.post(PODS, {"metadata": meta, "spec": spec})
    # Labelled behind the controller's back it would be adopted; an owner of its own prevents that.
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "person", "controller": True}
    owner["uid"] = "3e2f0a51-0000-4000-8000-000000000000"
    patch = {"metadata": {"labels": {"name": t.names[0]}, "ownerReferences": [owner]}}
    await t.world.patch(PODS, name, patch)
    await t.world.roll(t.names, "v2")
    assert name not in await t.list_deletes()


async def lose_a_zone(t: RolloutCase) -> None:
    """FP-28: a set whose label is removed leaves the group at once; the others go on."""
    await t.world.set_image(t.names, "slow")
    await t.world.wait_image(f"{t.names[0]}-0", "slow")
    await t.world.label(t.names[0], **{"rollout-group": None})
    await t.world.wait_adopted(t.names[1:])
    left = [name for name in await t.list_deletes() if name.startswith(t.names[0])]
    assert len(left) < 3, "its rollout stopped where it was"


async def recreate_a_zone(t: RolloutCase) -> None:
    """FP-28, S10, SI-06: the new set is another; the pods of the old are left alone."""
    await t.world.set_image(t.names, "v2")
    await t.world.wait_image(f"{t.names[0]}-0", "v2")
    await t.world.delete(STATEFULSETS, t.names[1], propagation="Orphan")
    (zone,) = (one for one in three_zones(t.group, image="v3") if one.name == t.names[1])
    await t.world.wait_until(lambda now: t.names[1] if t.names[1] in now.sets else "")
    await create_zones(t.world.api, t.world.namespace, [zone])
    await t.world.roll(t.names, "v3")
    await t.wait_reason("up_to_date")


async def change_replicas(t: RolloutCase) -> None:
    """FP-29, W-27: missing pods of an upscale count as unavailable."""
    await t.world.set_image(t.names, "v2")
    await t.world.wait_image(f"{t.names[0]}-0", "v2")
    await t.world.set_replicas(t.names[0], 5)
    await t.world.set_replicas(t.names[2], 1)
    await t.world.wait_adopted(t.names)


async def start_ordinals_elsewhere(t: RolloutCase) -> None:
    """D-10, W-24: desired ordinals come from `spec.ordinals.start`."""
    await t.world.roll(t.names, "v2")
    assert len(await t.list_deletes()) == 9


async def spell_the_label_otherwise(t: RolloutCase) -> None:
    """SEED-011: one group of two spellings; different values are reported, the short one wins."""
    await t.world.roll(t.names, "v2")
    await t.wait_reason("differ; the first is used")


async def end_slowly(t: RolloutCase) -> None:
    """READY-04, FP-27: a pod on its way out counts as down until its successor is ready."""
    await t.world.set_image(t.names[:1], "v2")
    await t.world.wait_adopted(t.names)
    first, second = (one for one in await t.world.judge.restarts() if one.zone in t.names)
    assert first.ready is not None
    assert second.deleted > first.ready


async def change_the_template_again(t: RolloutCase) -> None:
    """LI-12, FP-28: a template that changes while a zone rolls is the one that is rolled."""
    for image in ("v2", "v3", "v4"):
        await t.world.set_image(t.names, image)
        await t.world.wait_image(f"{t.names[0]}-0", image)
    await t.world.wait_adopted(t.names)
    assert await t.collect_images() == {"v4"}


def _lettered(group: str, letters: str = "abc", **fields: Any) -> list[ZoneSpec]:
    return [ZoneSpec(name=f"{group}-zone-{one}", group=group, **fields) for one in letters]


def _spelt() -> list[ZoneSpec]:
    a, b, c = _lettered("spelt")
    other = {"grafana.com/rollout-group": "other"}
    return [
        a,
        replace(b, group=None, labels={"grafana.com/rollout-group": "spelt"}),
        replace(c, labels=other),
    ]


# By the name of the group: what happens to it, and its zones where they are not three of three.
Stories = Mapping[
    str, tuple[Callable[[RolloutCase], Coroutine[None, None, None]], Sequence[ZoneSpec]]
]
OF_PODS: Final[Stories] = {
    "crashed": (heal_what_crashes_by_itself, ()),
    "ordered": (
        heal_ordered_sets,
        three_zones("ordered", pod_management="OrderedReady", max_unavailable=2),
    ),
    "healed": (heal_two_zones, ()),
    "elsewhere": (wait_for_a_pod_elsewhere, ()),
    "stray": (leave_a_stray_pod, ()),
    "ordinals": (
        start_ordinals_elsewhere,
        [
            replace(zone, first_ordinal=start)
            for zone, start in zip(_lettered("ordinals"), (0, 5, 100), strict=True)
        ],
    ),
    "ending": (end_slowly, three_zones("ending", replicas=2)),
}
OF_PEOPLE: Final[Stories] = {
    "back": (roll_back, ()),
    "paused": (leave_a_paused_zone, ()),
    "short": (wait_for_a_paused_zone, ()),
    "lost": (lose_a_zone, ()),
    "anew": (recreate_a_zone, ()),
    "resized": (change_replicas, three_zones("resized", max_unavailable=2)),
    "spelt": (spell_the_label_otherwise, _spelt()),
    "again": (change_the_template_again, ()),
}


@pytest.mark.parametrize("stories", [OF_PODS, OF_PEOPLE], ids=["pods", "people"])
async def test_groups_roll_side_by_side_whatever_happens_to_them(
    world: World, stories: Stories
) -> None:
    """LI-01, LI-09, SI-01 to SI-08: see the stories, each of which is about a group of its own."""
    images = {
        "bad": CRASHING,
        "slow": Behaviour(ready_after=timedelta(milliseconds=500)),
    }
    ending = Behaviour(terminates_after=timedelta(seconds=1))
    world.kubelet.choose = lambda pod: (
        ending
        if pod["metadata"]["name"].startswith("ending-")
        else images.get(image_of(pod), NORMAL)
    )
    zones = {group: zones or three_zones(group) for group, (_, zones) in stories.items()}
    await world.create(*itertools.chain.from_iterable(zones.values()))
    operator = await world.operator()
    async with asyncio.TaskGroup() as tasks:
        for group, (story, _) in stories.items():
            names = [zone.name for zone in zones[group]]
            case = RolloutCase(world=world, operator=operator, group=group, names=names)
            tasks.create_task(story(case), name=group)
    await world.judge.assert_clean()


async def test_w27_pods_must_be_available_not_only_ready(world: World) -> None:
    """D-11, W-27: the next pod waits for `minReadySeconds`."""
    fields = {"replicas": 2, "min_ready": timedelta(seconds=2)}
    names = await world.create(*_lettered("ingester", "ab", **fields))
    await world.operator()
    await world.roll(names, "v2")
    gaps = [
        after.deleted - before.ready
        for before, after in itertools.pairwise(await world.judge.restarts())
        if before.ready is not None
    ]
    assert len(gaps) == 3
    # The condition's time has whole seconds: a pod may count up to a second early.
    assert min(gaps) > 0.9
    await world.judge.assert_clean()
