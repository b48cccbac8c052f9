"""Budgets on the real control plane, by real evictions: one zone after the other.

T-13 rows 1, 4, 5 and 6, and rows of T-10 and T-11 that need an API server.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.budgeted import OTHER, Budgeted, hold
from tests.system.waits import read_metric
from tests.world.api import BUDGETS, PODS, REPLICASETS, ApiError, Json
from tests.world.budgets import ZONE_BUDGETS, DryRun, grouped_zones, native_budget, zone_budget
from tests.world.clients import workload_body
from tests.world.drains import CREATED
from tests.world.kubelet import Behaviour, Kind, always, by_image
from tests.world.world import World

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "mock"}
BUDGET: Final = zone_budget("mock", LABELS)
PENDING: Final = Behaviour(kind=Kind.PENDING)
# A record is released after 8 s.
FREED_WITHIN: Final = timedelta(seconds=10)
# Written with or without a review: a Lease is renewed, a status follows its zones.
AT_ANY_TIME: Final = {"leases", "zoneawarepoddisruptionbudgets/status"}


def mock_zones(letters: str = "ab", replicas: int = 2) -> tuple[ZoneSpec, ...]:
    return grouped_zones("mock", letters=letters, replicas=replicas)


async def test_t13_1_a_rollout_under_a_budget_of_1(world: World) -> None:
    """T-13 row 1, ZPDB-60: zone by zone; the next one only when the new pod is ready."""
    world.kubelet.choose = by_image({"v2": Behaviour(kind=Kind.NEVER_READY)})
    held = await hold(world, *mock_zones("abc", 1), budgets=[BUDGET])
    await world.set_image(held.names, "v2")
    for name in held.names:
        await _wait_new(held, f"{name}-0")
        await held.assert_refuses(OTHER_OF[name], 429, f"1 pod not ready in {name}")
        assert [each.name for each in await world.judge.deletes()][-1] == f"{name}-0"
        await world.kubelet.make_ready(f"{name}-0")
    await world.wait_adopted(held.names)
    assert len(await world.judge.deletes()) == 3
    await world.judge.assert_clean()


OTHER_OF: Final = {
    "mock-zone-a": "mock-zone-b-0",
    "mock-zone-b": "mock-zone-c-0",
    "mock-zone-c": "mock-zone-a-0",
}


async def test_t13_5_one_zone_at_a_time(world: World) -> None:
    """T-13 rows 4 and 5, ZVAL-04: the schema's own error comes first.

    With the node cordoned nothing more goes; uncordoned it goes on.
    """
    held = await hold(world, *mock_zones(), budgets=[BUDGET])
    with pytest.raises(ApiError, match="422 Invalid"):
        await world.post(ZONE_BUDGETS, zone_budget("x", LABELS, maxUnavailable=-1))
    with world.kubelet.choosing(always(PENDING)):
        await held.assert_evicts("mock-zone-a-0")
        for pod in ("mock-zone-a-1", "mock-zone-b-0"):
            await held.assert_refuses(pod, 429, "request: 1 pod not ready in mock-zone-a")
        await held.wait_replaced("mock-zone-a-0")
        for pod in ("mock-zone-a-1", "mock-zone-b-0"):
            await held.assert_refuses(
                pod, 429, "1 pod not ready in mock-zone-a", "budget mock: max unavailable 1"
            )
    await world.kubelet.make_ready("mock-zone-a-0")
    await held.wait_ready()
    await held.wait_allowed("mock-zone-b-0")
    await held.wait_ready()
    await world.judge.assert_clean()


async def test_t13_6_two_of_one_zone(world: World) -> None:
    """T-13 row 6: ok; refused, since another zone is not whole; ok."""
    held = await hold(world, *mock_zones(), budgets=[zone_budget("mock", LABELS, maxUnavailable=2)])
    with world.kubelet.choosing(always(PENDING)):
        await held.assert_evicts("mock-zone-a-0")
        await held.assert_refuses("mock-zone-b-0", 429, "1 pod not ready in mock-zone-a")
        await held.assert_evicts("mock-zone-a-1")
        await held.assert_refuses("mock-zone-b-0", 429, "2 pods not ready in mock-zone-a")
    await world.judge.assert_clean()


async def test_t11_what_is_allowed_without_a_budget(world: World) -> None:
    """T-11 rows 4, 5 and 7, W-53, SI-15: absent, ended and unguarded pods; dry runs of the same."""
    held = await hold(world, *mock_zones(), budgets=[BUDGET])
    absent = await held.evict("mock-zone-a-7")
    assert (absent.status, absent.message) == (404, 'pods "mock-zone-a-7" not found')
    await held.assert_evicts(f"{OTHER}-0")
    with world.kubelet.choosing(always(PENDING)):
        await held.assert_evicts("mock-zone-a-0")
        await held.wait_replaced("mock-zone-a-0")
        pending = await held.evict("mock-zone-a-0")
        assert (pending.status, pending.warnings) == (201, ("pod is not ready",))
    assert await _count(held, reason="pod-not-in-scope", status="200") >= 1
    assert await _count(held, reason="pod-not-ready", status="200") >= 1


def _mock(**spec: object) -> Json:
    return zone_budget("mock", LABELS, **spec)


NO_PARTITION: Final = "request: failed to extract partition from pod Name regular expression"
# Budgets, the status of a refusal under them, and its words.
MUST_CHANGE: Final[Mapping[str, tuple[Sequence[Json], int, str]]] = {
    "T-11 row 8": ([_mock(maxUnavailable=0)], 403, "request: max unavailable = 0; budget mock"),
    "T-11 row 8, a share": (
        [_mock(maxUnavailablePercentage=0)],
        403,
        "request: max unavailable = 0; budget mock",
    ),
    "T-11 row 10, W-57": (
        [zone_budget("mock", {"name": "mock-zone-a"})],
        400,
        "request: minimum number of StatefulSets not found: 1 StatefulSet has the labels"
        " name=mock-zone-a",
    ),
    "ZPDB-55: overlapping budgets": (
        [BUDGET, zone_budget("second", LABELS)],
        400,
        "request: multiple zoned pod disruption budgets found for pod mock-zone-a-0: mock and",
    ),
    "ZPDB-63: no partition in the name": (
        [_mock(podNamePartitionRegex="store-([0-9]+)")],
        400,
        NO_PARTITION,
    ),
    "D-41: a pattern that never ends elsewhere": (
        [_mock(podNamePartitionRegex="((a+)+)+$", podNameRegexGroup=1)],
        400,
        NO_PARTITION,
    ),
}


async def test_t11_what_a_person_must_change(world: World) -> None:
    """T-11, ZPDB-55, 61, 62, 63: refused for good, nothing is recorded, everything else goes on.

    Only evictions are reviewed: two budgets for one pod would not be stored else.
    """
    hooks = {"hooks": ("pod-eviction",)}
    held = await hold(world, *mock_zones(), registration=hooks)
    for name, (budgets, status, text) in MUST_CHANGE.items():
        for one in budgets:
            await world.post(ZONE_BUDGETS, one)
        await held.wait_answer("mock-zone-a-0", status)
        await held.assert_refuses("mock-zone-a-0", status, text)
        assert await held.list_recorded() == [], name
        for one in budgets:
            await world.delete(ZONE_BUDGETS, one["metadata"]["name"])
        await held.wait_answer("mock-zone-a-0", 201)
    await held.assert_evicts(f"{OTHER}-0")
    assert held.operator.is_running


async def test_t11_6_pods_of_no_set_of_the_budget(world: World) -> None:
    """T-11 row 6, ZPDB-57, W-10: of no owner, of another kind, of a set outside of the selector."""
    stray = ZoneSpec(name="stray", group=None, replicas=1, pod_labels=LABELS)
    held = await hold(world, *mock_zones(), stray, budgets=[BUDGET])
    made = await world.post(REPLICASETS, workload_body(REPLICASETS, "web", 0))
    owner: Json = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    owner |= {"uid": made["metadata"]["uid"], "controller": True}
    for name, owners in (("alone", []), ("web-1", [owner])):
        body = {
            "metadata": {"name": name, "labels": LABELS, "ownerReferences": owners},
            "spec": {"containers": [{"name": "app", "image": "v1"}]},
        }
        await world.post(PODS, body)
        await world.wait_pod(name, "running", lambda pod: "Running" in pod["status"]["phase"])
    for pod, status, text in (
        ("alone", 500, "unable to find a StatefulSet pod owner"),
        ("web-1", 500, "pod owner is not a StatefulSet - web-1 has owner web (ReplicaSet)"),
        ("stray-0", 400, "pod stray-0 belongs to none of the 2 StatefulSets"),
    ):
        await held.assert_refuses(pod, status, text)
    assert held.operator.is_running


async def test_w28_an_empty_selector_is_every_pod(world: World) -> None:
    """W-28, ZPDB-27: it is accepted, and holds everything."""
    held = await hold(world, *mock_zones(), budgets=[zone_budget("all", {})])
    world.kubelet.choose = always(PENDING)
    await held.assert_evicts(f"{OTHER}-0")
    await held.assert_refuses("mock-zone-a-0", 429, f"1 pod not ready in {OTHER}")


async def test_t10_budgets_come_change_and_go(world: World) -> None:
    """T-10, W-17, W-52, FP-31: at once; deleted and created anew, with generation 1 again."""
    held = await hold(world, *mock_zones(), budgets=[BUDGET])
    pod = "mock-zone-a-0"
    await held.set_budget("mock", maxUnavailable=0)
    await held.wait_answer(pod, 403)
    await held.set_budget("mock", maxUnavailable=1)
    await held.wait_answer(pod, 201)
    await world.delete(ZONE_BUDGETS, "mock")
    await world.post(ZONE_BUDGETS, zone_budget("mock", LABELS, maxUnavailable=0))
    await held.wait_answer(pod, 403)
    await world.delete(ZONE_BUDGETS, "mock")
    await held.wait_answer(pod, 201)
    name = "rollout_operator_zpdb_configurations_observed_total"
    counts = [await read_metric(held.operator, name, result=one) for one in ("updated", "deleted")]
    assert counts == [4, 2]


async def test_li07_a_later_refusal_frees_the_grant(world: World) -> None:
    """LI-07, FP-22, W-51: a PodDisruptionBudget refuses after us: within 10 s others may go."""
    held = await hold(world, *mock_zones(), budgets=[BUDGET])
    native = native_budget("native", {"name": "mock-zone-a"}, 0)
    await world.post(BUDGETS, native)
    answer = await held.evict("mock-zone-a-0")
    assert answer.status == 429
    assert "webhook" not in answer.message
    assert await held.list_recorded() == ["mock-zone-a-0"]
    await held.assert_refuses(
        "mock-zone-b-0", 429, "1 pod not ready in mock-zone-a (mock-zone-a-0: allowed to go)"
    )
    await held.wait_allowed("mock-zone-b-0", FREED_WITHIN)
    assert await held.list_recorded() == []
    await world.judge.assert_clean()


async def test_si15_a_dry_run_changes_nothing(world: World) -> None:
    """SI-15, W-09: as `kubectl drain --dry-run=server` sends it; no write, no other verdict."""
    held = await hold(world, *mock_zones(), budgets=[BUDGET])
    before = await world.judge.calls()
    for how in (DryRun.QUERY, DryRun.OPTIONS):
        for pod in ("mock-zone-a-0", "mock-zone-b-0", "mock-zone-a-1", "mock-zone-b-1"):
            assert (await held.evict(pod, how)).status in CREATED
    assert await held.list_recorded() == []
    sent = (await world.judge.calls())[len(before) :]
    writes = [call for call in sent if call.verb not in ("list", "watch", "get")]
    assert [call for call in writes if call.resource not in AT_ANY_TIME] == []
    with world.kubelet.choosing(always(PENDING)):
        await held.assert_evicts("mock-zone-a-0")
        for how in (DryRun.QUERY, DryRun.OPTIONS):
            refused = await held.evict("mock-zone-b-0", how)
            assert refused.status == 429
            assert "1 pod not ready in mock-zone-a" in refused.message


async def _wait_new(held: Budgeted, pod: str) -> None:
    await held.world.wait_pod(
        pod,
        "new",
        lambda found: bool(
            found["spec"]["containers"][0]["image"] == "v2" and found["status"].get("conditions")
        ),
    )


async def _count(held: Budgeted, **labels: str) -> float:
    name = "rollout_operator_zpdb_eviction_requests_total"
    return await read_metric(held.operator, name, **labels) or 0
