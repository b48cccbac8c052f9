"""Automatic mutants: drawn by a seed, switched on by name, judged by the tests that call them."""

import subprocess
import sys
from pathlib import Path

import pytest

mutmut = pytest.importorskip("mutmut", reason="in requirements-dev.lock, but not installed")

from tests.mutants.automatic import Judged, render  # noqa: E402 (needs mutmut)
from tests.mutants.forked import Verdict, run_forked  # noqa: E402
from tests.mutants.sample import Automatic, write_sample  # noqa: E402

SOURCE = "def find_room(limit: int, down: int) -> int:\n    return limit - down\n"
TRY_EACH = """
import sys
from mutmut.mutation.trampoline import set_mutant_under_test
from rollout_operator.planning.room import find_room

for name in sys.argv[1:]:
    set_mutant_under_test(name)
    print(find_room(3, 1))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "rollout_operator" / "planning"
    folder.mkdir(parents=True)
    for path in (folder.parent / "__init__.py", folder / "__init__.py"):
        path.write_text("")
    (folder / "room.py").write_text(SOURCE)
    return tmp_path


def test_a_mutant_is_another_function_once_it_is_switched_on(copy: Path) -> None:
    (mutant,) = write_sample(copy, ["planning"], 10, seed=1)

    assert (mutant.area, mutant.function) == ("planning", "find_room")
    assert "+    return limit + down" in mutant.diff
    words = [sys.executable, "-c", TRY_EACH, "none of them", mutant.name]
    shown = subprocess.run(words, cwd=copy, capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["2", "4"]


@pytest.mark.parametrize(
    ("area", "module"),
    [
        ("planning", "rollout_operator.planning.room"),
        ("planning/room", "rollout_operator.planning.room"),
        ("planning/room.py", "rollout_operator.planning.room"),
        ("lab/rollout_lab", "rollout_lab.pace"),
        ("lab/rollout_lab/pace", "rollout_lab.pace"),
    ],
)
def test_an_area_is_a_folder_or_a_module_of_one_of_the_packages(
    copy: Path, area: str, module: str
) -> None:
    (copy / "lab" / "rollout_lab").mkdir(parents=True)
    (copy / "lab" / "rollout_lab" / "pace.py").write_text(SOURCE)

    (mutant,) = write_sample(copy, [area], 10, seed=1)

    assert mutant.place == f"{module}.x_find_room"


def test_an_area_that_is_not_there_is_named(copy: Path) -> None:
    with pytest.raises(SystemExit, match=r"^planing: neither rollout_operator nor the checkout"):
        write_sample(copy, ["planning", "planing"], 10, seed=1)


def test_results_are_counted_by_area_and_by_the_suite_that_kills() -> None:
    def judged(area: str, **by: str) -> Judged:
        mutant = Automatic(name="a__mutmut_1", area=area, file="a.py", function="a", diff="")
        verdicts = {suite: Verdict(name=mutant.name, by=test) for suite, test in by.items()}
        return Judged(mutant=mutant, verdicts=verdicts)

    run = [
        judged("planning", units="tests/planning"),
        judged("planning", units="", schedules="s1 seed 1"),
        judged("guards", units="", schedules=""),
    ]

    assert [each.killer for each in run] == ["units", "schedules", ""]
    assert [line.split() for line in render([run], ["now"]).splitlines()] == [
        ["area", "now"],
        *(["guards", "killed", "0", "of", "1", "=", "0.0%"], ["by", "units", "0"]),
        ["by", "schedules", "0"],
        *(["planning", "killed", "2", "of", "2", "=", "100.0%"], ["by", "units", "1"]),
        ["by", "schedules", "1"],
        *(["all", "killed", "2", "of", "3", "=", "66.7%"], ["by", "units", "1"]),
        ["by", "schedules", "1"],
    ]


def test_a_fork_gives_its_text_or_how_it_ended(tmp_path: Path) -> None:
    works = [(lambda: "tests/test_a.py::test_b", 1.0), (lambda: str(1 / 0), 1.0)]

    ended = {number: text for number, text, _ in run_forked(works, tmp_path, jobs=2)}

    assert ended[0] == "tests/test_a.py::test_b"
    assert "ZeroDivisionError" in ended[1]
