"""An event loop whose time can be stopped, and run faster or slower than the machine's.

Decides how long the machine waits while this loop's time passes. Sockets, signals and keys are
served at once, also while time stands still.
"""

import asyncio
import selectors
import time
from typing import Any


class PacedLoop(asyncio.SelectorEventLoop):
    """A loop whose second takes `1 / pace` seconds, and whose time stands at a pace of zero."""

    def __init__(self) -> None:
        self._pace = 1.0
        # When the pace was last changed, by the machine, and what this loop's time was then.
        self._since = time.monotonic()
        self._base = self._since
        super().__init__(_PacedSelector(self))

    @property
    def pace(self) -> float:
        """Return how many seconds of this loop pass in one of the machine."""
        return self._pace

    @pace.setter
    def pace(self, pace: float) -> None:
        """Run at another pace from now on. Raises ValueError where time would go back."""
        if pace < 0:
            raise ValueError(f"pace: {pace} < 0")
        self._base, self._since = self.time(), time.monotonic()
        self._pace = pace

    def time(self) -> float:
        return self._base + (time.monotonic() - self._since) * self._pace


class _PacedSelector(selectors.DefaultSelector):
    """Waits as long as the loop's time needs for a span."""

    def __init__(self, loop: PacedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout:
            timeout = timeout / self._loop.pace if self._loop.pace else None
        return super().select(timeout)
