"""A clock that stands still until a test moves it."""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MOST_TURNS = 50
IDLE_TURNS = 4


class FakeClock:
    """An `aio.clock.Clock`: `advance` moves it and wakes who waited for that time, in order."""

    def __init__(self) -> None:
        self._elapsed = timedelta(0)
        self._numbers = count()
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return EPOCH + self._elapsed

    def elapsed(self) -> timedelta:
        return self._elapsed

    async def sleep(self, span: timedelta) -> None:
        if span <= timedelta(0):
            await asyncio.sleep(0)
            return
        sleeper = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + span, next(self._numbers), sleeper))
        await sleeper

    def jump(self, span: timedelta) -> None:
        """Move the time on without giving any task a turn."""
        self._elapsed += span

    async def advance(self, span: timedelta) -> None:
        """Move the time on, stopping at each moment that a task waits for."""
        end = self._elapsed + span
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, sleeper = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, due)
            if not sleeper.done():
                sleeper.set_result(None)
            await self.settle()
        self._elapsed = end
        await self.settle()

    async def settle(self) -> None:
        """Let every task that can run do so."""
        idle = 0
        for _ in range(MOST_TURNS):
            await asyncio.sleep(0)
            idle = idle + 1 if _is_idle(asyncio.get_running_loop()) else 0
            if idle == IDLE_TURNS:
                return


def _is_idle(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether nothing can run, nor soon: what comes by a socket is seen a turn later."""
    timers = getattr(loop, "_scheduled", None)
    return not getattr(loop, "_ready", True) and not timers
