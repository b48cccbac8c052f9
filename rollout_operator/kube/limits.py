"""Limit how fast we call the API server: one token bucket per API group.

One `Limits` belongs to one component, so that a busy one cannot starve another. Which group a path
belongs to is decided in `paths`; what a caller does when it is refused, by the caller.
"""

import asyncio
from collections import deque
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.model.errors import Throttled

# A wait computed in floating point ends up to this many tokens early: one more sleep of nanoseconds
# would follow, and at a clock value that cannot show them it would never end.
_ROUNDING: Final = 1e-6


class Limits:
    """Token buckets, full at the start, made at the first request of each API group.

    `qps` tokens a second flow into each up to `burst`; zero or less of either turns limiting off.
    """

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    async def take(self, group: str, within: timedelta | None = None) -> None:
        """Wait for a token of `group`, behind all who asked before.

        Raises Throttled at once, without waiting, where the token is due only after `within`.
        A caller who is cancelled leaves its token to the next.
        """
        if self._qps <= 0 or self._burst <= 0:
            return
        bucket = self._buckets.get(group)
        if bucket is None:
            bucket = self._buckets[group] = _Bucket(self._qps, self._burst, self._clock)
        due = bucket.next_due()
        if within is not None and due > within:
            raise Throttled(
                f'client-side rate limiter for Kubernetes API group "{group}": the next token is'
                f" due in {due.total_seconds():.3f}s, the deadline in"
                f" {within.total_seconds():.3f}s"
            )
        await bucket.take()


class _Bucket:
    """One bucket; whoever stands first in the line sleeps until the next token is there."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled = clock.elapsed()
        self._line: deque[asyncio.Future[None]] = deque()

    def next_due(self) -> timedelta:
        """Return how long one who asks now will wait, if nobody before it gives up."""
        self._fill()
        missing = len(self._line) + 1 - self._tokens
        return timedelta(seconds=max(missing - _ROUNDING, 0) / self._qps)

    async def take(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        self._call_first()
        try:
            await turn
            await self._wait_for_token()
            self._tokens -= 1
        finally:
            # Also for one who was cancelled: it took nothing, and the next must not wait for it.
            self._line.remove(turn)
            self._call_first()

    async def _wait_for_token(self) -> None:
        self._fill()
        while self._tokens < 1 - _ROUNDING:
            await self._clock.sleep(timedelta(seconds=(1 - self._tokens) / self._qps))
            self._fill()

    def _call_first(self) -> None:
        if self._line and not self._line[0].done():
            self._line[0].set_result(None)

    def _fill(self) -> None:
        now = self._clock.elapsed()
        self._tokens += (now - self._filled).total_seconds() * self._qps
        self._tokens = min(self._tokens, self._burst)
        self._filled = now
