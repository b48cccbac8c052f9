"""Releases in a namespace that nothing else makes the operator look after."""

import pytest
from msgspec.structs import replace

from rollout_operator.lab.zones import ZoneSpec
from tests.system.releasing import (
    CHECKS,
    ON,
    ROLLOUTS,
    announce,
    create,
    create_targets,
    prepare,
    wait_history,
    wait_tags,
)
from tests.system.waits import wait_true
from tests.world.api import Json, Resource
from tests.world.operatorproc import OperatorProcess
from tests.world.several import beside, bind, granting, permit_following
from tests.world.world import World

pytestmark = pytest.mark.controlplane

RULES = (
    permit_following("apps", "statefulsets"),
    permit_following("rollout-operator.grafana.com", "zoneawarepoddisruptionbudgets"),
    permit_following("rollout.grafana.com", "multiazrollouts"),
    permit_following("kuberik.com", "rollouts"),
)


async def test_a_rollout_makes_its_namespace_one_to_serve(world: World) -> None:
    """MAZ-65: where all namespaces are watched."""
    world.may_be_forbidden = True  # in the operator's own namespace nothing is granted for releases
    async with beside(world) as other, granting(world, *RULES):
        other.may_be_forbidden = True
        await prepare(other)
        await bind(other, world)
        await create_targets(other)
        await announce(other, "1.0.0")
        await create(other, ROLLOUTS, "Rollout", "app", {"releasesImagePolicy": {"name": "app"}})
        flags = world.launch(ON, "-releases.metadata=none")
        variables = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": world.namespace}
        launch = replace(flags, namespace="", env=variables)
        async with OperatorProcess(launch) as operator:
            await operator.wait_ready()
            await wait_history(other, "1.0.0 Succeeded")
            await wait_tags(other, "1.0.0")
            assert await operator.terminate() == 0


async def test_a_group_of_another_namespace_that_only_a_person_moves_is_unhealthy(
    world: World,
) -> None:
    """RELB-36: what holds it is known to the process, whose namespace both are."""
    world.may_be_forbidden = True
    async with beside(world) as other:
        other.may_be_forbidden = True
        await prepare(other)
        await bind(other, world)
        names = await world.create(
            *(ZoneSpec(name=f"db-{zone}", group="db", replicas=1) for zone in "ab")
        )
        await world.wait_ready(names)
        sets = Resource("apps/v1", "statefulsets")
        rolling: Json = {"spec": {"updateStrategy": {"type": "RollingUpdate"}}}
        await world.patch(sets, "db-a", rolling)
        await world.set_image(["db-b"], "app:2")
        annotations = {
            "healthcheck.kuberik.com/rollout-group": f"{world.namespace}/db",
            "healthcheck.kuberik.com/requeue-interval": "5s",
        }
        spec = {"class": "rollout-group"}
        await create(other, CHECKS, "HealthCheck", "db", spec, annotations=annotations)
        variables = {
            "WATCH_NAMESPACE": f"{world.namespace},{other.namespace}",
            "POD_NAMESPACE": world.namespace,
        }
        flags = world.launch(ON, "-releases.metadata=none")
        async with OperatorProcess(replace(flags, namespace="", env=variables)) as operator:
            await operator.wait_ready()
            found: Json = {}

            async def is_unhealthy() -> bool:
                nonlocal found
                found = (await other.get(CHECKS, "db")).get("status") or {}
                return found.get("status") == "Unhealthy"

            await wait_true(lambda: f"Unhealthy, but {found}", is_unhealthy)
            assert "RollingUpdate" in found["message"]
            assert await operator.terminate() == 0
