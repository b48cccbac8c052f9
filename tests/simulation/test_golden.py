"""Whole rollouts and downscales as traces: what the operator does is reviewed as a diff of these.

`pytest --update-golden` writes them anew.
"""

from functools import cache
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.trace.trace import WIDTH, trace_hash

from tests.goldens import Golden
from tests.simulation.traces import GoldenTrace, play_scenario, read_scenarios

FOLDER: Final = Path(__file__).parents[1] / "golden"
BY_NAME: Final = {scenario.name: scenario for scenario in read_scenarios()}


@cache
def play(name: str) -> GoldenTrace:
    """Play a story once for all that is checked of it."""
    return play_scenario(BY_NAME[name])


@pytest.mark.parametrize("name", BY_NAME)
def test_the_trace_is_as_it_was(name: str, golden: Golden) -> None:
    """It broke no invariant, as far as the judge of the random schedules can see.

    No line is wider than a page, and no sentence is broken off.
    """
    trace = play(name)
    lines = trace.text.splitlines()

    assert trace.verdict.is_clean, trace.verdict
    assert max(map(len, lines)) <= WIDTH
    assert not [line for line in lines if line.endswith((" ", "..."))]
    assert "nothing follows" in lines[-1]
    golden.check(FOLDER / f"{name}.txt", trace.text)


def test_each_file_has_its_trace() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(BY_NAME)


@pytest.mark.parametrize("name", ["crash-after-delete", "two-downscales-at-once"])
def test_the_same_scenario_gives_the_same_trace_twice(name: str) -> None:
    """To the last call, not only to what a reader is shown."""
    assert trace_hash(play(name).history) == trace_hash(play_scenario(BY_NAME[name]).history)
