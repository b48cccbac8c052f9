"""Automatic mutants are judged by all tests that call their function."""

import shutil
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("mutmut", reason="in requirements-dev.lock, but not installed")

from tests.code_rules import ROOT
from tests.mutants.automatic import request
from tests.mutants.forked import Order
from tests.mutants.sample import write_sample

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


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


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
