"""What a schedule says of itself, and what of that is an event."""

import msgspec
from msgspec.structs import replace

from rollout_operator.model.outcome import Severity
from rollout_operator.model.release_plan import ReleaseEvent
from rollout_operator.model.releases import ScheduleSnapshot, ScheduleStatus
from rollout_operator.planning.schedules import (
    MOST_LISTED,
    choose_schedule_events,
    render_schedule_status,
)
from tests.planning.releases.builders import at
from tests.planning.releases.schedules.schedule_builders import (
    MORNING,
    gated,
    make_gates,
    plan,
    schedule,
    snapshot,
)


def render(known: ScheduleSnapshot, failed: dict[str, str] | None = None) -> ScheduleStatus:
    return render_schedule_status(known, plan(known), failed or {})


def get_ready(status: ScheduleStatus) -> tuple[str, str, str]:
    (ready,) = status.conditions
    return ready.status, ready.reason, ready.message


def test_all_that_it_says() -> None:
    """REL-100, RELB-31 (m) and (n)."""
    status = render(snapshot())

    assert (status.active, status.active_rules) == (True, ("morning",))
    assert status.next_transition == at(120)
    assert (status.managed_gates, status.matching_rollouts) == (("nights-app",), 1)
    assert (status.observed_generation, status.conditions[0].observed_generation) == (1, 1)
    assert get_ready(status) == ("True", "GatesInSync", "the gates are as they should be")


def test_a_second_pass_says_the_same() -> None:
    known = snapshot()
    status = render(known)
    later = replace(known, now=at(5), gates=make_gates(known))

    assert render(replace(later, schedule=schedule(status=status))) == status


def test_a_status_has_room_for_any_number_of_rules_and_gates() -> None:
    """REL-100: an object of 1.5 MiB at most is stored, and tenants choose names."""
    names = [*(f"rule-{number}" for number in range(20_000)), "n" * 300_000]
    rules = tuple(replace(MORNING, name=name) for name in reversed(names))
    rollouts = [gated(f"{'app' * 60}-{number}") for number in range(3000)]
    status = render(snapshot(schedule(namespace="", rules=rules), *rollouts))

    assert len(msgspec.json.encode(status)) < 512 * 1024
    assert status.matching_rollouts == 3000
    assert len(status.managed_gates) == MOST_LISTED
    assert 1000 < len(status.active_rules) < len(rules)
    assert status.active_rules[1:3] == ("rule-19999", "rule-19998")


def test_gates_of_the_cluster_have_their_namespace() -> None:
    """REL-100."""
    assert render(snapshot(schedule(namespace=""))).managed_gates == ("prod/cluster-nights-app",)


def test_gates_that_could_not_be_written() -> None:
    """REL-98: one failure does not stop the others, and is reported."""
    known = snapshot(None, gated(), gated("b"))
    made = make_gates(snapshot(None, gated("old")))

    status = render(
        replace(known, gates=made),
        {"prod/nights-b": "forbidden", "prod/nights-old": "timeout"},
    )

    assert status.managed_gates == ("nights-app", "nights-old")
    assert get_ready(status) == (
        "False",
        "GatesNotWritten",
        "2 not written: prod/nights-b: forbidden and prod/nights-old: timeout",
    )


def test_an_invalid_schedule_keeps_what_it_said() -> None:
    """RELB-31 (f)."""
    before = render(snapshot())
    known = snapshot(schedule(schedule=None, problem="spec.rules: too long", status=before))
    status = render(known)

    assert (status.active, status.active_rules) == (True, ("morning",))
    assert status.next_transition is None
    assert get_ready(status)[:2] == ("False", "InvalidSchedule")


def test_events_of_changes() -> None:
    """RELB-31 (f) and (m): once for each change."""
    active = render(snapshot())
    at_rest = render(snapshot(now=at(130)))
    refused = render(snapshot(schedule(schedule=None, problem="spec.rules: x", status=active)))

    assert choose_schedule_events(ScheduleStatus(), active) == (
        ReleaseEvent(reason="ScheduleActivated", note="the schedule is active: morning"),
    )
    assert choose_schedule_events(active, at_rest) == (
        ReleaseEvent(reason="ScheduleDeactivated", note="the schedule is not active"),
    )
    (event,) = choose_schedule_events(active, refused)
    assert (event.reason, event.severity) == ("InvalidSchedule", Severity.WARN)
    for status in (active, at_rest, refused):
        assert choose_schedule_events(status, status) == ()
