"""Zone-aware disruption budgets: what their schema keeps and refuses (ZPDB-01, T-13 row 4)."""

from rollout_operator.kube.api import ZONE_BUDGETS, JsonObject
from tests.contract.bodies import tree, version_of, zone_budget
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
async def budgets_that_the_schema_refuses(world: World) -> None:
    specs: list[JsonObject] = [
        {"maxUnavailable": -1},
        {"maxUnavailablePercentage": -1},
        {"maxUnavailablePercentage": 101},
        {"podNamePartitionRegex": ONE_GROUP, "podNameRegexGroup": 0},
    ]
    for spec in specs:
        await world.create(ZONE_BUDGETS, zone_budget("a", **spec))


@sequence()
async def budgets_of_the_wrong_types(world: World) -> None:
    specs: list[JsonObject] = [
        {"maxUnavailable": "1"},
        {"maxUnavailable": 1.5},
        {"maxUnavailable": True},
        {"maxUnavailablePercentage": "50%"},
        {"podNamePartitionRegex": 1},
        {"podNameRegexGroup": "1"},
        {"crossZoneEvictionDelay": 20},
        {"selector": "app=x"},
        {"selector": {"matchLabels": {"app": 1}}},
        {"selector": {"matchLabels": ["app"]}},
    ]
    for spec in specs:
        await world.create(ZONE_BUDGETS, zone_budget("a", **spec))


@sequence()
async def budgets_without_what_they_need(world: World) -> None:
    body = zone_budget("a")
    del body["spec"]
    await world.create(ZONE_BUDGETS, body)
    await world.create(ZONE_BUDGETS, {**body, "spec": {}})
    await world.create(ZONE_BUDGETS, {**body, "spec": {"selector": {}}})
    await world.create(ZONE_BUDGETS, {**body, "spec": {"selector": {"matchLabels": None}}})
    await world.create(ZONE_BUDGETS, {**body, "spec": {"maxUnavailable": -1}})


@sequence()
async def budgets_that_rules_refuse(world: World) -> None:
    specs: list[JsonObject] = [
        {"maxUnavailable": 1, "maxUnavailablePercentage": 0},
        {"maxUnavailablePercentage": 50, "podNamePartitionRegex": ONE_GROUP},
        {"crossZoneEvictionDelay": "20m"},
        {"podNamePartitionRegex": "ingester-zone-[a-z]-[0-9]+"},
        {"podNamePartitionRegex": "a(?:b)"},
        {"podNamePartitionRegex": f"({'x' * 1023})"},
        {"podNamePartitionRegex": ONE_GROUP, "crossZoneEvictionDelay": "notaduration"},
        {"podNamePartitionRegex": ONE_GROUP, "crossZoneEvictionDelay": "1d"},
        {"podNamePartitionRegex": ONE_GROUP, "crossZoneEvictionDelay": "-5m"},
        {"crossZoneEvictionDelay": "-5m", "maxUnavailable": 1, "maxUnavailablePercentage": 1},
    ]
    for spec in specs:
        await world.create(ZONE_BUDGETS, zone_budget("a", **spec))


@sequence()
async def patterns_that_are_none(world: World) -> None:
    for pattern in ("([bad_regex", "(a", "a)", "(a", "(?=a)", r"(a)\1", "(a{1001})", "*("):
        body = zone_budget("a", podNamePartitionRegex=pattern)
        await world.create(ZONE_BUDGETS, body)


@sequence()
async def rules_after_the_schema(world: World) -> None:
    """Where the schema finds something, rules about the same part are not asked."""
    await world.create(
        ZONE_BUDGETS,
        zone_budget("a", maxUnavailable=-1, maxUnavailablePercentage=1, crossZoneEvictionDelay="x"),
    )
    await world.create(
        ZONE_BUDGETS, zone_budget("a", maxUnavailable=-1, crossZoneEvictionDelay="1m")
    )


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
async def a_budget_changes(world: World) -> None:
    made = tree(await world.make(ZONE_BUDGETS, zone_budget("a", maxUnavailable=1)))
    await world.patch(ZONE_BUDGETS, "a", {"spec": {"maxUnavailable": 3}})
    await world.patch(ZONE_BUDGETS, "a", {"spec": {"maxUnavailable": 3}})
    await world.patch(ZONE_BUDGETS, "a", {"metadata": {"annotations": {"x": "y"}}})
    await world.patch(ZONE_BUDGETS, "a", {"spec": {"maxUnavailablePercentage": 1}})
    await world.patch(ZONE_BUDGETS, "a", {"spec": {"maxUnavailable": -3}})
    await world.patch(
        ZONE_BUDGETS, "a", {"spec": {"maxUnavailable": None, "maxUnavailablePercentage": 50}}
    )
    await world.patch(ZONE_BUDGETS, "a", {"spec": None})
    await world.update(ZONE_BUDGETS, "a", made)
    del made["metadata"]["resourceVersion"]
    await world.update(ZONE_BUDGETS, "a", made)
    await world.get(ZONE_BUDGETS, "a/scale")


@sequence()
async def a_watch_of_budgets(world: World) -> None:
    start = version_of(await world.make(ZONE_BUDGETS, zone_budget("start")))
    with world.quietly():
        await world.create(ZONE_BUDGETS, zone_budget("a", maxUnavailable=1))
        await world.create(ZONE_BUDGETS, zone_budget("b", maxUnavailable=-1))
        await world.patch(ZONE_BUDGETS, "a", {"spec": {"maxUnavailable": 2}})
        await world.delete(ZONE_BUDGETS, "a")
        await world.create(ZONE_BUDGETS, zone_budget("end"))
    await world.events(ZONE_BUDGETS, until="end", resourceVersion=start)
    await world.list(ZONE_BUDGETS)
    await world.delete(ZONE_BUDGETS, "a")


@sequence()
async def budgets_are_discovered(world: World) -> None:
    served = await world.clients.fetch_resources(ZONE_BUDGETS.group, ZONE_BUDGETS.version)
    for one in served:
        if one.resource.kind == ZONE_BUDGETS.kind:
            world.note("budgets", same=one.resource == ZONE_BUDGETS, has=sorted(one.subresources))


def tree_of(body: JsonObject, key: str) -> JsonObject:
    found = body[key]
    assert isinstance(found, dict)
    return found
