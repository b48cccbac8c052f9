"""Automatic mutants: drawn by a seed, judged by tests that call them, and two results compared."""

import shutil
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("mutmut", reason="in requirements-dev.lock, but not installed")

from tests.code_rules import ROOT
from tests.mutants.automatic import request
from tests.mutants.forked import Order
from tests.mutants.matrix import Matrix, Row, compare, render
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
    "lab/rollout_lab/pace.py": "def find_pace(): return 3\n",
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


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("area", "place"),
    [
        ("planning", "rollout_operator.planning.room.x_find_room"),
        ("planning/room.py", "rollout_operator.planning.room.x_find_room"),
        ("lab/rollout_lab", "rollout_lab.pace.x_find_pace"),
        ("planing", None),
    ],
)
def test_an_area_is_a_folder_or_a_module(copy: Path, area: str, place: str | None) -> None:
    if place is None:
        with pytest.raises(SystemExit, match=r"^planing: neither rollout_operator nor the check"):
            write_sample(copy, [area], 10, seed=1)
    else:
        assert place in {mutant.place for mutant in write_sample(copy, [area], 10, seed=1)}


def test_a_mutant_is_judged_by_all_tests_that_call_its_function(copy: Path) -> None:
    """Also by those that come after one that failed, or did not end."""
    for name in ("", "forked", "sample"):
        file = Path("tests/mutants") / f"{name or '__init__'}.py"
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    shutil.copy(ROOT / "pyproject.toml", copy)
    mutants = write_sample(copy, ["planning/room"], 10, seed=1)
    path = copy / "order.json"
    order = Order(mutants=mutants, verdicts=str(copy / "order.jsonl"), seconds=60, wants_all=True)
    path.write_bytes(msgspec.json.encode(order))

    verdicts = request(copy, path, ["tests"])

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
        diff = f"--- m\n+++ m\n-{name}\n+other"
        mutant = Automatic(
            name=f"m.{name}__mutmut_1", area="planning", file="m.py", function=name, diff=diff
        )
        return Row(mutant=mutant, killers=by.split(), is_cut=False)

    rows = [row(name, by) for name, by in killers.items()]
    tests = {test for one in rows for test in one.killers}
    return Matrix(rows=rows, seconds={"t/test_b.py::idle": 1.0, **dict.fromkeys(tests, 0.5)})


def test_the_smallest_set_and_what_is_lost_without_a_file() -> None:
    before = matrix(f="t/a.py::x t/a.py::y[1]", g="t/a.py::y[1] t/b.py::z", h="t/b.py::z", i="")

    shown = [line.strip() for line in render(before).splitlines()]
    assert "killed 3 of 4 by 3 of 4 tests, of which these 2 kill as many:" in shown
    assert {"2 t/a.py::y[1]", "1 t/b.py::z", "only t/b.py::z: m.py h", "survives: m.py i"} < {
        *shown
    }
    lost = compare(before, before.without(["t/b.py"]))
    assert lost.startswith("A: killed 3 of 4; B: killed 2 of 4; 4 mutants are the same;")
    assert "only A: m.py h\n  -h\n  +other\n  by t/b.py::z" in lost
    others = compare(before, matrix(f="n::x", i="n::y"))
    assert "only by A 0, only by B 1" in others
