"""Which faults come: by dice, by plan, or none at all.

Section 3.2: rates of each kind, runs that repeat, and runs that are shrunk.
"""

import random
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import fields, replace
from rollout_lab.model.history import Fault
from rollout_lab.network.faults import (
    AS_USUAL,
    CrashPoint,
    Failure,
    Faults,
    NoFaults,
    Occasion,
    OccasionKind,
)

from tests.goldens import Golden
from tests.lab.network.stage import ACTOR, read_plan
from tests.simulation.faults import OF_PODS, FaultRates, RandomFaults, ScriptedFaults
from tests.stories import Story, read_stories, read_words
from tests.virtual_time import in_virtual_time

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
MANY = 4000
NO_FAULTS = FaultRates().times(0)


CALL, EVENT, LIST, POD_CALL, REVIEW = OccasionKind


def on(kind: OccasionKind, verb: str, number: int = 1, **more: str) -> Occasion:
    fields = {"plural": "pods", "name": "a", "actor": ACTOR, **more}
    return Occasion(kind=kind, verb=verb, number=number, round=1, **fields)


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


@pytest.mark.parametrize("story", read_stories(Path(__file__).parent / "tables" / "planned.txt"))
@in_virtual_time
async def test_a_plan_comes_true_once_where_it_fits(story: Story, golden: Golden) -> None:
    """What comes true is reported in words."""
    plan, _, occasions = story.commands[0].partition(" > ")
    planned, told = read_plan(*plan.split()), list[Fault]()
    faults = ScriptedFaults([planned], told.append)
    found = []
    for place, (kind, verb, *words) in enumerate(map(str.split, occasions.split("; ")), 1):
        if kind == "heal":
            faults.heal()
            continue
        more = read_words(words)
        number = int(more.pop("number", 1))
        outcome = faults.decide(
            on(OccasionKind(kind), verb, number, **{"plural": "secrets", **more})
        )
        assert outcome in (AS_USUAL, planned.outcome)
        if told or outcome != AS_USUAL:
            [one] = told
            assert (one.number, outcome) == (1, planned.outcome)
            found.append(f"{place}: {one.kind}, {one.text}")
            told.clear()
    assert faults.list_waiting() == ()
    story.check("; ".join(found) or "nothing", golden)
