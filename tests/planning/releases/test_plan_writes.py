"""What is written into objects of Flux, and what becomes of a plan that is cut short."""

from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.kube.events import BURST
from rollout_operator.model.outcome import Severity
from rollout_operator.model.release_plan import KUSTOMIZATION, OCI_REPOSITORY, ApplyTag, FluxTarget
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, START, check
from tests.planning.releases.release_world import ReleaseWorld, deployed

REPOSITORY = FluxTarget(kind=OCI_REPOSITORY, name="app", tag="0.1.0")
VARIABLE = FluxTarget(kind=KUSTOMIZATION, name="app", variable="app_version", tag="0.1.0")
BOTH = (REPOSITORY, VARIABLE)
EDITED = FluxTarget(kind=OCI_REPOSITORY, name="app", tag="mine")


def world_with_targets(**spec: Any) -> ReleaseWorld:
    world = deployed("0.1.0", **spec)
    world.targets = BOTH
    world.step()
    return world


def test_a_release_is_on_record_before_it_is_written() -> None:
    """RT-29, RT-30, RELB-15: only then it is ready, and without a bake succeeds."""
    world = world_with_targets()
    plan = world.step("0.2.0")
    assert plan.actions == tuple(ApplyTag(target=one, tag="0.2.0") for one in BOTH)
    assert world.history() == "0.2.0 Deploying, 0.1.0 Succeeded"
    assert (world.reason("Ready"), plan.requeue_after is not None) == (
        "False WritingTargets", True
    )  # fmt: skip
    assert "DeploymentSucceeded" not in world.events()
    world.step()
    assert world.events()[0] == "DeploymentSucceeded"
    assert world.history() == "0.2.0 Succeeded, 0.1.0 Succeeded"
    assert world.reason("Ready") == "True RolloutSucceeded"
    assert world.step().events == ()


def test_a_crash_before_a_write_leaves_it_to_the_next_pass() -> None:
    """RELB-15: nothing is deployed twice."""
    world = world_with_targets()
    world.step("0.2.0", acts=False)
    plan = world.step()
    assert plan.actions == tuple(ApplyTag(target=one, tag="0.2.0") for one in BOTH)
    world.step()
    assert world.tags() == "0.2.0 0.1.0"
    assert world.reason("Ready") == "True RolloutSucceeded"


def test_a_write_that_is_refused_is_tried_again() -> None:
    """REL-62, RELB-15."""
    world = world_with_targets()
    world.write_problem = "OCIRepository app: forbidden"
    world.step("0.2.0")
    plan = world.step()
    assert (plan.problem, world.reason("Ready")) == (
        "OCIRepository app: forbidden", "False RolloutFailed"
    )  # fmt: skip
    assert world.step().events == ()
    assert world.step().actions != ()
    world.write_problem = ""
    world.step()
    world.step()
    assert world.reason("Ready") == "True RolloutSucceeded"


REFUSAL = "OCIRepository app: 403: admission webhook denied the request"


@pytest.mark.parametrize(
    ("spec", "requested", "intents"),
    [
        pytest.param({}, {}, {}, id="the newest"),
        pytest.param({"bake_time": MINUTE, "deploy_timeout": MINUTE}, {}, {}, id="with a timeout"),
        pytest.param({}, {"wanted_version": "0.2.0"}, {}, id="a pin"),
        pytest.param({}, {}, {"force_deploy": "0.2.0", "deploy_user": "ann"}, id="by force"),
        pytest.param({}, {}, {"bypass_gates": "0.2.0"}, id="past gates"),
    ],
)
def test_what_flux_would_refuse_is_no_deployed_version(
    spec: dict[str, Any], requested: dict[str, Any], intents: dict[str, str]
) -> None:
    """REL-62: it stays a candidate, what requests it stays, and a newer version goes before it."""
    world = world_with_targets(**spec)
    world.wait(2)
    world.step()
    before = world.history()
    world.set_spec(**requested)
    world.post(**intents)
    world.refused = {"0.2.0": REFUSAL}
    for _ in range(12):
        plan = world.step("0.2.0")
        assert (world.history(), plan.actions, plan.tag) == (before, (), "")
        assert world.reason("Ready") == "False RolloutFailed"
        assert REFUSAL in plan.problem
        assert [one.tag for one in world.status.release_candidates] == ["0.2.0"]
        assert world.reason("TargetConflict") == ""
        world.wait(1)
    assert [one.reason for one in world.reported].count("RolloutFailed") == 1
    for annotation, value in intents.items():
        assert getattr(world.rollout.intents, annotation) == value
    world.post(**dict.fromkeys(intents))
    world.set_spec(wanted_version=None)
    world.step("0.3.0")
    assert world.tags() == "0.3.0 0.1.0"
    assert "RolloutFailed" not in world.reason("Ready")


def test_a_first_version_that_flux_would_refuse() -> None:
    """REL-62."""
    world = ReleaseWorld(known="0.1.0")
    world.targets, world.refused = (REPOSITORY,), {"0.1.0": REFUSAL}
    world.step()
    assert (world.history(), world.reason("Ready")) == ("", "False RolloutFailed")
    world.step("0.2.0")
    assert world.tags() == "0.2.0"


@pytest.mark.parametrize("timeout", [None, MINUTE])
def test_a_write_that_is_refused_only_after_the_record_is_no_conflict(
    timeout: timedelta | None,
) -> None:
    """REL-62, RELB-12: also once its release has failed; a newer version supersedes it."""
    world = world_with_targets(bake_time=MINUTE, deploy_timeout=timeout)
    world.wait(2)
    world.step()
    world.write_problem = REFUSAL
    for _ in range(12):
        world.step("0.2.0")
        world.wait(1)
    status = "Failed" if timeout else "Deploying"
    assert world.history() == f"0.2.0 {status}, 0.1.0 Succeeded"
    assert (world.plan.problem, world.reason("TargetConflict")) == (REFUSAL, "")
    world.step("0.3.0")
    superseded = world.history().startswith("0.3.0 Deploying, 0.2.0 Cancelled")
    assert superseded is (timeout is None)  # no version follows one that failed by itself


