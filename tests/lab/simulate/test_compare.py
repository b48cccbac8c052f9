"""Two sets of changes side by side."""

import json
from pathlib import Path

import pytest

from rollout_operator.cli.main import main
from tests.lab.simulate.dumps import grow, to_yaml

pytestmark = pytest.mark.thorough

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    path = tmp_path / "dump.yaml"
    path.write_bytes(to_yaml(grow()))
    rollout = [
        "-change",
        "new template",
        "-versus",
        "new template",
        "-versus",
        "evict zone-b-0 at 1s",
    ]
    return ["simulate", "-f", str(path), *rollout]


def _rows(text: str) -> dict[str, list[str]]:
    """Return the cells of each row by its label, those that are folded left out."""
    found = (line.split("  ") for line in text.splitlines() if line[:1].strip())
    cells = ([cell.strip() for cell in one if cell.strip()] for one in found)
    return {first: rest for first, *rest in cells}


def test_what_differs_stands_side_by_side(words: list[str], capsys: Capture) -> None:
    assert main(words) == 0

    shown = capsys.readouterr().out
    rows = _rows(shown)
    assert rows["changes"] == ["new template", "new template"]
    assert "evict zone-b-0 at 1s" in shown
    assert rows["deletes by the operator"] == ["9", "8"], "what is evicted comes back as new"
    assert rows["most down of zone-a"] == ["1", "1"]
    assert rows["evictions"] == ["none", "of 1 pod, waited 0s at most"]
    assert rows["past a bound"][0] == "never"
    assert max(map(len, shown.splitlines())) <= 100


def test_the_worse_of_both_is_the_exit_code(words: list[str], capsys: Capture) -> None:
    assert main([*words, "-exit-code"]) == 5

    assert "1 time, first: zone-b-0 goes down" in capsys.readouterr().out


def test_both_are_there_for_machines(words: list[str], capsys: Capture) -> None:
    assert main([*words, "-o", "json"]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed["changes"] == ["new template"]
    assert printed["versus"]["changes"] == ["new template", "evict zone-b-0 at 1s"]
    assert printed["evictions"] == []
    assert [one["pod"] for one in printed["versus"]["evictions"]] == ["zone-b-0"]


def test_a_name_that_is_not_there_is_one_line(words: list[str], capsys: Capture) -> None:
    assert main([*words, "-versus", "pause zone-x"]) == 1

    error = capsys.readouterr().err
    assert error.startswith('rollout-operator: -versus "pause zone-x": no ')
    assert error.count("\n") == 1
