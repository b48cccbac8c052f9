"""Rollouts on the real control plane, under the shipped Role, watched by the judge.

In every one the judge sees no violation of SI-01 to SI-08 and the rollout ends (LI-01).
"""

import asyncio
import itertools
from datetime import timedelta

import pytest

from rollout_operator.lab.zones import ZoneSpec, three_zones
from tests.system.looks import wait_reason
from tests.world.api import PODS, STATEFULSETS, Json
from tests.world.kubelet import Behaviour, Kind, by_image, image_of
from tests.world.scene import World
from tests.world.sets import (
    PAUSED,
    annotate,
    create_zones,
    label,
    set_image,
    set_replicas,
    wait_adopted,
    wait_pod,
)

pytestmark = pytest.mark.controlplane

CRASHING = Behaviour(kind=Kind.CRASH_LOOP, ready_after=timedelta(milliseconds=50))


@pytest.mark.parametrize(
    ("replicas", "limit"),
    [
        pytest.param(3, None, id="3x3 one at a time"),
        pytest.param(10, 1, id="3x10 limit 1"),
        pytest.param(10, 3, id="3x10 limit 3"),
        pytest.param(10, "50%", id="3x10 limit 50 percent"),
    ],
)
async def test_li01_plain_rollout(world: World, replicas: int, limit: int | str | None) -> None:
    """SEED-001, SEED-002, SEED-056, SEED-059, LI-01: each pod once, zone after zone."""
    names = await world.create(*three_zones(replicas=replicas, max_unavailable=limit))
    await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    deletes = [one for one in await world.judge.deletes() if one.is_done]
    assert sorted(one.name for one in deletes) == sorted(
        f"{name}-{n}" for name in names for n in range(replicas)
    )
    zones = [one.name.rpartition("-")[0] for one in deletes]
    assert zones == sorted(zones), "zone after zone, by name"
    await world.judge.assert_clean()


async def test_li01_quiet_after_the_rollout(world: World) -> None:
    """LI-01, LI-11: nothing more is written once the group is rolled out, whatever wakes it."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    await wait_reason(operator, "ingester", "up_to_date")
    before = [call for call in await world.judge.calls() if call.verb not in {"watch"}]
    await annotate(world.api, world.namespace, names[0], **{PAUSED: "no"})
    await wait_reason(operator, "ingester", "is neither")
    assert [call for call in await world.judge.calls() if call.verb not in {"watch"}] == before


async def test_seed103_rollback_in_mid_rollout(world: World) -> None:
    """SEED-103, ROLL-33, FP-28: pods of the abandoned revision are found and rolled back."""
    world.kubelet.choose = by_image({"v2": Behaviour(ready_after=timedelta(milliseconds=400))})
    names = await world.create(*three_zones())
    await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await _wait_image(world, f"{names[0]}-1", "v2")
    await set_image(world.api, world.namespace, names, "v1")
    await wait_adopted(world.api, world.namespace, names)
    assert {image_of(pod) for pod in await world.api.items(PODS, world.namespace)} == {"v1"}
    untouched = {one.name.rpartition("-")[0] for one in await world.judge.deletes()}
    assert untouched == {names[0]}, "no pod of the other zones was ever touched"
    await world.judge.assert_clean()


async def test_li10_a_crashing_revision_is_healed_by_the_next(world: World) -> None:
    """LI-10, W-03, D-14: no human hand between a bad template and the corrected one."""
    world.kubelet.choose = by_image({"bad": CRASHING})
    names = await world.create(*three_zones())
    operator = await world.operator()
    await set_image(world.api, world.namespace, names, "bad")
    await _wait_image(world, f"{names[0]}-0", "bad")
    await wait_reason(operator, "ingester", "CrashLoopBackOff")
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    deletes = [one.name for one in await world.judge.deletes()]
    assert deletes[:2] == [f"{names[0]}-0"] * 2
    assert len(deletes) == 10, "the bad revision got one pod, and only that one went twice"
    await world.judge.assert_clean()


async def test_li10_outdated_pods_that_crash_by_themselves_are_healed(world: World) -> None:
    """LI-10, D-14, SI-04: three of three pods crash at the old revision; one goes at a time."""
    names = await world.create(*three_zones())
    await world.operator()
    for ordinal in range(3):
        await world.kubelet.crash(f"{names[1]}-{ordinal}")
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    assert (await world.judge.deletes())[0].name.startswith(names[1]), "the short zone goes first"
    await world.judge.assert_clean()


async def test_li10_ordered_sets_are_healed_too(world: World) -> None:
    """FP-30: the controller will not recreate pod 2 before pod 0 is ready."""
    world.kubelet.choose = by_image({"bad": CRASHING})
    names = await world.create(*three_zones(pod_management="OrderedReady", max_unavailable=2))
    await world.operator()
    await set_image(world.api, world.namespace, names, "bad")
    await _wait_image(world, f"{names[0]}-0", "bad")
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_a_paused_zone_is_left_alone_and_the_others_roll(world: World) -> None:
    """T-01 rows 24 and 25, SEED-021: pausing and going on take effect at once."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await annotate(world.api, world.namespace, names[1], **{PAUSED: "true"})
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, [names[0], names[2]])
    await wait_reason(operator, "ingester", f"{names[1]} is paused: 3 outdated pods wait")
    assert not [one for one in await world.judge.deletes() if one.name.startswith(names[1])]
    await annotate(world.api, world.namespace, names[1], **{PAUSED: None})
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_d13_a_paused_zone_that_is_short_blocks_the_others(world: World) -> None:
    """D-13, W-32: and its recovery sets them free without another event (SEED-057)."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await annotate(world.api, world.namespace, names[2], **{PAUSED: "true"})
    await world.kubelet.make_unready(f"{names[2]}-1")
    await wait_reason(operator, "ingester", "paused_zone_not_ready")
    await set_image(world.api, world.namespace, names[:2], "v2")
    await wait_reason(operator, "ingester", f"{names[0]} and {names[1]} wait")
    assert await world.judge.deletes() == []
    await world.kubelet.make_ready(f"{names[2]}-1")
    await wait_adopted(world.api, world.namespace, names[:2])
    await world.judge.assert_clean()


async def test_seed057_an_unready_pod_elsewhere_stops_and_its_recovery_resumes(
    world: World,
) -> None:
    """SEED-057, T-01 row 20."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await world.kubelet.make_unready(f"{names[2]}-0")
    await wait_reason(operator, "ingester", f"{names[2]}-0")
    await set_image(world.api, world.namespace, names[:2], "v2")
    await wait_reason(operator, "ingester", f"{names[0]} and {names[1]} wait")
    assert await world.judge.deletes() == []
    await world.kubelet.make_ready(f"{names[2]}-0")
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_seed055_a_broken_group_does_not_hold_another(world: World) -> None:
    """SEED-055, SEED-012, D-18, LI-09: the ingesters are held by a fault, the stores roll."""
    broken = await world.create(
        *three_zones("ingester")[:2], ZoneSpec(name="ingester-zone-c", strategy="RollingUpdate")
    )
    sound = await world.create(*three_zones("store"))
    operator = await world.operator()
    await set_image(world.api, world.namespace, broken[:2], "v2")
    await set_image(world.api, world.namespace, sound, "v2")
    await wait_adopted(world.api, world.namespace, sound)
    await wait_reason(
        operator,
        "ingester",
        "StatefulSet ingester-zone-c has RollingUpdate update strategy while OnDelete is expected",
    )
    assert not [one for one in await world.judge.deletes() if one.name.startswith("ingester")]
    await world.judge.assert_clean()


