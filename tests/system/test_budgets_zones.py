"""Budgets on the real control plane, asked by real evictions: one zone after the other.

T-13 rows 1, 4, 5 and 6, and rows of T-10 and T-11 that need an API server.
"""

from datetime import timedelta
from typing import Any, Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.system.budgeted import OTHER, Budgeted, create_budgets, hold
from tests.system.looks import read_metric
from tests.world.api import BUDGETS, PODS, REPLICASETS, Api, ApiError, Json
from tests.world.budgets import ZONE_BUDGETS, DryRun, grouped_zones, native_budget, zone_budget
from tests.world.clients import workload_body
from tests.world.drains import CREATED
from tests.world.kubelet import Behaviour, Kind, always, by_image
from tests.world.scene import World
from tests.world.sets import set_image, wait_adopted, wait_pod

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "mock"}
BUDGET: Final = zone_budget("mock", LABELS)
PENDING: Final = Behaviour(kind=Kind.PENDING)
# A record is taken back after 8 s.
FREED_WITHIN: Final = timedelta(seconds=10)


def mock_zones(letters: str = "ab", replicas: int = 2) -> tuple[ZoneSpec, ...]:
    return grouped_zones("mock", letters=letters, replicas=replicas)


async def test_t13_1_a_rollout_under_a_budget_of_1(world: World) -> None:
    """T-13 row 1, ZPDB-60: zone by zone; the next one only when the new pod is ready."""
    world.kubelet.choose = by_image({"v2": Behaviour(kind=Kind.NEVER_READY)})
    held = await hold(world, *mock_zones("abc", 1), budgets=[BUDGET])
    await set_image(world.api, world.namespace, held.names, "v2")
    for name in held.names:
        await _wait_new(held, f"{name}-0")
        await held.assert_refuses(OTHER_OF[name], 429, f"1 pod not ready in {name}")
        assert [each.name for each in await world.judge.deletes()][-1] == f"{name}-0"
        await world.kubelet.make_ready(f"{name}-0")
    await wait_adopted(world.api, world.namespace, held.names)
    assert len(await world.judge.deletes()) == 3
    await world.judge.assert_clean()


OTHER_OF: Final = {
    "mock-zone-a": "mock-zone-b-0",
    "mock-zone-b": "mock-zone-c-0",
    "mock-zone-c": "mock-zone-a-0",
}


async def test_t13_4_an_invalid_budget_is_not_stored(world: World) -> None:
    """T-13 row 4, ZVAL-04: the schema's own error comes first."""
    await create_budgets(world, [])
    with pytest.raises(ApiError, match="is invalid") as caught:
        await _create(world.api, world.namespace, zone_budget("x", LABELS, maxUnavailable=-1))
    assert caught.value.status == 422


async def test_t13_5_one_zone_at_a_time(world: World) -> None:
    """T-13 row 5: with the node cordoned nothing more goes; uncordoned it goes on."""
    held = await hold(world, *mock_zones(), budgets=[BUDGET])
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


@pytest.mark.parametrize(
    ("budgets", "pod", "status", "text"),
    [
        pytest.param(
            [zone_budget("mock", LABELS, maxUnavailable=0)],
            "mock-zone-a-0",
            403,
            "request: max unavailable = 0; budget mock",
            id="T-11 row 8",
        ),
        pytest.param(
            [zone_budget("mock", LABELS, maxUnavailablePercentage=0)],
            "mock-zone-a-0",
            403,
            "request: max unavailable = 0; budget mock",
            id="T-11 row 8, a share",
        ),
        pytest.param(
            [zone_budget("mock", {"name": "mock-zone-a"})],
            "mock-zone-a-0",
            400,
            "request: minimum number of StatefulSets not found: 1 StatefulSet has the labels"
            " name=mock-zone-a",
            id="T-11 row 10, W-57",
        ),
        pytest.param(
            [BUDGET, zone_budget("second", LABELS)],
            "mock-zone-a-0",
            400,
            "request: multiple zoned pod disruption budgets found for pod mock-zone-a-0: mock and",
            id="ZPDB-55: overlapping budgets",
        ),
        pytest.param(
            [zone_budget("mock", LABELS, podNamePartitionRegex="store-([0-9]+)")],
            "mock-zone-a-0",
            400,
            "request: failed to extract partition from pod Name regular expression",
            id="ZPDB-63: no partition in the name",
        ),
        pytest.param(
            [zone_budget("mock", LABELS, podNamePartitionRegex="((a+)+)+$", podNameRegexGroup=1)],
            "mock-zone-a-0",
            400,
            "request: failed to extract partition from pod Name regular expression",
            id="D-41: a pattern that never ends elsewhere",
        ),
    ],
)
async def test_t11_what_a_person_must_change(
    world: World, budgets: list[Json], pod: str, status: int, text: str
) -> None:
    """ZPDB-55, 61, 62, 63: refused for good, nothing is recorded, everything else goes on."""
    held = await hold(world, *mock_zones(), budgets=budgets)
    await held.assert_refuses(pod, status, text)
    assert await held.list_recorded() == []
    await held.assert_evicts(f"{OTHER}-0")
    assert held.operator.is_running


