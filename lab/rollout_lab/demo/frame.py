"""How a rollout looks on a whole terminal of any size, drawn with rich.

Pure: a picture and a size in, lines of styled text out. The reason of now is the headline and is
never cut; what happened before gets the room that is left.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rollout_lab.demo.drawing import CELL_STYLES, NAME, name_state, to_ascii
from rollout_lab.demo.snapshot import Cell, DemoEntry, DemoReason, DemoSnapshot, PodCell, ZoneRow
from rollout_operator.cli.render import Line, Style

STYLES: Final = {
    Style.PLAIN: "",
    Style.BOLD: "bold",
    Style.FAINT: "bright_black",
    Style.RED: "red",
    Style.GREEN: "green",
    Style.YELLOW: "yellow",
    Style.MAGENTA: "magenta",
}
BARS: Final = "▁▂▃▄▅▆▇█"
# The widths of a pod: mark, version and word; mark and version; the mark alone.
WORDS: Final = 14
VERSION: Final = 5
# Looks at the world in one column of the bars: a quarter of a second.
SAMPLES_A_BAR: Final = 5
# What the bars have at least, and a name with its count at most.
LEAST_BARS: Final = 14
BESIDES: Final = NAME + 14
ENTRY_HEAD: Final = 20


class TerminalFrame(msgspec.Struct, frozen=True):
    """A picture that fills the terminal."""

    snapshot: DemoSnapshot
    is_ascii: bool = False
    height: int | None = None
    """How many lines; None for as many as the terminal has."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield as many lines as there is room for."""
        width, height = options.max_width, self.height or options.height or console.height
        options = options.update(width=width, height=None)

        def lines(*parts: RenderableType) -> list[list[Segment]]:
            return console.render_lines(Group(*parts), options, pad=False)

        snapshot = self.snapshot
        foot = lines(*_draw_keys(snapshot))
        head, about = lines(self._title(width)), lines(_draw_about(snapshot.about), "")
        is_reported = bool(snapshot.end) or snapshot.whys is not None
        headline = lines("", self._headline()) if is_reported else []
        grid = lines(*self._grid(width))
        if len(head) + len(about) + len(headline) + len(grid) + len(foot) + 3 > height:
            about, headline = lines(), headline[1:]
        shown = [*head, *about, *grid, *headline]
        room = height - len(shown) - len(foot) - 1
        events = [] if room < 1 else [lines("")[0], *_choose_entries(snapshot, lines, room)]
        blank = [lines("")[0]] * (height - len(shown) - len(foot) - len(events))
        for line in [*shown, *events, *blank, *foot][:height]:
            yield from _take_ascii(line) if self.is_ascii else line
            yield Segment.line()

    def _title(self, width: int) -> RenderableType:
        snapshot = self.snapshot
        line = Table.grid(expand=True)
        line.add_column(ratio=1)
        line.add_column(justify="right")
        pace = f"{snapshot.pace:g} times as fast" if snapshot.pace else "paused"
        pace = "" if snapshot.pace == 1 else pace
        clock = Text.assemble((f"{pace}  ", "bold yellow"), f"{snapshot.elapsed:.1f} s")
        line.add_row(Text(snapshot.title, "bold"), clock)
        return line

    def _grid(self, width: int) -> Iterator[RenderableType]:
        """Yield the zones with their pods, and how many were down as time went on."""
        rows = self.snapshot.rows
        pods = max((len(row.cells) for row in rows), default=0)
        spare = (width - BESIDES - LEAST_BARS) // max(pods, 1)
        cell = next((size for size in (WORDS, VERSION, 2) if size <= spare), 1)
        cell += cell == WORDS and spare >= 2 * WORDS
        bars = width - BESIDES - cell * pods
        worst = max((max(row.history, default=0) for row in rows), default=0)
        top = max(self.snapshot.limit, worst)
        for row in rows:
            line = Text.assemble((f"{row.name:<{NAME}}", "bold"), no_wrap=True)
            for each in row.cells:
                line.append_text(self._cell(each, cell))
            line.append(" " * cell * (pods - len(row.cells)))
            line.append(f"{row.up}/{len(row.cells)} ", "green" if row.up == len(row.cells) else "")
            line.append(
                "paused " if row.is_paused else "ready  ", "yellow" if row.is_paused else ""
            )
            line.pad_right(max(NAME + cell * pods + 13 - len(line.plain), 0))
            line.append_text(self._bars(row, bars, top))
            yield line
        if cell < WORDS:
            yield self._legend()
        yield self._progress(NAME + cell * pods, bars)

    def _cell(self, cell: Cell, width: int) -> Text:
        cell_style = CELL_STYLES[cell.state]
        words = {1: "", 2: "", VERSION: cell.version}.get(width, name_state(cell))
        text = Text(f"{cell_style.mark} {words}", STYLES[cell_style.style])
        text.truncate(width - (width > 2), pad=True)
        text.pad_right(width - len(text.plain))
        return text

    def _legend(self) -> Text:
        words = {PodCell.OLD: "old", PodCell.NEW: "new"}
        line = Text()
        for state, cell_style in CELL_STYLES.items():
            word = words.get(state, cell_style.word)
            line.append(f"{cell_style.mark} {word}   ", STYLES[cell_style.style])
        return line

    def _bars(self, row: ZoneRow, width: int, top: int) -> Text:
        """Return how many pods were down from the begin until now, over the limit in red."""
        samples = max(SAMPLES_A_BAR, math.ceil(len(row.history) / max(width, 1)))
        text = Text()
        for begin in range(0, len(row.history), samples):
            down = max(row.history[begin : begin + samples])
            style = "red" if down > self.snapshot.limit else "yellow" if down else "bright_black"
            bar = BARS[math.ceil(down / max(top, 1) * (len(BARS) - 1))]
            text.append(bar, style)
        return text

    def _progress(self, width: int, bars: int) -> Text:
        snapshot = self.snapshot
        done = sum(cell.state is PodCell.NEW for cell in snapshot.cells)
        said = f" {done} of {len(snapshot.cells)} ready on {snapshot.goal}"
        room = max(min(width + 11 - NAME - len(said), 42), 4)
        full = room * done // max(len(snapshot.cells), 1)
        line = Text(" " * NAME)
        line.append("━" * full, "green")
        line.append("─" * (room - full), "bright_black")
        line.append(said)
        if any(row.history for row in snapshot.rows):
            line.pad_right(max(width + 13 - len(line.plain), 1))
            line.append("pods down as time goes on, " if bars >= 36 else "down, ", "bright_black")
            line.append(f"limit {snapshot.limit}", "bright_black")
        return line

    def _headline(self) -> RenderableType:
        """Return why things are as they are, or in the end what was shown."""
        snapshot = self.snapshot
        if snapshot.end:
            return self._panel("What was shown", [to_text(line) for line in snapshot.end], "green")
        whys = [_draw_why(why, is_first=not n) for n, why in enumerate(snapshot.whys or ())]
        return self._panel("Why", whys or [Text("nothing has to be done")], "cyan")

    def _panel(self, title: str, lines: Sequence[RenderableType], style: str) -> RenderableType:
        return Panel(Group(*lines), title=title, title_align="left", border_style=style)


