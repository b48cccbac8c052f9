"""A failing schedule is made small; what fails is made up here, so that the least is known."""

from collections.abc import Callable

import pytest

from tests.simulation.scenarios import Size
from tests.simulation.shrink import Case, Failure, shrink

ALL = tuple(range(1, 41))
CASE = Case(scenario="s1", seed=7)


def failing(*needed: int, zones: int = 2, pods: int = 2) -> Callable[[Case], Failure | None]:
    """Return runs that break SI-01 whenever all these faults strike in so large a world."""

    def try_case(case: Case) -> Failure | None:
        size = case.size or Size(3, 3)
        struck = tuple(number for number in ALL if case.only is None or number in case.only)
        if set(needed) <= set(struck) and size.zones >= zones and size.pods >= pods:
            return Failure(invariants=frozenset({"SI-01"}), numbers=struck)
        return None

    return try_case


@pytest.mark.parametrize(
    "needed",
    [
        pytest.param((), id="no fault at all"),
        pytest.param((17,), id="one"),
        pytest.param((1, 40), id="the first and the last"),
        pytest.param((3, 4, 5, 21, 33), id="five"),
    ],
)
def test_only_the_faults_that_are_needed_stay(needed: tuple[int, ...]) -> None:
    assert shrink(CASE, failing(*needed)).only == frozenset(needed)


def test_pods_and_zones_that_are_not_needed_go() -> None:
    found = shrink(CASE, failing(8, zones=3, pods=2))

    assert found.size == Size(3, 2)
    assert found.only == frozenset({8})


def test_the_size_stays_where_all_of_it_is_needed() -> None:
    assert shrink(CASE, failing(8, zones=3, pods=3)).size is None


def test_another_broken_promise_is_not_taken_for_the_same() -> None:
    """Without fault 2 the run breaks something else, which is another story."""

    def try_case(case: Case) -> Failure | None:
        struck = ALL if case.only is None else tuple(sorted(case.only))
        broken = "SI-01" if 2 in struck else "LI-01"
        return Failure(invariants=frozenset({broken}), numbers=struck)

    assert shrink(CASE, try_case).only == frozenset({2})


def test_what_does_not_fail_again_stays_as_it_is() -> None:
    assert shrink(CASE, lambda case: None) == CASE


def test_the_number_of_runs_is_bounded() -> None:
    runs = []

    def try_case(case: Case) -> Failure | None:
        runs.append(case)
        return failing(1, 13, 27, 40)(case)

    found = shrink(CASE, try_case, most_runs=9)

    assert len(runs) == 9
    assert found.only is not None
    assert found.only >= {1, 13, 27, 40}


def test_faults_that_did_not_strike_are_not_kept() -> None:
    """With one fault left out, the later ones meet another world and may not come at all."""

    def try_case(case: Case) -> Failure | None:
        struck = ALL if case.only is None else (5,)
        return Failure(invariants=frozenset({"SI-04"}), numbers=struck)

    assert shrink(CASE, try_case).only in (frozenset({5}), frozenset())


@pytest.mark.parametrize(
    ("case", "command"),
    [
        (CASE, "python -m tests.simulation run --scenario s1 --seed 7"),
        (
            Case(scenario="s7", seed=123, only=frozenset({17, 3})),
            "python -m tests.simulation run --scenario s7 --seed 123 --only 3,17",
        ),
        (
            Case(scenario="s2", seed=1, size=Size(2, 3), only=frozenset()),
            "python -m tests.simulation run --scenario s2 --seed 1 --size 2x3 --only none",
        ),
    ],
)
def test_one_command_repeats_it(case: Case, command: str) -> None:
    assert case.command == command
