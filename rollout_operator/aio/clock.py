"""Time as an argument: what now is and how to wait, on the time of the running loop."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""
        ...

    def elapsed(self) -> timedelta:
        """Return a time that only grows, for measuring spans."""
        ...

    async def sleep(self, span: timedelta) -> None:
        """Wait for `span`."""
        ...


class LoopClock:
    """The clock of the machine for `now`, of the event loop for everything that waits."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> timedelta:
        return timedelta(seconds=asyncio.get_running_loop().time())

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(max(span.total_seconds(), 0))


class MachineClock(LoopClock):
    """The clock of a process on a machine of its own: right also within a turn of the loop.

    uvloop's clock shows when the last turn began. A process that is frozen within a turn would take
    its lease for valid (`kube.election`). Both are CLOCK_MONOTONIC.
    """

    def elapsed(self) -> timedelta:
        return timedelta(seconds=time.monotonic())
