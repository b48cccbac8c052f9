"""Bodies of reviews: read within limits of size, memory and time, and decoded.

Decides who may send how much: one body, and all large ones that are being read at a time. Who does
not fit waits for its turn. What a body means is decided in `model.decode_review`.
"""

import asyncio
from collections import deque
from datetime import timedelta
from typing import Final

from aiohttp import web

from rollout_operator.aio.clock import Clock
from rollout_operator.model.decode_review import decode_review
from rollout_operator.model.errors import DecodeError, OperatorError
from rollout_operator.model.review import Review

# The API server takes objects up to 3 MiB; a review holds two, with their JSON escapes.
MAX_BODY: Final = 7 << 20
# Room for two of the largest.
MAX_BODIES: Final = 16 << 20
# Bodies up to this size need no turn: connections are few, and whoever fills the room with large
# bodies must not hold up the common ones.
SMALL: Final = 64 << 10
# Of a body that waits, a few hundred KiB have been received all the same.
MAX_WAITING: Final = 32
# Decoding more than this would be felt by everyone on the loop.
MAX_ON_LOOP: Final = 256 << 10


class Rejected(OperatorError):
    """A request that is no review: it is answered with an HTTP status and this text.

    `closes` tells whether the connection ends with the answer.
    """

    def __init__(self, status: int, text: str, *, closes: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.closes = closes


class Bodies:
    """Reads bodies; of those that are not small, at most `most_at_once` bytes at a time."""

    def __init__(
        self, clock: Clock, *, most: int = MAX_BODY, most_at_once: int = MAX_BODIES
    ) -> None:
        self._clock = clock
        self._most = most
        self._free = most_at_once
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def read(self, request: web.BaseRequest, until: timedelta) -> Review:
        """Return the review in the body, which must be there `until`, on `clock.elapsed()`.

        Raises Rejected.
        """
        size = self._size(request)
        if size <= SMALL:
            return await self._decode(request, until)
        await self._reserve(size, until)
        try:
            return await self._decode(request, until)
        finally:
            self._free += size
            self._wake()

    async def _decode(self, request: web.BaseRequest, until: timedelta) -> Review:
        body = await self._collect(request, until)
        try:
            if len(body) > MAX_ON_LOOP:
                return await asyncio.to_thread(decode_review, body)
            return decode_review(body)
        except DecodeError as error:
            raise Rejected(400, str(error)) from error

    def _size(self, request: web.BaseRequest) -> int:
        """Return how much room the body needs: as it says, or the most where it does not say."""
        size = request.content_length
        if size is None:
            return self._most if request.can_read_body else 0
        if size > self._most:
            raise self._too_large()
        return size

    async def _reserve(self, size: int, until: timedelta) -> None:
        if size <= self._free and not self._waiting:
            self._free -= size
            return
        if len(self._waiting) >= MAX_WAITING:
            raise _too_many()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (size, turn)
        self._waiting.append(place)
        try:
            async with asyncio.timeout(self._left(until)):
                await turn
        except TimeoutError as error:
            self._withdraw(place)
            raise _too_many() from error
        except asyncio.CancelledError:
            self._withdraw(place)
            raise

    def _withdraw(self, place: tuple[int, asyncio.Future[None]]) -> None:
        size, turn = place
        if place in self._waiting:
            self._waiting.remove(place)
        elif not turn.cancelled():
            self._free += size  # the turn came in the moment of giving up
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= size
                turn.set_result(None)

    async def _collect(self, request: web.BaseRequest, until: timedelta) -> bytes:
        content = request.content
        if content.is_eof():
            return content.read_nowait()
        try:
            async with asyncio.timeout(self._left(until)):
                return await self._join(request)
        except TimeoutError as error:
            raise Rejected(408, "the body did not come in time", closes=True) from error
        except web.RequestPayloadError as error:
            raise Rejected(400, "the body is broken", closes=True) from error

    async def _join(self, request: web.BaseRequest) -> bytes:
        content, parts, size = request.content, list[bytes](), 0
        while not content.at_eof():
            part = await content.readany()
            size += len(part)
            if size > self._most:
                raise self._too_large()
            parts.append(part)
        return b"".join(parts)

    def _left(self, until: timedelta) -> float:
        return (until - self._clock.elapsed()).total_seconds()

    def _too_large(self) -> Rejected:
        return Rejected(413, f"request body: more than {self._most} bytes", closes=True)


def _too_many() -> Rejected:
    return Rejected(429, "too many large requests at a time; try again", closes=True)
