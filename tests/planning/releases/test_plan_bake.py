"""How a release bakes: start, success, failure, timeouts, recovery mode, and retries."""

from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.model.release_plan import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    FluxTarget,
    HealthCheck,
    RequestReconcile,
)
from rollout_operator.model.releases import (
    KUBERIK,
    OURS,
    BakeStatus,
    FailedHealthCheck,
    ReleaseCompat,
)
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, at, check, entry
from tests.planning.releases.release_world import ReleaseWorld, deployed

FIVE = 5 * MINUTE
TARGET = FluxTarget(kind=OCI_REPOSITORY, name="app", tag="0.0.9")


def silent(**spec: Any) -> ReleaseWorld:
    """Return a world with 0.1.0 deployed at the start, and a check that says nothing (RT-32)."""
    world = deployed("0.1.0", **{"bake_time": FIVE, "checks": ALL_CHECKS, **spec})
    world.checks = (check(),)
    return world


def baking(**spec: Any) -> ReleaseWorld:
    """Return a world in which it bakes since the first minute (RT-33)."""
    world = silent(**spec)
    world.wait(1)
    world.checks = (check(status="Healthy", change=1),)
    world.step()
    return world


def recovering(*checks: HealthCheck) -> ReleaseWorld:
    """Return a world in which a pin was deployed while a check was unhealthy (RT-69)."""
    world = silent(deploy_timeout=MINUTE / 2)
    world.checks = (check(status="Unhealthy"),)
    world.set_spec(wanted_version="1.0.0")
    world.step()
    world.checks = checks or world.checks
    return world


def test_a_silent_check_starts_no_bake() -> None:
    """RT-32."""
    world = silent()
    world.step("0.2.0")
    assert world.history() == "0.1.0 Deploying"
    assert world.current.bake_start_time is None
    assert [one.tag for one in world.status.release_candidates] == ["0.2.0"]
    assert world.reason("Reconciling") == "True Deploying"


def test_a_bake_starts_with_health_and_ends_with_time() -> None:
    """RT-33, RT-34, RT-36, RT-46, RT-50."""
    world = baking()
    assert world.history() == "0.1.0 InProgress"
    assert (world.current.bake_start_time, world.current.bake_end_time) == (at(1), None)
    assert world.events()[0] == "BakeTimeStarted"
    assert world.step().requeue_after == FIVE
    world.wait(1)
    world.step("0.2.0")
    assert world.history() == "0.1.0 InProgress"
    world.wait(8)
    plan = world.step()
    assert world.history() == "0.2.0 Deploying, 0.1.0 Succeeded"
    assert plan.requeue_after is None
    assert world.status.history[1].bake_end_time == at(10)
    assert world.events()[:2] == ["BakeTimePassed", "BakeTimeDeploying"]


def test_a_bake_that_passed_is_ready() -> None:
    """REL-76, REL-87."""
    world = baking()
    world.wait(6)
    world.step()
    assert world.reason("Ready") == "True BakeTimePassed"
    assert world.reason("Reconciling") == "False Idle"


@pytest.mark.parametrize("error", [1.0, 2.0])
def test_an_error_in_a_bake_fails_it(error: float) -> None:
    """RT-35, RT-39, RT-43, RT-50: also at the very moment of its start."""
    world = baking()
    world.wait(2)
    world.checks = (check(status="Unhealthy", error=error),)
    world.step("0.2.0")
    assert world.history() == "0.1.0 Failed"
    assert world.current.bake_end_time == at(3)
    assert "after the bake started" in (world.current.bake_status_message or "")
    assert world.current.failed_health_checks == (
        FailedHealthCheck(name="check", namespace="prod"),
    )
    assert world.reason("Ready") == "False BakeTimeFailed"
    assert world.reason("Stalled") == "True BakeTimeFailed"
    assert world.events()[0] == "BakeTimeFailed"
    assert [one.tag for one in world.status.release_candidates] == ["0.2.0"]
    world.step()
    assert world.history() == "0.1.0 Failed"


def test_an_error_before_the_bake_fails_it() -> None:
    """RT-40, RT-42: one of two is enough, whatever it says now."""
    world = silent()
    world.wait(2)
    world.checks = (check("a"), check("b", "Healthy", error=1, change=2, message="down"))
    world.step()
    assert world.history() == "0.1.0 Failed"
    assert "after deployment" in (world.current.bake_status_message or "")
    assert world.current.bake_start_time is None
    assert world.current.failed_health_checks == (
        FailedHealthCheck(name="b", namespace="prod", message="down"),
    )


