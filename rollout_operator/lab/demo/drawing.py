"""How a rollout looks: a frame of 80 columns, and single lines for pipes and logs.

Pure: pictures in, lines out. A line is made of spans, each with a style that may be left out: shape
and words alone say everything.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rollout_operator.lab.demo.picture import Cell, DemoNote, Picture, PodCell, ZoneRow

COLUMNS: Final = 80
NAME: Final = 8
# What zone name, ready count and two revisions leave for the pods.
CELLS: Final = 42
WIDE_CELL: Final = 14
MOST_PODS: Final = CELLS // 2
BAR: Final = 40
TIME: Final = 9
WHO: Final = 11


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
class CellStyle:
    """How a state looks."""

    mark: str
    word: str
    """After the version of the pod."""
    meaning: str
    style: Style


LOOKS: Final = {
    PodCell.OLD: CellStyle("o", "ready", "old, ready", Style.PLAIN),
    PodCell.BROKEN: CellStyle("!", "broken", "broken", Style.MAGENTA),
    PodCell.ENDING: CellStyle("x", "ending", "ending", Style.RED),
    PodCell.GONE: CellStyle(".", "gone", "gone", Style.RED),
    PodCell.STARTING: CellStyle("~", "starting", "new, starting", Style.YELLOW),
    PodCell.NEW: CellStyle("#", "ready", "new, ready", Style.GREEN),
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
    """Return the whole frame, at most `height` lines: grid, reasons, and the newest notes."""
    lines = draw_grid(picture)
    notes = picture.notes
    if picture.whys is not None:
        notes = tuple(note for note in notes if not note.is_why)
        lines += [BLANK, _heading("Why, in the operator's words:"), *_draw_whys(picture)]
        # Always the same room, so that nothing jumps; but the newest note is shown whole.
        newest = len(_draw_note(notes[-1], Style.PLAIN)) if notes else 0
        spare = height - len(lines) - newest - 2
        lines += [BLANK] * min(picture.why_lines - len(_draw_whys(picture)), spare)
    lines += [BLANK, _heading(picture.heading)]
    return [*lines, *_draw_notes(notes, height - len(lines))][:height]


def draw_grid(picture: Picture) -> list[Line]:
    """Return title, zones, legend and progress."""
    clock = f"{picture.elapsed:.1f} s"
    title = f"{picture.title:<{COLUMNS - 1 - len(clock)}}{clock}"
    lines: list[Line] = [((title, Style.BOLD),)]
    lines += [((text, Style.PLAIN),) for text in textwrap.wrap(picture.about, COLUMNS - 1)]
    lines += [BLANK, *_draw_zones(picture.rows), _legend()]
    return [*lines, _progress(picture.cells, picture.goal)]


def _heading(text: str) -> Line:
    return ((text, Style.BOLD),)


def _draw_zones(rows: Sequence[ZoneRow]) -> Iterator[Line]:
    count = max((len(row.cells) for row in rows), default=0)
    width = _cell_width(count)
    heads = [f"pod {n}" if width == WIDE_CELL else str(n % 10) for n in range(count)]
    head = "".join(f"{text:<{width}}" for text in heads)
    yield ((f"{'':<{NAME}}{head}ready revision", Style.FAINT),)
    for row in rows:
        cells = [(_cell(cell, width), LOOKS[cell.state].style) for cell in row.cells]
        # A zone that was scaled down is shorter than the others.
        cells += [(" " * width, Style.PLAIN)] * (count - len(cells))
        yield ((f"{row.name:<{NAME}}", Style.BOLD), *cells, (_tail(row), Style.PLAIN))


def _cell_width(count: int) -> int:
    width = CELLS // max(count, 1)
    return WIDE_CELL if width >= WIDE_CELL else min(width, 3)


def _cell(cell: Cell, width: int) -> str:
    text = _words(cell) if width == WIDE_CELL else LOOKS[cell.state].mark
    return f"{text:<{width}}"


def _words(cell: Cell) -> str:
    look = LOOKS[cell.state]
    return " ".join(part for part in (look.mark, cell.version, look.word) if part)


def _tail(row: ZoneRow) -> str:
    ready = f"{row.ready}/{len(row.cells)}"
    if row.current == row.update:
        return f"{ready:<6}{row.current}{' (paused)' if row.is_paused else ''}"
    return f"{ready:<6}{'paused' if row.is_paused else row.current} > {row.update}"


def _legend() -> Line:
    return tuple((f"{look.mark} {look.meaning}   ", look.style) for look in LOOKS.values())


def _progress(cells: Sequence[Cell], goal: str) -> Line:
    done = sum(cell.state is PodCell.NEW for cell in cells)
    full = BAR * done // max(len(cells), 1)
    return (
        (" " * NAME, Style.PLAIN),
        ("#" * full, Style.GREEN),
        ("-" * (BAR - full), Style.FAINT),
        (f"  {done} of {len(cells)} pods ready on {goal}", Style.PLAIN),
    )


def _draw_whys(picture: Picture) -> list[Line]:
    """Return the reasons in their order, and how many lines are left out."""
    lines: list[Line] = []
    for why in picture.whys or ():
        texts = textwrap.wrap(f"{why.code}: {why.text}", COLUMNS - 1 - NAME)
        names = [why.zone or "all", *[""] * (len(texts) - 1)]
        lines += [
            ((f"{name:<{NAME}}", Style.BOLD), (text, Style.PLAIN))
            for name, text in zip(names, texts, strict=True)
        ]
    hidden = len(lines) - picture.why_lines
    if hidden > 0:
        more = f"{'':<{NAME}}... ({hidden + 1} more lines)"
        return [*lines[: picture.why_lines - 1], ((more, Style.FAINT),)]
    return lines


def _draw_notes(notes: Sequence[DemoNote], room: int) -> list[Line]:
    """Return the newest notes that fit, the newest last and the others wholly and fainter."""
    lines: list[Line] = []
    style = Style.PLAIN
    for note in reversed(notes):
        drawn = _draw_note(note, style)
        if lines and len(lines) + len(drawn) > room:
            break
        lines = [*drawn, *lines]
        style = Style.FAINT
    return lines


def _draw_note(note: DemoNote, style: Style) -> list[Line]:
    wrapped = textwrap.wrap(note.text, COLUMNS - TIME - WHO - 1)
    heads = [f"{_time(note.at)}{note.who:<{WHO}}", *[" " * (TIME + WHO)] * (len(wrapped) - 1)]
    return [((f"{head}{text}", style),) for head, text in zip(heads, wrapped, strict=True)]


def _time(at: float) -> str:
    return f"{at:>5.2f} s  "


def draw_note(note: DemoNote) -> Line:
    """Return a note as one line, however long."""
    return (
        (_time(note.at), Style.FAINT),
        (f"{note.who:<{WHO}}", Style.BOLD),
        (note.text, Style.PLAIN),
    )


def draw_moves(before: Sequence[ZoneRow], now: Sequence[ZoneRow], at: float) -> Iterator[Line]:
    """Yield a line for each pod that looks different from before."""
    known = {row.name: row.cells for row in before}
    for row in now:
        was = known.get(row.name, ())
        for ordinal, cell in enumerate(row.cells):
            old = was[ordinal] if ordinal < len(was) else Cell(PodCell.GONE)
            if old != cell:
                yield (
                    (_time(at), Style.FAINT),
                    (f"{f'{row.name}-{ordinal}':<{WHO}}", Style.BOLD),
                    (f"{_words(old)} -> ", Style.PLAIN),
                    (_words(cell), LOOKS[cell.state].style),
                )
        for ordinal in range(len(row.cells), len(was)):
            yield (
                (_time(at), Style.FAINT),
                (f"{f'{row.name}-{ordinal}':<{WHO}}", Style.BOLD),
                (f"{_words(was[ordinal])} -> no longer wanted", Style.PLAIN),
            )