async def test_t11_6_pods_that_no_set_owns(world: World) -> None:
    """T-11 row 6, ZPDB-57: a pod of nobody, and one of another kind."""
    held = await hold(world, *mock_zones(), budgets=[BUDGET])
    spec = {"containers": [{"name": "app", "image": "v1"}]}
    made = await world.api.create(
        REPLICASETS, world.namespace, workload_body(REPLICASETS, "web", 0)
    )
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    owner["uid"] = made["metadata"]["uid"]
    for name, owners in (("alone", []), ("web-1", [{**owner, "controller": True}])):
        metadata: dict[str, Any] = {"name": name, "labels": LABELS, "ownerReferences": owners}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await world.api.create(PODS, world.namespace, body)
        await wait_pod(
            world.api,
            world.namespace,
            name,
            "running",
            lambda pod: bool(pod["status"].get("phase") == "Running"),
        )
    await held.assert_refuses("alone", 500, "unable to find a StatefulSet pod owner")
    await held.assert_refuses(
        "web-1", 500, "pod owner is not a StatefulSet - web-1 has owner web (ReplicaSet)"
    )


async def test_w10_an_owner_outside_of_the_selector(world: World) -> None:
    """W-10: refused with words, where upstream's process crashed."""
    stray = ZoneSpec(name="stray", group=None, replicas=1, pod_labels=LABELS)
    held = await hold(world, *mock_zones(), stray, budgets=[BUDGET])
    await held.assert_refuses("stray-0", 400, "pod stray-0 belongs to none of the 2 StatefulSets")
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
    await world.api.delete(ZONE_BUDGETS, world.namespace, "mock")
    await _create(world.api, world.namespace, zone_budget("mock", LABELS, maxUnavailable=0))
    await held.wait_answer(pod, 403)
    await world.api.delete(ZONE_BUDGETS, world.namespace, "mock")
    await held.wait_answer(pod, 201)
    name = "rollout_operator_zpdb_configurations_observed_total"
    counts = [await read_metric(held.operator, name, result=one) for one in ("updated", "deleted")]
    assert counts == [4, 2]


async def test_li07_a_later_refusal_frees_the_grant(world: World) -> None:
    """LI-07, FP-22, W-51: a PodDisruptionBudget refuses after us: within 10 s others may go."""
    held = await hold(world, *mock_zones(), budgets=[BUDGET])
    native = native_budget("native", {"name": "mock-zone-a"}, 0)
    await world.api.create(BUDGETS, world.namespace, native)
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


@pytest.mark.parametrize("dry_run", [DryRun.QUERY, DryRun.OPTIONS])
async def test_si15_a_dry_run_changes_nothing(world: World, dry_run: DryRun) -> None:
    """SI-15, W-09: as `kubectl drain --dry-run=server` asks; no write, no change of a verdict."""
    held = await hold(world, *mock_zones(), budgets=[BUDGET])
    before = await world.judge.calls()
    for pod in ("mock-zone-a-0", "mock-zone-b-0", "mock-zone-a-1", "mock-zone-b-1"):
        assert (await held.evict(pod, dry_run)).status in CREATED
    assert await held.list_recorded() == []
    sent = (await world.judge.calls())[len(before) :]
    assert [call for call in sent if call.verb not in ("list", "watch", "get")] == []
    with world.kubelet.choosing(always(PENDING)):
        await held.assert_evicts("mock-zone-a-0")
        refused = await held.evict("mock-zone-b-0", dry_run)
        assert (refused.status, "1 pod not ready in mock-zone-a" in refused.message) == (429, True)


async def _wait_new(held: Budgeted, pod: str) -> None:
    await wait_pod(
        held.world.api,
        held.world.namespace,
        pod,
        "new",
        lambda found: bool(
            found["spec"]["containers"][0]["image"] == "v2" and found["status"].get("conditions")
        ),
    )


async def _create(api: Api, namespace: str, body: Json) -> Json:
    return await api.create(ZONE_BUDGETS, namespace, body)


async def _count(held: Budgeted, **labels: str) -> float:
    name = "rollout_operator_zpdb_eviction_requests_total"
    return await read_metric(held.operator, name, **labels) or 0
