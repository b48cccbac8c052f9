"""The walk itself: it sees every state, the shortest way to a bad one, and who is stuck."""

import gc
from collections.abc import Iterable

import pytest

from tests.models.search import Model, Step, explore, find_stuck, list_ends

# A lift: up and down between floors 0 and 4, and from 3 a cable may break.
BROKEN = 9


def ride(floor: int) -> Iterable[tuple[Step, int]]:
    if floor == BROKEN:
        return
    if floor < 4:
        yield Step("guest", "ride up"), floor + 1
    if floor > 0:
        yield Step("guest", "ride down"), floor - 1
    if floor == 3:
        yield Step("rust", "break", "cable"), BROKEN


def a_lift(bad: int = -1) -> Model[int]:
    return Model(start=0, steps=ride, name_fault=lambda at: "bad floor" if at == bad else "")


def test_every_state_is_seen_once_nearest_first() -> None:
    walk = explore(a_lift())
    assert (walk.states, walk.fault) == ([0, 1, 2, 3, 4, BROKEN], None)
    assert walk.verbs == {"ride up", "ride down", "break"}
    assert list(list_ends(walk)) == [BROKEN]


@pytest.mark.parametrize(
    ("bad", "steps"), [(0, []), (BROKEN, ["guest: ride up"] * 3 + ["rust: break cable"])]
)
def test_a_bad_state_comes_with_the_shortest_way_there(bad: int, steps: list[str]) -> None:
    fault = explore(a_lift(bad)).fault
    assert fault is not None
    assert (list(map(str, fault.trace)), fault.text, fault.state) == (steps, "bad floor", bad)


def test_a_walk_that_would_not_end_proves_nothing() -> None:
    endless = Model(start=0, steps=lambda at: [(Step("x", "go"), at + 1)], name_fault=lambda _: "")
    with pytest.raises(OverflowError, match="more than 100 states"):
        explore(endless, most=100)
    assert gc.isenabled()


def test_the_nearest_state_without_a_way_to_the_goal_is_found() -> None:
    walk = explore(a_lift())
    stuck = find_stuck(walk, lambda at: at == 0)
    assert stuck is not None
    assert (stuck.state, stuck.trace[-1]) == (BROKEN, Step("rust", "break", "cable"))
    assert find_stuck(walk, lambda at: at in (0, BROKEN)) is None
    without_guest = find_stuck(walk, lambda at: at == BROKEN, lambda step: step.actor != "guest")
    assert without_guest is not None
    assert without_guest.state == 0
