"""Screens: redrawn in place or line by line, coloured or not, and left as they were; and films.

The same flags give the same file, and the file is what it claims to be.
"""

import io
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from rollout_lab.demo.command import run
from rollout_lab.demo.flags import Color
from rollout_lab.demo.screen import Live, Picture, Plain, choose_screen, draw_picture
from rollout_lab.demo.stage import Controls, open_stage
from rollout_lab.demo.stories import MEANINGS, SCENARIOS
from rollout_lab.trace.lines import TraceLine

from rollout_operator.cli.render import OutputStream
from rollout_operator.model.names import ConfigError
from rollout_operator.planning.text import Style, render_line
from tests.code_rules import ROOT
from tests.lab.demo.stage import SMALL, Watch, draw
from tests.pictures.demo import draw_demo
from tests.virtual_time import in_virtual_time

XTERM = {"TERM": "xterm"}
MOVED = Picture(
    title="2 zones of 2 pods",
    elapsed=1.0,
    about="2 → 1",
    lines=(
        TraceLine(at=timedelta(seconds=0.5), who="operator", text="deletes zone-a-0: \x1b[2J"),
        TraceLine(at=timedelta(seconds=0.6), who="operator", text="waits: zone-a"),
        TraceLine(at=timedelta(seconds=0.7), who="zone-a", what="zone-a-0", text="going down"),
    ),
)
DONE = replace(MOVED, end=((("9 pods replaced", Style.GREEN),),))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "env", "color", "shown"),
    [
        (Terminal(), XTERM, Color.AUTO, "live, coloured"),
        (Terminal(), XTERM | {"NO_COLOR": ""}, Color.AUTO, "live, coloured"),
        (Terminal(), XTERM | {"NO_COLOR": "1"}, Color.AUTO, "live"),
        (Terminal(), XTERM | {"NO_COLOR": "1"}, Color.ALWAYS, "live, coloured"),
        (Terminal(), XTERM, Color.NEVER, "live"),
        (Terminal(), {"TERM": "dumb"}, Color.AUTO, "plain"),
        (Terminal(), {}, Color.AUTO, "plain"),
        (io.StringIO(), XTERM, Color.AUTO, "plain"),
        (io.StringIO(), XTERM, Color.ALWAYS, "plain, coloured"),
    ],
)
def test_the_screen_that_fits(
    stream: io.StringIO, env: Mapping[str, str], color: Color, shown: str
) -> None:
    screen = choose_screen(stream, env, color=color)
    before = stream.tell()
    screen.finish(DONE)
    text = stream.getvalue()[before:]

    assert isinstance(screen, Live | Plain)
    kind = "live" if isinstance(screen, Live) else "plain"
    assert kind + (", coloured" if "\x1b[32m" in text else "") == shown
    assert "\x1b[2J" not in text, "SEC-13: no text of a line commands a terminal"


def test_a_terminal_is_drawn_over_in_place_and_left_as_it_was() -> None:
    stream = Terminal()
    output = OutputStream(stream, True, False, lambda: os.terminal_size((60, 20)))
    with suppress(KeyboardInterrupt), Live(output) as screen:
        screen.show(MOVED)
        first = stream.getvalue()
        screen.show(MOVED)
        assert stream.getvalue() == first, "nothing is new"
        screen.finish(DONE)
        assert stream.getvalue().count("\x1b[19A") == 1, "over the first"
        screen.show(replace(MOVED, title="Next"))
        assert stream.getvalue().count("\x1b[19A") == 1, "below the end, which stays"
        raise KeyboardInterrupt

    assert stream.getvalue().startswith("\x1b[?25l")
    assert stream.getvalue().endswith("\x1b[?25h")


def test_plain_lines_come_once_in_order_and_begin_anew_with_the_next_story() -> None:
    screen = choose_screen(stream := io.StringIO(), {})
    for picture in (replace(MOVED, lines=()), replace(MOVED, lines=MOVED.lines[:1]), MOVED):
        screen.show(picture)
    screen.finish(replace(DONE, elapsed=9.0))
    screen.show(DONE)
    screen.show(MOVED)

    told = [
        "  0.50 s  operator    deletes zone-a-0: \\x1b[2J",
        "  0.60 s  operator    waits: zone-a",
        "  0.70 s  zone-a      zone-a-0 going down",
    ]
    begin = ["2 zones of 2 pods, 1.0 s", "2 → 1", "", ""]
    end = ["", "2 zones of 2 pods, 9.0 s", "", "", "9 pods replaced", ""]
    assert stream.getvalue().splitlines() == [*begin, *told, *end, *begin, *told]


@pytest.mark.parametrize("width", [60, 80, 300])
@pytest.mark.parametrize("height", [20, 24, 60])
@in_virtual_time
async def test_what_is_drawn_fits_and_names_what_counts(width: int, height: int) -> None:
    screen, controls = Watch(), Controls(lambda pace: None, MEANINGS)
    async with open_stage(SCENARIOS["bad-revision"], SMALL, screen, controls) as stage:
        await stage.change_all("v2")
        await stage.rest(timedelta(seconds=4))
    [*_, last] = screen.pictures
    for picture in (last, replace(DONE, now=last.now), replace(last, is_help=True, pace=0)):
        lines = draw_picture(picture, width, height, is_ascii=False)
        texts = [render_line(line, 1000, is_coloured=False) for line in lines]
        assert len(lines) == height
        assert max(map(len, texts)) <= width
        assert "zone-a-0" in "".join(texts)

    marks = draw_picture(last, 100, 40, is_ascii=False)
    assert any("zone-a      1/2      1/2  ✖ ●" in text for text in draw(tuple(marks)))
    ascii_only = draw(tuple(draw_picture(last, 80, 40, is_ascii=True)))
    assert all(map(str.isascii, ascii_only))
    assert any("zone-a      1/2      1/2  !o" in text for text in ascii_only)


WORDS = ["-zones=2", "-pods=1", "-size=80x24"]
SVG = "{http://www.w3.org/2000/svg}"


def record(path: Path, *words: str) -> str:
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
    kept = (ROOT / "docs" / "pictures" / "demo.svg").read_bytes()
    # pytest would compare them letter by letter, for minutes.
    is_same = kept == await draw_demo()
    assert is_same


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
