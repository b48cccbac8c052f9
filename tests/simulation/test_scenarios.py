"""Scenarios without faults: each ends at rest, clean, and did what `calm.txt` says.

With faults or without: the same seed gives the same history, to the last record: in one process, in
two, and whatever hashes do.
"""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Container, Iterable
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from _pytest.mark import ParameterSet

from tests.code_rules import ROOT
from tests.goldens import Golden
from tests.simulation.__main__ import read_size
from tests.simulation.calm_digest import describe
from tests.simulation.campaign import Job, list_unrepeatable, run_job
from tests.simulation.runs import Outcome, is_healing, run
from tests.simulation.scenarios_book import NAMES, get_scenario
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


SEEDS: Final = 10
# Each way of acting once: alone, elected, beside others, and all features. All: `make prove`.
EACH_WAY: Final = (
    *("s1", "s7-tracked", "s8-two", "s9-small", "s12", "s14-watched", "walk", "p1"),
    *("r1-elected", "s5-contested"),
)
PRINT_HASH: Final = """
import json, sys
from tests.simulation.campaign import Job, run_job
jobs = [Job(scenario=name, seed=seed) for name in sys.argv[1:] for seed in (5,)]
print(json.dumps([run_job(job).trace_hash for job in jobs]))
"""


@pytest.mark.parametrize("name", mark_costly(EACH_WAY))
def test_the_same_seed_gives_the_same_history(name: str) -> None:
    first, second = (_run_alone(name) for _ in range(2))

    assert first.trace_hash == second.trace_hash, _name_difference(first, second)
    assert (first.span, first.steps, first.faults) == (second.span, second.steps, second.faults)


def _run_alone(name: str) -> Outcome:
    """Run a schedule when nothing of earlier ones is left: a task that is destroyed takes steps."""
    gc.collect()
    return run(get_scenario(name), 3)


def test_another_seed_gives_another_history() -> None:
    hashes = {run_job(Job(scenario="s1-small", seed=seed)).trace_hash for seed in range(8)}

    assert len(hashes) == 8


@pytest.mark.slow
def test_the_order_of_hashes_changes_nothing() -> None:
    """Sets of strings are in another order in each process: nothing may depend on it."""
    names = ["s1-small", "s7-small", "s9-small"]
    found = []
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", PRINT_HASH, *names],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            timeout=120,
        )
        found.append(json.loads(ran.stdout))

    assert found[0] == found[1]


@pytest.mark.parametrize(("scenario", "seed"), [("s1", 11), ("s3", 962)])
def test_leaving_out_no_fault_changes_nothing(scenario: str, seed: int) -> None:
    """What `only` names is what strikes, or would, so that a run can be shrunk."""
    whole = run(get_scenario(scenario), seed)
    same = run(get_scenario(scenario), seed, only=frozenset(whole.numbers))

    assert whole.faults, "a seed without faults shows nothing"
    assert same.trace_hash == whole.trace_hash, _name_difference(whole, same)


def test_without_faults_none_strikes() -> None:
    assert not run(get_scenario("s1"), 11, only=frozenset()).faults


@pytest.mark.slow
def test_ten_seeds_give_the_same_history_in_another_process() -> None:
    """One of them in a scenario of its full size; more of them, of all: `make prove`."""
    names = (*("s1-small", "s2-small", "s7-small") * 3, "s1")
    jobs = [Job(scenario=names[seed % len(names)], seed=seed) for seed in range(SEEDS)]

    assert list_unrepeatable(jobs) == []


def _name_difference(first: Outcome, second: Outcome) -> str:
    for place, (one, other) in enumerate(
        zip(first.history.records, second.history.records, strict=False)
    ):
        if one != other:
            return f"record {place}:\n{one}\n{other}"
    return f"{len(first.history.records)} records, {len(second.history.records)} records"
