"""Same seed, same history, to the last record: in one process, in two, and whatever hashes do."""

import gc
import json
import os
import subprocess
import sys
from typing import Final

import pytest

from tests.code_rules import ROOT
from tests.simulation.campaign import Job, list_unrepeatable, run_job
from tests.simulation.runs import Outcome
from tests.simulation.scenarios_book import get_scenario
from tests.simulation.schedule import run
from tests.simulation.test_scenarios import mark_costly

pytestmark = pytest.mark.thorough

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
