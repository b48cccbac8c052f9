"""ClusterRolloutSchedules in a simulated cluster: gates in other namespaces, and what is read."""

from typing import Final

from rollout_lab.model.history import Called

from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    NAMESPACES,
    ROLLOUT_GATES,
    ROLLOUTS,
    JsonObject,
)
from tests.controllers.releases.world import ReleaseSandbox
from tests.virtual_time import in_virtual_time

ALWAYS: Final = {"rolloutSelector": {}, "rules": [{"name": "always"}]}
PROD: Final = {**ALWAYS, "namespaceSelector": {"matchLabels": {"env": "prod"}}}


async def prepare(world: ReleaseSandbox) -> None:
    """Create a Rollout in each of two namespaces."""
    for name in ("prod", "dev"):
        await world.create(NAMESPACES, name, {}, labels={"env": name})
        await world.create_rollout(namespace=name)


def list_gates(world: ReleaseSandbox) -> list[str]:
    found = [one["metadata"] for one in world.list_all(ROLLOUT_GATES)]
    return [f"{one['namespace']}/{one['name']}" for one in found]


def collect_requested(world: ReleaseSandbox) -> set[str]:
    """Return the kinds that a process has listed in the whole cluster."""
    return {
        called.request.resource.plural
        for called in world.sandbox.history.list_all(Called)
        if called.actor == "operator-1"
        and called.request.verb in ("list", "watch")
        and not called.request.namespace
    }


@in_virtual_time
async def test_gates_in_the_namespaces_that_it_selects() -> None:
    """RT-114, RELB-31 (i) and (j): labels of namespaces decide, and may change."""
    async with ReleaseSandbox.opened() as world:
        await prepare(world)
        await world.create(CLUSTER_ROLLOUT_SCHEDULES, "freeze", PROD)
        await world.start()
        await world.sleep(5)
        assert list_gates(world) == ["prod/cluster-freeze-app"]
        status = await world.get_status(CLUSTER_ROLLOUT_SCHEDULES, "freeze")
        assert (status["managedGates"], status["matchingRollouts"]) == (list_gates(world), 1)
        await world.patch(NAMESPACES, "dev", {"metadata": {"labels": {"env": "prod"}}})
        await world.patch(NAMESPACES, "prod", {"metadata": {"labels": {"env": "old"}}})
        await world.sleep(5)
        assert list_gates(world) == ["dev/cluster-freeze-app"]
        patch: JsonObject = {"spec": {"namespaceSelector": None}}
        await world.patch(CLUSTER_ROLLOUT_SCHEDULES, "freeze", patch)
        await world.sleep(5)
        assert list_gates(world) == ["dev/cluster-freeze-app", "prod/cluster-freeze-app"]
        gates = [one["metadata"]["name"] for one in world.list_all(ROLLOUT_GATES)]
        assert gates == ["cluster-freeze-app", "cluster-freeze-app"]
        await world.delete(CLUSTER_ROLLOUT_SCHEDULES, "freeze")
        await world.sleep(60)
        assert list_gates(world) == []


@in_virtual_time
async def test_nothing_else_of_the_cluster_is_followed_without_a_schedule() -> None:
    """What is not needed is not read: no Rollouts, gates and namespaces of others."""
    async with ReleaseSandbox.opened() as world:
        await prepare(world)
        await world.start()
        await world.sleep(30)
        assert collect_requested(world) == {"clusterrolloutschedules"}
        await world.create(CLUSTER_ROLLOUT_SCHEDULES, "freeze", PROD)
        await world.sleep(30)
        assert collect_requested(world) == {
            *("clusterrolloutschedules", "rollouts", "rolloutgates", "namespaces")
        }
        assert list_gates(world) == ["prod/cluster-freeze-app"]


@in_virtual_time
async def test_a_role_of_one_namespace_has_no_schedules_of_the_cluster() -> None:
    """It is read again each minute, and what is of its namespace goes on."""
    async with ReleaseSandbox.opened() as world:
        world.sandbox.api.forbidden.add(("operator-1", "list", "clusterrolloutschedules"))
        await world.create(CLUSTER_ROLLOUT_SCHEDULES, "freeze", ALWAYS)
        await world.create_rollout()
        await world.start()
        await world.sleep(300)
        assert list_gates(world) == []
        assert (await world.get_status(ROLLOUTS, "app"))["conditions"]
        requested = sum(
            called.request.resource == CLUSTER_ROLLOUT_SCHEDULES
            for called in world.sandbox.history.list_all(Called)
            if called.actor == "operator-1"
        )
        assert requested <= 6
        world.sandbox.api.forbidden.clear()
        await world.sleep(90)
        assert list_gates(world) == ["default/cluster-freeze-app"]
