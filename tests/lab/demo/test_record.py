"""Recordings: the same flags give the same file, and the file is what it claims to be."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rollout_lab.demo.command import run

from rollout_operator.model.names import ConfigError
from tests.code_rules import ROOT
from tests.pictures.demo import draw_demo

WORDS = ["-zones=2", "-pods=1", "-size=80x24"]
SVG = "{http://www.w3.org/2000/svg}"


def record(path: Path, *words: str) -> str:
    """Return what is written."""
    assert run([*WORDS, *words, f"-record={path}"]) == 0
    return path.read_text()


def test_a_moving_picture_is_the_same_each_time(tmp_path: Path) -> None:
    text = record(tmp_path / "a.svg")
    again = record(tmp_path / "b.svg")

    assert text == again
    root = ElementTree.fromstring(text)  # noqa: S314 - what this test has written
    names = [each.get("id") for each in root.iter(f"{SVG}g") if each.get("id") != "play"]
    used = {each.get("href") for each in root.iter(f"{SVG}use")}
    assert used == {f"#{name}" for name in names}
    assert len(names) == len({*names})
    steps = text.count("translateY(") - 1
    # One page below the other, moved up by a page at a time.
    assert f"translateY(-{(steps - 1) * 24 * 18}px)" in text
    assert "2 pods replaced in" in text


def test_a_picture_of_a_terminal_reads_no_other_file(tmp_path: Path) -> None:
    """It is shown where nothing may be loaded."""
    text = record(tmp_path / "a.svg", "-ascii")

    assert "url(" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert text.replace("\u00a0", " ").isascii()


async def test_the_picture_of_the_documents_is_what_the_demo_shows() -> None:
    """Drawn anew by `python -m tests.pictures demo`."""
    assert (ROOT / "docs" / "pictures" / "demo.svg").read_bytes() == await draw_demo()


def test_what_asciinema_plays(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in record(tmp_path / "a.cast").splitlines()]

    assert lines[0] == {"version": 2, "width": 80, "height": 24}
    times = [at for at, _, _ in lines[1:]]
    assert times == sorted(times)
    assert {kind for _, kind, _ in lines[1:]} == {"o"}
    assert all(text.count("\r\n") < 24 for _, _, text in lines[1:])
    assert "2 pods replaced in" in lines[-1][2]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"-record=.*/no/a\.svg: No such file"):
        record(tmp_path / "no" / "a.svg")
