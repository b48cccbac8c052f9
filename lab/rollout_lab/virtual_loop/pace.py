"""Time in a simulated world: clocks, how long steps of controllers take to come, and real time.

A loop for real time can be stopped, and run faster or slower than the machine's. Sockets, signals
and keys are served at once, also while its time stands still.
"""

import asyncio
import random
import selectors
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from rollout_lab.virtual_loop.loop import VirtualTimeLoop

Range = tuple[timedelta, timedelta]


_AT_ONCE: Final[Range] = (timedelta(0), timedelta(0))
_SOON: Final[Range] = (timedelta(milliseconds=1), timedelta(milliseconds=20))
_QUICK: Final[Range] = (timedelta(milliseconds=5), timedelta(milliseconds=50))
_LAGGING: Final[Range] = (timedelta(milliseconds=5), timedelta(milliseconds=200))


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Spans from which each delay is drawn evenly: the least and the most."""

    controller: Range = _QUICK
    """From a change until the StatefulSet controller looks."""
    status: Range = _LAGGING
    """From what it does until its status is written; it does not look again in between."""
    controller_cache: Range = _AT_ONCE
    """How far what it looks at is behind, for each kind by itself."""
    scheduler: Range = _SOON
    """From a pod's creation until it has a node."""
    kubelet: Range = _SOON
    """From a change of a pod until its kubelet has noticed."""


def draw(rng: random.Random, span: Range) -> timedelta:
    """Return a span between the two ends."""
    return timedelta(seconds=rng.uniform(span[0].total_seconds(), span[1].total_seconds()))


class Timers:
    """Steps to come on the running loop; `stop` drops all that have not come yet."""

    def __init__(self) -> None:
        self._handles: dict[int, asyncio.TimerHandle] = {}
        self._given = 0
        self._is_stopped = False

    def after(self, span: timedelta, step: Callable[[], None]) -> int:
        """Let a step come after a span and return its number, for `cancel`."""
        self._given += 1
        number = self._given
        if not self._is_stopped:
            loop = asyncio.get_running_loop()
            seconds = max(span.total_seconds(), 0)
            self._handles[number] = loop.call_later(seconds, self._come, number, step)
        return number

    def cancel(self, number: int) -> None:
        """Drop a step, if it has not come yet."""
        handle = self._handles.pop(number, None)
        if handle is not None:
            handle.cancel()

    def stop(self) -> None:
        """Drop all steps; none is taken from now on."""
        self._is_stopped = True
        for number in list(self._handles):
            self.cancel(number)

    def _come(self, number: int, step: Callable[[], None]) -> None:
        del self._handles[number]
        step()


class SimulatedClock:
    """An `aio.clock.Clock`. Needs a running loop wherever it is read.

    `rate` is how fast it runs, the monotonic time as well; time-outs of asyncio itself keep the
    pace of the loop, as they are the loop's own.
    """

    def __init__(self, epoch: datetime) -> None:
        """Make a clock that shows `epoch`, aware, when the loop's time is zero."""
        self._epoch = epoch
        self._rate = 1.0
        # When the rate was last changed, and what the monotonic time was then.
        self._since = timedelta(0)
        self._base = timedelta(0)
        self.offset = timedelta(0)
        """How far the wall clock is ahead of what it should be; the monotonic time is not."""

    @property
    def rate(self) -> float:
        """Return seconds of this clock in a second of the loop."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        """Run at another pace from now on. Raises ValueError where it would stand or go back."""
        if rate <= 0:
            raise ValueError(f"rate: {rate} <= 0")
        self._base, self._since = self.elapsed(), loop_time()
        self._rate = rate

    def jump(self, span: timedelta) -> None:
        """Set the wall clock by `span`, forward or back; the monotonic time does not see it."""
        self.offset += span

    def now(self) -> datetime:
        return self._epoch + self.elapsed() + self.offset

    def elapsed(self) -> timedelta:
        if self._rate == 1.0 and not self._base:
            return loop_time()
        return self._base + (loop_time() - self._since) * self._rate

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(max(span.total_seconds(), 0) / self._rate)


def loop_time() -> timedelta:
    loop = asyncio.get_running_loop()
    return loop.elapsed if isinstance(loop, VirtualTimeLoop) else timedelta(seconds=loop.time())


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
