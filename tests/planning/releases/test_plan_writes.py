"""What is written into objects of Flux, and what becomes of a plan that is cut short."""

from rollout_operator.kube.event_memory import BURST
from rollout_operator.model.outcome import Severity
from rollout_operator.model.releases.flux import KUSTOMIZATION, OCI_REPOSITORY
from rollout_operator.model.releases.plan import ApplyTag, FluxTarget
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, START, check
from tests.planning.releases.release_world import ReleaseWorld, deployed

REPOSITORY = FluxTarget(kind=OCI_REPOSITORY, name="app", tag="0.1.0")
VARIABLE = FluxTarget(kind=KUSTOMIZATION, name="app", variable="app_version", tag="0.1.0")
BOTH = (REPOSITORY, VARIABLE)
EDITED = FluxTarget(kind=OCI_REPOSITORY, name="app", tag="mine")


def world_with_targets() -> ReleaseWorld:
    world = deployed("0.1.0")
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
