"""The clock of one simulated process: the loop's time, seen by a clock that may be wrong.

Decides what the process takes the time to be. That a clock jumps or runs fast is decided by the
faults; the API server has a clock of its own.
"""

import asyncio
from datetime import datetime, timedelta

from rollout_lab.virtual_loop.loop import VirtualTimeLoop


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
    """Return the time of the running loop."""
    loop = asyncio.get_running_loop()
    return loop.elapsed if isinstance(loop, VirtualTimeLoop) else timedelta(seconds=loop.time())
