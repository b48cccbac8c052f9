"""Failing attempts are repeated ever more rarely; another attempt goes at once (LI-11, W-46)."""

from datetime import timedelta

from rollout_operator.controllers.attempts import Attempts
from rollout_operator.model.names import GroupName, Revision, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Plan, Reason, RecordRevision
from tests.fakes_clock import FakeClock

GROUP = GroupName("ingester")
NOTHING = timedelta(0)


def plan(revision: str = "new") -> Plan:
    zone = StatefulSet(namespace="test", name="a", uid=Uid("uid-a"), resource_version="1")
    reason = Reason(code=Code.ROLLED_OUT, text="done")
    action = RecordRevision(zone=zone, revision=Revision(revision), reason=reason)
    return Plan(group=GROUP, actions=(action,))


def attempts() -> tuple[Attempts, FakeClock]:
    clock = FakeClock()
    return Attempts(clock, longest=timedelta(seconds=5)), clock


def test_a_plan_that_never_failed_goes_at_once() -> None:
    assert attempts()[0].wait_before(plan()) == (NOTHING, "")


def test_waits_double_up_to_the_longest_look_interval() -> None:
    made, _ = attempts()
    waits = [made.note_failure(plan(), "no", at_least=NOTHING) for _ in range(8)]
    assert [wait.total_seconds() for wait in waits] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]


def test_after_five_minutes_two_attempts_a_minute() -> None:
    """LI-11: at most one attempt per 30 s and group."""
    made, clock = attempts()
    made.note_failure(plan(), "no", at_least=NOTHING)
    clock.jump(timedelta(minutes=5))
    assert made.note_failure(plan(), "no", at_least=NOTHING) == timedelta(seconds=30)


def test_the_wait_runs_down_and_names_its_error() -> None:
    made, clock = attempts()
    made.note_failure(plan(), "pods are forbidden", at_least=timedelta(seconds=3))
    clock.jump(timedelta(seconds=1))
    assert made.wait_before(plan()) == (timedelta(seconds=2), "pods are forbidden")
    clock.jump(timedelta(seconds=2))
    assert made.wait_before(plan()) == (NOTHING, "pods are forbidden")


def test_another_plan_goes_at_once() -> None:
    made, _ = attempts()
    made.note_failure(plan(), "no", at_least=timedelta(seconds=3))
    assert made.wait_before(plan(revision="newer")) == (NOTHING, "")


def test_success_forgets() -> None:
    made, _ = attempts()
    made.note_failure(plan(), "no", at_least=timedelta(seconds=3))
    made.note_success(GROUP)
    assert made.wait_before(plan()) == (NOTHING, "")
