"""How a rollout looks line by line, for pipes, logs and plain terminals.

Pure: snapshots in, lines out. The same marks and words are used by `frame` on a terminal.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from rollout_lab.demo.snapshot import Cell, DemoEntry, DemoSnapshot, PodCell, ZoneRow
from rollout_operator.cli.render import BLANK, Line, Style

MOST_PODS: Final = 21
NAME: Final = 8
WHO: Final = 11
BAR: Final = 40


class CellStyle(msgspec.Struct, frozen=True):
    """How a state looks."""

    mark: str
    plain: str
    """The mark in ASCII."""
    word: str
    """After the version of the pod."""
    style: Style


CELL_STYLES: Final = {
    PodCell.OLD: CellStyle("●", "o", "ready", Style.PLAIN),
    PodCell.BROKEN: CellStyle("✖", "!", "broken", Style.MAGENTA),
    PodCell.ENDING: CellStyle("▼", "x", "ending", Style.RED),
    PodCell.GONE: CellStyle("○", ".", "gone", Style.RED),
    PodCell.STARTING: CellStyle("▲", "~", "starting", Style.YELLOW),
    PodCell.NEW: CellStyle("✔", "#", "ready", Style.GREEN),
}


# A character for a character, so that columns stay.
_ASCII: Final = str.maketrans(
    {cell_style.mark: cell_style.plain for cell_style in CELL_STYLES.values()}
    | dict(zip("▁▂▃▄▅▆▇█", "_...::##", strict=True))
    | dict(zip("━─│╭╮╰╯→…", "#-|++++>~", strict=True))
)


def to_ascii(text: str) -> str:
    """Return text in nothing but ASCII, as wide as before."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def name_state(cell: Cell) -> str:
    """Return the state of a pod's place in words."""
    return f"{cell.version} {CELL_STYLES[cell.state].word}".strip()


def draw_grid(snapshot: DemoSnapshot) -> Iterator[Line]:
    """Yield title, zones and progress."""
    yield ((f"{snapshot.title}, {snapshot.elapsed:.1f} s", Style.BOLD),)
    if snapshot.about:
        yield ((snapshot.about, Style.PLAIN),)
    yield BLANK
    for row in snapshot.rows:
        cells = [(f"{_words(cell):<14}", CELL_STYLES[cell.state].style) for cell in row.cells]
        ready = f"{row.up}/{len(row.cells)} ready{', paused' if row.is_paused else ''}"
        yield ((f"{row.name:<{NAME}}", Style.BOLD), *cells, (ready, Style.PLAIN))
    done = sum(cell.state is PodCell.NEW for cell in snapshot.cells)
    full = BAR * done // max(len(snapshot.cells), 1)
    sentence = f"  {done} of {len(snapshot.cells)} pods ready on {snapshot.goal}"
    yield (
        (" " * NAME, Style.PLAIN),
        ("#" * full, Style.GREEN),
        ("-" * (BAR - full), Style.FAINT),
        (sentence, Style.PLAIN),
    )


def _words(cell: Cell) -> str:
    return f"{CELL_STYLES[cell.state].plain} {name_state(cell)}"


def _begin(at: float, who: str) -> Line:
    return (f"{at:>5.2f} s  ", Style.FAINT), (f"{who:<{WHO}}", Style.BOLD)


def draw_entry(entry: DemoEntry) -> Line:
    """Return an entry as one line, however long."""
    return (*_begin(entry.at, entry.who), (entry.text, Style.PLAIN))


def draw_moves(before: Sequence[ZoneRow], now: Sequence[ZoneRow], at: float) -> Iterator[Line]:
    """Yield a line for each pod that looks different from before."""
    known = {row.name: row.cells for row in before}
    for row in now:
        was = known.get(row.name, ())
        for ordinal, cell in enumerate(row.cells):
            old = was[ordinal] if ordinal < len(was) else Cell(PodCell.GONE)
            if old != cell:
                new = (_words(cell), CELL_STYLES[cell.state].style)
                sentence = (f"{_words(old)} -> ", Style.PLAIN)
                yield (*_begin(at, f"{row.name}-{ordinal}"), sentence, new)
        for ordinal in range(len(row.cells), len(was)):
            sentence = (f"{_words(was[ordinal])} -> no longer wanted", Style.PLAIN)
            yield (*_begin(at, f"{row.name}-{ordinal}"), sentence)
