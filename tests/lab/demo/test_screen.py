"""Screens: redrawn in place or line by line, coloured or not, and left as they were."""

import io
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

import pytest
from msgspec.structs import replace
from rollout_lab.demo.flags import Color
from rollout_lab.demo.screen import Live, Picture, Plain, choose_screen, draw_picture, open_pipe
from rollout_lab.demo.stage import Controls, open_stage
from rollout_lab.demo.stories import MEANINGS, SCENARIOS
from rollout_lab.trace.lines import TraceLine

from rollout_operator.cli.render import OutputStream
from rollout_operator.planning.text import Style, render_line
from tests.lab.demo.stage import SMALL, Watch, draw
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
    """A stream that is a terminal."""

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
    stream = io.StringIO()
    screen = open_pipe(stream)
    for picture in (replace(MOVED, lines=()), replace(MOVED, lines=MOVED.lines[:1]), MOVED):
        screen.show(picture)
    screen.finish(replace(DONE, elapsed=9.0))
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
