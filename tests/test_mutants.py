"""The catalogue of deliberate errors is up to date, and the simulation sees some of them at once.

All of them are judged by `make mutants`, which takes half an hour.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.code_rules import ROOT
from tests.judge.promises import Verdict, Violation
from tests.mutants.__main__ import is_enough, render_total
from tests.mutants.catalogue import ALL, CATALOGUE
from tests.mutants.entry import read_sources
from tests.mutants.runner import Budget, Result, Runner, copied
from tests.mutants.trial import Question
from tests.simulation.campaign import Job
from tests.simulation.fault_rates import REVIEW_PROFILES
from tests.simulation.runtime import DEFECT
from tests.simulation.scenarios_book import NAMES

pytestmark = pytest.mark.thorough

QUICK = Budget(schedules=12, has_plans=False)
MUTANT = ALL[0]
HARMLESS = replace(
    MUTANT,
    name="harmless",
    old='"""What is up in one zone',
    new='"""What is up in  one zone',
)


SOURCES = read_sources(ROOT)


def test_every_mutant_changes_one_place_and_is_still_code() -> None:
    for mutant in ALL:
        file, changed = mutant.change(SOURCES)

        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCES[file])), mutant.name
        compile(changed, str(file), "exec")


def test_no_mutant_breaks_by_a_name_that_is_not_there(tmp_path: Path) -> None:
    """A NameError is seen by any test, and says nothing of what the error should break."""
    for mutant in ALL:
        (tmp_path / f"{mutant.name}.py").write_text(mutant.change(SOURCES)[1])
    ruff = (sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", str(tmp_path))

    checked = subprocess.run(ruff, capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stdout


def test_every_mutant_names_what_it_breaks_and_its_tests() -> None:
    """`breaks` has at least one promise; the scenarios exist, and so does the profile."""
    for mutant in ALL:
        assert len(mutant.wanted) > 1, mutant.name
        assert {*mutant.scenarios, *mutant.planned} <= {*NAMES}, mutant.name
        assert mutant.profile in {"", *REVIEW_PROFILES}, mutant.name


def test_names_are_unique_and_there_are_enough() -> None:
    names = Counter(mutant.name for mutant in ALL)

    assert [name for name, count in names.items() if count > 1] == []
    assert len(CATALOGUE) >= 45


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
    result = Runner(base, QUICK).judge(CATALOGUE[name])

    assert invariant in result.simulation
    assert result.render().startswith(f"{name}: s")


def test_an_error_that_is_none_survives(base: Path) -> None:
    result = Runner(base, Budget(schedules=1, has_plans=False)).judge(HARMLESS)

    assert not result.is_found
    assert result.render() == "harmless: SURVIVED"


def test_the_checkout_is_never_changed(base: Path) -> None:
    before = read_sources(base)

    Runner(base, Budget(schedules=0, has_plans=False)).judge(MUTANT)

    assert read_sources(base) == before == read_sources(ROOT)


def test_what_the_package_shows_without_a_mutant_says_nothing(base: Path, tmp_path: Path) -> None:
    job = Job(scenario="s1", seed=1)
    broken = tmp_path / "rollout_operator"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('broken to begin with')")
    (tmp_path / "tests").symlink_to(base / "tests")

    assert Runner(base).is_clean_without(job)
    assert not Runner(tmp_path).is_clean_without(job)


def test_only_promises_that_are_named_count() -> None:
    """Any run may break another promise by chance."""
    job = Job(scenario="s1", seed=1)
    shown = [
        Violation(invariant="SI-04", at=timedelta(0), text="by the mutant"),
        Violation(invariant="SI-16", at=timedelta(0), text="by chance"),
    ]
    verdict = Verdict(violations=tuple(shown), undetermined=("too short",))

    assert Question(wanted=("SI-03", "SI-04")).choose(verdict) == ["SI-04 at 0.0 s: by the mutant"]
    assert len(Question(only=job).choose(verdict)) == 3


def test_a_world_that_never_rests_shows_by_any_of_the_judges_words() -> None:
    assert replace(MUTANT, breaks="LI-04: no list").wanted == {
        "LI-01",
        "LI-02",
        "LI-04",
        "LI-10",
        DEFECT,
    }
    assert replace(MUTANT, breaks="SI-07").wanted == {"SI-07", DEFECT}


def test_survivors_must_be_few() -> None:
    seen = [Result(mutant=MUTANT, simulation="s1 seed 1: SI-03")] * 19
    survivor = Result(mutant=HARMLESS)

    assert is_enough(seen)
    assert is_enough([*seen, survivor])
    assert not is_enough([*seen[1:], survivor, survivor])  # 90 %
    assert render_total([*seen, survivor]) == "mutants=20 found=19 survived=1 share=95.0%"
