"""Screens: redrawn in place or line by line, coloured or not, and left as they were."""

import io
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace
from rollout_lab.demo.live import Live
from rollout_lab.demo.screen import Color, Plain, choose_screen
from rollout_lab.demo.snapshot import DemoEntry

from rollout_operator.cli.render import Line, Style
from tests.lab.demo.snapshots import ENDING, OLD, row, snapshot

ON = "\x1b[?1049h\x1b[H\x1b[?25l"
FIRST_PAGE, CURSOR = "\x1b[?1049l", "\x1b[?25h"
SUMMARY: Sequence[Line] = ((("9 pods replaced", Style.PLAIN),),)
STILL = snapshot(row("zone-a", OLD, OLD), elapsed=0.0)
MOVED = snapshot(row("zone-a", ENDING, OLD), elapsed=1.0)
XTERM = {"TERM": "xterm"}


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

    assert isinstance(screen, Live | Plain)
    kind = "live" if isinstance(screen, Live) else "plain"
    assert kind + (", coloured" if screen.is_coloured else "") == shown


def test_a_terminal_is_drawn_over_in_place_and_left_as_it_was() -> None:
    stream = Terminal()
    with Live(stream, is_coloured=False) as screen:
        screen.show(STILL)
        first = stream.getvalue()
        screen.show(STILL)
        assert stream.getvalue() == first, "nothing is new"
        screen.finish(replace(MOVED, title="Moved"), SUMMARY)
    text = stream.getvalue()

    assert first.startswith(ON)
    assert first.count("\x1b[H") == text.count("\x1b[H") - 1
    _, _, left = text.removesuffix(CURSOR).rpartition(FIRST_PAGE)
    assert left.splitlines() == ["Moved, 1.0 s", "9 pods replaced", ""]


def test_a_terminal_is_left_as_it_was_after_an_error() -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Live(stream, is_coloured=True):
        raise KeyboardInterrupt

    assert stream.getvalue() == ON + FIRST_PAGE + CURSOR


def test_plain_lines_in_ascii() -> None:
    stream = io.StringIO()
    screen = Plain(stream, is_ascii=True)
    screen.finish(replace(STILL, about="2 → 1"), SUMMARY)

    assert stream.getvalue().isascii()
    assert "2 > 1" in stream.getvalue()


def entry(at: float, text: str) -> DemoEntry:
    return DemoEntry(at=at, who="operator", text=text, is_why=True)


def test_plain_lines_come_once_and_in_order_of_time() -> None:
    stream = io.StringIO()
    screen = Plain(stream)
    screen.show(STILL)
    grid = stream.getvalue()
    moved = replace(MOVED, elapsed=0.50)
    screen.show(moved)
    # The word that the pod has to go is read after it was seen to go.
    ended = replace(moved, entries=(entry(0.49, "paused: x"),), whys=(), elapsed=0.55)
    screen.show(ended)
    assert stream.getvalue() == grid, "young lines wait"
    screen.show(replace(ended, elapsed=0.9))
    screen.show(replace(ended, elapsed=1.2))

    assert stream.getvalue().removeprefix(grid).splitlines() == [
        " 0.49 s  operator   paused: x",
        " 0.50 s  zone-a-0   o v1 ready -> x v1 ending",
    ]


def test_plain_lines_that_wait_are_not_lost_at_the_end() -> None:
    stream = io.StringIO()
    screen = Plain(stream)
    screen.show(STILL)
    screen.finish(MOVED, SUMMARY)

    text = stream.getvalue()
    assert " 1.00 s  zone-a-0   o v1 ready -> x v1 ending\n" in text
    assert text.endswith("9 pods replaced\n\n")
    assert "\x1b" not in text


def test_plain_lines_begin_anew_with_the_next_story() -> None:
    stream = io.StringIO()
    screen = Plain(stream)
    screen.show(replace(STILL, entries=(entry(0.0, "first"),)))
    screen.finish(replace(MOVED, entries=(entry(0.0, "first"),)), SUMMARY)
    stream.truncate(stream.seek(0))
    screen.show(STILL)
    screen.show(replace(STILL, entries=(entry(0.0, "second"),), elapsed=1.0))

    text = stream.getvalue()
    assert text.startswith("3 zones of 3 pods")
    assert text.endswith(" 0.00 s  operator   second\n")
    assert "ending ->" not in text
