"""What a deployment writes: its entry, what becomes of the one before, and what it used up."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rollout_operator.model.releases import (
    BakeStatus,
    Release,
    ReleaseIntents,
    ReleaseMetadata,
    TriggeredBy,
    TriggerKind,
)
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, at, check, entry, gate, releases
from tests.planning.releases.release_world import ReleaseWorld, deployed

CREATED = datetime(2024, 12, 24, tzinfo=UTC)
SAID = ReleaseMetadata(digest="sha256:1", version="v2", revision="abc", created=CREATED)
WHOLE = Release(tag="2.0.0", digest="sha256:1", version="v2", revision="abc", created=CREATED)


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param({}, "Succeeded", id="REL-63 no bake"),
        pytest.param({"bake_time": MINUTE}, "Deploying", id="REL-63 a bake time"),
        pytest.param({"deploy_timeout": MINUTE}, "Deploying", id="REL-63 a timeout"),
        pytest.param({"checks": ALL_CHECKS}, "Deploying", id="REL-63 HealthChecks"),
    ],
)
def test_how_an_entry_begins(spec: dict[str, Any], status: str) -> None:
    world = deployed("1.0.0", **spec)
    entered = world.current

    assert world.history() == f"1.0.0 {status}"
    assert (entered.timestamp, entered.bake_start_time, entered.bake_end_time) == (
        at(0), None, None
    )  # fmt: skip
    assert ("BakeTimeDeploying" in world.events()) is (status == "Deploying")


@pytest.mark.parametrize(
    ("intents", "wanted", "message"),
    [
        pytest.param({}, None, "Automatic deployment", id="REL-64 by itself"),
        pytest.param({}, "2.0.0", "Manual deployment", id="REL-64 a pin"),
        pytest.param(
            {"force_deploy": "2.0.0"}, None, "Manual deployment, with force deploy",
            id="REL-58 it is forced",
        ),
        pytest.param(
            {"force_deploy": "2.0.0"}, "2.0.0", "Manual deployment, with force deploy",
            id="REL-58 what is pinned is forced as well",
        ),
        pytest.param(
            {"bypass_gates": "2.0.0", "unblock_failed": "true"}, None,
            "Automatic deployment, with gate bypass, with failed bake unblock",
            id="REL-58 bypassed and unblocked",
        ),
        pytest.param({"deploy_message": "x"}, None, "Automatic deployment", id="RT-66 by itself"),
        pytest.param({"deploy_message": ""}, "2.0.0", "Manual deployment", id="REL-64 no message"),
        pytest.param({"deploy_message": "x"}, "2.0.0", "x", id="REL-64 RT-08 a message"),
        pytest.param({"deployment_message": "y"}, "2.0.0", "y", id="REL-21 by its other name"),
        pytest.param(
            {"force_deploy": "2.0.0", "deploy_message": "now"}, None, "now", id="RT-62 it is forced"
        ),
        pytest.param(
            {"deploy_message": "x", "deployment_message": "y"}, "2.0.0", "x",
            id="REL-21 under both names",
        ),
    ],
)  # fmt: skip
def test_the_message_of_an_entry(intents: dict[str, str], wanted: str | None, message: str) -> None:
    """REL-70, REL-21: what was used up is removed, and words always."""
    world = ReleaseWorld(known="1.0.0 2.0.0", wanted_version=wanted)
    past = BakeStatus.FAILED if "unblock_failed" in intents else BakeStatus.SUCCEEDED
    world.set_status(history=(entry("1.0.0", past),))
    world.gates = (gate(passing=False),) if "bypass_gates" in intents else ()
    world.post(**intents)
    world.step()

    assert (world.tags(), world.current.message) == ("2.0.0 1.0.0", message)
    assert world.rollout.intents == ReleaseIntents()


@pytest.mark.parametrize(
    ("user", "wanted", "by"),
    [
        pytest.param("ann", "1.0.0", "User ann", id="REL-65 RT-65 a person requested it, by name"),
        pytest.param("ann", None, "System rollout-controller", id="REL-65 by itself"),
        pytest.param(None, "1.0.0", "System rollout-controller", id="REL-65 without a name"),
        pytest.param("", "1.0.0", "System rollout-controller", id="RT-67 an empty name"),
    ],
)
def test_an_entry_names_its_requester(user: str | None, wanted: str | None, by: str) -> None:
    world = ReleaseWorld(known="1.0.0", wanted_version=wanted)
    world.post(deploy_user=user)
    world.step()

    kind, _, name = by.partition(" ")
    assert world.current.triggered_by == TriggeredBy(kind=TriggerKind(kind), name=name)


@pytest.mark.parametrize(
    ("known", "metadata", "version"),
    [
        pytest.param((WHOLE,), {}, WHOLE, id="REL-66 as it is on record"),
        pytest.param(releases("1.0.0"), {"2.0.0": SAID}, WHOLE, id="REL-66 as its image says"),
        pytest.param(releases("1.0.0"), {}, Release(tag="2.0.0"), id="REL-66 by its tag alone"),
    ],
)
def test_what_an_entry_says_of_its_release(
    known: tuple[Release, ...], metadata: dict[str, ReleaseMetadata | None], version: Release
) -> None:
    world = ReleaseWorld(latest="1.0.0", wanted_version="2.0.0")
    world.set_status(available_releases=known)
    world.metadata = metadata
    world.step()

    assert world.current.version == version


def test_the_one_before_is_cancelled_and_says_by_what() -> None:
    """REL-59, REL-68: its message and its end are new, and nothing else of it."""
    world = deployed("1.0.0", bake_time=MINUTE, checks=ALL_CHECKS, history_limit=2)
    world.checks = (check(),)
    world.step()
    before = world.current
    world.wait(3)
    world.set_spec(wanted_version="2.0.0")
    world.step()

    past = world.status.history[1]
    assert (past.bake_status, past.bake_end_time) == (BakeStatus.CANCELLED, at(3))
    assert "2.0.0" in (past.message or "")
    assert (past.version, past.timestamp, past.id) == (before.version, before.timestamp, before.id)
    assert world.events()[0] == "BakeTimeCancelled"
    world.set_spec(wanted_version="1.0.0")
    world.step()
    assert world.tags() == "1.0.0 2.0.0"


def test_a_deployment_is_reported_once_it_is_written() -> None:
    """REL-69: `Ready` and the event say what let it through."""
    world = ReleaseWorld(known="1.0.0 2.0.0")
    world.set_status(history=(entry("1.0.0", BakeStatus.FAILED),))
    world.post(unblock_failed="true")
    plan = world.step()

    (event,) = [one for one in plan.events if one.reason == "DeploymentSucceeded"]
    ready = world.status.find_condition("Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "RolloutSucceeded")
    for text in (event.note, ready.message):
        assert "with failed bake unblock" in text
    assert "DeploymentSucceeded" not in [one.reason for one in world.step().events]


def test_what_is_known_is_of_the_generation_that_was_seen() -> None:
    """RELB-08: of the status, and of each condition."""
    world = deployed("1.0.0")

    assert world.status.observed_generation == world.rollout.head.generation == 1
    assert {one.observed_generation for one in world.status.conditions} == {1}


# --- bakes


def baking(**spec: Any) -> ReleaseWorld:
    """Return a world in which 1.0.0 was deployed at the start, and bakes since the first minute."""
    spec = {"bake_time": 5 * MINUTE, "checks": ALL_CHECKS, **spec}
    world = deployed("1.0.0", **spec)
    world.wait(1)
    world.checks = (check(status="Healthy", change=1),)
    world.step()
    assert world.history() == "1.0.0 InProgress"
    return world


@pytest.mark.parametrize("status", ["Pending", "Unhealthy", ""])
def test_without_a_new_error_a_bake_goes_on(status: str) -> None:
    """REL-77."""
    world = baking()
    world.wait(2)
    world.checks = (check(status=status, change=2, error=-1),)
    world.step()
    assert world.history() == "1.0.0 InProgress"
    world.wait(3)
    world.step()
    assert world.history() == "1.0.0 Succeeded"


def test_a_bake_that_has_begun_has_no_timeout() -> None:
    """REL-72: that is for its start."""
    world = baking(deploy_timeout=2 * MINUTE)
    world.wait(4)
    world.step()
    assert world.history() == "1.0.0 InProgress"


def test_at_a_timeout_all_that_was_silent_is_named() -> None:
    """REL-72: what has not become healthy since the deployment; time is judged before errors."""
    world = deployed("1.0.0", deploy_timeout=MINUTE, checks=ALL_CHECKS)
    world.wait(2)
    world.checks = (
        check("a", "Healthy", change=1),
        check("b", "Healthy", change=0),
        check("c", "Healthy"),
        check("d", "Pending", change=1),
        check("e", "Unhealthy", change=1, error=1, message="down"),
    )
    world.step()

    assert world.history() == "1.0.0 Failed"
    assert "timeout" in (world.current.bake_status_message or "")
    assert [one.name for one in world.current.failed_health_checks] == ["b", "c", "d", "e"]


def test_a_release_for_which_failures_do_not_count_can_succeed() -> None:
    """REL-78, REL-67: for the whole life of the entry."""
    world = deployed("1.0.0", bake_time=5 * MINUTE, checks=ALL_CHECKS, deploy_timeout=MINUTE)
    world.checks = (check(status="Unhealthy"),)
    world.set_spec(wanted_version="0.9.0")
    world.step()
    assert world.reason("BakeFailureDisabled") == "True DeployedWithUnhealthyHealthChecks"
    world.wait(3)
    world.checks = (check(status="Healthy", change=3, error=2),)
    world.step()
    assert world.history().startswith("0.9.0 InProgress")
    world.checks = (check(status="Unhealthy", change=4, error=4),)
    world.wait(2)
    world.step()
    assert world.history().startswith("0.9.0 InProgress")
    world.wait(3)
    world.step()
    assert world.history().startswith("0.9.0 Succeeded")


def test_nothing_bakes_while_health_is_waited_for() -> None:
    """REL-75: the status says for which HealthCheck, and when it is read again (REL-90)."""
    world = deployed("1.0.0", deploy_timeout=7 * MINUTE, checks=ALL_CHECKS)
    world.checks = (check(status="Pending"),)
    world.wait(2)
    plan = world.step()

    assert world.current.bake_status_message == "waiting for health: prod/check"
    assert plan.requeue_after == 5 * MINUTE