async def test_fp32_a_stray_pod_with_the_same_labels_is_not_touched(world: World) -> None:
    """FP-32, SI-06, SEED-113, W-01: neither deleted nor counted."""
    names = await world.create(*three_zones())
    stray: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{names[0]}-stray", "labels": {"app": "unrelated"}},
        "spec": {"containers": [{"name": "app", "image": "v0"}]},
    }
    made = await world.api.create(PODS, world.namespace, stray)
    # Labelled behind the controller's back it would be adopted; an owner of its own prevents that.
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "someone",
        "uid": "3e2f0a51-0000-4000-8000-000000000000",
        "controller": True,
    }
    patch = {"metadata": {"labels": {"name": names[0]}, "ownerReferences": [owner]}}
    await world.api.patch(PODS, world.namespace, made["metadata"]["name"], patch)
    await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    assert f"{names[0]}-stray" not in {one.name for one in await world.judge.deletes()}
    await world.judge.assert_clean()


async def test_fp28_a_group_label_that_is_removed_in_mid_rollout(world: World) -> None:
    """FP-28: the set leaves the group at once; the others go on without it."""
    world.kubelet.choose = by_image({"v2": Behaviour(ready_after=timedelta(milliseconds=500))})
    names = await world.create(*three_zones())
    await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await _wait_image(world, f"{names[0]}-0", "v2")
    await label(world.api, world.namespace, names[0], **{"rollout-group": None})
    await wait_adopted(world.api, world.namespace, names[1:])
    left = [one.name for one in await world.judge.deletes() if one.name.startswith(names[0])]
    assert len(left) < 3, "its rollout stopped where it was"
    await world.judge.assert_clean()


