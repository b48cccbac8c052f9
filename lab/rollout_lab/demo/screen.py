"""Where a rollout is shown: on the whole terminal, or line by line anywhere else.

What is shown is decided in `frame` and in `drawing`; which of the two, and in colours, here.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rollout_lab.demo.drawing import draw_entry, draw_grid, draw_moves, to_ascii
from rollout_lab.demo.snapshot import DemoSnapshot, ZoneRow
from rollout_operator.cli.render import BLANK, Line, render_line

# Without an end of its own a line has no limit.
ENDLESS: Final = 10**6
# Seconds for which a line is held back: a pod may be seen to go before the operator's own word
# of it, which is older, is read.
HOLD: Final = 0.2


class Color(StrEnum):
    """When to use colours."""

    AUTO = "auto"
    """On a terminal, unless the environment wants none."""
    ALWAYS = "always"
    NEVER = "never"


class Screen(AbstractContextManager["Screen"], Protocol):
    """Shows pictures. Use with `with`, which leaves a terminal as it was."""

    @property
    def shows_keys(self) -> bool:
        """Return whether a reader is shown what can be pressed."""

    def write(self, text: str) -> None:
        """Write text as it is."""

    def show(self, snapshot: DemoSnapshot) -> None:
        """Show what is now."""

    def finish(self, snapshot: DemoSnapshot, summary: Sequence[Line]) -> None:
        """Show the end, which stays; what is shown next begins below."""


def choose_screen(
    stream: TextIO,
    env: Mapping[str, str],
    *,
    is_plain: bool = False,
    is_ascii: bool = False,
    color: Color = Color.AUTO,
) -> Screen:
    """Return the screen that fits: NO_COLOR takes the colours, TERM=dumb also the picture."""
    is_terminal = stream.isatty() and env.get("TERM", "dumb") not in ("", "dumb")
    is_ascii = is_ascii or not (stream.encoding or "utf-8").lower().startswith("utf")
    is_coloured = color is Color.ALWAYS or (
        color is Color.AUTO and is_terminal and not env.get("NO_COLOR")
    )
    if is_plain or not is_terminal:
        return Plain(stream, is_coloured=is_coloured, is_ascii=is_ascii)
    # Not before: rich takes a twentieth of a second that a pipe has no use for.
    from rollout_lab.demo.live import Live

    return Live(stream, is_coloured=is_coloured, is_ascii=is_ascii)


@dataclass(slots=True)
class Plain:
    """Writes a line for whatever is new; nothing but text and line feeds, and colours if wanted."""

    stream: TextIO
    is_coloured: bool = False
    is_ascii: bool = False
    _rows: Sequence[ZoneRow] = ()
    _shown: int = 0
    """How many of the entries were taken."""
    _held: list[tuple[float, Line]] = field(default_factory=list)

    @property
    def shows_keys(self) -> bool:
        """Never: what is pressed between lines would be a surprise."""
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing behind: nothing was changed."""

    def write(self, text: str) -> None:
        """Write text as it is."""
        self.stream.write(text)
        self.stream.flush()

    def show(self, snapshot: DemoSnapshot) -> None:
        """Write the grid once, then what is said and what moves, in order of time."""
        if not self._rows:
            self._write([*draw_grid(snapshot), BLANK])
            self._rows = snapshot.rows
        self._gather(snapshot)
        self._write_until(snapshot.elapsed - HOLD)

    def finish(self, snapshot: DemoSnapshot, summary: Sequence[Line]) -> None:
        """Write what is new still, then grid and summary."""
        self._gather(snapshot)
        self._write_until(snapshot.elapsed)
        self._write([BLANK, *draw_grid(snapshot), BLANK, *summary, BLANK])
        self._rows, self._shown = (), 0

    def _gather(self, snapshot: DemoSnapshot) -> None:
        self._held += [(entry.at, draw_entry(entry)) for entry in snapshot.entries[self._shown :]]
        moves = draw_moves(self._rows, snapshot.rows, snapshot.elapsed)
        self._held += [(snapshot.elapsed, move) for move in moves]
        self._shown, self._rows = len(snapshot.entries), snapshot.rows

    def _write_until(self, moment: float) -> None:
        self._held.sort(key=lambda each: each[0])
        self._write([line for at, line in self._held if at <= moment])
        self._held = [each for each in self._held if each[0] > moment]

    def _write(self, lines: Iterable[Line]) -> None:
        for line in lines:
            text = render_line(line, ENDLESS, is_coloured=self.is_coloured)
            shown = to_ascii(text) if self.is_ascii else text
            self.write(f"{shown.rstrip()}\n")
