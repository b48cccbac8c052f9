"""Bad objects and grants: said with object, field and value, and nothing else suffers.

Flags and files are in `test_bad_flags`: their processes end before they need an API server.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.lab.zones import ZoneSpec, statefulset, three_zones
from tests.system.between import Between, Rewrite, leave
from tests.system.grants import give_back, take_away
from tests.system.looks import read_metric, wait_page, wait_reason
from tests.system.starts import (
    running,
    wait_line,
    waiting_at_most,
)
from tests.world.api import PODS, STATEFULSETS, Json
from tests.world.kubelet import Behaviour, Kind, by_image, image_of
from tests.world.operatorproc import OperatorProcess
from tests.world.scene import World
from tests.world.sets import annotate, label, set_image, wait_adopted, wait_pod, wait_ready

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


@pytest.mark.parametrize("resource", ["pods", "statefulsets"])
async def test_sec17_the_verb_list_is_missing_at_the_start(world: World, resource: str) -> None:
    """SEC-17, W-22: /ready names verb, resource and role; after a bounded wait so does the end."""
    await take_away(world, "list", resource)
    launch = replace(world.launch(), command=waiting_at_most(SHORT))
    told = f'grant verb list on "{resource}"'
    async with OperatorProcess(launch) as operator:
        text = await wait_page(operator, "/ready", 500, told)
        assert "in its Role" in text
        assert f"{resource} watch: not followed yet" in text
        assert await operator.wait_end(timedelta(seconds=60)) == 1
        assert told in operator.log_lines()[-1]


async def test_sec17_the_verb_list_comes_within_the_wait(world: World) -> None:
    """W-22: the start goes on by itself."""
    await take_away(world, "list", "pods")
    async with OperatorProcess(world.launch()) as operator:
        await wait_page(operator, "/ready", 500, 'grant verb list on "pods"')
        await give_back(world, "list", "pods")
        await operator.wait_ready()


@pytest.mark.parametrize("resource", ["pods", "statefulsets"])
async def test_sec17_the_verb_watch_is_missing_at_the_start(world: World, resource: str) -> None:
    """SEC-17: the log names verb, resource and role; the rollout begins once it is granted."""
    names = await world.create(*three_zones())
    await take_away(world, "watch", resource)
    async with OperatorProcess(world.launch()) as operator:
        line = await wait_line(operator, "Watch interrupted", f'grant verb watch on \\"{resource}')
        assert "level=error" in line
        assert "in its Role" in line
        await set_image(world.api, world.namespace, names, "v2")
        await give_back(world, "watch", resource)
        await wait_adopted(world.api, world.namespace, names, timedelta(seconds=120))
        await world.judge.assert_clean()


@pytest.mark.parametrize("resource", ["pods", "statefulsets"])
async def test_sec17_pages_name_the_missing_verb_watch(world: World, resource: str) -> None:
    """SEC-17, W-22, LI-14: without watches rollouts only crawl; a person must see why."""
    await take_away(world, "watch", resource)
    async with OperatorProcess(world.launch()) as operator:
        await wait_line(operator, "Watch interrupted", f'grant verb watch on \\"{resource}')
        assert f'grant verb watch on "{resource}"' in (await operator.fetch("/status"))[1]
        code, text = await operator.fetch("/ready")
        assert code == 500
        assert f'grant verb watch on "{resource}"' in text


@pytest.mark.parametrize("value", ["xxx", "0", "-1", "300%"])
async def test_seed060_a_max_unavailable_that_is_none(world: World, value: str) -> None:
    """SEED-060, ROLL-50..53: 1 is used, and said once with set, annotation and value."""
    names = await world.create(*three_zones(replicas=2, max_unavailable=value))
    operator = await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    await wait_reason(operator, "ingester", "up_to_date")
    for name in names:
        told = [line for line in _told(operator, "bad_max_unavailable") if f"zone={name}" in line]
        assert len(told) == 1, "once, not on every pass"
        assert f"StatefulSet {name}: annotation rollout-max-unavailable: " in told[0]
        assert value in told[0]
        assert "1 is used" in told[0]
    await world.judge.assert_clean()


async def test_seed012_another_strategy_than_on_delete(world: World) -> None:
    """SEED-012, ROLL-13: an error with name and value, a metric; mended, it goes on by itself."""
    zones = [*three_zones()[:2], ZoneSpec(name="ingester-zone-c", strategy="RollingUpdate")]
    names = await world.create(*zones)
    operator = await world.operator()
    await set_image(world.api, world.namespace, names[:2], "v2")
    await wait_reason(operator, "ingester", "ingester-zone-c has RollingUpdate update strategy")
    waiting = "rollout_operator_group_waiting"
    failed = "rollout_operator_group_reconciles_failed_total"
    assert await read_metric(operator, waiting, reason="wrong_strategy") == 1
    assert (await read_metric(operator, failed, rollout_group="ingester") or 0) >= 1
    assert "RollingUpdate" in (await operator.fetch("/status"))[1]
    assert await world.judge.deletes() == []
    strategy = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    await world.api.patch(STATEFULSETS, world.namespace, names[2], strategy)
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_seed104_pods_without_the_label_that_upstream_looks_for(world: World) -> None:
    """SEED-104, W-01, D-10: selectors of any labels; pods are found by owner."""
    names = [await _create_labelled(world, zone, {"app": zone.name}) for zone in three_zones()]
    await wait_ready(world.api, world.namespace, names)
    await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_w01_two_sets_that_select_the_same_pods(world: World) -> None:
    """SI-06, W-01, D-10: within a group and across groups each set has only its own pods."""
    zones = [*three_zones()[:2], *three_zones("store")[:1]]
    names = [await _create_labelled(world, zone, {"app": "one"}) for zone in zones]
    await wait_ready(world.api, world.namespace, names)
    operator = await world.operator()
    await set_image(world.api, world.namespace, names[:1], "v2")
    await wait_adopted(world.api, world.namespace, names[:1])
    assert {one.name.rpartition("-")[0] for one in await world.judge.deletes()} == {names[0]}
    await wait_reason(operator, "ingester", "pods_share_labels")
    assert len(_told(operator, "pods_share_labels")) == 1
    await set_image(world.api, world.namespace, names, "v3")
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_w26_pods_without_container_statuses_hold_and_a_new_template_frees(
    world: World,
) -> None:
    """D-11, W-26: a claim to be ready without proof counts as down, in every pod of a zone."""
    world.kubelet.choose = by_image({"v1": Behaviour(kind=Kind.NO_STATUSES)})
    zones = [replace(zone, image="v1" if zone.name.endswith("b") else "v0") for zone in ZONES]
    for zone in zones:
        await world.api.create(STATEFULSETS, world.namespace, statefulset(zone, world.namespace))
    names = [zone.name for zone in zones]
    operator = await world.operator()
    await wait_reason(operator, "ingester", f"{names[1]} has 0 of 3 pods ready")
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_fp28_a_group_label_that_is_moved_in_mid_rollout(world: World) -> None:
    """FP-28, SI-01: the set is rolled as a member of its new group, the rest without it."""
    world.kubelet.choose = by_image({"v2": Behaviour(ready_after=timedelta(milliseconds=300))})
    names = await world.create(*three_zones())
    others = await world.create(*three_zones("store")[:2])
    operator = await world.operator()
    await set_image(world.api, world.namespace, [*names, *others], "v2")
    await wait_pod(
        world.api, world.namespace, f"{names[0]}-0", "at v2", lambda pod: image_of(pod) == "v2"
    )
    await label(world.api, world.namespace, names[0], **{"rollout-group": "store"})
    await wait_adopted(world.api, world.namespace, [*names, *others])
    await wait_reason(operator, "store", "9 pods of 3 zones")
    await wait_reason(operator, "ingester", "6 pods of 2 zones")
    await world.judge.assert_clean()


ZONES: Final = three_zones()


def _break_replicas(resource: str, found: Json) -> None:
    if resource == "statefulsets" and found["metadata"]["name"] == "ingester-zone-b":
        found["spec"]["replicas"] = "three"


def _break_phase(resource: str, found: Json) -> None:
    if resource == "pods" and found["metadata"]["name"] == "ingester-zone-b-0":
        found["status"]["phase"] = 7


def _disown(resource: str, found: Json) -> None:
    if resource == "pods" and found["metadata"]["name"].startswith("ingester-zone-b-"):
        del found["metadata"]["ownerReferences"]


@pytest.mark.parametrize(
    ("rewrite", "code", "told"),
    [
        pytest.param(
            _break_replicas,
            "object_unreadable",
            ("ingester-zone-b", "spec.replicas", "three"),
            id="D-18 a StatefulSet",
        ),
        pytest.param(
            _break_phase,
            "object_unreadable",
            ("ingester-zone-b-0", "status.phase", "7"),
            id="D-18 a pod",
        ),
        pytest.param(
            _disown,
            "pods_missing",
            ("ingester-zone-b has 0 of 3 pods", "level=warn"),
            id="SEED-104 no pod names its set",
        ),
    ],
)
async def test_objects_that_cannot_be_understood_hold_their_group_only(
    world: World, rewrite: Rewrite, code: str, told: tuple[str, ...]
) -> None:
    """D-12, D-18, LI-09, SEED-104: said with object, field and value; others roll; it recovers."""
    broken = await world.create(*ZONES)
    sound = await world.create(*three_zones("store"))
    async with Between(world.plane) as between:
        between.rewrite = rewrite
        async with running(world.launch(url=between.url)) as operator:
            await set_image(world.api, world.namespace, [*broken, *sound], "v2")
            await wait_adopted(world.api, world.namespace, sound)
            line = await wait_line(operator, "group=ingester ", f"reason={code}", *told)
            assert "Traceback" not in line
            assert not [one for one in await world.judge.deletes() if "ingester" in one.name]
            between.rewrite = leave
            await _touch(world, broken[1])
            await wait_adopted(world.api, world.namespace, broken)
            gone = "rollout_operator_unreadable_objects"
            assert await read_metric(operator, gone, kind="Pod") == 0
            assert await read_metric(operator, gone, kind="StatefulSet") == 0
    await world.judge.assert_clean()


def _told(operator: OperatorProcess, code: str) -> list[str]:
    return [line for line in operator.log_lines() if f"reason={code}" in line]


async def _create_labelled(world: World, zone: ZoneSpec, labels: dict[str, str]) -> str:
    body: Json = statefulset(zone, world.namespace)
    body["spec"]["selector"]["matchLabels"] = labels
    body["spec"]["template"]["metadata"]["labels"] = labels
    await world.api.create(STATEFULSETS, world.namespace, body)
    return zone.name


async def _touch(world: World, name: str) -> None:
    """Change a set and its pods in a way that means nothing, so that watches bring them again."""
    await annotate(world.api, world.namespace, name, touched="yes")
    for number in range(3):
        patch = {"metadata": {"annotations": {"touched": "yes"}}}
        await world.api.patch(PODS, world.namespace, f"{name}-{number}", patch)