def test_an_error_before_the_deployment_is_none() -> None:
    """RT-41."""
    world = silent()
    world.checks = (check(status="Healthy", change=1, error=-1),)
    world.wait(10)
    world.step()
    assert world.history() == "0.1.0 InProgress"
    world.wait(5)
    world.step()
    assert world.history() == "0.1.0 Succeeded"


@pytest.mark.parametrize("starts", [True, False])
def test_a_pin_supersedes_a_bake(starts: bool) -> None:
    """RT-37, RT-38, RT-47, RT-48."""
    world = baking() if starts else silent()
    world.set_spec(wanted_version="0.2.0")
    plan = world.step()
    assert world.history() == "0.2.0 Deploying, 0.1.0 Cancelled"
    assert world.status.history[1].bake_end_time == world.now
    assert "0.2.0" in (world.status.history[1].message or "")
    assert plan.requeue_after is not None
    assert timedelta(0) < plan.requeue_after <= FIVE


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (check(), "its status is not evaluated"),
        (check(status="Unhealthy", change=-1, message="down"), "down"),
    ],
)
def test_a_bake_that_does_not_start_in_time(known: HealthCheck, message: str) -> None:
    """RT-44, RT-45."""
    world = silent(deploy_timeout=7 * MINUTE)
    world.checks = (known,)
    world.wait(7)
    world.step()
    assert world.history() == "0.1.0 Deploying"
    world.wait(1)
    world.step()
    assert world.history() == "0.1.0 Failed"
    assert world.current.bake_end_time == at(8)
    assert "7m" in (world.current.bake_status_message or "")
    assert [one.message for one in world.current.failed_health_checks] == [message]


def test_an_entry_that_never_started_times_out_as_well() -> None:
    """RT-49, RELB-39."""
    world = silent(deploy_timeout=MINUTE)
    world.set_status(history=(entry("0.1.0", BakeStatus.IN_PROGRESS),))
    world.wait(2)
    world.step()
    assert (world.history(), world.current.bake_end_time) == ("0.1.0 Failed", at(2))


def test_without_a_bake_time_health_is_enough() -> None:
    """REL-76, RELB-20."""
    world = baking(bake_time=None)
    assert world.history() == "0.1.0 Succeeded"
    assert world.current.bake_end_time == at(1)


def test_times_to_come_count_as_now() -> None:
    """RELB-38."""
    world = silent()
    world.checks = (check(status="Healthy", change=9),)
    world.step()
    assert world.history() == "0.1.0 InProgress"
    world.checks = (check(status="Unhealthy", error=9),)
    world.step()
    assert world.history() == "0.1.0 Failed"


PART: Final = timedelta(seconds=0.4)


def deployed_within_a_second(**spec: Any) -> ReleaseWorld:
    """Return a world with 0.1.0 deployed at 0.4 seconds past the first minute."""
    world = silent(**spec)
    world.now = at(1) + PART
    world.set_status(history=(entry("0.1.0", BakeStatus.DEPLOYING, minutes=1 + PART / MINUTE),))
    world.now += timedelta(seconds=2)
    return world


@pytest.mark.parametrize(
    ("stamp", "counts"),
    [
        pytest.param(timedelta(0), True, id="the whole second of the deployment"),
        pytest.param(timedelta(seconds=1), True, id="the next whole second"),
        pytest.param(timedelta(seconds=-1), False, id="the whole second before"),
        pytest.param(timedelta(seconds=0.3), False, id="an exact time of before"),
        pytest.param(PART, True, id="the exact time of the deployment"),
        pytest.param(timedelta(seconds=9), True, id="a time to come"),
    ],
)
@pytest.mark.parametrize("status", ["Healthy", "Unhealthy"])
def test_whole_seconds_count_in_the_second_of_the_deployment(
    status: str, stamp: timedelta, counts: bool
) -> None:
    """REL-73, REL-74, RELB-38: what Go writes of a moment lies up to a second before it."""
    world = deployed_within_a_second()
    minutes = 1 + stamp / MINUTE
    error = minutes if status == "Unhealthy" else None
    world.checks = (check(status=status, change=minutes, error=error),)
    world.step()
    outcome = "InProgress" if status == "Healthy" else "Failed"
    assert world.history() == f"0.1.0 {outcome if counts else 'Deploying'}"


