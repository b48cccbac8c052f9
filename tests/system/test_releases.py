"""Release rollouts on the real control plane, with kinds of Flux and a stand-in for Flux itself."""

import pytest

from tests.system.releasing import (
    GATES,
    ON,
    ROLLOUTS,
    announce,
    create,
    create_targets,
    prepare,
    read_status,
    show_condition,
    wait_history,
    wait_release_condition,
    wait_tags,
)
from tests.world.world import World

pytestmark = pytest.mark.controlplane

POLICY = {"releasesImagePolicy": {"name": "app"}}
NO_REGISTRY = "-releases.metadata=none"


async def test_a_first_release_and_a_gated_one(world: World) -> None:
    """REL-89: what is announced, and a gate that opens, are acted on at once."""
    await prepare(world)
    await create_targets(world)
    await announce(world, "1.0.0")
    await create(world, ROLLOUTS, "Rollout", "app", POLICY)
    operator = await world.operator(ON, NO_REGISTRY)

    status = await wait_history(world, "1.0.0 Succeeded")
    await wait_tags(world, "1.0.0")
    assert show_condition(status, "GatesPassing").startswith("True")

    gate = {"rolloutRef": {"name": "app"}, "passing": False}
    await create(world, GATES, "RolloutGate", "closed", gate)
    await wait_release_condition(world, "GatesPassing", "False SomeGatesBlocking")
    await announce(world, "1.1.0")
    status = await wait_release_condition(world, "GatesPassing", "False SomeGatesBlocking")
    await world.api.patch(GATES, world.namespace, "closed", {"spec": {"passing": True}})
    await wait_history(world, "1.1.0 Succeeded, 1.0.0 Succeeded")
    await wait_tags(world, "1.1.0")
    assert show_condition(await read_status(world), "Ready") == "True RolloutSucceeded"
    assert await operator.terminate() == 0
    await world.assert_permitted()
