"""Schedules and health of releases on the real control plane, with a stand-in for Flux."""

from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.releasing import (
    CHECKS,
    GATES,
    GROUP,
    ON,
    ROLLOUTS,
    announce,
    create,
    create_targets,
    patch_status,
    prepare,
    read_status,
    run_flux,
    show_history,
    wait_gate,
    wait_history,
    wait_release_condition,
    wait_tags,
)
from tests.system.waits import wait_true
from tests.world.api import Json, Resource
from tests.world.flux import KUSTOMIZATIONS, render_inventory
from tests.world.kubelet import image_of
from tests.world.world import World

pytestmark = pytest.mark.controlplane

SCHEDULES: Final = Resource(GROUP, "rolloutschedules")
POLICY: Final = {"releasesImagePolicy": {"name": "app"}}
NO_REGISTRY: Final = "-releases.metadata=none"
ALWAYS: Final = {"rolloutSelector": {}, "rules": [{"name": "always"}]}
SOON: Final = {"healthcheck.kuberik.com/requeue-interval": "5s"}


async def test_a_schedule_holds_a_release_until_it_opens(world: World) -> None:
    """REL-98, REL-99, RELB-31: its gate is put right, and opened."""
    await prepare(world)
    await create_targets(world)
    await announce(world, "1.0.0")
    await create(world, ROLLOUTS, "Rollout", "app", POLICY)
    await create(world, SCHEDULES, "RolloutSchedule", "freeze", ALWAYS)
    operator = await world.operator(ON, NO_REGISTRY)

    await wait_history(world, "1.0.0 Succeeded")
    await wait_gate(world, "freeze-app", False)
    await announce(world, "1.1.0")
    await wait_release_condition(world, "GatesPassing", "False SomeGatesBlocking")
    await world.patch(GATES, "freeze-app", {"spec": {"passing": True, "rolloutRef": {"name": "x"}}})
    await wait_gate(world, "freeze-app", False)
    assert (await world.get(GATES, "freeze-app"))["spec"]["rolloutRef"] == {"name": "app"}

    await world.patch(SCHEDULES, "freeze", {"spec": {"action": "Allow"}})
    await wait_gate(world, "freeze-app", True)
    await wait_history(world, "1.1.0 Succeeded, 1.0.0 Succeeded")
    status = (await world.get(SCHEDULES, "freeze"))["status"]
    assert (status["active"], status["activeRules"], status["managedGates"]) == (
        True,
        ["always"],
        ["freeze-app"],
    )
    # With it the gate goes; the garbage collector takes its time to learn of a new kind.
    (owner,) = (await world.get(GATES, "freeze-app"))["metadata"]["ownerReferences"]
    assert (owner["name"], owner["controller"]) == ("freeze", True)
    assert await operator.terminate() == 0
    await world.assert_permitted()


async def test_a_version_waits_for_a_schedule_that_has_no_gate_yet(world: World) -> None:
    """RELB-42: in its first moment, and where it does not say what it selects."""
    await prepare(world)
    await create_targets(world)
    await announce(world, "1.0.0")
    await create(world, ROLLOUTS, "Rollout", "app", POLICY)
    operator = await world.operator(ON, NO_REGISTRY)
    await wait_history(world, "1.0.0 Succeeded")

    await create(world, SCHEDULES, "RolloutSchedule", "freeze", ALWAYS)
    await announce(world, "1.1.0")
    await wait_gate(world, "freeze-app", False)
    await wait_release_condition(world, "GatesPassing", "False SomeGatesBlocking")
    assert show_history(await read_status(world)) == "1.0.0 Succeeded"
    await world.patch(SCHEDULES, "freeze", {"spec": {"action": "Allow"}})
    await wait_history(world, "1.1.0 Succeeded, 1.0.0 Succeeded")

    unknown = {"matchExpressions": [{"key": "tier", "operator": "Like", "values": ["web"]}]}
    spec = {**ALWAYS, "rolloutSelector": unknown}
    await create(world, SCHEDULES, "RolloutSchedule", "typo", spec)
    await announce(world, "1.2.0")
    status = await wait_release_condition(world, "GatesPassing", "False SchedulesBlocking")
    messages = " ".join(one["message"] for one in status["conditions"])
    assert f"RolloutSchedule {world.namespace}/typo: spec.rolloutSelector" in messages
    await world.delete(SCHEDULES, "typo")
    await wait_history(world, "1.2.0 Succeeded, 1.1.0 Succeeded, 1.0.0 Succeeded")
    assert await operator.terminate() == 0
    await world.assert_permitted()


async def test_a_release_bakes_only_after_its_zones_are_through(world: World) -> None:
    """RELB-16, RELB-36, RELB-37: by the pods of a group, and by what a Kustomization applied."""
    await prepare(world)
    await world.grant("releases-inventory")
    await create_targets(world)
    zones = await world.create(
        *(ZoneSpec(name=f"db-{one}", group="db", replicas=2) for one in "ab")
    )
    for name, of, named in (
        ("zones", "rollout-group", {"healthcheck.kuberik.com/rollout-group": "db"}),
        ("app", "kustomization", {"healthcheck.kuberik.com/kustomization": "app"}),
    ):
        metadata: Json = {"labels": {"app": "app"}, "annotations": {**named, **SOON}}
        await create(world, CHECKS, "HealthCheck", name, {"class": of}, **metadata)
    inventory = render_inventory(world.namespace, zones)
    await patch_status(world, KUSTOMIZATIONS, "app", {"inventory": inventory})
    await announce(world, "1.0.0")
    selected = {"selector": {"matchLabels": {"app": "app"}}}
    spec = {**POLICY, "bakeTime": "2s", "healthCheckSelector": selected}
    await create(world, ROLLOUTS, "Rollout", "app", spec)
    operator = await world.operator(ON, NO_REGISTRY)

    await wait_history(world, "1.0.0 Deploying")
    await wait_tags(world, "1.0.0")
    await run_flux(world)
    await wait_history(world, "1.0.0 Succeeded")

    await announce(world, "2.0.0")
    await wait_history(world, "2.0.0 Deploying, 1.0.0 Succeeded")
    await wait_health(world, "zones", "waiting for Flux to apply 2.0.0")
    await world.set_image(zones, "app:2")
    await wait_tags(world, "2.0.0")
    await run_flux(world)

    async def is_baking() -> bool:
        return "Deploying" not in show_history(await read_status(world))

    await wait_true("the bake of 2.0.0", is_baking)
    pods = await world.api.items(Resource("v1", "pods"), world.namespace)
    assert {image_of(one) for one in pods} == {"app:2"}
    await wait_history(world, "2.0.0 Succeeded, 1.0.0 Succeeded")
    assert await operator.terminate() == 0
    await world.assert_permitted()


async def wait_health(world: World, name: str, message: str) -> None:
    """Wait until the message of a HealthCheck begins like this."""
    status: Json = {}

    async def holds() -> bool:
        nonlocal status
        status = (await world.get(CHECKS, name)).get("status") or {}
        return bool(status.get("message", "").startswith(message))

    await wait_true(lambda: f"{message}, but {status}", holds)
