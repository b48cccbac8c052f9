"""Which faults come: by dice, by plan, or none at all.

Section 3.2: rates of each kind, runs that repeat, and runs that are shrunk.
"""

import random
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import fields, replace
from rollout_lab.model.history import Fault
from rollout_lab.network.faults import (
    CrashPoint,
    EventOutcome,
    Failure,
    FaultDecision,
    Faults,
    NoFaults,
    PodCallOutcome,
    SentCall,
)

from tests.lab.client_world import ACTOR
from tests.simulation.planned_faults import (
    CallPlan,
    EventPlan,
    ListPlan,
    Planned,
    PodPlan,
    ScriptedFaults,
)
from tests.simulation.random_faults import FaultRates, RandomFaults
from tests.virtual_time import in_virtual_time

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
MANY = 4000
NO_FAULTS = FaultRates().times(0)


def sent(verb: str = "get", number: int = 1) -> SentCall:
    return SentCall(
        number=number,
        actor=ACTOR,
        client="acting",
        verb=verb,
        plural="pods",
        subresource="",
        name="a",
        round=1,
    )


def send_all(faults: Faults, times: int = MANY) -> list[object]:
    """Request everything so many times, and return all that is to go wrong."""
    outcomes: list[object] = []
    for number in range(times):
        outcomes += (
            faults.on_call(sent(VERBS[number % len(VERBS)], number)),
            faults.on_event(ACTOR, "pods", "MODIFIED", "a", number),
            faults.on_event(ACTOR, "pods", "BOOKMARK", "", number),
            faults.on_list(sent("list", number)),
            faults.on_pod_call(ACTOR, "POST", "a"),
            faults.on_review(ACTOR, "question"),
            faults.on_review(ACTOR, "answer"),
        )
    return outcomes


def usual() -> list[object]:
    return send_all(NoFaults(), 1)


def dice(seed: int = 1, rates: FaultRates | None = None) -> RandomFaults:
    return RandomFaults(random.Random(seed), rates or FaultRates())


@in_virtual_time
async def test_every_kind_comes_by_its_dose() -> None:
    """Section 3.2: every kind of fault has its rate, and the report counts them."""
    reported: list[Fault] = []
    faults = RandomFaults(random.Random(3), FaultRates().times(3), reported.append)
    send_all(faults)

    assert set(faults.fired) == {each.name for each in fields(FaultRates)}
    assert Counter(fault.kind for fault in reported) == faults.fired
    assert [fault.number for fault in reported] == list(range(1, faults.number + 1))
    share = faults.fired["drop_bookmark"] / MANY
    assert share == pytest.approx(0.15, rel=0.15)


@in_virtual_time
async def test_more_and_fewer() -> None:
    for factor in (0.5, 5):
        faults = dice(rates=FaultRates().times(factor))
        send_all(faults)
        assert faults.fired["pod_slow"] / MANY == pytest.approx(0.03 * factor, rel=0.3)
    assert max(getattr(FaultRates().times(1e6), each.name) for each in fields(FaultRates)) == 1.0


@in_virtual_time
async def test_without_a_dose_nothing_comes() -> None:
    faults = dice(rates=NO_FAULTS)
    assert send_all(faults) == usual() * MANY
    assert faults.number == 0


@pytest.mark.parametrize("name", [each.name for each in fields(FaultRates)])
@in_virtual_time
async def test_one_dose_brings_one_kind(name: str) -> None:
    faults = dice(rates=replace(NO_FAULTS, **{name: 1.0}))
    send_all(faults, 50)
    assert set(faults.fired) == {name}


@in_virtual_time
async def test_the_same_seed_gives_the_same_faults() -> None:
    assert send_all(dice(5)) == send_all(dice(5))
    assert send_all(dice(5)) != send_all(dice(6))


@in_virtual_time
async def test_faults_that_are_left_out_change_no_others() -> None:
    """So that a run can be shrunk: the dice are thrown alike, whatever comes of it."""
    all_of_them = send_all(dice(5))
    reported: list[Fault] = []
    only = frozenset({2, 17, 30})
    few = RandomFaults(random.Random(5), FaultRates(), reported.append, only)
    outcomes = send_all(few)

    kept = [
        outcome for outcome, none in zip(outcomes, usual() * MANY, strict=True) if outcome != none
    ]
    assert [fault.number for fault in reported] == sorted(only)
    assert len(kept) == len(only)
    assert all(
        outcome in (full, none)
        for outcome, full, none in zip(outcomes, all_of_them, usual() * MANY, strict=True)
    )


@in_virtual_time
async def test_healing_ends_all() -> None:
    faults = dice()
    send_all(faults, 100)
    number = faults.number
    faults.heal()
    assert send_all(faults) == usual() * MANY
    assert faults.number == number > 0


