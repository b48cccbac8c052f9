"""A failing schedule is made small; what fails is made up here, so that the least is known."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

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


@pytest.mark.parametrize("needed", [(), (17,), (1, 40), (3, 4, 5, 21, 33)])
def test_only_the_faults_that_are_needed_stay(needed: tuple[int, ...]) -> None:
    assert shrink(CASE, failing(*needed)).only == frozenset(needed)


def test_pods_and_zones_that_are_not_needed_go() -> None:
    found = shrink(CASE, failing(8, zones=3, pods=2))

    assert (found.size, found.only) == (Size(3, 2), frozenset({8}))
    assert shrink(CASE, failing(8, zones=3, pods=3)).size is None
    assert shrink(CASE, lambda case: None) == CASE, "what does not fail again stays as it is"


@pytest.mark.parametrize(
    ("other", "struck", "kept"),
    [
        pytest.param("LI-01", ALL, frozenset({2}), id="without fault 2 another promise is broken"),
        pytest.param(
            "SI-01", (2,), frozenset({2}), id="with one left out, most do not strike any more"
        ),
    ],
)
def test_what_is_left_is_another_run(
    other: str, struck: tuple[int, ...], kept: frozenset[int]
) -> None:
    def try_case(case: Case) -> Failure | None:
        if case.only is None or 2 in case.only:
            return Failure(invariants=frozenset({"SI-01"}), numbers=struck if case.only else ALL)
        return Failure(invariants=frozenset({other}), numbers=struck) if other != "SI-01" else None

    assert shrink(CASE, try_case).only == kept


def test_the_number_of_runs_is_bounded() -> None:
    runs = []

    def try_case(case: Case) -> Failure | None:
        runs.append(case)
        return failing(1, 13, 27, 40)(case)

    found = shrink(CASE, try_case, most_runs=9)

    assert len(runs) == 9
    assert found.only is not None
    assert found.only >= {1, 13, 27, 40}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (CASE, "--scenario s1 --seed 7"),
        (replace(CASE, only=frozenset({17, 3})), "--scenario s1 --seed 7 --only 3,17"),
        (
            replace(CASE, size=Size(2, 3), only=frozenset()),
            "--scenario s1 --seed 7 --size 2x3 --only none",
        ),
    ],
)
def test_one_command_repeats_it(case: Case, words: str) -> None:
    assert case.command == f"python -m tests.simulation run {words}"
