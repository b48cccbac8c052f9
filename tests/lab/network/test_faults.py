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
    AS_USUAL,
    CrashPoint,
    Failure,
    FaultOutcome,
    Faults,
    NoFaults,
    Occasion,
    OccasionKind,
)

from tests.lab.network.stage import ACTOR
from tests.simulation.faults import OF_PODS, FaultRates, Planned, RandomFaults, ScriptedFaults
from tests.virtual_time import in_virtual_time

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
MANY = 4000
NO_FAULTS = FaultRates().times(0)


CALL, EVENT, LIST, POD_CALL, REVIEW = OccasionKind


def on(
    kind: OccasionKind, verb: str, number: int = 1, *, actor: str = ACTOR, **more: str
) -> Occasion:
    fields = {"plural": "pods", "name": "a", **more}
    return Occasion(kind=kind, actor=actor, verb=verb, number=number, round=1, **fields)


def decide_all(faults: Faults, times: int = MANY) -> list[object]:
    """Request everything so many times, and return all that is to go wrong."""
    return [
        faults.decide(occasion)
        for number in range(times)
        for occasion in (
            on(CALL, VERBS[number % len(VERBS)], number),
            on(EVENT, "MODIFIED", number),
            on(EVENT, "BOOKMARK", number, name=""),
            on(LIST, "list", number),
            on(POD_CALL, "POST"),
            on(REVIEW, "question"),
            on(REVIEW, "answer"),
        )
    ]


def usual() -> list[object]:
    return decide_all(NoFaults(), 1)


def dice(seed: int = 1, rates: FaultRates | None = None) -> RandomFaults:
    return RandomFaults(random.Random(seed), rates or FaultRates())


@in_virtual_time
async def test_every_kind_comes_by_its_dose() -> None:
    """Section 3.2: every kind of fault has its rate, and the report counts them."""
    reported: list[Fault] = []
    faults = RandomFaults(random.Random(3), FaultRates().times(3), reported.append)
    decide_all(faults)

    assert set(faults.fired) == {each.name for each in fields(FaultRates)}
    assert Counter(fault.kind for fault in reported) == faults.fired
    assert [fault.number for fault in reported] == list(range(1, faults.number + 1))
    share = faults.fired["drop_bookmark"] / MANY
    assert share == pytest.approx(0.15, rel=0.15)


@in_virtual_time
async def test_more_and_fewer() -> None:
    for factor in (0.5, 5):
        faults = dice(rates=FaultRates().times(factor))
        decide_all(faults)
        assert faults.fired["pod_slow"] / MANY == pytest.approx(0.03 * factor, rel=0.3)
    assert max(getattr(FaultRates().times(1e6), each.name) for each in fields(FaultRates)) == 1.0


@in_virtual_time
async def test_without_a_dose_nothing_comes() -> None:
    faults = dice(rates=NO_FAULTS)
    assert decide_all(faults) == usual() * MANY
    assert faults.number == 0


@pytest.mark.parametrize("name", [each.name for each in fields(FaultRates)])
@in_virtual_time
async def test_one_dose_brings_one_kind(name: str) -> None:
    faults = dice(rates=replace(NO_FAULTS, **{name: 1.0}))
    decide_all(faults, 50)
    assert set(faults.fired) == {name}


@in_virtual_time
async def test_the_same_seed_gives_the_same_faults() -> None:
    assert decide_all(dice(5)) == decide_all(dice(5))
    assert decide_all(dice(5)) != decide_all(dice(6))


@in_virtual_time
async def test_faults_that_are_left_out_change_no_others() -> None:
    """So that a run can be shrunk: the dice are thrown alike, whatever comes of it."""
    all_of_them = decide_all(dice(5))
    reported: list[Fault] = []
    only = frozenset({2, 17, 30})
    few = RandomFaults(random.Random(5), FaultRates(), reported.append, only)
    outcomes = decide_all(few)

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
    decide_all(faults, 100)
    number = faults.number
    faults.heal()
    assert decide_all(faults) == usual() * MANY
    assert faults.number == number > 0


@pytest.mark.parametrize(
    ("kind", "verb", "impossible"),
    [
        (CALL, "get", {Failure.CONFLICT, Failure.GONE, Failure.LATE}),
        (CALL, "list", {Failure.CONFLICT, Failure.LATE}),
        (CALL, "watch", {Failure.CONFLICT, Failure.LATE}),
        (CALL, "create", {Failure.CONFLICT, Failure.GONE}),
        (CALL, "delete", {Failure.GONE}),
        (POD_CALL, "POST", set()),
    ],
)
@in_virtual_time
async def test_a_call_fails_only_as_such_calls_do(
    kind: OccasionKind, verb: str, impossible: set[Failure]
) -> None:
    faults = dice(rates=FaultRates().times(8))
    seen = {faults.decide(on(kind, verb)).fails for _ in range(MANY)}
    every = list(Failure)
    possible = OF_PODS if kind is POD_CALL else every[: every.index(Failure.REFUSED)]
    assert seen - {None} == {*possible} - impossible


