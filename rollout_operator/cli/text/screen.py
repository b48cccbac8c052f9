"""The output of a command whose lines change: redrawn in place on a terminal."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TextIO

import msgspec

from rollout_operator.lab.lines import BEGIN, END, Line, Style, render_line

# The width for a pipe or a file: that of the smallest terminal.
NARROW: Final = 80
WIDE: Final = 160


class OutputStream(msgspec.Struct, frozen=True):
    """The stream that lines are written to, and what it can show."""

    stream: TextIO
    is_terminal: bool
    is_coloured: bool
    size: Callable[[], os.terminal_size] = shutil.get_terminal_size

    def width(self, *, is_wide: bool = False) -> int:
        """Return how many columns a line may have."""
        if self.is_terminal:
            return self.size().columns
        return WIDE if is_wide else NARROW

    def write(self, lines: Sequence[Line], width: int) -> None:
        """Write lines one below the other."""
        for line in lines:
            text = render_line(line, width, is_coloured=self.is_coloured)
            self.stream.write(f"{text if self.is_coloured else text.rstrip()}\n")
        self.stream.flush()


def read_output(stream: TextIO, environ: Mapping[str, str]) -> OutputStream:
    """Return a stream with its abilities: TERM=dumb moves no cursor, NO_COLOR takes the colours."""
    is_terminal = stream.isatty() and environ.get("TERM", "dumb") not in ("", "dumb")
    return OutputStream(stream, is_terminal, is_terminal and not environ.get("NO_COLOR"))


class LiveFrame(msgspec.Struct):
    """Redraws a frame over the last frame; never higher than the terminal. Use with `with`."""

    output: OutputStream
    _height: int = 0

    def __enter__(self) -> Self:
        self._write(BEGIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write(END)

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines; the last line counts those that do not fit."""
        size = self.output.size()
        # The last row is the cursor's: a line feed there would scroll.
        room = max(size.lines - 1, 1)
        if len(lines) > room:
            hidden = len(lines) - room + 1
            lines = [*lines[: room - 1], ((f"... {hidden} more lines", Style.FAINT),)]
        up = f"\x1b[{self._height}A" if self._height else ""
        texts = [
            render_line(line, size.columns, is_coloured=self.output.is_coloured) for line in lines
        ]
        self._write(f"\r{up}" + "".join(f"{text}\x1b[K\n" for text in texts) + "\x1b[J")
        self._height = len(lines)

    def _write(self, text: str) -> None:
        self.output.stream.write(text)
        self.output.stream.flush()
