"""What all concurrent callers share: a value that is made once, or the answer of one call.

A `Shared` value is given out for a time, then made anew on demand. It may be older than the
question: by how much is for its maker to say. The answer of a `SingleFlight` never is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from datetime import timedelta
from typing import Final, Generic, TypeVar

from rollout_operator.aio.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# What was dear to make is given out for nine times as long: making it takes a tenth of the loop.
KEEP_FACTOR: Final = 9
KEEP_LIMIT: Final = timedelta(seconds=1)
# Reading alone takes a two-hundredth: 99 of 100 other requests wait neither for the making nor for
# the sending.
READ_FACTOR: Final = 199
# What takes seconds of a busy loop is not to be older than this.
KEEP_LONGEST: Final = timedelta(seconds=10)


def keep_if_dear(took: timedelta) -> timedelta:
    """Return for how long to give out what took so long: what costs nothing is always new."""
    return min(took * KEEP_FACTOR, KEEP_LIMIT)


def keep_a_second(took: timedelta) -> timedelta:
    """Return a second, more for what is dear."""
    return min(max(took * READ_FACTOR, KEEP_LIMIT), KEEP_LONGEST)


async def join_pieces(list_pieces: Callable[[], Iterable[bytes]]) -> bytes:
    """Return all pieces joined, with a turn for others after each.

    On the loop, and not in a thread: what pieces are made of changes there, and a thread that makes
    text of it would hold up the loop just as long, by Python's lock.
    """
    joined = []
    for piece in list_pieces():
        joined.append(piece)
        await asyncio.sleep(0)
    return b"".join(joined)


class Shared(Generic[V]):
    """Gives out the value that `make` returns. Must be used from one event loop."""

    def __init__(
        self,
        make: Callable[[], Awaitable[V]],
        clock: Clock,
        keep: Callable[[timedelta], timedelta] = keep_a_second,
    ) -> None:
        """`keep` decides, by how long the making took, for how long its value is given out."""
        self._make = make
        self._clock = clock
        self._keep = keep
        self._kept: tuple[V, timedelta] | None = None
        self._underway: asyncio.Future[V] | None = None

    async def get(self) -> V:
        """Return a value whose making began at most its own duration and its keeping ago.

        Raises what `make` raises to the caller that makes it; the next waiter tries.
        """
        while self._underway is not None:
            underway = self._underway
            await asyncio.wait([underway])
            if not underway.cancelled():
                return underway.result()
        if self._kept is not None and self._clock.elapsed() < self._kept[1]:
            return self._kept[0]
        return await self._renew()

    async def _renew(self) -> V:
        self._underway = underway = asyncio.get_running_loop().create_future()
        begin = self._clock.elapsed()
        try:
            value = await self._make()
            underway.set_result(value)
        finally:
            self._underway = None
            underway.cancel()  # where it was not made: then the next waiter makes it
        end = self._clock.elapsed()
        self._kept = (value, end + self._keep(end - begin))
        return value


class SingleFlight(Generic[K, V]):
    """The calls in flight, one at a time for each key. Must be used from one event loop.

    An answer to a call that had begun before its caller came is taken only where the caller's own
    test accepts it. Otherwise the next call serves, again one for all. Hence a caller waits for two
    calls at most, however many callers there are, and for more only where the callers that make
    them give up.

    Errors that callers are to share are a part of `V`; an error that a call raises ends that caller
    only, as its cancellation does, and the next caller calls anew.
    """

    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Future[V]] = {}

    async def share(
        self, key: K, call: Callable[[], Awaitable[V]], is_new_enough: Callable[[V], bool]
    ) -> V:
        """Return the answer of a call, made now or by another caller."""
        flight = self._flights.get(key)
        if flight is not None:
            await asyncio.wait([flight])
            if not flight.cancelled() and is_new_enough(flight.result()):
                return flight.result()
        # Whatever is in flight from here on began after this caller had come.
        while (flight := self._flights.get(key)) is not None:
            await asyncio.wait([flight])
            if not flight.cancelled():
                return flight.result()
        return await self._lead(key, call)

    async def _lead(self, key: K, call: Callable[[], Awaitable[V]]) -> V:
        flight = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            answer = await call()
            flight.set_result(answer)
            return answer
        finally:
            del self._flights[key]
            flight.cancel()  # without an answer only: waiters call anew
