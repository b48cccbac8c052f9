"""Where a rollout is shown: redrawn in place on a terminal, or line by line anywhere else.

What is shown is decided in `drawing`; which of the two, and with colours or not, here.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rollout_operator.lab.demo.drawing import (
    Line,
    draw_frame,
    draw_grid,
    draw_moves,
    draw_note,
    render_line,
)
from rollout_operator.lab.demo.picture import Picture, ZoneRow

# Cursor and automatic wrapping: a line that is too long must not push the others down.
BEGIN: Final = "\x1b[?25l\x1b[?7l"
END: Final = "\x1b[?7h\x1b[?25h"
# Without an end of its own a line has no limit.
ENDLESS: Final = 10**6
# Seconds for which a line is held back: a pod may be seen to go before the operator's own word
# of it, which is older, is read.
HOLD: Final = 0.2


class Color(StrEnum):
    """When to use colours."""

    AUTO = "auto"
    """On a terminal, unless the environment asks for none."""
    ALWAYS = "always"
    NEVER = "never"


class Screen(Protocol):
    """Shows pictures. Use with `with`, which leaves a terminal as it was."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def tell(self, text: str) -> None:
        """Write text as it is."""

    def show(self, picture: Picture) -> None:
        """Show what is now."""

    def finish(self, picture: Picture, summary: Sequence[Line]) -> None:
        """Show the end, which stays; what is shown next begins below."""


def choose_screen(
    stream: TextIO,
    env: Mapping[str, str],
    *,
    is_plain: bool = False,
    color: Color = Color.AUTO,
) -> Screen:
    """Return the screen that fits: NO_COLOR takes the colours, TERM=dumb also the cursor."""
    is_terminal = stream.isatty() and env.get("TERM", "dumb") not in ("", "dumb")
    is_coloured = color is Color.ALWAYS or (
        color is Color.AUTO and is_terminal and not env.get("NO_COLOR")
    )
    if is_plain or not is_terminal:
        return Plain(stream, is_coloured=is_coloured)
    return Live(stream, is_coloured=is_coloured)


@dataclass(slots=True)
class Live:
    """Redraws in place; never higher than the terminal."""

    stream: TextIO
    is_coloured: bool
    size: Callable[[], os.terminal_size] = shutil.get_terminal_size
    _height: int = 0

    def __enter__(self) -> Self:
        self.tell(BEGIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.tell(END)

    def tell(self, text: str) -> None:
        """Write text as it is."""
        self.stream.write(text)
        self.stream.flush()

    def show(self, picture: Picture) -> None:
        """Draw the frame over the one before."""
        # The last row is the cursor's: a line feed there would scroll.
        self._draw(draw_frame(picture, self.size().lines - 1))

    def finish(self, picture: Picture, summary: Sequence[Line]) -> None:
        """Leave grid and summary; they scroll where the terminal is low."""
        self._draw([*draw_grid(picture), (), *summary])
        self._height = 0

    def _draw(self, lines: Sequence[Line]) -> None:
        up = f"\x1b[{self._height}A" if self._height else ""
        columns = self.size().columns
        texts = [render_line(line, columns, is_coloured=self.is_coloured) for line in lines]
        self.tell(f"\r{up}" + "".join(f"{text}\x1b[K\n" for text in texts) + "\x1b[J")
        self._height = len(lines)


@dataclass(slots=True)
class Plain:
    """Writes a line for whatever is new; nothing but text and line feeds, and colours if asked."""

    stream: TextIO
    is_coloured: bool = False
    _rows: Sequence[ZoneRow] = field(default_factory=tuple)
    _told: int = 0
    """How many of the notes were taken."""
    _held: list[tuple[float, Line]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave nothing behind: nothing was changed."""

    def tell(self, text: str) -> None:
        """Write text as it is."""
        self.stream.write(text)
        self.stream.flush()

    def show(self, picture: Picture) -> None:
        """Write the grid once, then what is said and what moves, in order of time."""
        if not self._rows:
            self._write([*draw_grid(picture), ()])
            self._rows = picture.rows
        self._gather(picture)
        self._tell_until(picture.elapsed - HOLD)

    def finish(self, picture: Picture, summary: Sequence[Line]) -> None:
        """Write what is new still, then grid and summary."""
        self._gather(picture)
        self._tell_until(picture.elapsed)
        self._write([(), *draw_grid(picture), (), *summary])
        self._rows, self._told = (), 0

    def _gather(self, picture: Picture) -> None:
        self._held += [(note.at, draw_note(note)) for note in picture.notes[self._told :]]
        moves = draw_moves(self._rows, picture.rows, picture.elapsed)
        self._held += [(picture.elapsed, move) for move in moves]
        self._told, self._rows = len(picture.notes), picture.rows

    def _tell_until(self, moment: float) -> None:
        self._held.sort(key=lambda each: each[0])
        self._write([line for at, line in self._held if at <= moment])
        self._held = [each for each in self._held if each[0] > moment]

    def _write(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = render_line(line, ENDLESS, is_coloured=self.is_coloured)
            self.tell(f"{text.rstrip()}\n")
