"""Limit how fast this process calls the API server: one token bucket for each API group.

All clients share one `RateLimiter`, since the flags limit the process. Calls wait in the order of
`Priority` (D-65). A caller that has waited longer than a more urgent one by its priority's patience
goes first, so that none starves. Watches are free.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from datetime import timedelta
from enum import IntEnum
from itertools import count
from typing import Final

import msgspec

from rollout_operator.kube.api import CORE_GROUP, DISCOVER, Call
from rollout_operator.model.names import Throttled

# A wait computed in floating point ends up to this many tokens early: one more sleep of nanoseconds
# would follow, and at a clock value that cannot show them it would never end.
_ROUNDING: Final = 1e-6
_SHORTEST_WAIT: Final = 1e-6  # seconds
# Tenants name API groups in annotations, any number of them: requests whether there are such groups
# have one bucket, and one name in metrics.
DISCOVERY: Final = "discovery"


class Priority(IntEnum):
    """What a request is for; the most urgent first."""

    DELETE = 0
    ANSWER = 1
    """Other writes, and reads that a review waits for."""
    READ = 2
    """Live reads, and all other reads of controllers."""
    RELEASE = 3
    """Reads and writes that free what was granted and not used: all that is underway goes
    before."""
    LIST = 4
    """Lists that fill caches. What they show is as old as the last event until they are in."""
    RECORD = 5
    """Reads before a revision is recorded: no pod waits for them."""
    REPORT = 6
    """Reads and writes that only show people what is going on."""


# By so many seconds a caller must have come earlier to go before a delete: less than the 30 s and
# 60 s after which reads and pages give up, so that each is served even where others never cease.
_PATIENCE: Final[Mapping[Priority, float]] = {
    Priority.DELETE: 0,
    Priority.ANSWER: 20,
    Priority.READ: 25,
    Priority.RELEASE: 26,
    # Hardly more than a live read: what it shows is needed to go on.
    Priority.LIST: 27,
    Priority.RECORD: 40,
    Priority.REPORT: 45,
}
# No answer waits for their writes: they are as urgent as their reads.
_PATIENT: Final = frozenset({Priority.RELEASE, Priority.REPORT})


def choose_priority(call: Call, reads: Priority) -> Priority:
    """Return the priority of a call of a client whose reads have the priority `reads`.

    A client that releases, or reports, has no answer to give: its writes are as urgent as its
    reads.
    """
    if call.verb == "delete":
        return Priority.DELETE
    if call.is_write and reads not in _PATIENT:
        return Priority.ANSWER
    return reads


def name_bucket(call: Call) -> str:
    return DISCOVERY if call.verb == DISCOVER else call.resource.group or CORE_GROUP


class RateLimiter:
    """Token buckets, full at the start, made at the first request of each API group.

    `qps` tokens a second flow into each up to `burst`; zero or less of either turns limiting off.
    """

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = burst
        self._buckets: dict[str, _Bucket] = {}

    async def admit(self, call: Call, reads: Priority, within: timedelta) -> None:
        """Wait for the token of a call. Raises Throttled as `take` does; watches need none."""
        if call.is_stream:
            return
        try:
            await self.take(name_bucket(call), choose_priority(call, reads), within)
        except Throttled as error:
            error.call = call.text
            raise

    async def take(
        self, group: str, priority: Priority = Priority.READ, within: timedelta | None = None
    ) -> None:
        """Wait for a token of `group`, behind all that are as urgent and came before.

        Raises Throttled at once, without waiting, where the token is due only after `within`; and
        after `within` where more urgent callers came meanwhile. A caller that is cancelled leaves
        its token to the next.
        """
        if self._qps <= 0 or self._burst <= 0:
            return
        bucket = self._get_bucket(group)
        is_late = within is not None and within < timedelta(0)
        if not is_late and bucket.take_at_once():
            return
        due = bucket.next_due(priority)
        if within is not None and due > within:
            raise Throttled(
                f"{_describe(group)}: the next token is due in {due.total_seconds():.3f}s,"
                f" the deadline in {within.total_seconds():.3f}s"
            )
        try:
            # A token that is due just at the deadline comes in time.
            limit = None if within is None else within.total_seconds() + _SHORTEST_WAIT
            async with asyncio.timeout(limit):
                await bucket.take(priority)
        except TimeoutError as error:
            assert within is not None, "without a deadline there is no timeout"
            raise Throttled(
                f"{_describe(group)}: more urgent requests came first, for"
                f" {within.total_seconds():.3f}s"
            ) from error

    def describe_line(self) -> str | None:
        """Say how many requests wait for tokens, if any, and how long the first has waited."""
        waits = {name: bucket.list_waits() for name, bucket in self._buckets.items()}
        numbers = {name: len(spans) for name, spans in waits.items() if spans}
        if not numbers:
            return None
        longest = max(span for spans in waits.values() for span in spans)
        groups = ", ".join(f"{number} of {name}" for name, number in sorted(numbers.items()))
        return (
            f"requests that wait for -kubernetes.client-qps={self._qps:g}: {groups};"
            f" the longest for {longest.total_seconds():.0f} s"
        )

    def _get_bucket(self, group: str) -> "_Bucket":
        bucket = self._buckets.get(group)
        if bucket is None:
            # A full bucket is as good as a new bucket.
            self._buckets = {
                name: bucket for name, bucket in self._buckets.items() if not bucket.is_full
            }
            bucket = self._buckets[group] = _Bucket(self._qps, self._burst)
        return bucket


def _describe(group: str) -> str:
    return f'client-side rate limiter for Kubernetes API group "{group}"'


class _Caller(msgspec.Struct, frozen=True):
    rank: tuple[float, int]
    came: float
    """On the time of the running loop."""
    turn: asyncio.Future[None]


class _Bucket:
    """One bucket and the line before it, the first in front; on the time of the running loop."""

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = burst
        self._loop = asyncio.get_running_loop()
        self._tokens = float(burst)
        self._filled = self._loop.time()
        self._line: list[_Caller] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_full(self) -> bool:
        self._fill()
        return not self._line and self._tokens >= self._burst

    def list_waits(self) -> list[timedelta]:
        now = self._loop.time()
        return [timedelta(seconds=now - caller.came) for caller in self._line]

    def next_due(self, priority: Priority) -> timedelta:
        """Return how long a caller that comes now will wait, if the line stays as it is."""
        self._fill()
        missing = self._compute_place(self._rank(priority)) + 1 - self._tokens
        return timedelta(seconds=max(missing - _ROUNDING, 0) / self._qps)

    def take_at_once(self) -> bool:
        """Take a token that nobody waits for, if there is one."""
        self._fill()
        if self._line or self._tokens < 1 - _ROUNDING:
            return False
        self._tokens -= 1
        return True

    async def take(self, priority: Priority) -> None:
        rank = self._rank(priority)
        caller = _Caller(rank, self._loop.time(), self._loop.create_future())
        self._line.insert(self._compute_place(rank), caller)
        self._serve()
        try:
            await caller.turn
        except asyncio.CancelledError:
            if caller in self._line:
                self._line.remove(caller)
            elif not caller.turn.cancelled():
                self._tokens += 1  # was just given to it
            self._serve()
            raise

    def _rank(self, priority: Priority) -> tuple[float, int]:
        return (self._loop.time() + _PATIENCE[priority], next(self._numbers))

    def _compute_place(self, rank: tuple[float, int]) -> int:
        return bisect_right(self._line, rank, key=lambda caller: caller.rank)

    def _serve(self) -> None:
        """Give tokens to those in front, and come back when there is the next token."""
        self._fill()
        while self._line and self._tokens >= 1 - _ROUNDING:
            turn = self._line.pop(0).turn
            if not turn.done():  # else it was cancelled this very moment
                self._tokens -= 1
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line:
            wait = max((1 - self._tokens) / self._qps, _SHORTEST_WAIT)
            self._timer = self._loop.call_later(wait, self._serve)

    def _fill(self) -> None:
        now = self._loop.time()
        self._tokens = min(self._tokens + (now - self._filled) * self._qps, self._burst)
        self._filled = now