def _take_ascii(line: Iterable[Segment]) -> Iterator[Segment]:
    return (Segment(to_ascii(segment.text), segment.style) for segment in line)


def _draw_about(about: str) -> Text:
    return Text(about, "bright_black")


def to_text(line: Line) -> Text:
    """Return a line as rich takes it."""
    return Text.assemble(*((text, STYLES[style]) for text, style in line))


def _draw_why(why: DemoReason, *, is_first: bool) -> Text:
    style = "bold" if is_first else ""
    return Text.assemble((why.text, style), ("  " + why.code, "bright_black"))


def _draw_keys(snapshot: DemoSnapshot) -> Iterator[RenderableType]:
    if not snapshot.keys:
        return
    if snapshot.is_help:
        yield from (Text(f"  {key}") for key in snapshot.keys)
        return
    yield Text("  ".join(snapshot.keys), "reverse", no_wrap=True, overflow="ellipsis")


def _choose_entries(
    snapshot: DemoSnapshot, lines: Callable[..., list[list[Segment]]], room: int
) -> list[list[Segment]]:
    """Return the newest entries that fit, the newest last and the others wholly and fainter."""
    chosen: list[list[Segment]] = []
    for entry in reversed(
        [entry for entry in snapshot.entries if not entry.is_why or snapshot.whys is None]
    ):
        drawn = lines(_draw_entry(entry, is_newest=not chosen))
        if len(chosen) + len(drawn) > room:
            break
        chosen = [*drawn, *chosen]
    return chosen


def _draw_entry(entry: DemoEntry, *, is_newest: bool) -> RenderableType:
    line = Table.grid()
    line.add_column(width=ENTRY_HEAD)
    line.add_column()
    style = "" if is_newest else "bright_black"
    line.add_row(Text(f"{entry.at:>5.1f} s  {entry.who}", style), Text(entry.text, style))
    return line