@in_virtual_time
async def test_all_crash_points_are_hit() -> None:
    faults = dice(rates=replace(NO_FAULTS, crash=1.0))
    assert {faults.decide(on(CALL, "get")).crash for _ in range(100)} == set(CrashPoint)


@in_virtual_time
async def test_delays_have_a_long_tail() -> None:
    faults = dice(rates=replace(NO_FAULTS, slow=1.0))
    outcomes = [faults.decide(on(CALL, "get")) for _ in range(MANY)]
    spans = sorted((outcome.before + outcome.after).total_seconds() for outcome in outcomes)

    assert 0.05 <= spans[0] < 0.06
    assert spans[MANY // 2] < 3
    assert 30 < spans[-1] <= 40
    assert {bool(outcome.before) for outcome in outcomes} == {True, False}


SLOW = FaultOutcome(after=timedelta(seconds=3))
CRASH = FaultOutcome(crash=CrashPoint.AFTER_COMMIT)
DROP = FaultOutcome(fails=Failure.DROP)
OLD = FaultOutcome(age=timedelta(seconds=30))
BOTH = FaultOutcome(freeze=timedelta(seconds=1), crash=CrashPoint.BEFORE_SEND)
SECOND_CALL = on(CALL, "get", 2)


@pytest.mark.parametrize(
    ("planned", "occasions", "reported"),
    [
        # A process that comes back after the crash at its second call lives to make that one.
        pytest.param(
            Planned(kind=CALL, actor=ACTOR, number=2, outcome=CRASH),
            [on(CALL, "get"), SECOND_CALL, on(CALL, "get"), SECOND_CALL],
            [(1, "crash", "call 2: get pods/a: after_commit")],
            id="once",
        ),
        pytest.param(
            Planned(kind=EVENT, actor=ACTOR, number=1, outcome=DROP, of="pods"),
            [
                on(EVENT, "ADDED", actor="operator-2"),
                on(EVENT, "ADDED", plural="statefulsets"),
                on(EVENT, "BOOKMARK", name=""),
                on(CALL, "get"),
                on(EVENT, "ADDED"),
            ],
            [(4, "drop_event", "event 1 of pods: ADDED a: drop_event")],
            id="of one process, plural and kind",
        ),
        pytest.param(
            Planned(kind=LIST, actor=ACTOR, number=2, outcome=OLD, of="pods"),
            [on(LIST, "list"), on(LIST, "list"), on(LIST, "list")],
            [(1, "stale_list", "call 1: list pods/a: as of 0:00:30 ago")],
            id="lists over all lives",
        ),
        pytest.param(
            Planned(kind=POD_CALL, actor=ACTOR, number=2, outcome=SLOW),
            [on(POD_CALL, "POST"), on(POD_CALL, "POST"), on(POD_CALL, "POST")],
            [(1, "pod_slow", "POST a: slow")],
            id="requests to pods over all lives",
        ),
        pytest.param(
            Planned(kind=EVENT, actor=ACTOR, number=3, outcome=BOTH, of="pods"),
            [on(EVENT, "DELETED", 3)],
            [(0, "crash", "event 3 of pods: DELETED a: before_send")],
            id="two at a time",
        ),
        pytest.param(
            Planned(kind=EVENT, actor=ACTOR, number=3, outcome=AS_USUAL, of="pods"),
            [on(EVENT, "DELETED", 3)],
            [(0, "as usual", "event 3 of pods: DELETED a: as usual")],
            id="nothing",
        ),
    ],
)
@in_virtual_time
async def test_a_plan_comes_true_once_where_it_fits(
    planned: Planned, occasions: Sequence[Occasion], reported: Sequence[tuple[int, str, str]]
) -> None:
    """What comes true is reported in words."""
    told: list[Fault] = []
    faults = ScriptedFaults([planned], told.append)
    outcomes = [faults.decide(one) for one in occasions]

    [(place, kind, text)] = reported
    expected = [AS_USUAL] * len(occasions)
    expected[place] = planned.outcome
    assert outcomes == expected
    assert [(one.number, one.kind, one.text) for one in told] == [(1, kind, text)]
    assert faults.list_waiting() == ()


@in_virtual_time
async def test_what_is_healed_does_not_come_true() -> None:
    told: list[Fault] = []
    planned = Planned(kind=CALL, actor=ACTOR, number=1, outcome=CRASH)
    faults = ScriptedFaults([planned], told.append)
    faults.heal()
    assert faults.decide(on(CALL, "get")) == AS_USUAL
    assert told == []
