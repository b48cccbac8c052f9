"""Keyed workqueue.

A key that is added many times before it is taken comes out once. A key is never out twice at a
time: added while it is out, it comes again after `done`. A delayed key comes at its earliest time.
After `close` nothing comes out any more; waiters get an error.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Final, Generic, TypeVar

AT_ONCE: Final = timedelta(0)

K = TypeVar("K", bound=Hashable)


class QueueClosed(Exception):
    """The queue has been closed: begin nothing new."""


class WorkQueue(Generic[K]):
    """The keys to reconcile again. Must be used from one event loop."""

    def __init__(self, *, on_taken: Callable[[timedelta], None] = lambda waited: None) -> None:
        self._ready: deque[K] = deque()
        self._since: dict[K, float] = {}  # keys in _ready or to be re-added, by time of first add
        self._out: set[K] = set()
        # With when they fall due: for what is due at once, uvloop gives a handle without a time.
        self._timers: dict[K, tuple[float, asyncio.Handle]] = {}
        self._takers: deque[asyncio.Future[None]] = deque()
        self._on_taken = on_taken
        self._closed = False

    @property
    def depth(self) -> int:
        """Return how many keys wait to be taken."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Request a reconcile of `key` as soon as possible."""
        if self._closed or key in self._since:
            return
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
        """Give out nothing more and wake all waiters."""
        self._closed = True
        for _, timer in self._timers.values():
            timer.cancel()
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
