"""Systematic plans: a run without faults is recorded, and then each of its steps goes wrong once.

Crash plans: every call, and every request to a pod, by where in it the process dies, by how old the
lists are that its next life gets. Event plans: every event of a watch never comes, comes late, or
is frozen with all that follow, and the process starts again with that view. Each plan heals soon
after it has struck, must come to rest, and is judged like any other run.
"""

from dataclasses import dataclass
from typing import Final

from rollout_operator.lab.network.faults import CrashPoint
from tests.simulation.planned import (
    QUIET,
    Kind,
    Plan,
    PlannedCourse,
    Step,
    Trouble,
    View,
)
from tests.simulation.scenarios import Scenario
from tests.simulation.stage import Outcome, play

SEED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """How many steps of each kind the run without faults took."""

    outcome: Outcome
    calls: int
    pod_calls: int
    events: dict[str, int]
    """By plural."""


def record(scenario: Scenario) -> Recording:
    """Run a scenario without faults and count its steps."""
    course = PlannedCourse(None)
    outcome = play(scenario, SEED, course, quiet=QUIET)
    faults = course.faults
    return Recording(
        outcome=outcome, calls=faults.calls, pod_calls=faults.pod_calls, events=faults.events
    )


def list_plans(recording: Recording, kind: Kind) -> list[Plan]:
    """Return all plans of a kind that a recorded run gives, in the order of its steps."""
    if kind is Kind.EVENT:
        return [
            Plan(step=Step.EVENT, number=number, plural=plural, trouble=trouble)
            for plural, count in recording.events.items()
            for number in range(1, count + 1)
            for trouble in Trouble
        ]
    return [
        Plan(step=step, number=number, crash=crash, view=view)
        for step, count in ((Step.CALL, recording.calls), (Step.POD_CALL, recording.pod_calls))
        for number in range(1, count + 1)
        for crash in CrashPoint
        for view in View
    ]


def run_plan(scenario: Scenario, plan: Plan, *, listens: bool = False) -> Outcome:
    """Run a scenario in which one step goes wrong."""
    return play(scenario, SEED, PlannedCourse(plan), quiet=QUIET, listens=listens)
