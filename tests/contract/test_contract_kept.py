"""Answers of the real control plane are kept as long as what they come from, and no longer."""

import re
from pathlib import Path

import pytest

from tests.contract.kept import ROOT, SOURCES, keep_answers, name_file, play_plainly, read_answers
from tests.contract.plays import Sequence, list_sequences

SEQUENCES = list_sequences()[:3]


def play(sequence: Sequence) -> list[str]:
    lines = play_plainly(sequence)
    assert not isinstance(lines, Exception)
    return lines


def test_only_answers_on_which_both_worlds_agree_are_kept(tmp_path: Path) -> None:
    agreed, differing, broken = SEQUENCES
    file = tmp_path / "cache" / "contract-2.json"

    keep_answers(
        file,
        {agreed: play(agreed), differing: play(broken), broken: TimeoutError("late")},
        {"from before": ["200"]},
    )

    assert read_answers(file) == {"from before": ["200"], str(agreed): play(agreed)}


def test_answers_of_older_sources_go(tmp_path: Path) -> None:
    older, file = tmp_path / "contract-1.json", tmp_path / "contract-2.json"
    keep_answers(older, {}, {})

    keep_answers(file, {}, {})

    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("content", ["", "{", '{"a": '])
def test_a_file_that_is_not_whole_is_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "contract-1.json"
    assert read_answers(file) == {}

    file.write_text(content)

    assert read_answers(file) == {}


@pytest.mark.parametrize("folder", SOURCES)
def test_a_change_of_what_they_come_from_names_another_file(tmp_path: Path, folder: str) -> None:
    program = tmp_path / "assets" / "kube-apiserver"
    source = tmp_path / folder / "deep" / "a.py"
    for path in (program, source):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    before = name_file(tmp_path, program.parent)
    assert name_file(tmp_path, program.parent) == before

    source.write_text("y")
    changed = name_file(tmp_path, program.parent)
    program.write_text("longer")

    assert len({before, changed, name_file(tmp_path, program.parent)}) == 3


def test_sequences_are_made_of_these_sources() -> None:
    """Besides clocks and metrics, which no answer comes from."""
    known = (*(folder.replace("/", ".") for folder in SOURCES), "rollout_operator.aio.clock")
    files = [*(ROOT / "tests/contract").rglob("*.py")]
    imported = re.findall(
        r"^from ((?:rollout_operator|tests)\.\S+)",
        "".join(map(Path.read_text, files)),
        re.MULTILINE,
    )

    assert {name for name in imported if not name.startswith(known)} == {
        "rollout_operator.telemetry.metrics"
    }
