"""Releases in a namespace that nothing else makes the operator look after."""

from dataclasses import replace

import pytest

from tests.system.releasing import (
    ON,
    ROLLOUTS,
    announce,
    create,
    create_targets,
    prepare,
    wait_history,
    wait_tags,
)
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


async def test_a_rollout_makes_its_namespace_one_to_look_after(world: World) -> None:
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
