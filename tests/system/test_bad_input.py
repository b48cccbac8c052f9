"""Bad objects: said with object, field and value, and nothing else suffers.

Flags and files are in `test_bad_flags`: their processes end before they need an API server.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, statefulset, three_zones

from tests.system.starts import waiting_at_most
from tests.system.waits import read_metric, wait_line, wait_page, wait_reason
from tests.world.api import PODS, STATEFULSETS, Json
from tests.world.kubelet import Behaviour, Kind, by_image, image_of
from tests.world.operatorproc import OperatorProcess
from tests.world.proxy import leave
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# Enough for several attempts at a list.
SHORT: Final = timedelta(seconds=8)


async def test_a_wrong_token(world: World) -> None:
    """PROC-02, W-22: /ready says 401 meanwhile; then exit code 1 with the same words."""
    launch = world.launch()
    world.plane.kubeconfig(launch.kubeconfig, "not-a-token")
    async with OperatorProcess(replace(launch, command=waiting_at_most(SHORT))) as operator:
        await wait_page(operator, "/ready", 500, "401 Unauthorized")
        assert await operator.wait_end(timedelta(seconds=60)) == 1
        last = operator.log_lines()[-1]
        assert "list statefulsets" in last
        assert "401 Unauthorized" in last
        assert "not-a-token" not in "\n".join(operator.log_lines())


def _plant_limit(value: str) -> str:
    return "limit-" + {"xxx": "word", "0": "zero", "-1": "less", "300%": "share"}[value]


async def test_seed060_a_max_unavailable_that_is_none(world: World) -> None:
    """SEED-060, ROLL-50..53: 1 is used, and said once with set, annotation and value."""
    values = ("xxx", "0", "-1", "300%")
    groups = {
        value: three_zones(_plant_limit(value), replicas=2, max_unavailable=value)
        for value in values
    }
    names = await world.create(*(zone for zones in groups.values() for zone in zones))
    operator = await world.operator()
    await world.roll(names, "v2")
    for value, zones in groups.items():
        await wait_reason(operator, _plant_limit(value), "up_to_date")
        for zone in zones:
            lines = _reported(operator, "bad_max_unavailable")
            (line,) = (line for line in lines if f"zone={zone.name}" in line)
            assert f"StatefulSet {zone.name}: annotation rollout-max-unavailable: " in line
            assert value in line
            assert "1 is used" in line
    await world.judge.assert_clean()


async def test_seed012_another_strategy_than_on_delete(world: World) -> None:
    """SEED-012, SEED-055, ROLL-13, D-18, LI-09: an error with name and value, a metric.

    It does not hold another group; mended, it goes on by itself.
    """
    zones = [*three_zones()[:2], ZoneSpec(name="ingester-zone-c", strategy="RollingUpdate")]
    names = await world.create(*zones)
    sound = await world.create(*three_zones("store"))
    operator = await world.operator()
    await world.set_image(names[:2], "v2")
    await world.roll(sound, "v2")
    text = "ingester-zone-c has RollingUpdate update strategy while OnDelete is expected"
    await wait_reason(operator, "ingester", f"StatefulSet {text}")
    waiting = "rollout_operator_group_waiting"
    failed = "rollout_operator_group_reconciles_failed_total"
    assert await read_metric(operator, waiting, reason="wrong_strategy") == 1
    assert (await read_metric(operator, failed, rollout_group="ingester") or 0) >= 1
    assert "RollingUpdate" in (await operator.fetch("/status"))[1]
    assert not [one for one in await world.judge.deletes() if one.name.startswith("ingester")]
    strategy = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    await world.patch(STATEFULSETS, names[2], strategy)
    await world.wait_adopted(names)
    await world.judge.assert_clean()


async def test_w01_pods_are_found_by_owner(world: World) -> None:
    """SI-06, SEED-104, W-01, D-10: whatever their labels are, also where sets select the same pods.

    Within a group and across groups each set has only its own pods.
    """
    zones = [*three_zones()[:2], *three_zones("store")[:1]]
    names = [await _create_labelled(world, zone, {"app": "one"}) for zone in zones]
    others = three_zones("other")
    names += [await _create_labelled(world, zone, {"app": zone.name}) for zone in others]
    await world.wait_ready(names)
    operator = await world.operator()
    await world.roll(names[:1], "v2")
    assert {one.name.rpartition("-")[0] for one in await world.judge.deletes()} == {names[0]}
    await wait_reason(operator, "ingester", "pods_share_labels")
    assert len(_reported(operator, "pods_share_labels")) == 1
    await world.roll(names, "v3")
    await world.judge.assert_clean()


async def test_w26_pods_without_container_statuses_hold_and_a_new_template_frees(
    world: World,
) -> None:
    """D-11, W-26: a claim to be ready without proof counts as down, in every pod of a zone."""
    world.kubelet.choose = by_image({"v1": Behaviour(kind=Kind.NO_STATUSES)})
    zones = [
        replace(zone, image="v1" if zone.name.endswith("b") else "v0") for zone in three_zones()
    ]
    for zone in zones:
        await world.post(STATEFULSETS, statefulset(zone, world.namespace))
    names = [zone.name for zone in zones]
    operator = await world.operator()
    await wait_reason(operator, "ingester", f"{names[1]} has 0 of 3 pods ready")
    await world.roll(names, "v2")
    await world.judge.assert_clean()


async def test_fp28_a_group_label_that_is_moved_in_mid_rollout(world: World) -> None:
    """FP-28, SI-01: the set is rolled as a member of its new group, the rest without it."""
    world.kubelet.choose = by_image({"v2": Behaviour(ready_after=timedelta(milliseconds=300))})
    names = await world.create(*three_zones())
    others = await world.create(*three_zones("store")[:2])
    operator = await world.operator()
    await world.set_image([*names, *others], "v2")
    await world.wait_pod(f"{names[0]}-0", "at v2", lambda pod: image_of(pod) == "v2")
    await world.label(names[0], **{"rollout-group": "store"})
    await world.wait_adopted([*names, *others])
    await wait_reason(operator, "store", "9 pods of 3 zones")
    await wait_reason(operator, "ingester", "6 pods of 2 zones")
    await world.judge.assert_clean()


def _break(resource: str, found: Json) -> None:
    """Make of one zone of each group what cannot be understood, or has no pods."""
    group, _, rest = found["metadata"]["name"].partition("-zone-b")
    match group, resource:
        case "counts", "statefulsets" if not rest:
            found["spec"]["replicas"] = "three"
        case "phases", "pods" if rest == "-0":
            found["status"]["phase"] = 7
        case "owners", "pods" if rest:
            del found["metadata"]["ownerReferences"]
        case _:
            pass


# By group: the code, and words of the line.
NOT_UNDERSTOOD: Final[Mapping[str, tuple[str, ...]]] = {
    "counts": ("reason=object_unreadable", "counts-zone-b", "spec.replicas", "three"),
    "phases": ("reason=object_unreadable", "phases-zone-b-0", "status.phase", "7"),
    "owners": ("reason=pods_missing", "owners-zone-b has 0 of 3 pods", "level=warn"),
}


async def test_objects_that_cannot_be_understood_hold_their_group_only(world: World) -> None:
    """D-12, D-18, LI-09, SEED-104: said with object, field and value; others roll; it recovers."""
    zones = [zone for group in NOT_UNDERSTOOD for zone in three_zones(group)]
    broken = await world.create(*zones)
    sound = await world.create(*three_zones("store"))
    world.proxy.rewrite = _break
    operator = await world.operator(is_through_proxy=True)
    await world.set_image(broken, "v2")
    await world.roll(sound, "v2")
    for group, words in NOT_UNDERSTOOD.items():
        line = await wait_line(operator, f"group={group} ", *words)
        assert "Traceback" not in line
    assert not [one for one in await world.judge.deletes() if "store" not in one.name]
    world.proxy.rewrite = leave
    for group in NOT_UNDERSTOOD:
        await _touch(world, f"{group}-zone-b")
    await world.wait_adopted(broken)
    for kind in ("Pod", "StatefulSet"):
        assert await read_metric(operator, "rollout_operator_unreadable_objects", kind=kind) == 0
    await world.judge.assert_clean()


def _reported(operator: OperatorProcess, code: str) -> list[str]:
    return [line for line in operator.log_lines() if f"reason={code}" in line]


async def _create_labelled(world: World, zone: ZoneSpec, labels: dict[str, str]) -> str:
    body: Json = statefulset(zone, world.namespace)
    body["spec"]["selector"]["matchLabels"] = labels
    body["spec"]["template"]["metadata"]["labels"] = labels
    await world.post(STATEFULSETS, body)
    return zone.name


async def _touch(world: World, name: str) -> None:
    """Change a set and its pods in a way that means nothing, so that watches bring them again."""
    await world.annotate(name, touched="yes")
    for number in range(3):
        patch = {"metadata": {"annotations": {"touched": "yes"}}}
        await world.patch(PODS, f"{name}-{number}", patch)
