"""The keys of a demo: what each does, and how they are read while time may stand still.

Pace, steps and help take effect at once; what a person does in the world waits in a line for the
stage. What those acts are is decided in `acts`.
"""

import asyncio
import os
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from rollout_lab.virtual_loop.paced import PacedLoop

NEXT: Final = "n"
QUIT: Final = "q"
_STEP: Final = ("\x1b[C", ".")
# The interrupt is a key like others here: `make` would call a signal an error.
_QUITS: Final = (QUIT, "\x03", "\x04")
_FASTEST: Final = 16.0
_SLOWEST: Final = 0.125
SHORT: Final = ("space pause", "→ step", "+ - speed", "n next", "? do it yourself", "q quit")


class Controls(msgspec.Struct):
    set_pace: Callable[[float], None]
    acts: Mapping[str, str]
    """The keys by which a person acts in the world, and what each means."""
    speed: float = 1.0
    is_paused: bool = False
    is_help: bool = False
    on_press: Callable[[], None] = lambda: None
    """Shows the answer to a key also while time stands."""
    _commands: deque[str] = msgspec.field(default_factory=deque)
    _is_stepping: bool = False
    _before: object = None
    """What was to be seen when a step began, or at the last look; None for nothing yet."""

    @property
    def pace(self) -> float:
        """Return how fast time goes."""
        return 0.0 if self.is_paused else self.speed

    def list_keys(self) -> tuple[str, ...]:
        """Return what can be pressed, in short or with all that a reader can do."""
        acts = tuple(f"{key}   {text}" for key, text in self.acts.items())
        return (*acts, "?   back to the short list") if self.is_help else SHORT

    @property
    def has_command(self) -> bool:
        """Return whether the reader wants something else than the story."""
        return bool(self._commands)

    def take(self) -> Iterator[str]:
        """Yield what was requested since, each once."""
        while self._commands:
            yield self._commands.popleft()

    def press(self, key: str) -> None:
        """Take a key."""
        if key == "?":
            self.is_help = not self.is_help
        elif key == " ":
            self.is_paused = not self.is_paused
        elif key in _STEP:
            self._is_stepping, self._before, self.is_paused = True, None, False
        elif key in "+=":
            self.speed = min(self.speed * 2, _FASTEST)
        elif key == "-":
            self.speed = max(self.speed / 2, _SLOWEST)
        elif key in _QUITS or key == NEXT or key in self.acts:
            self._commands.append(QUIT if key in _QUITS else key)
            self.is_paused = self.is_help = False
        self.set_pace(self.pace)
        self.on_press()

    def end_step(self, seen: object) -> None:
        """Let time stand again as soon as a step has shown something new."""
        if self._is_stepping and self._before not in (None, seen):
            self._is_stepping, self.is_paused = False, True
            self.set_pace(0.0)
        self._before = seen


def split_keys(text: str) -> Iterator[str]:
    """Yield the keys of what a terminal sent; an arrow is a single key."""
    while text:
        size = 3 if text.startswith("\x1b[") else 1
        yield text[:size]
        text = text[size:]


@contextmanager
def reading_keys(controls: Controls) -> Iterator[None]:
    """Read keys from the terminal as they are pressed, without an echo, and leave it as it was."""
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    attributes = termios.tcgetattr(terminal)
    attributes[tty.LFLAG] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    termios.tcsetattr(terminal, termios.TCSADRAIN, attributes)

    def read() -> None:
        # A terminal that is gone reads as its end for ever.
        for key in split_keys(os.read(terminal, 64).decode(errors="replace") or QUIT):
            controls.press(key)

    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def set_loop_pace(pace: float) -> None:
    """Have the running loop's time go so fast; a loop that is not paced keeps its own."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, PacedLoop):
        loop.pace = pace
