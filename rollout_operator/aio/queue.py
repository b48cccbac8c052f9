"""A keyed workqueue, and how long to wait before trying again.

A key that is added many times before it is taken comes out once, and is never out twice at a time:
added while it is out, it comes again after `done`. A delayed key comes at its earliest time, and
one that may wait for others to be added comes with the first of them. After `close` nothing comes
out, and waiters get an error.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Final, Generic, TypeVar

import msgspec

from rollout_operator.aio.clock import Clock

AT_ONCE: Final = timedelta(0)

K = TypeVar("K", bound=Hashable)


# 2**40 times any span of use is beyond any bound of use; more would overflow a float at 2**1024.
_MOST_DOUBLINGS: Final = 40

# An object that is made anew wants its value anew, and two of our reconciles may want the same.
_FREE: Final = 3
# A value that stayed for so long counts as accepted.
_MEMORY: Final = timedelta(minutes=15)

# A watch, or an object that is mirrored, is not left alone for longer, whatever a server wants.
LONGEST_RETRY_AFTER: Final = timedelta(seconds=30)


class QueueClosed(Exception):
    pass


class WorkQueue(Generic[K]):
    """The keys to reconcile again. Must be used from one event loop."""

    def __init__(self, *, on_taken: Callable[[timedelta], None] = lambda waited: None) -> None:
        self._ready: deque[K] = deque()
        self._since: dict[K, float] = {}  # keys in _ready or to be re-added, by time of first add
        self._out: set[K] = set()
        # With when they fall due: for what is due at once, uvloop gives a handle without a time.
        self._timers: dict[K, tuple[float, asyncio.Handle]] = {}
        self._soon: dict[K, asyncio.Handle] = {}
        self._takers: deque[asyncio.Future[None]] = deque()
        self._on_taken = on_taken
        self._closed = False

    @property
    def depth(self) -> int:
        return len(self._ready)

    def add(self, key: K) -> None:
        if self._closed or key in self._since:
            return
        if (timer := self._soon.pop(key, None)) is not None:
            timer.cancel()
        self._since[key] = asyncio.get_running_loop().time()
        if key not in self._out:
            self._put(key)

    def add_after(self, key: K, delay: timedelta) -> None:
        """Add `key` after `delay`, or earlier where that was requested before."""
        if self._closed:
            return
        if delay <= timedelta(0):
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay.total_seconds()
        if key in self._timers:
            planned, timer = self._timers[key]
            if planned <= due:
                return
            timer.cancel()
        self._timers[key] = due, loop.call_at(due, self._fall_due, key)

    def add_within(self, key: K, span: timedelta) -> None:
        """Add `key` with whatever adds it next, after `span` at the latest."""
        if self._closed or key in self._since or key in self._soon:
            return
        loop = asyncio.get_running_loop()
        self._soon[key] = loop.call_later(span.total_seconds(), self.add, key)

    async def take(self) -> K:
        """Wait for a key and take it out; call `done` when finished. Raises QueueClosed."""
        while not self._closed:
            if self._ready:
                key = self._ready.popleft()
                waited = asyncio.get_running_loop().time() - self._since.pop(key)
                self._out.add(key)
                self._on_taken(timedelta(seconds=waited))
                return key
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                self._drop(taker)
                self._wake()  # the wake-up that it may have got belongs to another taker
                raise
        raise QueueClosed

    def done(self, key: K) -> None:
        """Put the key back in reach; it comes again if it was added meanwhile."""
        self._out.discard(key)
        if key in self._since and not self._closed:
            self._put(key)

    def close(self) -> None:
        self._closed = True
        for timer in (*self._soon.values(), *(timer for _, timer in self._timers.values())):
            timer.cancel()
        self._soon.clear()
        self._timers.clear()
        self._ready.clear()
        for taker in self._takers:
            if not taker.done():
                taker.set_result(None)
        self._takers.clear()

    def _fall_due(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    def _put(self, key: K) -> None:
        self._ready.append(key)
        self._wake()

    def _wake(self) -> None:
        if not self._ready:
            return
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _drop(self, taker: asyncio.Future[None]) -> None:
        if taker in self._takers:
            self._takers.remove(taker)


_Place = TypeVar("_Place", bound=Hashable)
_Value = TypeVar("_Value")


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """A row of delays that doubles from `first` up to `most`."""

    first: timedelta
    most: timedelta

    def __post_init__(self) -> None:
        if not timedelta(0) < self.first <= self.most:
            raise ValueError(f"backoff: first {self.first} is not above 0 and within {self.most}")

    def bound(self, failures: int) -> timedelta:
        if failures < 1:
            return timedelta(0)
        factor = float(2 ** min(failures - 1, _MOST_DOUBLINGS))
        # Compared as ratio: the product could be more than a timedelta holds.
        return self.most if factor >= self.most / self.first else self.first * factor

    def delay(self, failures: int, rng: float) -> timedelta:
        """Return a delay anywhere in 0..`bound`, as `rng` (0..1) chooses.

        Full jitter: clients that failed together do not come back together.
        """
        return self.bound(failures) * min(max(rng, 0.0), 1.0)


# All back-offs, so that one place shows how often each call is repeated. `longest` is a setting.
WATCHES: Final = Backoff(first=timedelta(seconds=0.1), most=timedelta(seconds=10))
# Only a person can mend a refusal; repeating the call more often only fills the audit log.
REFUSED_WATCHES: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=30))
# A reconcile that ends with a bug.
BUGS: Final = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=15))
# The store contradicts the cache.
CONTRADICTIONS: Final = Backoff(first=timedelta(milliseconds=50), most=timedelta(seconds=5))
# `kubectl drain` tries again after five seconds, and others have their turn before that.
REFUSED_EVICTIONS: Final = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=1))
# An unreachable pod is tried this often at first, and at last: LI-05 allows a minute.
CANCELLATIONS: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=15))
# A pod that gave no time is most often about to start.
POD_CALLS: Final = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=1))
BUDGET_STATUSES: Final = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=5))
REFERENCES: Final = Backoff(first=timedelta(seconds=2), most=timedelta(seconds=30))
# Another writer puts its own value back.
_REWRITES: Final = Backoff(first=timedelta(seconds=10), most=timedelta(minutes=5))
CERTIFICATES: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=20))
WEBHOOK_CONFIGURATIONS: Final = Backoff(
    first=timedelta(milliseconds=500), most=timedelta(seconds=30)
)
# A process that is alone tries whether an election has become possible.
ELECTIONS: Final = Backoff(first=timedelta(seconds=10), most=timedelta(minutes=5))
EVENT_WRITES: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=10))
# A right is granted by a person; but an API server that has just started forbids everything.
REFUSED_EVENTS: Final = Backoff(first=timedelta(seconds=30), most=timedelta(minutes=10))


def attempts(longest: timedelta) -> Backoff:
    """Return the delays of an action that failed; at most `longest`."""
    return Backoff(first=min(timedelta(milliseconds=100), longest), most=longest)


class Recent(OrderedDict[_Place, _Value]):
    """What was put last, `most` entries of it."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def put(self, key: _Place, value: _Value) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