async def test_fp28_a_set_deleted_and_recreated_under_the_same_name(world: World) -> None:
    """FP-28, S10, SI-06: the new set is another one; the old one's pods are nobody's business."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await _wait_image(world, f"{names[0]}-0", "v2")
    await world.api.delete(STATEFULSETS, world.namespace, names[1], propagation="Orphan")
    zone = next(one for one in three_zones(image="v3") if one.name == names[1])
    await _wait_gone(world, names[1])
    await create_zones(world.api, world.namespace, [zone])
    await set_image(world.api, world.namespace, names, "v3")
    await wait_adopted(world.api, world.namespace, names)
    await wait_reason(operator, "ingester", "up_to_date")
    await world.judge.assert_clean()


async def test_fp29_replicas_changed_during_the_rollout(world: World) -> None:
    """FP-29, W-27: missing pods of an upscale count as unavailable."""
    names = await world.create(*three_zones(max_unavailable=2))
    await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await _wait_image(world, f"{names[0]}-0", "v2")
    await set_replicas(world.api, world.namespace, names[0], 5)
    await set_replicas(world.api, world.namespace, names[2], 1)
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_ordinals_that_start_elsewhere_are_rolled(world: World) -> None:
    """D-10, W-24: desired ordinals come from `spec.ordinals.start`."""
    zones = [
        ZoneSpec(name=f"ingester-zone-{letter}", first_ordinal=start)
        for letter, start in (("a", 0), ("b", 5), ("c", 100))
    ]
    names = await world.create(*zones)
    await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    assert len(await world.judge.deletes()) == 9
    await world.judge.assert_clean()


async def test_w27_pods_must_be_available_not_only_ready(world: World) -> None:
    """D-11, W-27: the next pod waits for `minReadySeconds`."""
    zones = [
        ZoneSpec(name=f"ingester-zone-{letter}", replicas=2, min_ready=timedelta(seconds=2))
        for letter in "ab"
    ]
    names = await world.create(*zones)
    await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    restarts = await world.judge.restarts()
    gaps = [
        after.deleted - before.ready
        for before, after in itertools.pairwise(restarts)
        if before.ready is not None
    ]
    assert len(gaps) == 3
    # The condition's time has whole seconds: a pod may count up to a second early.
    assert min(gaps) > 0.9
    await world.judge.assert_clean()


@pytest.mark.parametrize(
    "kind", [Kind.NEVER_READY, Kind.GATE_CLOSED, Kind.NO_STATUSES, Kind.PENDING, Kind.FAILED]
)
async def test_fp27_a_pod_that_does_not_become_ready_stops_the_rollout(
    world: World, kind: Kind
) -> None:
    """FP-27, D-11, W-26: and the next template gets past it."""
    stuck = Behaviour(kind=kind)
    world.kubelet.choose = by_image({"bad": stuck})
    names = await world.create(*three_zones())
    operator = await world.operator()
    await set_image(world.api, world.namespace, names, "bad")
    await _wait_image(world, f"{names[0]}-0", "bad")
    await wait_reason(operator, "ingester", f"1 unavailable of 1 allowed ({names[0]}-0")
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_seed011_both_spellings_of_the_group_label(world: World) -> None:
    """SEED-011: one group of two spellings; different values are reported, the short one wins."""
    zones = [
        ZoneSpec(name="ingester-zone-a"),
        ZoneSpec(
            name="ingester-zone-b", group=None, labels={"grafana.com/rollout-group": "ingester"}
        ),
        ZoneSpec(name="ingester-zone-c", labels={"grafana.com/rollout-group": "other"}),
    ]
    names = await world.create(*zones)
    operator = await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    await wait_reason(operator, "ingester", "differ; the first is used")
    await world.judge.assert_clean()


async def test_fp27_slow_termination_keeps_the_zone_short(world: World) -> None:
    """READY-04: a pod on its way out counts as down until its successor is ready."""
    slow = Behaviour(terminates_after=timedelta(seconds=1))
    world.kubelet.choose = lambda pod: slow
    names = await world.create(*three_zones(replicas=2))
    await world.operator()
    await set_image(world.api, world.namespace, names[:1], "v2")
    await wait_adopted(world.api, world.namespace, names)
    first, second = await world.judge.restarts()
    assert first.ready is not None
    assert second.deleted > first.ready
    await world.judge.assert_clean()


async def test_li12_two_templates_in_a_row(world: World) -> None:
    """LI-12, FP-28: a template that changes while a zone rolls is the one that is rolled."""
    names = await world.create(*three_zones())
    await world.operator()
    for image in ("v2", "v3", "v4"):
        await set_image(world.api, world.namespace, names, image)
        await _wait_image(world, f"{names[0]}-0", image)
    await wait_adopted(world.api, world.namespace, names)
    assert {image_of(pod) for pod in await world.api.items(PODS, world.namespace)} == {"v4"}
    await world.judge.assert_clean()


async def _wait_image(world: World, pod: str, image: str) -> None:
    await wait_pod(
        world.api, world.namespace, pod, f"at {image}", lambda found: image_of(found) == image
    )


async def _wait_gone(world: World, name: str) -> None:
    async with asyncio.timeout(30):
        async for event in world.api.follow(STATEFULSETS, world.namespace):
            live = await world.api.items(STATEFULSETS, world.namespace)
            if name not in {one["metadata"]["name"] for one in live}:
                return
            assert event is not None
