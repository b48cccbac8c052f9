"""The catalogue of deliberate errors is up to date, and the simulation sees some of them at once.

All of them are judged by `make mutants`, which takes half an hour.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_rules import ROOT
from tests.mutants.entry import ALL, CATALOGUE, read_sources
from tests.mutants.runner import Budget, Runner, copied
from tests.simulation.faults import REVIEW_PROFILES
from tests.simulation.scenarios_book import NAMES

pytestmark = pytest.mark.thorough

SOURCES = read_sources(ROOT)


def test_every_mutant_changes_one_place_and_is_still_code(tmp_path: Path) -> None:
    """And names what it breaks. A NameError would be seen by any test, and say nothing of that."""
    for mutant in ALL:
        file, changed = mutant.change(SOURCES)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCES[file])), mutant.name
        (tmp_path / f"{mutant.name}.py").write_text(changed)
        assert len(mutant.wanted) > 1, mutant.name
        assert {*mutant.scenarios, *mutant.planned} <= {*NAMES}, mutant.name
        assert mutant.profile in {"", *REVIEW_PROFILES}, mutant.name
    ruff = (sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", str(tmp_path))
    checked = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert len(CATALOGUE) == len(ALL) > 80


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    with copied() as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        pytest.param("one-pod-more-than-the-limit", "SI-04", id="SI-04 in a decision"),
        pytest.param(
            "no-version-precondition", "SI-07", id="SI-07 in an effect", marks=pytest.mark.prove
        ),
        pytest.param("dry-run-prepares", "SI-15", id="SI-15 in a review", marks=pytest.mark.prove),
    ],
)
def test_the_simulation_sees_a_mutant_within_seconds(base: Path, name: str, invariant: str) -> None:
    result = Runner(base, Budget(schedules=12, has_plans=False)).judge(CATALOGUE[name])

    assert invariant in result.simulation
    assert read_sources(base) == SOURCES, "the checkout is never changed"
