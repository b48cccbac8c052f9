"""Pytest plugin: time of the event loop stands still while the machine is busy with others, and
hurries while the test waits for nothing but time.

Limits of a fifth of a second are what many tests wait for in vain, and what none must meet by
accident: a test that waits for a core meanwhile is given that time back. Computing takes as long as
ever. Both ends of a socket are in this process: where none has news and no thread computes, only a
timer can come next, and it comes in a tenth of its time. A test that starts a process waits as long
as the machine takes. So do tests against the real control plane, since the other processes there
do. `conftest.py` loads this.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

Events = list[tuple[selectors.SelectorKey, int]]
Select = Callable[[float | None], Events]

# The most that one turn of the loop takes beyond what it computes.
LONGEST_WAIT: Final = 0.01
# How often a second passes in one, while only timers are left.
HASTE: Final = 10
# What a thread computes at least in a wait, if there is one that does.
_COMPUTING: Final = 0.001

# Shorter stops are not looked into: whether a core was free stands in a file.
_STOP: Final = 0.5


class SteadyLoop(asyncio.SelectorEventLoop):
    """A loop on real sockets; each turn takes what it computes, and what it waits for events."""

    def __init__(self) -> None:
        self._now = 0.0
        self._last = _read_clocks()
        self._haste = HASTE
        self._starved = _read_starved()
        self.longest_stop = 0.0
        """The most seconds for which it ran nothing that others gave to it, if they are many."""
        super().__init__(_ShortWaits(self._wait))

    def time(self) -> float:
        """Return the seconds since the loop began, the same ones for the whole turn."""
        return self._now

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        """Start a process, and no more hurry: it has the time of the machine."""
        self._haste = 1
        return await super().subprocess_exec(*args, **options)

    def _wait(self, select: Select, timeout: float | None) -> Events:
        """Wait for events, but not for long, so that a wait shows how long the process waited."""
        stop = time.monotonic() - self._last[0]
        if stop > max(self.longest_stop, _STOP):
            self.longest_stop = max(self.longest_stop, stop - (_read_starved() - self._starved))
        wanted = LONGEST_WAIT if timeout is None else timeout / self._haste
        begin = time.process_time() if timeout else 0.0
        events = select(max(min(wanted, LONGEST_WAIT), 0))
        (wall, computing), self._last = self._last, _read_clocks()
        passed = min(self._last[0] - wall, LONGEST_WAIT + self._last[1] - computing)
        if timeout and not events and time.process_time() - begin < _COMPUTING:
            # To the nearest timer, and no further: each has its turn.
            passed = max(passed, min(passed * self._haste, timeout))
        self._now += passed
        return events


class _ShortWaits(selectors.DefaultSelector):
    """Leaves it to the loop how long it waits."""

    def __init__(self, wait: Callable[[Select, float | None], Events]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> Events:
        return self._wait(super().select, timeout)


def _read_clocks() -> tuple[float, float]:
    """Return the time of the machine, and that of the processor in this thread."""
    return time.monotonic(), time.thread_time()


def _read_starved() -> float:
    """Return the seconds for which this thread wanted a core of the machine and had none."""
    try:
        fields = Path("/proc/thread-self/schedstat").read_text().split()
    except OSError:
        return 0.0
    return int(fields[1]) / 1e9


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("controlplane") is not None:
        return {"machine": asyncio.SelectorEventLoop}
    return {"steady": SteadyLoop}
