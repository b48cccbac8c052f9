"""One call at a time for each key, whose answer all callers share that wait for it.

A caller never gets an answer that may be older than its question: an answer to a call that had
begun before is taken only where the caller's own test accepts it. Otherwise the next call serves,
again one for all. Hence a caller waits for two calls at most, however many callers there are, and
for more only where the callers that make them give up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """The calls in flight. Must be used from one event loop.

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
