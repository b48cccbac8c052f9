"""What the demo shows line by line needs neither colour nor more than ASCII."""

import pytest
from msgspec.structs import replace
from rollout_lab.demo.drawing import CELL_STYLES, draw_grid, draw_moves, to_ascii
from rollout_lab.demo.snapshot import Cell

from rollout_operator.cli.render import Style, render_line
from tests.lab.demo.snapshots import ENDING, GONE, HALFWAY, NEW, OLD, STARTING, plain, row


def test_the_grid_says_all_without_colour() -> None:
    assert plain(draw_grid(replace(HALFWAY, about="Look at that."))) == [
        "3 zones of 3 pods, 1.4 s",
        "Look at that.",
        "",
        "zone-a  # v2 ready    ~ v2 starting o v1 ready    2/3 ready",
        "zone-b  o v1 ready    o v1 ready    o v1 ready    3/3 ready",
        "        ######----------------------------------  1 of 6 pods ready on v2",
    ]


def test_ascii_takes_as_much_room_and_distinguishes_states() -> None:
    marks = "".join(cell_style.mark for cell_style in CELL_STYLES.values())

    assert to_ascii(f"{marks} 2 → 1 ╭─╮ é") == "o!x.~# 2 > 1 +-+ ?"


# Lines


@pytest.mark.parametrize(
    ("width", "is_coloured", "text"),
    [
        (9, True, "\x1b[1mab\x1b[0mcd\x1b[31mef\x1b[0m"),
        (5, True, "\x1b[1mab\x1b[0mcd\x1b[31me\x1b[0m"),
        (4, True, "\x1b[1mab\x1b[0mcd"),
        (5, False, "abcde"),
    ],
)
def test_colours_take_no_room(width: int, is_coloured: bool, text: str) -> None:
    line = (("ab", Style.BOLD), ("cd", Style.PLAIN), ("ef", Style.RED))

    assert render_line(line, width, is_coloured=is_coloured) == text


def test_no_text_of_a_line_commands_a_terminal() -> None:
    """SEC-13: whatever wrote it, and wherever it is shown."""
    line = (("a\x1b[2J", Style.BOLD), ("\u202eb", Style.PLAIN))

    assert render_line(line, 80, is_coloured=False) == "a\\x1b[2J\\u202eb"
    assert render_line(line, 3, is_coloured=False) == "a\\x"


def test_single_lines_name_what_moved() -> None:
    before, now = [row("zone-a", OLD, ENDING, GONE)], [row("zone-a", OLD, GONE, STARTING)]

    assert plain(list(draw_moves(before, now, 2.5))) == [
        " 2.50 s  zone-a-1   x v1 ending -> . gone",
        " 2.50 s  zone-a-2   . gone -> ~ v2 starting",
    ]


@pytest.mark.parametrize(
    ("before", "now", "line"),
    [
        pytest.param((OLD, NEW), (OLD,), "# v2 ready -> no longer wanted", id="fewer pods"),
        pytest.param((OLD,), (OLD, STARTING), ". gone -> ~ v2 starting", id="more pods"),
    ],
)
def test_single_lines_follow_a_zone_that_is_scaled(
    before: tuple[Cell, ...], now: tuple[Cell, ...], line: str
) -> None:
    moves = draw_moves([row("zone-a", *before)], [row("zone-a", *now)], 2.5)

    assert plain(list(moves)) == [f" 2.50 s  zone-a-1   {line}"]
