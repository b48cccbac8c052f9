"""Where lines are written: a terminal, in place or one below the other, or a pipe."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TextIO

import msgspec

from rollout_operator.planning.text import Line, Style, render_line

# A pipe or a file gets the width of the smallest terminal.
_NARROW: Final = 80
_WIDE: Final = 160
# Hide the cursor and stop wrapping: a line that is too long must not push the others down.
_BEGIN: Final = "\x1b[?25l\x1b[?7l"
_END: Final = "\x1b[?7h\x1b[?25h"


class OutputStream(msgspec.Struct, frozen=True):
    """Where lines are written, and what it can show."""

    stream: TextIO
    is_terminal: bool
    is_coloured: bool
    size: Callable[[], os.terminal_size] = shutil.get_terminal_size

    def width(self, *, is_wide: bool = False) -> int:
        """Return how many columns a line may have."""
        if self.is_terminal:
            return self.size().columns
        return _WIDE if is_wide else _NARROW

    def write(self, lines: Sequence[Line], width: int) -> None:
        """Write lines one below the other."""
        for line in lines:
            text = render_line(line, width, is_coloured=self.is_coloured)
            self.stream.write(f"{text if self.is_coloured else text.rstrip()}\n")
        self.stream.flush()


def read_output(stream: TextIO, environ: Mapping[str, str]) -> OutputStream:
    """Return a stream; with TERM=dumb no cursor moves, with NO_COLOR there are no colours."""
    is_terminal = stream.isatty() and environ.get("TERM", "dumb") not in ("", "dumb")
    return OutputStream(stream, is_terminal, is_terminal and not environ.get("NO_COLOR"))


class LiveFrame(msgspec.Struct):
    """Redraws lines in place on a terminal, as many as fit. Use with `with`."""

    output: OutputStream
    _height: int = 0

    def __enter__(self) -> Self:
        self._write(_BEGIN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write(_END)

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines; the last line counts those that do not fit, and names their heads."""
        size = self.output.size()
        # The last row is the cursor's: a line feed there would scroll.
        room = max(size.lines - 1, 1)
        if len(lines) > room:
            hidden = lines[room - 1 :]
            names = [line[0][0] for line in hidden if line and line[0][1] is Style.BOLD]
            text = f"... {len(hidden)} more lines{': ' if names else ''}{', '.join(names)}"
            lines = [*lines[: room - 1], ((text, Style.FAINT),)]
        up = f"\x1b[{self._height}A" if self._height else ""
        texts = [
            render_line(line, size.columns, is_coloured=self.output.is_coloured) for line in lines
        ]
        self._write(f"\r{up}" + "".join(f"{text}\x1b[K\n" for text in texts) + "\x1b[J")
        self._height = len(lines)

    def _write(self, text: str) -> None:
        self.output.stream.write(text)
        self.output.stream.flush()