@pytest.mark.parametrize(
    ("change", "error", "is_clear"),
    [
        pytest.param(1, None, False, id="it changed in this second"),
        pytest.param(-9, 1, False, id="it failed in this second"),
        pytest.param(1 - 1 / 60, None, True, id="in the second before"),
        pytest.param(1 + 0.3 / 60, None, True, id="at an exact time of this second"),
        pytest.param(None, None, True, id="it never changed"),
    ],
)
def test_no_deployment_or_retry_begins_in_a_second_that_a_check_wrote(
    change: float | None, error: float | None, is_clear: bool
) -> None:
    """REL-74, REL-81: what was found before it would count as found after it."""
    known = check(status="Healthy", change=change, error=error)
    for world, begun in (
        (deployed("0.1.0", checks=ALL_CHECKS), "0.2.0 Deploying, 0.1.0 Succeeded"),
        (silent(deploy_timeout=MINUTE), "0.1.0 Deploying"),
    ):
        if begun.startswith("0.1.0"):
            world.set_status(history=(entry("0.1.0", BakeStatus.FAILED),))
            world.post(retry="x")
        else:
            world.set_status(history=(entry("0.1.0"),))
        before = world.history()
        world.now = at(1) + PART
        world.checks = (known,)
        pause = world.step("0.2.0").requeue_after
        assert world.history() == (begun if is_clear else before)
        if not is_clear:
            assert pause == timedelta(seconds=1) - PART
            world.now += pause
            world.step()
            assert world.history() == begun


def held_by_flux(compat: ReleaseCompat = OURS) -> ReleaseWorld:
    """Return a world whose check is healthy, while Flux has yet to run the tag."""
    world = silent()
    world.compat = compat
    world.targets = (TARGET,)
    world.checks = (check(status="Healthy", change=0),)
    world.step("0.1.0")
    world.targets = (msgspec.structs.replace(TARGET, tag="0.1.0", waiting_for="it is suspended"),)
    world.step()
    return world


def test_a_bake_waits_for_flux() -> None:
    """RELB-15, RELB-16: the old release may be healthy."""
    world = held_by_flux()
    assert world.history() == "0.1.0 Deploying"
    assert "it is suspended" in (world.current.bake_status_message or "")
    world.rollout = msgspec.structs.replace(world.rollout, waits_for_flux=False)
    world.step()
    assert world.history() == "0.1.0 InProgress"


def test_a_bake_does_not_wait_for_flux_where_kuberiks_outcome_is_wanted() -> None:
    """RELB-16: there the version before may pass for healthy."""
    assert held_by_flux(KUBERIK).history() == "0.1.0 InProgress"


# --- recovery mode


def test_failures_count_after_a_normal_deployment() -> None:
    """RT-68, RT-70, RT-73."""
    world = silent()
    assert world.reason("BakeFailureDisabled") == "False Normal"
    world.checks = (check(status="Healthy", change=0),)
    world.set_spec(wanted_version="1.0.0")
    world.wait(1)
    world.step()
    assert world.reason("BakeFailureDisabled") == "False Normal"
    world.checks = (check(status="Unhealthy", error=1),)
    world.step()
    assert world.history().startswith("1.0.0 Failed")


def test_in_recovery_mode_neither_time_nor_errors_fail_a_release() -> None:
    """RT-69, RT-71, RT-72, RT-74."""
    world = recovering()
    reason = "True DeployedWithUnhealthyHealthChecks"
    assert world.reason("BakeFailureDisabled") == reason
    known = world.status.find_condition("BakeFailureDisabled")
    world.wait(2)
    world.checks = (check(status="Unhealthy", error=1),)
    for _ in range(3):
        world.step()
    assert world.history().startswith("1.0.0 Deploying")
    assert world.status.find_condition("BakeFailureDisabled") == known


def test_a_release_after_one_in_recovery_mode_recovers_too() -> None:
    """RT-75."""
    world = recovering(check(status="Healthy", change=0))
    world.set_spec(wanted_version="2.0.0")
    world.step()
    assert world.reason("BakeFailureDisabled") == "True PreviousBakeFailed"


def test_a_healthy_release_that_was_superseded_says_nothing_of_the_next() -> None:
    """RELB-17: in the original it does."""
    world, original = baking(), baking()
    original.compat = KUBERIK
    for one, expected in ((world, "False Normal"), (original, "True PreviousBakeFailed")):
        one.set_spec(wanted_version="0.2.0")
        one.step()
        assert one.reason("BakeFailureDisabled") == expected