class _Row(msgspec.Struct, Generic[_Value]):
    value: _Value
    times: int
    last_at: timedelta


class Rewrites(Generic[_Place, _Value]):
    """What was written last to each place, and how often in a row.

    A value that is written again and again does not stay: something else writes it. Decides how
    long to wait before the same value is written to the same place once more. Another writer that
    puts its own value back at once would else be fought for ever, at the speed of both.
    """

    def __init__(self, clock: Clock, waits: Backoff = _REWRITES) -> None:
        self._clock = clock
        self._waits = waits
        self._rows: dict[_Place, _Row[_Value]] = {}

    def wait_before(self, place: _Place, value: _Value) -> timedelta:
        """Return how long writing a value must wait, zero for go; another value never waits."""
        row = self._find(place, value)
        if row is None:
            return timedelta(0)
        # The bound of no failure is no wait.
        left = row.last_at + self._waits.bound(row.times - _FREE + 1) - self._clock.elapsed()
        return max(left, timedelta(0))

    def count(self, place: _Place, value: _Value) -> int:
        row = self._find(place, value)
        return 0 if row is None else row.times

    def record(self, place: _Place, value: _Value) -> None:
        times = self.count(place, value) + 1
        self._rows[place] = _Row(value, times, self._clock.elapsed())

    def forget(self, place: _Place) -> None:
        self._rows.pop(place, None)

    def _find(self, place: _Place, value: _Value) -> _Row[_Value] | None:
        row = self._rows.get(place)
        if row is None or row.value != value:
            return None
        return row if self._clock.elapsed() - row.last_at < _MEMORY else None
