"""What the demo shows fits 80 columns and 24 lines, and needs no colour."""

from dataclasses import replace

import pytest

from rollout_operator.lab.demo.drawing import (
    COLUMNS,
    LOOKS,
    MOST_PODS,
    Style,
    draw_frame,
    draw_grid,
    draw_moves,
    render_line,
)
from rollout_operator.lab.demo.picture import Cell, DemoNote, DemoReason
from tests.lab.demo.pictures import (
    ENDING,
    GONE,
    HALFWAY,
    NEW,
    OLD,
    STARTING,
    VERSIONS,
    picture,
    plain,
    row,
)

HEIGHT = 23


def why(zone: str, text: str) -> DemoReason:
    return DemoReason(zone=zone, code="pods_starting", text=text)


def note(at: float, text: str, *, is_why: bool = False) -> DemoNote:
    return DemoNote(at=at, who="operator", text=text, is_why=is_why)


# The grid


def test_the_grid_says_all_without_colour() -> None:
    assert plain(draw_grid(replace(HALFWAY, about="Look at that."))) == [
        "3 zones of 3 pods                                                         1.4 s",
        "Look at that.",
        "",
        "        pod 0         pod 1         pod 2         ready revision",
        "zone-a  # v2 ready    ~ v2 starting o v1 ready    2/3   794c7697f9 > 79bf74c864",
        "zone-b  o v1 ready    o v1 ready    o v1 ready    3/3   c7bd9",
        "o old, ready   ! broken   x ending   . gone   ~ new, starting   # new, ready",
        "        ######----------------------------------  1 of 6 pods ready on v2",
    ]


@pytest.mark.parametrize("pods", range(1, MOST_PODS + 1))
def test_every_line_fits_80_columns_and_the_columns_line_up(pods: int) -> None:
    states = [list(LOOKS)[n % len(LOOKS)] for n in range(pods)]
    cells = [Cell(state, VERSIONS[state]) for state in states]
    lines = plain(draw_grid(picture(*(row(name, *cells) for name in ("zone-a", "zone-b")))))

    assert max(map(len, lines)) <= COLUMNS
    assert lines[3].index(f"{row('', *cells).ready}/{pods}") == lines[2].index("ready")


# The frame


def test_the_frame_tells_why_and_what_happens() -> None:
    whys = (why("zone-a", "zone-a: 1 outdated pod waits"), why("", "zone-b waits for zone-a"))
    notes = (note(0.5, "deletes zone-a-1: pod_outdated"), note(1.0, "not twice", is_why=True))

    assert plain(draw_frame(replace(HALFWAY, whys=whys, notes=notes), HEIGHT))[7:] == [
        "",
        "Why, in the operator's words:",
        "zone-a  pods_starting: zone-a: 1 outdated pod waits",
        "all     pods_starting: zone-b waits for zone-a",
        *[""] * 4,
        "What happens:",
        " 0.50 s  operator   deletes zone-a-1: pod_outdated",
    ]


WHY_LINES = HALFWAY.why_lines


@pytest.mark.parametrize("count", range(9))
def test_reasons_take_the_same_room_whatever_they_are(count: int) -> None:
    """Nothing jumps, and what is not shown is counted."""
    long = "zone-a has 2 of 3 pods ready (zone-a-2: terminating); " * 2
    whys = tuple(why(f"zone-{n}", long) for n in range(count))
    lines = plain(draw_frame(replace(HALFWAY, whys=whys), HEIGHT))

    assert lines.index("What happens:") == 9 + WHY_LINES + 1
    assert max(map(len, lines)) <= COLUMNS
    hidden = 2 * count - (WHY_LINES - 1)
    assert any(f"({hidden} more lines)" in line for line in lines) == (2 * count > WHY_LINES)


@pytest.mark.parametrize("words", [40, 100])
def test_the_newest_note_is_shown_whole_or_as_far_as_it_fits(words: int) -> None:
    """A denial takes four lines of the note's column; the empty lines of the reasons give way."""
    denial = note(2.0, "stay " * words)
    found = replace(HALFWAY, whys=(why("zone-a", "x"),), notes=(note(1.0, "earlier"), denial))
    lines = plain(draw_frame(found, 16))

    assert len(lines) == 16
    assert lines[-1].strip().startswith("stay")
    shown = sum(line.count("stay") for line in lines)
    assert shown == min(words, 4 * 12)


@pytest.mark.parametrize("height", [1, 5, 10, 23, 60])
def test_the_frame_is_never_higher_than_asked(height: int) -> None:
    notes = tuple(note(n, "paused: zone-a") for n in range(100))
    found = replace(HALFWAY, notes=notes, whys=(why("zone-a", "x"),))

    assert len(draw_frame(found, height)) <= height


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


def test_single_lines_tell_who_moved() -> None:
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
