"""What the demo shows is read rightly, fits 80 columns, and needs no colour."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.demo.drawing import (
    COLUMNS,
    LOOKS,
    MOST_REPLICAS,
    Line,
    Style,
    draw_failure,
    draw_frame,
    draw_grid,
    draw_moves,
    draw_note,
    draw_summary,
    render_line,
)
from tests.demo.figures import Figures
from tests.demo.picture import Note, Picture, Row, State, read_notes, read_rows, read_state
from tests.world.api import PODS, STATEFULSETS, Event, Json
from tests.world.sets import Snapshot
from tests.world.verdicts import Violation

LINES = 24

OLD, ENDING, GONE, STARTING, NEW = (State.OLD, State.ENDING, State.GONE, State.STARTING, State.NEW)


def row(name: str, *cells: State, current: str = "794c7697f9", update: str = "79bf74c864") -> Row:
    ready = sum(cell in (State.OLD, State.NEW) for cell in cells)
    return Row(name=name, cells=cells, ready=ready, current=current, update=update)


def picture(*rows: Row, notes: tuple[Note, ...] = (), elapsed: float = 1.44) -> Picture:
    return Picture(title="3 zones of 3 pods", elapsed=elapsed, rows=rows, notes=notes)


HALFWAY = picture(
    row("zone-a", NEW, STARTING, OLD), row("zone-b", OLD, OLD, OLD, current="c7bd9", update="c7bd9")
)


def plain(lines: list[Line]) -> list[str]:
    # Not cut, so that a line which is too long is seen to be.
    return [render_line(line, 2 * COLUMNS, is_coloured=False).rstrip() for line in lines]


# Reading


def pod(name: str, image: str = "v1", *, owner: str = "uid-a", is_ready: bool = True) -> Json:
    return {
        "metadata": {"name": name, "ownerReferences": [{"uid": owner}]},
        "spec": {"containers": [{"name": "app", "image": image}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": [{"ready": is_ready, "state": {"running": {}}}],
        },
    }


def ending(found: Json) -> Json:
    return found | {"metadata": found["metadata"] | {"deletionTimestamp": "now"}}


@pytest.mark.parametrize(
    ("found", "state"),
    [
        pytest.param(None, State.GONE, id="no pod"),
        pytest.param(pod("a-0"), State.OLD, id="old and ready"),
        pytest.param(pod("a-0", is_ready=False), State.BROKEN, id="old and not ready"),
        pytest.param(pod("a-0", "v2"), State.NEW, id="new and ready"),
        pytest.param(pod("a-0", "v2", is_ready=False), State.STARTING, id="new and not ready"),
        pytest.param(ending(pod("a-0")), State.ENDING, id="ending, though it looks ready"),
    ],
)
def test_a_pod_shows_its_state(found: Json | None, state: State) -> None:
    assert read_state(found) is state


def test_rows_hold_a_place_for_each_wanted_pod_of_the_owner() -> None:
    status = {"readyReplicas": 1, "currentRevision": "zone-a-1f", "updateRevision": "zone-a-2e"}
    found = {
        "metadata": {"name": "zone-a", "uid": "uid-a"},
        "spec": {"replicas": 3},
        "status": status,
    }
    pods = [pod("zone-a-2", "v2"), pod("zone-a-0"), pod("zone-a-1", owner="uid-of-another")]
    now = Snapshot()
    now.take(STATEFULSETS, Event("ADDED", found))
    for each in pods:
        now.take(PODS, Event("ADDED", each))

    assert read_rows(now, ["zone-a", "zone-b"]) == (
        Row(name="zone-a", cells=(OLD, GONE, NEW), ready=1, current="1f", update="2e"),
    )


LOG = r"""
level=info ts=2026-03-01T10:00:00.500000000Z msg=Listed kind=Pod objects=9
level=debug ts=2026-03-01T09:59:59Z msg="Group is up to date" reason=up_to_date why="all ready"
level=debug ts=2026-03-01T10:00:01.250000000Z msg="Group waits" reason=paused why="\"a\" is paused"
level=info ts=2026-03-01T10:00:02Z msg="Recording revision" zone=a revision=a-1f reason=rolled_out
"""


def test_notes_are_the_reasons_since_the_new_template() -> None:
    begin = datetime(2026, 3, 1, 10, tzinfo=UTC)

    assert list(read_notes(LOG.splitlines(), begin)) == [
        Note(at=1.25, code="paused", text='"a" is paused'),
        Note(at=2.0, code="rolled_out", text="a: recording revision a-1f"),
    ]


# Drawing


def test_the_grid_says_all_without_colour() -> None:
    assert plain(draw_grid(HALFWAY)) == [
        "3 zones of 3 pods                                                         1.4 s",
        "",
        "        pod 0         pod 1         pod 2         ready revision",
        "zone-a  # v2 ready    ~ v2 starting o v1 ready    2/3   794c7697f9 > 79bf74c864",
        "zone-b  o v1 ready    o v1 ready    o v1 ready    3/3   c7bd9",
        "",
        "o v1 ready   ! v1 broken   x ending   . gone   ~ v2 starting   # v2 ready",
        "",
        "        ######----------------------------------  1 of 6 pods ready on v2",
    ]


def test_each_state_has_a_shape_of_its_own() -> None:
    assert set(LOOKS) == set(State)
    assert len({look.mark for look in LOOKS.values()}) == len(State)


@pytest.mark.parametrize("replicas", range(1, MOST_REPLICAS + 1))
def test_every_line_fits_80_columns_and_the_columns_line_up(replicas: int) -> None:
    cells = [list(LOOKS)[n % len(LOOKS)] for n in range(replicas)]
    lines = plain(draw_grid(picture(*(row(name, *cells) for name in ("zone-a", "zone-b")))))

    assert max(map(len, lines)) <= COLUMNS
    assert lines[3].index(f"{row('', *cells).ready}/{replicas}") == lines[2].index("ready")


def test_the_newest_notes_fill_the_frame() -> None:
    long = "zone-a has 2 of 3 pods ready (zone-a-2: terminating); " * 3
    notes = tuple(Note(at=n, code="zone_not_ready", text=f"note {n} {long}") for n in range(9))
    lines = plain(draw_frame(replace(HALFWAY, notes=notes), 23))

    assert len(lines) <= 23
    assert max(map(len, lines)) <= COLUMNS
    begun = [line[:31] for line in lines if " s  zone_not_ready" in line]
    assert begun == [f" {n}.00 s  zone_not_ready: note {n}"[:31] for n in (5, 6, 7, 8)]


@pytest.mark.parametrize("height", [1, 5, 10, 23, 60])
def test_the_frame_is_never_higher_than_asked(height: int) -> None:
    notes = tuple(Note(at=n, code="paused", text="zone-a") for n in range(100))

    assert len(draw_frame(replace(HALFWAY, notes=notes), height)) <= height


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

    assert list(draw_moves(before, now, 2.5)) == [
        " 2.50 s  zone-a-1  x ending -> . gone",
        " 2.50 s  zone-a-2  . gone -> ~ v2 starting",
    ]
    assert draw_note(Note(at=12, code="paused", text="y" * 99)).endswith("paused: " + "y" * 99)


FIGURES = Figures(
    limit=1,
    wall=12.9,
    floor=12.6,
    reaction=0.009,
    replaced=9,
    refused=0,
    zones_short=1,
    pods_short=1,
)


def test_the_summary_has_a_line_for_each_figure_and_fits() -> None:
    lines = plain(draw_summary(FIGURES))

    assert [line[:22].split() for line in lines] == [
        ["took", "12.90", "s"],
        ["floor", "12.60", "s"],
        ["ratio", "1.02"],
        ["reaction", "9", "ms"],
        ["deletes", "9"],
        ["zones", "short", "1"],
        ["pods", "short", "1"],
        ["judge", "clean"],
    ]
    assert max(map(len, lines)) <= COLUMNS
    assert len(draw_grid(HALFWAY)) + 1 + 1 + len(lines) < LINES


def test_the_summary_names_what_was_broken() -> None:
    broken = Violation(invariant="SI-01", text="delete of zone-b-0", at=1.0)
    lines = plain(draw_summary(replace(FIGURES, broken=(broken,), refused=2, reaction=None)))

    assert lines[3].split()[:2] == ["reaction", "none"]
    assert lines[4].endswith("each replaced a pod; 2 refused")
    assert lines[-2].split()[:3] == ["judge", "1", "broken"]
    assert lines[-1] == "  SI-01: delete of zone-b-0"


def test_a_failure_is_told_in_place_of_figures() -> None:
    lines = plain(draw_failure("the operator has ended with -9\nlevel=error", []))

    assert lines[0].split()[:2] == ["judge", "clean"]
    assert lines[1:] == ["NOT ROLLED OUT", "the operator has ended with -9", "level=error"]
