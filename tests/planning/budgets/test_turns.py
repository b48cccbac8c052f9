"""Whose turn it is under a budget that evictions and a rollout both want: SI-01, LI-01, LI-09."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from rollout_operator.model.budget import DisruptionSource
from rollout_operator.planning.budgets import MOST_PATIENCE, PATIENCE, RESPONSE, Turns

EVICTION, ROLLOUT = DisruptionSource.EVICTION, DisruptionSource.ROLLOUT
MOMENT = timedelta(milliseconds=1)
BEGIN = timedelta(hours=1)
HELD = Turns().hold(BEGIN, is_whole=False)
ROLLOUTS = HELD.grant(EVICTION, 1)


def test_an_eviction_that_waits_goes_first() -> None:
    assert Turns().holds(ROLLOUT)
    assert not Turns().holds(EVICTION)


def test_evictions_without_a_rollout_use_up_no_turn() -> None:
    state = Turns()
    for _ in range(9):
        state = state.grant(EVICTION, 1)
    assert state == Turns()


@pytest.mark.parametrize("most", [1, 2, 5])
def test_each_side_has_as_many_places_as_the_other_one(most: int) -> None:
    """One in two, also where several pods may be down at a time."""
    state, order = HELD, ""
    for _ in range(6 * most):
        side = state.side
        order += side.value[0]
        state = state.grant(side, most).hold(BEGIN, is_whole=False)
    assert order == ("e" * most + "r" * most) * 3


def test_the_rollout_is_not_held_in_its_turn_and_evictions_are() -> None:
    assert not ROLLOUTS.holds(ROLLOUT)
    assert ROLLOUTS.holds(EVICTION)


def test_what_the_other_side_does_in_a_turn_counts_for_nothing() -> None:
    """A rollout may take a place that no eviction needs."""
    assert HELD.grant(ROLLOUT, 1) == HELD


def test_a_turn_of_no_use_ends_and_the_rollout_goes_on_for_as_long() -> None:
    """LI-09: what clients request in vain stops no rollout."""
    assert HELD.at(BEGIN + PATIENCE - MOMENT) == HELD
    free = HELD.at(BEGIN + PATIENCE)
    assert not free.holds(ROLLOUT)
    assert not free.holds(EVICTION)
    assert not free.grant(ROLLOUT, 1).holds(ROLLOUT)
    assert not free.at(BEGIN + 2 * PATIENCE - MOMENT).holds(ROLLOUT)
    assert free.at(BEGIN + 2 * PATIENCE).holds(ROLLOUT)


def test_a_turn_after_one_of_no_use_lasts_twice_as_long() -> None:
    """Pods that take long to start must not let every turn end before a zone is whole."""
    state, now, spans = Turns(), BEGIN, []
    for _ in range(5):
        state = state.hold(now, is_whole=False)
        spans.append(state.patience / PATIENCE)
        now += state.patience
        state = state.at(now)
        now += MOST_PATIENCE
        state = state.at(now)
    assert spans == [1, 2, 4, 8, 8]
    assert state.hold(now, is_whole=False).grant(EVICTION, 2).patience == PATIENCE


def test_a_rollout_that_has_ended_holds_no_eviction() -> None:
    """It would have taken its place at once, as soon as all pods were up."""
    held = ROLLOUTS.hold(BEGIN, is_whole=True)
    assert held.at(BEGIN + RESPONSE - MOMENT).holds(EVICTION)
    assert held.at(BEGIN + RESPONSE) == Turns()


def test_a_rollout_that_waits_for_pods_keeps_its_turn() -> None:
    held = ROLLOUTS.hold(BEGIN, is_whole=True).hold(BEGIN + MOMENT, is_whole=False)
    assert held.at(BEGIN + RESPONSE).holds(EVICTION)
    assert held.at(BEGIN + PATIENCE) == Turns()


def test_whatever_happens_no_side_is_held_for_ever() -> None:
    """Every state that can be reached at one time or after a turn: an exhaustive walk."""
    steps: list[Callable[[Turns], Turns]] = [
        lambda state: state.grant(EVICTION, 2),
        lambda state: state.grant(ROLLOUT, 2),
        lambda state: state.hold(BEGIN, is_whole=True),
        lambda state: state.hold(BEGIN, is_whole=False),
        lambda state: state.at(BEGIN + state.patience),
    ]
    seen, left = {Turns()}, [Turns()]
    while left:
        state = left.pop()
        for engine in filter(state.holds, DisruptionSource):
            held = state.hold(BEGIN, is_whole=False)
            assert not held.at(BEGIN + held.patience).holds(engine)
        assert not (state.holds(EVICTION) and state.holds(ROLLOUT))
        new = {step(state) for step in steps} - seen
        seen |= new
        left += new
    assert len(seen) > 20
