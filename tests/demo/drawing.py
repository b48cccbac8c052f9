"""How a rollout looks: a frame of 80 columns, single lines for logs, and the summary.

Pure: pictures and figures in, lines out. A line is made of spans, each with a style that may be
left out: shape and words alone say everything.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.demo.figures import Figures
from tests.demo.picture import NEW_IMAGE, OLD_IMAGE, Note, Picture, Row, State
from tests.world.verdicts import Violation

COLUMNS: Final = 80
NAME: Final = 8
# What zone name, ready count and two revisions leave for the pods.
CELLS: Final = 42
WIDE_CELL: Final = 14
MOST_REPLICAS: Final = CELLS // 2
BAR: Final = 40
TIME: Final = 9


class Style(StrEnum):
    """Graphic renditions; the eight colours that every terminal has."""

    PLAIN = ""
    BOLD = "1"
    FAINT = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    MAGENTA = "35"


@dataclass(frozen=True, slots=True)
class Look:
    """How a state looks."""

    mark: str
    word: str
    style: Style


LOOKS: Final = {
    State.OLD: Look("o", f"{OLD_IMAGE} ready", Style.PLAIN),
    State.BROKEN: Look("!", f"{OLD_IMAGE} broken", Style.MAGENTA),
    State.ENDING: Look("x", "ending", Style.RED),
    State.GONE: Look(".", "gone", Style.RED),
    State.STARTING: Look("~", f"{NEW_IMAGE} starting", Style.YELLOW),
    State.NEW: Look("#", f"{NEW_IMAGE} ready", Style.GREEN),
}

Span = tuple[str, Style]
Line = tuple[Span, ...]
BLANK: Final[Line] = ()


def render_line(line: Line, width: int, *, is_coloured: bool) -> str:
    """Return a line as text, cut to `width` columns."""
    parts = []
    for text, style in line:
        shown = text[:width]
        width -= len(shown)
        is_styled = is_coloured and style and shown
        parts.append(f"\x1b[{style}m{shown}\x1b[0m" if is_styled else shown)
    return "".join(parts)


def draw_frame(picture: Picture, height: int) -> list[Line]:
    """Return the whole frame: the grid, and in what is left of `height` lines the newest notes."""
    lines = [*draw_grid(picture), BLANK, (("The operator says:", Style.BOLD),)]
    lines += _draw_notes(picture.notes, height - len(lines))
    return lines[:height]


def draw_grid(picture: Picture) -> list[Line]:
    """Return title, zones, legend and progress."""
    clock = f"{picture.elapsed:.1f} s"
    title = f"{picture.title:<{COLUMNS - 1 - len(clock)}}{clock}"
    lines: list[Line] = [((title, Style.BOLD),), BLANK]
    lines += _draw_zones(picture.rows)
    return [*lines, BLANK, _legend(), BLANK, _progress(picture.cells)]


def _draw_zones(rows: Sequence[Row]) -> Iterator[Line]:
    width = _cell_width(rows)
    count = max((len(row.cells) for row in rows), default=0)
    heads = [f"pod {n}" if width == WIDE_CELL else str(n % 10) for n in range(count)]
    head = "".join(f"{text:<{width}}" for text in heads)
    yield ((f"{'':<{NAME}}{head:<{width * count}}ready revision", Style.FAINT),)
    for row in rows:
        cells = ((_cell(cell, width), LOOKS[cell].style) for cell in row.cells)
        yield ((f"{row.name:<{NAME}}", Style.BOLD), *cells, (_tail(row), Style.PLAIN))


def _cell_width(rows: Sequence[Row]) -> int:
    count = max((len(row.cells) for row in rows), default=1)
    width = CELLS // max(count, 1)
    return WIDE_CELL if width >= WIDE_CELL else min(width, 3)


def _cell(state: State, width: int) -> str:
    look = LOOKS[state]
    text = f"{look.mark} {look.word}" if width == WIDE_CELL else look.mark
    return f"{text:<{width}}"


def _tail(row: Row) -> str:
    ready = f"{row.ready}/{len(row.cells)}"
    is_moving = row.current != row.update
    revision = f"{row.current} > {row.update}" if is_moving else row.current
    return f"{ready:<6}{revision}"


def _legend() -> Line:
    looks = [(f"{look.mark} {look.word}   ", look.style) for look in LOOKS.values()]
    return tuple(looks)


def _progress(cells: Sequence[State]) -> Line:
    done, count = cells.count(State.NEW), max(len(cells), 1)
    full = BAR * done // count
    return (
        (" " * NAME, Style.PLAIN),
        ("#" * full, Style.GREEN),
        ("-" * (BAR - full), Style.FAINT),
        (f"  {done} of {len(cells)} pods ready on {NEW_IMAGE}", Style.PLAIN),
    )


def _draw_notes(notes: Sequence[Note], room: int) -> list[Line]:
    """Return the newest notes that fit wholly, the newest last and the others fainter."""
    lines: list[Line] = []
    style = Style.PLAIN
    for note in reversed(notes):
        drawn = _draw_note(note, style)
        if len(lines) + len(drawn) > room:
            break
        lines = [*drawn, *lines]
        style = Style.FAINT
    return lines


def _draw_note(note: Note, style: Style) -> list[Line]:
    wrapped = textwrap.wrap(f"{note.code}: {note.text}", COLUMNS - TIME - 1)
    times = [_time(note.at), *[" " * TIME] * (len(wrapped) - 1)]
    return [((f"{time}{text}", style),) for time, text in zip(times, wrapped, strict=True)]


def _time(at: float) -> str:
    return f"{at:>5.2f} s  "


# Single lines


def draw_note(note: Note) -> str:
    """Return a note as one line, however long."""
    return f"{_time(note.at)}operator  {note.code}: {note.text}"


def draw_moves(before: Sequence[Row], now: Sequence[Row], at: float) -> Iterator[str]:
    """Yield a line for each pod that looks different from before."""
    for old, new in zip(before, now, strict=True):
        for ordinal, (was, is_) in enumerate(zip(old.cells, new.cells, strict=True)):
            if was is not is_:
                yield f"{_time(at)}{new.name}-{ordinal}  {_words(was)} -> {_words(is_)}"


def _words(state: State) -> str:
    return f"{LOOKS[state].mark} {LOOKS[state].word}"


# Summary


def draw_summary(figures: Figures) -> list[Line]:
    """Return a line per figure: its name, its value, what it is."""
    reaction = "none" if figures.reaction is None else f"{figures.reaction * 1000:.0f} ms"
    refused = f"; {figures.refused} refused" if figures.refused else ""
    texts = (
        ("took", f"{figures.wall:.2f} s", "from the new template to the last pod counted ready"),
        ("floor", f"{figures.floor:.2f} s", "the pods' restarts alone: no rollout can be faster"),
        ("ratio", f"{figures.wall / figures.floor:.2f}", "the first by the second"),
        ("reaction", reaction, "median, from what allows a delete to the delete"),
        ("deletes", f"{figures.replaced}", f"each replaced a pod{refused}"),
        ("zones short", f"{figures.zones_short}", "the most zones that missed a pod at once"),
        (
            "pods short",
            f"{figures.pods_short}",
            f"the most pods that one zone missed at once; allowed: {figures.limit}",
        ),
    )
    lines = [_draw_figure(*text) for text in texts]
    return [*lines, *_draw_verdict(figures.broken)]


def draw_failure(trouble: str, broken: Sequence[Violation]) -> list[Line]:
    """Return the judge's word and what went wrong; of half a rollout no figure means anything."""
    lines: list[Line] = [((text, Style.RED),) for text in trouble.splitlines()]
    return [*_draw_verdict(broken), (("NOT ROLLED OUT", Style.RED),), *lines]


def _draw_verdict(broken: Sequence[Violation]) -> Iterator[Line]:
    what = "watched the store for SI-01 to SI-04 and SI-06 to SI-08"
    if not broken:
        yield _draw_figure("judge", "clean", what, Style.GREEN)
        return
    yield _draw_figure("judge", f"{len(broken)} broken", what, Style.RED)
    yield from (((f"  {one.invariant}: {one.text}", Style.RED),) for one in broken)


def _draw_figure(name: str, value: str, means: str, style: Style = Style.PLAIN) -> Line:
    return ((f"{name:<13}", Style.BOLD), (f"{value:>9}", style), (f"  {means}", Style.FAINT))
