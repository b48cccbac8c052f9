"""The table of a pass: what is deployed, or waits, by all that may stand in its way."""

from typing import Any

import pytest

from rollout_operator.model.outcome import Severity
from rollout_operator.model.releases import BakeStatus
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, check, entry, gate
from tests.planning.releases.release_world import ReleaseWorld

OPEN, CLOSED, NONE_LEFT = gate(), gate(passing=False), gate(allowed="9.9.9")
UNHEALTHY = check(status="Unhealthy", change=-1, message="down")


def world_with(
    current: str | None,
    *,
    closed: bool = False,
    none_left: bool = False,
    unhealthy: bool = False,
    **spec: Any,
) -> ReleaseWorld:
    """Return a world with 2.0.0 announced, and a bake of 1.0.0 that is so far, if any."""
    known = "1.0.0 2.0.0"
    world = ReleaseWorld(known=known, bake_time=MINUTE, checks=ALL_CHECKS, **spec)
    if current is not None:
        world.set_status(history=(entry("1.0.0", current),))
    world.gates = (CLOSED,) if closed else (NONE_LEFT,) if none_left else (OPEN,)
    world.checks = (UNHEALTHY,) if unhealthy else (check(status="Pending"),)
    return world


DEPLOYING, FAILED = BakeStatus.DEPLOYING, BakeStatus.FAILED
DONE = BakeStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("world", "unblock", "history", "event"),
    [
        pytest.param(
            world_with(None, closed=True, unhealthy=True), None, "2.0.0 Deploying",
            "BakeTimeDeploying", id="REL-53 nothing was deployed: whatever gates and health say",
        ),
        pytest.param(
            world_with(DEPLOYING, closed=True, unhealthy=True, wanted_version="2.0.0"), None,
            "2.0.0 Deploying, 1.0.0 Cancelled", "BakeTimeCancelled",
            id="REL-45 RT-20 RT-54 by name: past gates, health and a bake",
        ),
        pytest.param(
            world_with(FAILED, closed=True, unhealthy=True, wanted_version="2.0.0"), None,
            "2.0.0 Deploying, 1.0.0 Failed", "BakeTimeDeploying",
            id="REL-45 by name: past a failure",
        ),
        pytest.param(
            world_with(DEPLOYING, wanted_version="1.0.0"), None, "1.0.0 Deploying", "",
            id="REL-48 by name what is deployed",
        ),
        pytest.param(
            world_with(DEPLOYING), None, "1.0.0 Deploying", "", id="REL-79 a bake is waited for"
        ),
        pytest.param(
            world_with(DONE, closed=True), None, "1.0.0 Succeeded", "SomeGatesBlocking",
            id="REL-50 a gate blocks",
        ),
        pytest.param(
            world_with(DONE, none_left=True), None, "1.0.0 Succeeded", "NoAllowedVersions",
            id="REL-50 gates leave nothing",
        ),
        pytest.param(
            world_with(DONE, unhealthy=True), None, "1.0.0 Succeeded", "HealthCheckBlocking",
            id="REL-57 health is bad",
        ),
        pytest.param(
            world_with(DONE, closed=True, unhealthy=True), None, "1.0.0 Succeeded",
            "SomeGatesBlocking", id="REL-57 behind a closed gate health stops nothing",
        ),
        pytest.param(
            world_with(FAILED), None, "1.0.0 Failed", "", id="REL-80 the current release failed"
        ),
        pytest.param(
            world_with(FAILED), "yes", "1.0.0 Failed", "", id="REL-80 unblocked by another word"
        ),
        pytest.param(
            world_with(FAILED), "true", "2.0.0 Deploying, 1.0.0 Failed", "BakeTimeDeploying",
            id="REL-80 it failed, and is unblocked",
        ),
        pytest.param(
            world_with(DONE), None, "2.0.0 Deploying, 1.0.0 Succeeded", "BakeTimeDeploying",
            id="REL-85 nothing is in the way",
        ),
    ],
)  # fmt: skip
def test_what_one_pass_does(
    world: ReleaseWorld, unblock: str | None, history: str, event: str
) -> None:
    """REL-85; lists of candidates are kept up to date in each row (REL-42)."""
    world.post(unblock_failed=unblock)
    world.step()

    assert world.history() == history
    reasons = [one for one in world.events() if one not in {"AllGatesPassing", "BakeTimeFailed"}]
    assert event in reasons if event else reasons == []
    is_newest = world.current.version.tag == "2.0.0"
    candidates = [one.tag for one in world.status.release_candidates]
    assert candidates == ([] if is_newest else ["2.0.0"])
    manual = world.rollout.spec.wanted_version is not None
    if manual:
        assert world.reason("DeploymentBlocked") == "False ManualDeployment"


def test_what_stops_a_deployment_is_a_warning() -> None:
    """REL-57, RT-76: the event and the condition have the message of the HealthCheck."""
    world = world_with(DONE, unhealthy=True)
    plan = world.step()
    (event,) = [one for one in plan.events if one.reason == "HealthCheckBlocking"]

    assert (event.severity, "prod/check (down)" in event.note) == (Severity.WARN, True)
    world.gates = (CLOSED,)
    world.step()
    blocked = world.status.find_condition("DeploymentBlocked")
    assert blocked is not None
    assert (blocked.reason, "down" in blocked.message) == ("UnhealthyHealthChecks", True)
    world.post(force_deploy="2.0.0")
    world.set_spec(is_suspended=False)
    world.step()
    assert world.reason("DeploymentBlocked") == "False ManualDeployment"  # RT-78


def test_a_retry_that_succeeds_lets_the_next_one_come() -> None:
    """REL-80, REL-23: whatever the value of the annotation."""
    for value in ("", "retry", "skip", "2025-01-01"):
        world = world_with(FAILED)
        world.post(retry=value)
        world.step()
        assert world.history() == "1.0.0 Deploying"
        world.checks = (check(status="Healthy", change=1),)
        world.wait(1)
        world.step()
        world.wait(1)
        world.step()
        assert world.history() == "2.0.0 Deploying, 1.0.0 Succeeded"


def test_lists_stay_up_to_date_while_a_release_is_pinned() -> None:
    """REL-42: and after a deployment the candidates are those after it."""
    world = ReleaseWorld(known="1.0.0", wanted_version="1.0.0")
    for latest, candidates in (("1.0.0", ""), ("1.1.0", "1.1.0"), ("1.2.0", "1.2.0 1.1.0")):
        world.step(latest)
        assert world.tags() == "1.0.0"
        assert " ".join(one.tag for one in world.status.release_candidates) == candidates


def test_discovery_is_reported_also_where_nothing_was_announced() -> None:
    """REL-39."""
    world = ReleaseWorld()
    world.step()
    assert world.reason("ReleasesUpdated") == "True ReleasesUpdated"
    world.step("1.0.0")
    assert world.reason("ReleasesUpdated") == "True ReleasesUpdated"
    known = world.status.find_condition("ReleasesUpdated")
    world.policy_problem = "it is not there"
    world.step()
    assert world.status.find_condition("ReleasesUpdated") == known
