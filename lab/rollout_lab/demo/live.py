"""A rollout on the whole terminal, redrawn in place; the end stays in the scroll-back."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TextIO

from msgspec.structs import replace
from rich.console import Console, Group
from rich.screen import Screen as WholeScreen
from rich.text import Text

from rollout_lab.demo.frame import TerminalFrame, to_text
from rollout_lab.demo.snapshot import DemoSnapshot
from rollout_operator.cli.render import Line

# Fast enough for the eye; drawing takes a twentieth of this.
REDRAW_S: Final = 0.05


@dataclass(slots=True)
class Live:
    """Draws pictures over one another on the terminal's second page. Use with `with`."""

    stream: TextIO
    is_coloured: bool
    is_ascii: bool = False
    console: Console = field(init=False)
    _drawn: tuple[DemoSnapshot, object] | None = None
    _keys: tuple[float, bool] = (1.0, False)
    _next: float = 0.0
    _ends: list[Group] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.console = make_console(self.stream, is_coloured=self.is_coloured)

    @property
    def shows_keys(self) -> bool:
        """Always, in the last lines."""
        return True

    def __enter__(self) -> Self:
        self.console.set_alt_screen(True)
        self.console.show_cursor(False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.console.set_alt_screen(False)
        for end in self._ends:
            self.console.print(end, "")
        self.console.show_cursor(True)

    def write(self, text: str) -> None:
        """Write text as it is."""
        self.stream.write(text)
        self.stream.flush()

    def show(self, snapshot: DemoSnapshot) -> None:
        """Draw what has changed; the clock alone once in a tenth of a second."""
        state = (replace(snapshot, elapsed=round(snapshot.elapsed, 1)), self.console.size)
        # Time may stand from now on: a key is answered at once.
        is_answer = (snapshot.pace, snapshot.is_help) != self._keys
        if state == self._drawn or (time.monotonic() < self._next and not is_answer):
            return
        self._keys = (snapshot.pace, snapshot.is_help)
        self._drawn, self._next = state, time.monotonic() + REDRAW_S
        with self.console.capture() as drawn:
            self.console.print(WholeScreen(TerminalFrame(snapshot, is_ascii=self.is_ascii)), end="")
        self.write(f"\x1b[H{drawn.get()}")

    def finish(self, snapshot: DemoSnapshot, summary: Sequence[Line]) -> None:
        """Show the end, and keep it for when the terminal shows its first page again."""
        self._next = 0.0
        self.show(replace(snapshot, end=tuple(summary)))
        head = Text(f"{snapshot.title}, {snapshot.elapsed:.1f} s", "bold")
        self._ends.append(Group(head, *(to_text(line) for line in summary)))


def make_console(stream: TextIO, *, is_coloured: bool) -> Console:
    """Return rich's console; NO_COLOR and the like were judged before."""
    return Console(
        file=stream,
        force_terminal=True,
        color_system="standard" if is_coloured else None,
        no_color=not is_coloured,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={key: value for key, value in os.environ.items() if key == "TERM"},
    )
