"""Evictions, and the arithmetic of the budgets that the API server itself knows."""

from rollout_operator.kube.api import PODS
from tests.contract.bodies import (
    budget,
    budget_status,
    eviction,
    pod,
    ready_status,
    uid_of,
    version_of,
)
from tests.contract.plays import sequence
from tests.contract.sides import BUDGETS
from tests.contract.world import World


async def _running(world: World, *names: str, ready: str = "True") -> None:
    for name in names:
        await world.make(PODS, pod(name, node="n"))
        with world.quietly():
            await world.patch(PODS, f"{name}/status", ready_status("Running", ready))


async def _budget(world: World, name: str, allowed: int, **spec: object) -> None:
    await world.make(BUDGETS, budget(name, **(spec or {"maxUnavailable": 1})))
    with world.quietly():
        await world.patch(BUDGETS, f"{name}/status", budget_status(allowed))


@sequence()
async def without_a_budget(world: World) -> None:
    await world.create(PODS, eviction("a"), "a/eviction")
    await _running(world, "a")
    await world.create(PODS, eviction("a"), "a/eviction", dryRun="All")
    await world.get(PODS, "a")
    await world.create(PODS, eviction("a"), "a/eviction")
    await world.get(PODS, "a")
    await world.create(PODS, eviction("a"), "a/eviction")


@sequence()
async def a_budget_that_allows_none(world: World) -> None:
    await _running(world, "a")
    await _budget(world, "budget", 0)
    await world.create(PODS, eviction("a"), "a/eviction")
    await world.get(PODS, "a")
    await world.delete(PODS, "a")
    await world.create(PODS, eviction("a"), "a/eviction")  # it is terminating already


@sequence()
async def a_budget_that_allows_two(world: World) -> None:
    await _running(world, "a", "b", "c")
    await _budget(world, "budget", 2)
    await world.create(PODS, eviction("a"), "a/eviction", dryRun="All")
    await world.get(BUDGETS, "budget")
    for name in ("a", "b"):
        await world.create(PODS, eviction(name), f"{name}/eviction")
        await world.get(PODS, name)
        await world.get(BUDGETS, "budget")
    await world.create(PODS, eviction("c"), "c/eviction")


@sequence()
async def a_budget_of_other_pods(world: World) -> None:
    await _running(world, "a")
    await _budget(world, "budget", 0, maxUnavailable=1, selector={"matchLabels": {"app": "y"}})
    await world.create(PODS, eviction("a"), "a/eviction")


@sequence()
async def preconditions(world: World) -> None:
    made = await world.make(PODS, pod("a", node="n"))
    other = {"uid": "11111111-2222-3333-4444-555555555555"}
    await world.create(PODS, eviction("a", preconditions=other), "a/eviction")
    old = {"resourceVersion": version_of(made)}
    await world.patch(PODS, "a", {"metadata": {"annotations": {"x": "y"}}})
    await world.create(PODS, eviction("a", preconditions=old), "a/eviction")
    newest = version_of(await world.get(PODS, "a"))
    right = {"uid": uid_of(made), "resourceVersion": newest}
    await world.create(PODS, eviction("a", preconditions=right), "a/eviction")
    await world.get(PODS, "a")


@sequence()
async def the_grace_of_an_eviction_and_its_older_form(world: World) -> None:
    await _running(world, "a", "b")
    await world.create(PODS, eviction("a", gracePeriodSeconds=5), "a/eviction")
    await world.get(PODS, "a")
    await world.create(PODS, eviction("b", "v1beta1"), "b/eviction")
    await world.get(PODS, "b")


@sequence()
async def an_unready_pod_of_a_healthy_budget(world: World) -> None:
    await _running(world, "a", ready="False")
    await _budget(world, "budget", 0)
    await world.create(PODS, eviction("a"), "a/eviction")


@sequence()
async def an_unready_pod_of_an_unhealthy_budget(world: World) -> None:
    await _running(world, "a", ready="False")
    await world.make(BUDGETS, budget("budget", maxUnavailable=1))
    await world.patch(BUDGETS, "budget/status", budget_status(0, currentHealthy=0))
    await world.create(PODS, eviction("a"), "a/eviction")


@sequence()
async def pods_that_are_done_or_pending_cost_nothing(world: World) -> None:
    await world.make(PODS, pod("pending"))
    await world.make(PODS, pod("done", node="n"))
    with world.quietly():
        await world.patch(PODS, "done/status", ready_status("Succeeded", "False"))
    await _budget(world, "budget", 0)
    for name in ("pending", "done"):
        await world.create(PODS, eviction(name), f"{name}/eviction")
        await world.get(PODS, name)
