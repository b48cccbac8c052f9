"""Pytest plugin: time of the event loop stands still while the machine is busy with others.

Limits of a fifth of a second are what many tests wait for in vain, and what none must meet by
accident: a test that waits for a core meanwhile is given that time back. Computing and waiting take
as long as ever. Tests against the real control plane keep the clock of the machine, since the other
processes there do. `conftest.py` loads this.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Mapping
from typing import Final

import pytest

# The most that one turn of the loop takes beyond what it computes.
LONGEST_WAIT: Final = 0.01


class SteadyLoop(asyncio.SelectorEventLoop):
    """A loop on real sockets; each turn takes what it computes, and what it waits for events."""

    def __init__(self) -> None:
        self._now = 0.0
        self._last = _read_clocks()
        super().__init__(_ShortWaits(self.pass_time))

    def time(self) -> float:
        """Return the seconds since the loop began, the same ones for the whole turn."""
        return self._now

    def pass_time(self) -> None:
        """Count a turn."""
        (wall, computing), self._last = self._last, _read_clocks()
        spent = self._last[1] - computing
        self._now += min(self._last[0] - wall, LONGEST_WAIT + spent)


class _ShortWaits(selectors.DefaultSelector):
    """Returns early, with no events, so that a wait shows how long the process really waited."""

    def __init__(self, returns: Callable[[], None]) -> None:
        super().__init__()
        self._returns = returns

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(LONGEST_WAIT if timeout is None else min(timeout, LONGEST_WAIT))
        self._returns()
        return events


def _read_clocks() -> tuple[float, float]:
    """Return the time of the machine, and that of the processor in this thread."""
    return time.monotonic(), time.thread_time()


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the loop of every asynchronous test."""
    if item.get_closest_marker("controlplane") is not None:
        return {"machine": asyncio.SelectorEventLoop}
    return {"steady": SteadyLoop}
