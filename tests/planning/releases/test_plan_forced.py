"""Releases that are forced by an annotation: once, among those that are known."""

from tests.planning.releases.builders import MINUTE, gate
from tests.planning.releases.release_world import ReleaseWorld, deployed

CLOSED = gate(passing=False)


def test_an_odd_order_and_a_forced_release() -> None:
    """RT-60, RT-61."""
    world = ReleaseWorld(known="3.0.0 2.0.0 1.0.0", latest="3.0.0", bake_time=MINUTE)
    world.gates = (CLOSED,)
    world.step()
    assert world.tags() == "3.0.0"
    world.post(force_deploy="2.0.0")
    world.checks = ()
    world.step()
    assert world.history() == "2.0.0 Deploying, 3.0.0 Cancelled"
    assert world.current.message == "Manual deployment, with force deploy"
    assert world.rollout.intents.force_deploy is None


def test_an_unknown_release_cannot_be_forced() -> None:
    """RT-63."""
    world = deployed("1.0.0")
    world.post(force_deploy="3.0.0")
    plan = world.step()
    assert '"3.0.0"' in plan.problem
    assert world.reason("Ready") == "False RolloutFailed"
    assert world.events()[0] == "RolloutFailed"
    assert world.step().events == ()
    world.post(force_deploy=None)
    world.step()
    assert world.reason("Ready") == "True RolloutSucceeded"


def test_a_pin_hides_what_is_forced() -> None:
    """RT-64."""
    world = ReleaseWorld(known="1.0.0 2.0.0", wanted_version="1.0.0")
    world.post(force_deploy="2.0.0")
    world.step()
    assert (world.tags(), world.current.message) == ("1.0.0", "Manual deployment")
    assert world.rollout.intents.force_deploy == "2.0.0"


def test_to_force_what_is_deployed_is_done() -> None:
    """RELB-09: the next release is deployed."""
    world = deployed("1.0.0")
    world.post(force_deploy="1.0.0")
    world.step()
    assert world.events()[0] == "ForceDeployNoop"
    world.step("2.0.0")
    assert world.tags() == "2.0.0 1.0.0"
