"""Releases in a namespace that nothing else makes the operator look after."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from tests.system.releasing import (
    CHECKS,
    ON,
    ROLLOUTS,
    SELECTED,
    announce,
    create,
    create_targets,
    patch_status,
    prepare,
    wait_history,
    wait_tags,
)
from tests.system.waits import wait_true
from tests.world.api import ROLES, Json, Resource
from tests.world.flux import KUSTOMIZATIONS
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


@pytest.mark.parametrize("mode", ["one", "list", "all"])
async def test_health_of_another_namespace_counts_where_it_is_selected(
    world: World, mode: str
) -> None:
    """RELB-36, REL-104: under the shipped roles, whichever namespaces the operator looks after."""
    world.may_be_forbidden = True  # of the namespaces beside it
    async with AsyncExitStack() as stack:
        far = await stack.enter_async_context(beside(world, is_granted=False))
        await prepare(world)
        for component in ("releases-cluster", "releases-inventory"):
            await world.grant(component)
        watched = world.namespace
        if mode == "list":
            other = await stack.enter_async_context(beside(world))
            await prepare(other)
            await bind(other, world)
            watched = f"{world.namespace},{other.namespace}"
        if mode == "all":
            watched = ""
            await stack.enter_async_context(granting(world, *RULES))
        source: Json = {"interval": "1m", "path": "./", "prune": True}
        source["sourceRef"] = {"kind": "GitRepository", "name": "x"}
        await create(far, KUSTOMIZATIONS, "Kustomization", "app", source)
        role: Json = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
        await far.api.create(ROLES, far.namespace, {**role, "metadata": {"name": "r"}, "rules": []})
        applied = [
            f"{far.namespace}_r_rbac.authorization.k8s.io_Role",
            f"_{far.namespace}__Namespace",
        ]
        ready = {"type": "Ready", "status": "True", "reason": "Ok", "message": "applied"}
        stamp = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        inventory = {"entries": [{"id": one, "v": "v1"} for one in applied]}
        status: Json = {"observedGeneration": 1, "inventory": inventory}
        status["conditions"] = [{**ready, **stamp}]
        await patch_status(far, KUSTOMIZATIONS, "app", status)
        annotations = {"healthcheck.kuberik.com/kustomization": "app"}
        for name, of in (("app", "kustomization"), ("others", "of-others")):
            metadata: Json = {"labels": {"app": "app"}, "annotations": annotations}
            await create(far, CHECKS, "HealthCheck", name, {"class": of}, **metadata)
            old: Json = {"status": "Healthy", "lastChangeTime": "2026-01-01T00:00:00Z"}
            await patch_status(far, CHECKS, name, old)
        await announce(world, "1.0.0")
        spaces = {"matchLabels": {"kubernetes.io/metadata.name": far.namespace}}
        policy = {"releasesImagePolicy": {"name": "app"}, "bakeTime": "1s"}
        selected = {**SELECTED, "namespaceSelector": spaces}
        spec = {**policy, "healthCheckSelector": selected}
        await create(world, ROLLOUTS, "Rollout", "app", spec)
        variables = {"WATCH_NAMESPACE": watched, "POD_NAMESPACE": world.namespace}
        flags = world.launch(ON, "-releases.metadata=none")
        async with OperatorProcess(replace(flags, namespace="", env=variables)) as operator:
            await operator.wait_ready()

            async def is_reset() -> bool:
                found = (await far.get(CHECKS, "others"))["status"]
                return str(found.get("message", "")).startswith("reset for")

            await wait_true("a reset", is_reset)
            now: Json = {"status": "Healthy", "message": "fine"}
            now["lastChangeTime"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            await patch_status(far, CHECKS, "others", now)
            await wait_history(world, "1.0.0 Succeeded")
            found = (await far.get(CHECKS, "app"))["status"]
            assert (found["status"], found["message"]) == ("Healthy", "applied")
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
