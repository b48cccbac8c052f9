"""Which faults come, by dice and by plan."""

import random
from collections import Counter

import pytest
from msgspec.structs import fields
from rollout_lab.model.history import Fault
from rollout_lab.network.faults import AS_USUAL, CrashPoint, Failure, Occasion, OccasionKind

from tests.lab.network.stage import ACTOR, read_plan
from tests.simulation.faults import OF_PODS, FaultRates, RandomFaults, ScriptedFaults
from tests.stories import check_tables, read_words
from tests.virtual_time import in_virtual_time

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
MANY = 4000
CALL, EVENT, LIST, POD_CALL, REVIEW = OccasionKind


def on(kind: OccasionKind, verb: str, number: int = 1, **more: str) -> Occasion:
    fields = {"plural": "pods", "name": "a", "actor": ACTOR, **more}
    return Occasion(kind=kind, verb=verb, number=number, round=1, **fields)


@in_virtual_time
async def test_every_kind_comes_and_is_reported() -> None:
    """Section 3.2: every kind of fault has its rate; crashes come at every point."""
    reported: list[Fault] = []
    faults = RandomFaults(random.Random(3), FaultRates().times(3), reported.append)
    crashes = set()
    for number in range(MANY):
        for occasion in (
            on(CALL, VERBS[number % len(VERBS)], number),
            on(EVENT, "MODIFIED", number),
            on(EVENT, "BOOKMARK", number, name=""),
            on(LIST, "list", number),
            on(POD_CALL, "POST"),
            on(REVIEW, "question"),
            on(REVIEW, "answer"),
        ):
            crashes.add(faults.decide(occasion).crash)

    assert set(faults.fired) == {each.name for each in fields(FaultRates)}
    assert Counter(fault.kind for fault in reported) == faults.fired
    assert crashes - {None} == set(CrashPoint)
    assert faults.fired["drop_bookmark"] / MANY == pytest.approx(0.15, rel=0.15)


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
    faults = RandomFaults(random.Random(1), FaultRates().times(8))
    seen = {faults.decide(on(kind, verb)).fails for _ in range(MANY)}
    every = list(Failure)
    possible = OF_PODS if kind is POD_CALL else every[: every.index(Failure.REFUSED)]
    assert seen - {None} == {*possible} - impossible


async def show_planned(case: str) -> str:
    """Return where a plan comes true, which is reported in words."""
    plan, _, occasions = case.partition(" > ")
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
    return "; ".join(found) or "nothing"


test_a_plan_comes_true_once_where_it_fits = in_virtual_time(
    check_tables(__file__, "tables", planned=show_planned)
)
