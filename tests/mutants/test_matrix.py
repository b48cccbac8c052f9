"""The matrix: each mutant against all tests that call it, what they alone kill, two results."""

import shutil
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("mutmut", reason="in requirements-dev.lock, but not installed")

from tests.code_rules import ROOT
from tests.mutants.automatic import request
from tests.mutants.forked import Order
from tests.mutants.matrix import Matrix, Row, compare, cover, render
from tests.mutants.sample import Automatic, write_sample

SOURCES = {
    "rollout_operator/__init__.py": "",
    "rollout_operator/planning/__init__.py": "",
    "rollout_operator/planning/room.py": """
def find_room(limit, down):
    return limit - down

def find_limit():
    return 3
""",
    "tests/test_room.py": """
import os
from rollout_operator.planning.room import find_limit, find_room

def test_fails(): assert find_room(3, 1) == 2
def test_shows_nothing(): assert find_room(3, 0) == 3
def test_ends_its_process(): find_room(3, 1) == 2 or os._exit(1)
def test_comes_after_that(): assert find_room(5, 1) == 4
def test_fails_always(): assert find_room(3, 1) == 3
def test_calls_another(): assert find_limit() == 3
""",
}


def test_a_mutant_is_judged_by_all_tests_that_call_its_function(tmp_path: Path) -> None:
    """Also by those that come after one that failed, or did not end."""
    for name in ("", "forked", "sample"):
        file = Path("tests/mutants") / f"{name or '__init__'}.py"
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    mutants = write_sample(tmp_path, ["planning/room"], 10, seed=1)
    path = tmp_path / "order.json"
    order = Order(
        mutants=mutants, verdicts=str(tmp_path / "order.jsonl"), seconds=60, wants_all=True
    )
    path.write_bytes(msgspec.json.encode(order))

    verdicts = request(tmp_path, path, ["tests"])

    found = {
        (m.function, tuple(k.partition("::")[2] for k in v.killers), v.tests, v.is_cut)
        for m, v in zip(mutants, verdicts, strict=True)
    }
    assert found == {
        ("find_room", ("test_fails", "test_ends_its_process", "test_comes_after_that"), 4, False),
        ("find_limit", ("test_calls_another",), 1, False),
    }


def matrix(**killers: str) -> Matrix:
    def row(name: str, by: str) -> Row:
        mutant = Automatic(
            name=f"m.{name}__mutmut_1",
            area="planning",
            file="m.py",
            function=name,
            diff=f"--- m\n+++ m\n-{name}\n+other",
        )
        return Row(mutant=mutant, killers=by.split(), is_cut=False)

    rows = [row(name, by) for name, by in killers.items()]
    tests = {test for one in rows for test in one.killers}
    return Matrix(rows=rows, seconds={"t/test_b.py::idle": 1.0, **dict.fromkeys(tests, 0.5)})


BEFORE = matrix(
    f="t/test_a.py::x t/test_a.py::y[1]",
    g="t/test_a.py::y[1] t/test_b.py::z",
    h="t/test_b.py::z",
    i="",
)


def test_the_smallest_set_and_what_files_and_tests_kill_alone() -> None:
    assert cover(BEFORE) == {"t/test_a.py::y[1]": 2, "t/test_b.py::z": 1}
    assert render(BEFORE).splitlines() == [
        *("survives: m.py i", "  -i", "  +other"),
        "killed 3 of 4 by 3 of 4 tests, of which these 2 kill as many:",
        *("    2 t/test_a.py::y[1]", "    1 t/test_b.py::z"),
        *("only t/test_a.py: m.py f", "  -f", "  +other"),
        *("only t/test_b.py: m.py h", "  -h", "  +other"),
        *("only t/test_b.py::z: m.py h", "  -h", "  +other"),
        "kills alone tests seconds file",
        "    2     1     2     1.0 t/test_a.py",
        "    2     1     2     1.5 t/test_b.py",
        "kills alone tests seconds test",
        "    2     1     1     0.5 t/test_b.py::z",
        "    2     0     1     0.5 t/test_a.py::y[1]",
        "    1     0     1     0.5 t/test_a.py::x",
        "    0     0     1     1.0 t/test_b.py::idle",
    ]


@pytest.mark.parametrize(
    ("after", "shown"),
    [
        pytest.param(
            BEFORE.without(["t/test_b.py"]),
            ["B: killed 2 of 4", "4 mutants", "both 2", "A 1", "B 0", "only A: m.py h"],
            id="without a file",
        ),
        pytest.param(
            BEFORE.without(["t"]),
            ["B: killed 0 of 4", "4 mutants", "both 0", "A 3", "B 0", "x and 1 more"],
            id="without a folder",
        ),
        pytest.param(
            matrix(f="n::x", i="n::y"),
            ["B: killed 2 of 2", "2 mutants", "both 1", "A 0", "B 1", "only B: m.py i", "by n::y"],
            id="other tests, and some of the mutants",
        ),
    ],
)
def test_two_results_side_by_side(after: Matrix, shown: list[str]) -> None:
    text = compare(BEFORE, after)

    assert text.startswith("A: killed 3 of 4; ")
    assert [part for part in shown if part not in text] == []
