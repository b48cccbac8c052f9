"""Zone-aware disruption budgets: what their schema keeps and refuses (ZPDB-01, T-13 row 4)."""

from rollout_operator.kube.api import ZONE_BUDGETS, JsonObject
from tests.contract.bodies import tree, zone_budget
from tests.contract.plays import sequence
from tests.contract.world import World

ONE_GROUP = "ingester-zone-[a-z]-([0-9]+)"


@sequence()
async def budgets_that_are_valid(world: World) -> None:
    specs: list[JsonObject] = [
        {},
        {"maxUnavailable": 0},
        {"maxUnavailablePercentage": 100},
        {"maxUnavailablePercentage": 0, "podNamePartitionRegex": ONE_GROUP},
        {"podNamePartitionRegex": "", "podNameRegexGroup": 7, "crossZoneEvictionDelay": ""},
        {"podNamePartitionRegex": ONE_GROUP, "crossZoneEvictionDelay": "1h30m"},
        {"podNamePartitionRegex": "(?P<x>a)|(?<y>b)", "podNameRegexGroup": 2},
        {"crossZoneEvictionDelay": "0s"},
        {"crossZoneEvictionDelay": "-0s"},
        {"selector": {"matchLabels": {}}},
        {"selector": {"matchLabels": {"app": "x", "zone": None}}, "maxUnavailable": None},
    ]
    for number, spec in enumerate(specs):
        await world.create(ZONE_BUDGETS, zone_budget(f"a{number}", **spec))


@sequence()
async def what_a_schema_does_not_know(world: World) -> None:
    body = zone_budget("a", maxUnavailable=1, minAvailable=2)
    body["spec"] = {
        **tree_of(body, "spec"),
        "selector": {
            "matchLabels": {"app": "x"},
            "matchExpressions": [{"key": "app", "operator": "Exists"}],
        },
    }
    await world.create(ZONE_BUDGETS, {**body, "status": {"anything": 1}, "more": {}})
    await world.patch(ZONE_BUDGETS, "a/status", {"status": {"anything": 1}})
    await world.get(ZONE_BUDGETS, "a/status")


@sequence()
async def the_status_of_a_budget(world: World) -> None:
    """As the operator writes it; what it says of the same generation again is no change."""
    await world.create(ZONE_BUDGETS, {**zone_budget("a"), "status": {"zones": 9}})
    condition = {
        "type": "Ready", "status": "True", "reason": "BudgetHasRoom", "message": "1 more pod",
        "lastTransitionTime": "2026-01-01T12:00:00Z", "observedGeneration": 1,
    }  # fmt: skip
    status: JsonObject = {
        "observedGeneration": 1, "zones": 3, "pods": 9, "currentUnavailable": 0,
        "allowedDisruptions": 1, "conditions": [condition],
    }  # fmt: skip
    for _ in range(2):
        await world.patch(ZONE_BUDGETS, "a/status", {"status": status})
    await world.patch(ZONE_BUDGETS, "a/status", {"status": {"pods": 8}, "spec": {"x": 1}})
    await world.patch(ZONE_BUDGETS, "a", {"status": {"pods": 7}})
    await world.patch(ZONE_BUDGETS, "a/status", {"metadata": {"uid": "another"}, "status": {}})
    await world.get(ZONE_BUDGETS, "a")


@sequence()
async def a_budget_changes(world: World) -> None:
    made = tree(await world.make(ZONE_BUDGETS, zone_budget("a", maxUnavailable=1)))
    await world.patch(ZONE_BUDGETS, "a", {"spec": {"maxUnavailable": 3}})
    await world.patch(ZONE_BUDGETS, "a", {"spec": {"maxUnavailable": 3}})
    await world.patch(ZONE_BUDGETS, "a", {"metadata": {"annotations": {"x": "y"}}})
    await world.patch(
        ZONE_BUDGETS, "a", {"spec": {"maxUnavailable": None, "maxUnavailablePercentage": 50}}
    )
    await world.update(ZONE_BUDGETS, "a", made)
    del made["metadata"]["resourceVersion"]
    await world.update(ZONE_BUDGETS, "a", made)
    await world.get(ZONE_BUDGETS, "a/scale")


def tree_of(body: JsonObject, key: str) -> JsonObject:
    found = body[key]
    assert isinstance(found, dict)
    return found
