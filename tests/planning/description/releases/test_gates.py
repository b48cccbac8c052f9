"""Gates and schedules: open or closed, kept by what, and until when."""

import msgspec
import pytest

from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.description import GateDescription
from rollout_operator.model.releases import GateSummary, ReleaseGate, ScheduleObject, ScheduleRule
from rollout_operator.planning.describe_releases import (
    describe_gates,
    describe_schedule,
    name_owner,
    order_schedules,
)
from rollout_operator.planning.schedules import render_schedule_status
from rollout_operator.planning.text import render_gate, render_schedule
from tests.planning.releases.builders import at, gate, head
from tests.planning.releases.schedules.schedule_builders import (
    ALLOW,
    DENY,
    make_gates,
    plan,
    schedule,
    snapshot,
)

ALWAYS = (ScheduleRule(name="always"),)


def decided(of: ScheduleObject) -> ScheduleObject:
    """Return a schedule with the status that its first pass writes."""
    seen = snapshot(of)
    return msgspec.structs.replace(of, status=render_schedule_status(seen, plan(seen), {}))


def kept_gate(of: ScheduleObject) -> ReleaseGate:
    """Return the gate that a schedule makes for the Rollout `app`."""
    (own,) = make_gates(snapshot(of))
    return own


@pytest.mark.parametrize(
    ("of", "is_open", "text"),
    [
        (schedule(action=DENY), False, "closed by morning, until 2025-01-01T02:00:00Z"),
        (schedule(action=ALLOW), True, "open by morning, until 2025-01-01T02:00:00Z"),
        (
            schedule(problem='RolloutSchedule prod/nights: spec.timezone: "Mars"', schedule=None),
            False,
            'RolloutSchedule prod/nights: spec.timezone: "Mars"',
        ),
    ],
)
def test_rel97_a_schedule_is_open_or_closed_and_says_until_when(
    of: ScheduleObject, is_open: bool, text: str
) -> None:
    found = describe_schedule(decided(of))

    assert (found.is_open, found.text, found.rollouts) == (is_open, text, 1)
    assert render_schedule(found).startswith("RolloutSchedule prod/nights: ")


def test_schedules_of_the_cluster_come_last_and_each_kind_by_name() -> None:
    wide = [schedule(name, namespace="") for name in "ba"]
    own = [schedule(name) for name in "dc"]

    ordered = order_schedules([*wide, *own])
    assert [one.head.key for one in ordered] == ["prod/c", "prod/d", "a", "b"]


def test_one_that_no_operator_has_reconciled_says_so() -> None:
    assert describe_schedule(schedule()).text == "no operator has decided on it yet"


def test_gates_that_cannot_be_written_are_said() -> None:
    """RELB-42: beside whether it is open and until when, since it holds releases all the same."""
    status = decided(schedule(action=DENY)).status
    ready = StatusCondition(type="Ready", status="False", reason="GatesNotWritten", message="no")
    refused = msgspec.structs.replace(status, conditions=(ready,))
    found = describe_schedule(schedule(action=DENY, status=refused))

    text = "closed by morning, until 2025-01-01T02:00:00Z; no [GatesNotWritten]"
    assert render_schedule(found).startswith(f"RolloutSchedule prod/nights: {text}")


def test_a_closed_gate_of_a_schedule_says_when_it_opens() -> None:
    nights = decided(schedule(action=DENY))
    own = kept_gate(nights)
    closed = GateSummary(name=own.head.name, passing=False, message="the gate is not passing")
    (found,) = describe_gates(head(), [closed], [own], [nights])

    assert found == GateDescription(
        name="nights-app",
        is_passing=False,
        text="the gate is not passing",
        schedule="RolloutSchedule prod/nights",
        opens=at(120),
    )
    assert render_gate(found) == (
        "nights-app: the gate is not passing, kept by RolloutSchedule prod/nights,"
        " opens at 2025-01-01T02:00:00Z"
    )


@pytest.mark.parametrize(
    ("of", "problem"),
    [
        (
            schedule(action=DENY, problem="spec.timezone: no zone is Mars", schedule=None),
            "spec.timezone: no zone is Mars",
        ),
        (schedule(action=DENY, rules=ALWAYS), "its rules do not change that within 400 days"),
    ],
)
def test_rel97_a_gate_that_its_schedule_never_opens_says_why(
    of: ScheduleObject, problem: str
) -> None:
    """Else it looks like one that opens in its time."""
    nights = decided(of)
    own = kept_gate(of)
    closed = GateSummary(name=own.head.name, passing=False)
    (found,) = describe_gates(head(), [closed], [own], [nights])

    assert found.schedule_problem == problem
    assert f"kept by RolloutSchedule prod/nights: {problem}" in render_gate(found)
    passing = msgspec.structs.replace(closed, passing=True)
    (found,) = describe_gates(head(), [passing], [own], [nights])
    assert found.schedule_problem == ""


@pytest.mark.parametrize(
    "of",
    [
        schedule(action=DENY, problem="bad", schedule=None),
        # Open by now: the gate is written in a moment.
        schedule(action=ALLOW),
    ],
)
def test_where_no_opening_is_known_none_is_reported(of: ScheduleObject) -> None:
    nights = decided(of)
    own = kept_gate(of)
    closed = GateSummary(name=own.head.name, passing=False)
    (found,) = describe_gates(head(), [closed], [own], [nights])

    assert (found.schedule, found.opens) == ("RolloutSchedule prod/nights", None)


def test_gates_of_people_and_of_the_cluster_are_distinguished() -> None:
    everywhere = schedule(namespace="")

    assert name_owner(gate()) == ""
    assert name_owner(kept_gate(everywhere)) == "ClusterRolloutSchedule nights"


def test_a_gate_that_is_gone_is_shown_as_the_status_has_it() -> None:
    summary = GateSummary(name="old", passing=True, allowed_versions=("1.0.0",), message="passing")
    (found,) = describe_gates(head(), [summary], [], [])

    assert (found.allowed, found.schedule) == (("1.0.0",), "")
