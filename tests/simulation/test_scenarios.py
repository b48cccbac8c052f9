"""Scenarios without faults: each ends at rest, clean, and did what `calm.txt` says."""

from collections.abc import Container, Iterable
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from tests.goldens import Golden
from tests.simulation.__main__ import read_size
from tests.simulation.calm_digest import describe
from tests.simulation.scenarios_book import NAMES, get_scenario
from tests.simulation.schedule import is_healing, run
from tests.stories import Story, read_stories

pytestmark = pytest.mark.thorough

CALM: Final = Path(__file__).with_name("calm.txt")
LARGE: Final = tuple(name for name in NAMES if not name.endswith("-small"))


def mark_costly(names: Iterable[str], costly: Container[str] = LARGE) -> list[ParameterSet]:
    """Return scenarios as parameters of a test: the costly ones are not for `make test-fast`."""
    return [pytest.param(name, marks=pytest.mark.slow if name in costly else ()) for name in names]


@pytest.mark.parametrize("story", read_stories(CALM))
def test_without_faults_it_ends_at_rest_and_clean(story: Story, golden: Golden) -> None:
    """Played with the first seed from the given one on that heals."""
    name, seed, *size = story.commands[0].split()
    scenario = get_scenario(name, read_size(size[0]) if size else None)
    outcome = run(scenario, next(filter(is_healing, count(int(seed)))), only=frozenset())

    assert outcome.is_healed
    assert outcome.verdict.is_clean, outcome.verdict
    assert not outcome.faults
    story.check(describe(outcome.history), golden)


def test_each_scenario_is_played() -> None:
    stories = [one for case in read_stories(CALM) for one in case.values if isinstance(one, Story)]
    assert {story.commands[0].split()[0] for story in stories} == set(NAMES)


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        # MAZ-40, step 10: a cache that lags shows a pod as broken, which would wait for no pause.
        ("p3-elected", (107, 178)),
        # REL-01, REL-46, RELB-10, RELB-15: no wish has its effect twice, and none is lost.
        ("r2", (5, 9, 17, 61)),
        # RELB-42: schedules made, changed, or selecting another label, as versions are announced.
        ("r3", (6, 10, 12, 13)),
    ],
)
def test_what_once_went_wrong_under_faults_does_not(name: str, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        verdict = run(get_scenario(name), seed).verdict
        assert verdict.is_clean, f"seed {seed}\n{verdict}"
