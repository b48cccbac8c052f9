"""Systematic plans: which there are, that each strikes, and that none breaks a promise.

Every call x crash position x restart view, every event x (skip, delay, freeze and restart).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from rollout_lab.network.faults import CrashPoint

from tests.simulation.campaign import Job, Tally, list_plan_jobs, run_all
from tests.simulation.plans import (
    CacheAge,
    Kind,
    Plan,
    Recording,
    Step,
    Trouble,
    list_plans,
    record,
    run_plan,
)
from tests.simulation.scenarios_book import get_scenario

# Of every scenario at least so many, or the recorded run was not the one that is meant.
LEAST_CRASHES = 150
LEAST_EVENTS = 60
# One in so many, by what the plan takes apart: of a longer run fewer, of the few requests to pods
# more. All of them: `make prove`.
STEPS: Final = {
    "s1-small": {Step.CALL: 23, Step.EVENT: 13},
    "s7-small": {Step.CALL: 41, Step.POD_CALL: 7, Step.EVENT: 11},
    "r1-small": {Step.CALL: 269, Step.EVENT: 89},
}


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(get_scenario("s1-small"))


def test_a_recorded_run_has_no_fault_and_ends_at_rest(recording: Recording) -> None:
    assert recording.outcome.verdict.is_clean, recording.outcome.verdict
    assert not recording.outcome.faults
    assert recording.outcome.is_healed


def test_every_call_dies_at_every_point_with_every_age_of_caches(recording: Recording) -> None:
    plans = list_plans(recording, Kind.CRASH)

    assert len(plans) == len(set(plans)) == recording.calls * len(CrashPoint) * len(CacheAge)
    assert {plan.number for plan in plans} == set(range(1, recording.calls + 1))
    assert {plan.step for plan in plans} == {Step.CALL}, "no pod is called in a rollout"


def test_every_event_meets_every_trouble(recording: Recording) -> None:
    plans = list_plans(recording, Kind.EVENT)
    by_plural = Counter(plan.plural for plan in plans)

    assert by_plural == {plural: count * len(Trouble) for plural, count in recording.events.items()}
    assert set(by_plural) >= {"pods", "statefulsets"}


def test_requests_to_pods_are_taken_apart_as_well() -> None:
    plans = list_plans(record(get_scenario("s7-small")), Kind.CRASH)

    assert {plan.step for plan in plans} == {Step.CALL, Step.POD_CALL}


@pytest.mark.parametrize(
    "plan",
    [
        Plan(step=Step.CALL, number=9, crash=CrashPoint.AFTER_COMMIT, cache_age=CacheAge.ONE_OLDER),
        Plan(step=Step.CALL, number=1, crash=CrashPoint.BEFORE_SEND, cache_age=CacheAge.ALL_OLDER),
        Plan(step=Step.EVENT, number=5, plural="pods", trouble=Trouble.FREEZE),
        Plan(step=Step.EVENT, number=5, plural="pods", trouble=Trouble.SKIP),
        # Where that is the last event of the object, nothing but a read of it helps in time.
        Plan(step=Step.EVENT, number=23, plural="statefulsets", trouble=Trouble.SPOIL),
        Plan(step=Step.EVENT, number=36, plural="pods", trouble=Trouble.SPOIL),
    ],
    ids=lambda plan: plan.text,
)
def test_a_plan_strikes_once(plan: Plan) -> None:
    outcome = run_plan(get_scenario("s1-small"), plan)

    assert sum(outcome.faults.values()) == 1
    assert outcome.verdict.is_clean, outcome.verdict


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("scenario", STEPS)
def test_fp06_fp07_no_plan_breaks_a_promise(scenario: str, kind: Kind) -> None:
    """FP-05, FP-06, FP-07, FP-09, LI-02: SI and LI hold whatever step goes wrong.

    So do REL-01, REL-50, RELB-10 and RELB-15, also between a record and its effect.
    """
    every = list_plan_jobs(scenario, kind)
    jobs = choose(every, STEPS[scenario])
    tally = run_to_end(jobs)

    print(f"{scenario} {kind}: {tally.render()}")  # noqa: T201 (the counts are wanted)
    assert len(every) >= (LEAST_CRASHES if kind is Kind.CRASH else LEAST_EVENTS)
    assert tally.plans == len(jobs)
    assert collect_kinds(jobs) == collect_kinds(every), "calls, crash points, ages and troubles"
    assert not tally.failed, "\n".join(each.text for each in tally.failed[:10])


def choose(jobs: Sequence[Job], steps: Mapping[Step, int]) -> list[Job]:
    """Return one in so many of the jobs, counted for each kind of step by itself."""
    return [
        job
        for step, one_in in steps.items()
        for job in [job for job in jobs if job.plan is not None and job.plan.step is step][::one_in]
    ]


def collect_kinds(jobs: Sequence[Job]) -> set[tuple[object, ...]]:
    """Return all ways in which steps of any number go wrong."""
    plans = [job.plan for job in jobs if job.plan is not None]
    crashes = {(plan.crash, plan.cache_age) for plan in plans}
    return crashes | {(plan.step,) for plan in plans} | {(plan.trouble,) for plan in plans}


def run_to_end(jobs: list[Job]) -> Tally:
    tally = Tally()
    for summary in run_all(jobs):
        tally.add(summary)
    return tally