@pytest.mark.parametrize(
    ("verb", "impossible"),
    [
        ("get", {Failure.CONFLICT, Failure.GONE, Failure.LATE}),
        ("list", {Failure.CONFLICT, Failure.LATE}),
        ("watch", {Failure.CONFLICT, Failure.LATE}),
        ("create", {Failure.CONFLICT, Failure.GONE}),
        ("delete", {Failure.GONE}),
    ],
)
@in_virtual_time
async def test_a_call_fails_only_as_such_calls_do(verb: str, impossible: set[Failure]) -> None:
    faults = dice(rates=FaultRates().times(8))
    seen = {faults.on_call(sent(verb)).fails for _ in range(MANY)}
    assert seen - {None} == set(Failure) - impossible


@in_virtual_time
async def test_all_crash_points_are_hit() -> None:
    faults = dice(rates=replace(NO_FAULTS, crash=1.0))
    assert {faults.on_call(sent()).crash for _ in range(100)} == set(CrashPoint)


@in_virtual_time
async def test_delays_have_a_long_tail() -> None:
    faults = dice(rates=replace(NO_FAULTS, slow=1.0))
    outcomes = [faults.on_call(sent()) for _ in range(MANY)]
    spans = sorted((outcome.before + outcome.after).total_seconds() for outcome in outcomes)

    assert 0.05 <= spans[0] < 0.06
    assert spans[MANY // 2] < 3
    assert 30 < spans[-1] <= 40
    assert {bool(outcome.before) for outcome in outcomes} == {True, False}


def play(plan: Sequence[Planned]) -> tuple[ScriptedFaults, list[Fault]]:
    reported: list[Fault] = []
    return ScriptedFaults(plan, reported.append), reported


@in_virtual_time
async def test_a_plan_comes_true_once() -> None:
    """A process that comes back after the crash at its second call lives to make that one."""
    crash = FaultDecision(crash=CrashPoint.AFTER_COMMIT)
    faults, reported = play([CallPlan(actor=ACTOR, number=2, outcome=crash)])
    starts = [[faults.on_call(sent(number=number)) for number in (1, 2)] for _ in range(2)]

    assert starts == [[FaultDecision(), crash], [FaultDecision(), FaultDecision()]]
    assert [(fault.kind, fault.text) for fault in reported] == [
        ("crash", "call 2: get pods/a: after_commit")
    ]
    assert faults.list_waiting() == ()


@in_virtual_time
async def test_a_plan_is_for_one_process_and_one_plural() -> None:
    drop = EventOutcome(drop=True)
    faults, _ = play([EventPlan(actor=ACTOR, plural="pods", number=1, outcome=drop)])
    assert faults.on_event("operator-2", "pods", "ADDED", "a", 1) == EventOutcome()
    assert faults.on_event(ACTOR, "statefulsets", "ADDED", "a", 1) == EventOutcome()
    assert faults.on_event(ACTOR, "pods", "BOOKMARK", "", 1) == EventOutcome()
    assert faults.on_event(ACTOR, "pods", "ADDED", "a", 1) == drop


@in_virtual_time
async def test_lists_and_pod_calls_count_over_all_lives() -> None:
    age, slow = timedelta(seconds=30), PodCallOutcome(after=timedelta(seconds=3))
    faults, reported = play(
        [
            ListPlan(actor=ACTOR, plural="pods", number=2, age=age),
            PodPlan(actor=ACTOR, number=2, outcome=slow),
        ]
    )
    assert [faults.on_list(sent("list")) for _ in range(3)] == [timedelta(0), age, timedelta(0)]
    assert [faults.on_pod_call(ACTOR, "POST", "a-0") for _ in range(3)] == [
        PodCallOutcome(),
        slow,
        PodCallOutcome(),
    ]
    assert [fault.kind for fault in reported] == ["stale_list", "pod_slow"]
    assert [fault.number for fault in reported] == [1, 2]


@in_virtual_time
async def test_what_is_healed_does_not_come_true() -> None:
    faults, reported = play(
        [CallPlan(actor=ACTOR, number=1, outcome=FaultDecision(fails=Failure.INTERNAL))]
    )
    faults.heal()
    assert faults.on_call(sent()) == FaultDecision()
    assert reported == []


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (EventOutcome(drop=True), "drop_event"),
        (EventOutcome(freeze=timedelta(seconds=1), crash=True), "freeze and crash"),
        (EventOutcome(), "as usual"),
    ],
)
@in_virtual_time
async def test_what_comes_true_is_reported_in_words(outcome: EventOutcome, kind: str) -> None:
    faults, reported = play([EventPlan(actor=ACTOR, plural="pods", number=3, outcome=outcome)])
    faults.on_event(ACTOR, "pods", "DELETED", "a-0", 3)
    assert [fault.text for fault in reported] == [f"event 3 of pods: DELETED a-0: {kind}"]