def test_recovery_has_an_end() -> None:
    """RELB-18: then the next release may come, unless gates are against it."""
    world = recovering()
    world.set_spec(wanted_version=None, deploy_timeout=None)
    world.wait(59)
    world.checks = (check(status="Pending"),)
    world.step("3.0.0")
    assert world.history().startswith("1.0.0 Deploying")
    assert world.reason("Stalled") == "False Idle"
    world.wait(2)
    world.set_spec(is_suspended=True)
    world.step()
    assert world.reason("Stalled") == "True RecoveryTimeout"
    assert world.reason("Reconciling") == "False Idle"
    world.set_spec(is_suspended=False)
    world.step()
    assert world.history().startswith("3.0.0 Deploying, 1.0.0 Cancelled")


def test_a_release_that_recovers_is_not_read_all_the_time() -> None:
    """RELB-19: ten minutes past its time take less than thirty passes."""
    world = recovering()
    passes = 0
    while world.now < at(10):
        pause = world.step().requeue_after
        assert pause is not None
        world.now += pause
        passes += 1
    assert passes < 30


@pytest.mark.parametrize(
    ("spec", "begins", "least", "most"),
    [
        ({"bake_time": FIVE}, True, 0, 300),
        ({"bake_time": FIVE, "deploy_timeout": 10 * MINUTE}, False, 0, 60),
        ({"bake_time": FIVE}, False, 10, 10),
    ],
)
def test_when_a_pin_is_planned_again(
    spec: dict[str, Any], begins: bool, least: float, most: float
) -> None:
    """RT-91, REL-90."""
    world = baking(**spec) if begins else silent(**spec)
    world.set_spec(wanted_version="0.1.0")
    pause = world.step().requeue_after
    assert pause is not None
    assert least <= pause.total_seconds() <= most


# --- retries


def failed(**spec: Any) -> ReleaseWorld:
    """Return a world in which 0.1.0 failed in the second minute."""
    world = baking(**spec)
    world.wait(1)
    world.checks = (check(status="Unhealthy", error=2, change=2),)
    world.step()
    assert world.history() == "0.1.0 Failed"
    return world


def test_a_failed_release_is_tried_again() -> None:
    """RT-79, RT-83, RELB-35: old errors no longer count."""
    world = failed()
    world.targets = (FluxTarget(kind=KUSTOMIZATION, name="app", tag="0.1.0"),)
    world.wait(1)
    world.post(retry="", deploy_user="ann")
    plan = world.step()
    assert world.history() == "0.1.0 Deploying"
    known = world.current
    assert (known.bake_start_time, known.bake_end_time) == (None, None)
    assert known.failed_health_checks == ()
    assert (known.last_retry_timestamp, known.retries, known.last_retry_by) == (at(3), 1, "ann")
    assert world.rollout.intents.retry is None
    assert RequestReconcile(target=world.targets[0]) in plan.actions
    assert world.events()[0] == "RetryRequested"
    assert world.reason("Ready") == "False BakeTimeRetrying"


@pytest.mark.parametrize("world", [baking(), ReleaseWorld(known="1.0.0", is_suspended=True)])
def test_there_is_nothing_to_try_again(world: ReleaseWorld) -> None:
    """RT-80, RT-81, RT-82."""
    before = world.history()
    world.post(retry="x")
    world.step()
    assert (world.history(), world.rollout.intents.retry) == (before, None)
    assert "RetryRequested" not in world.events()


def test_errors_count_from_the_retry_on() -> None:
    """RT-85, RT-86, REL-82."""
    world = failed()
    world.wait(1)
    world.post(retry="1")
    world.step()
    world.wait(1)
    world.step()
    assert world.history() == "0.1.0 Deploying"
    world.checks = (check(status="Unhealthy", error=3.5, change=3.5),)
    world.step()
    assert world.history() == "0.1.0 Failed"
    first = world.current.last_retry_timestamp
    world.post(retry="2")
    world.step()
    assert first is not None
    assert world.current.last_retry_timestamp == at(4) > first
    assert world.current.failed_health_checks == ()


def test_time_and_health_count_from_the_retry_on() -> None:
    """RT-87, RT-88, RT-89."""
    world = failed(deploy_timeout=10 * MINUTE)
    world.wait(13)
    world.post(retry="")
    world.step()
    world.checks = (check(status="Healthy", change=10),)
    world.wait(2)
    world.step()
    assert world.history() == "0.1.0 Deploying"
    world.wait(9)
    world.step()
    assert world.history() == "0.1.0 Failed"
    assert [one.name for one in world.current.failed_health_checks] == ["check"]