def test_a_correction_that_is_refused_is_no_conflict() -> None:
    """RELB-12: it says why the tag is not written again."""
    world = world_with_targets()
    world.write_problem = REFUSAL
    contest(world, 12)
    assert (world.plan.problem, world.reason("TargetConflict")) == (REFUSAL, "")
    world.write_problem = ""
    world.step()
    assert world.reason("Ready") == "True RolloutSucceeded"


def test_an_object_that_was_changed_gets_its_tag_back() -> None:
    """RELB-12: also one that is annotated later; nothing is deployed for it."""
    world = world_with_targets()
    world.targets = (EDITED, VARIABLE)
    plan = world.step()
    assert plan.actions == (ApplyTag(target=EDITED, tag="0.1.0", is_drift=True),)
    assert (
        world.events() == []
    )  # it is reported once it is written, with the writer whose value went
    assert world.reason("Ready") == "True RolloutSucceeded"
    assert world.step().actions == ()
    assert world.tags() == "0.1.0"


def contest(world: ReleaseWorld, times: int, minutes: float = 1) -> None:
    """Have another writer change the tag so often, each time after it was corrected."""
    for _ in range(times):
        world.targets = (EDITED, VARIABLE)
        world.step()
        world.wait(minutes)


def test_an_object_that_another_writer_keeps_changing_is_left_alone() -> None:
    """RELB-12: after five corrections in ten minutes, for ten minutes; the status says so."""
    world = world_with_targets()
    contest(world, 5)
    assert world.reason("TargetConflict") == ""
    world.targets = (EDITED, VARIABLE)
    plan = world.step()
    assert plan.actions == ()
    assert (world.reason("TargetConflict"), world.events()) == (
        "True TargetConflict", ["TargetConflict"]
    )  # fmt: skip
    assert "OCIRepository app (mine)" in world.plan.status.conditions[-1].message
    assert plan.requeue_after == MINUTE * 9
    assert world.step().events == ()
    world.wait(9)
    assert world.step().actions == (ApplyTag(target=EDITED, tag="0.1.0", is_drift=True),)
    assert world.reason("TargetConflict") == "False Settled"
    assert world.step().actions == ()


def test_now_and_then_is_no_contest() -> None:
    """RELB-12: five corrections within more than ten minutes."""
    world = world_with_targets()
    contest(world, 12, minutes=2.6)
    assert world.reason("TargetConflict") == ""
    assert world.tags() == "0.1.0"


def test_a_process_that_begins_anew_does_not_start_over() -> None:
    """RELB-12: it remembers no corrections, and goes by the condition."""
    world = world_with_targets()
    contest(world, 6)
    world.corrections = ()
    world.wait(5)
    assert world.step().actions == ()
    world.wait(5)
    assert world.step().actions != ()


def test_what_is_deployed_anew_is_written_all_the_same() -> None:
    """RELB-12: a contest holds corrections, and no release."""
    world = world_with_targets()
    contest(world, 6)
    plan = world.step("0.2.0")
    assert [one.is_drift for one in plan.actions if isinstance(one, ApplyTag)] == [False, False]
    world.step()
    assert world.reason("TargetConflict") == "False Settled"


def test_a_rollout_that_is_suspended_writes_nothing() -> None:
    """RELB-33: what is on record is written afterwards."""
    world = world_with_targets()
    world.step("0.2.0", acts=False)
    world.set_spec(is_suspended=True)
    assert world.step().actions == ()
    assert "DeploymentSucceeded" not in world.events()
    world.set_spec(is_suspended=False)
    world.step()
    world.step()
    assert world.events()[0] == "DeploymentSucceeded"


def test_a_bake_starts_once_flux_has_the_tag() -> None:
    """RELB-16."""
    world = deployed("0.1.0", bake_time=MINUTE)
    world.targets = (REPOSITORY,)
    world.step()
    world.wait(2)
    world.step()
    world.step("0.2.0", acts=False)
    assert world.history() == "0.2.0 Deploying, 0.1.0 Succeeded"
    world.step()
    assert world.history() == "0.2.0 Deploying, 0.1.0 Succeeded"
    world.step()
    assert world.history() == "0.2.0 InProgress, 0.1.0 Succeeded"


def test_what_became_of_a_release_has_room_among_its_events() -> None:
    """RELB-06: one that fails, the way back, and the next, within a minute."""
    world = ReleaseWorld(latest="1.0.0", bake_time=MINUTE / 60, checks=ALL_CHECKS)
    world.targets = BOTH
    for tag, error in (("1.0.0", False), ("1.1.0", True), ("1.0.0", False), ("1.2.0", False)):
        world.set_spec(wanted_version=tag)
        world.checks = (check(),)
        world.step()
        world.step()
        world.wait(0.1)
        minutes = (world.now - START) / MINUTE
        status = "Unhealthy" if error else "Healthy"
        found = check(status=status, change=minutes, error=minutes if error else None)
        world.checks = (found,)
        world.step()
        world.wait(0.1)
        world.step()

    assert world.history() == "1.2.0 Succeeded, 1.0.0 Succeeded, 1.1.0 Failed, 1.0.0 Succeeded"
    reported = [
        one for one in world.reported if one.severity is Severity.INFO and not one.is_routine
    ]
    assert [one.reason for one in reported].count("BakeTimePassed") == 3
    assert len(reported) <= BURST
