"""Bodies of reviews: read within limits of size, memory and time, and decoded.

Decides how much one body may have, how fast it must come, and where it is decoded. How much all
large ones may take together is decided in `room`, what a body means in `model.decode.review`.
"""

import asyncio
import mmap
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import timedelta
from typing import Final, Protocol

from aiohttp import web

from rollout_operator.aio.clock import Clock
from rollout_operator.model.decode.excerpt import SMALL
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.errors import DecodeError, OperatorError
from rollout_operator.model.review import Review
from rollout_operator.web.http.room import Room, RoomFullError, RoomShare

# The API server takes objects up to 3 MiB; a review holds two, with their JSON escapes.
MAX_BODY: Final = 7 << 20
# Of all bodies beyond SMALL together. Small ones are not counted: connections are few, and whoever
# fills the room with large bodies must not hold up the common ones.
MAX_BODIES: Final = 16 << 20
# Decoding more than this would be felt by everyone on the loop.
MAX_ON_LOOP: Final = 256 << 10
# How often the pace of a large body is looked at, and how many bytes must have come in each such
# time since its first: on average, and of late where others wait for room.
BEAT: Final = timedelta(seconds=1)
LEAST: Final = 64 << 10
LEAST_CROWDED: Final = 1 << 20


class Rejected(OperatorError):
    """A request that is no review: it is answered with an HTTP status and this text.

    `closes` tells whether the connection ends with the answer.
    """

    def __init__(self, status: int, text: str, *, closes: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.closes = closes


class Content(Protocol):
    """The part of `aiohttp.StreamReader` that is read here."""

    def is_eof(self) -> bool: ...

    def at_eof(self) -> bool: ...

    def read_nowait(self) -> bytes: ...

    async def readany(self) -> bytes: ...


class BodyRequest(Protocol):
    """The part of `web.BaseRequest` that is read here."""

    @property
    def content_length(self) -> int | None: ...

    @property
    def can_read_body(self) -> bool: ...

    @property
    def content(self) -> Content: ...


class Bodies:
    """Reads bodies; those that are not small take of one room."""

    def __init__(self, clock: Clock, thread: Executor | None = None) -> None:
        """Make a reader that decodes large bodies in `thread`, which it ends with itself."""
        self._clock = clock
        self.room: Final = Room(MAX_BODIES, largest=MAX_BODY)
        # One: several would only wait for each other, and the loop for all of them.
        self._thread = thread or ThreadPoolExecutor(max_workers=1, thread_name_prefix="bodies")

    def close(self) -> None:
        """End the thread after what it decodes."""
        self._thread.shutdown(wait=False)

    async def read(self, request: BodyRequest, until: timedelta) -> Review:
        """Return the review in the body, which must be there `until`, on `clock.elapsed()`.

        Raises Rejected.
        """
        share = self.room.enter(_size(request))
        body = _Body(share.announced)
        try:
            await self._collect(request, body, share, until)
            if body.size > MAX_ON_LOOP:
                found = await self._decode_beside(body, share)
            else:
                found = _decode(body.take())
        finally:
            # Not left to the garbage collector: a task that was cancelled is part of a cycle.
            body.take()
            share.leave()
        if isinstance(found, str):
            raise Rejected(400, found)
        return found

    async def _decode_beside(self, body: "_Body", share: RoomShare) -> Review | str:
        decoding = asyncio.wrap_future(self._thread.submit(_decode, body.take()))
        # A thread goes on where the task that waits for it is cancelled.
        decoding.add_done_callback(share.hold())
        return await asyncio.shield(decoding)

    async def _collect(
        self, request: BodyRequest, body: "_Body", share: RoomShare, until: timedelta
    ) -> None:
        content = request.content
        if content.is_eof():
            body.add(content.read_nowait())
            return
        is_large = request.content_length is not None and share.announced > SMALL
        pace = _BodyRate(self._clock.elapsed(), is_large=is_large)
        try:
            while not content.at_eof():
                body.add(await self._receive(content, pace, until))
                if body.size > share.announced:
                    raise _too_large()
                if body.size > SMALL:
                    await self._take(share, body.size, pace, until)
                pace.note(self._clock.elapsed(), body.size, is_crowded=self.room.is_crowded)
        except web.RequestPayloadError as error:
            raise Rejected(400, "the body is broken", closes=True) from error

    async def _receive(self, content: Content, pace: "_BodyRate", until: timedelta) -> bytes:
        """Return what has come next."""
        while True:
            try:
                async with asyncio.timeout(self._left(min(until, pace.due))):
                    return await content.readany()
            except TimeoutError as error:
                now = self._clock.elapsed()
                if now >= until:
                    raise Rejected(408, "the body did not come in time", closes=True) from error
                pace.look(now, is_crowded=self.room.is_crowded)

    async def _take(self, share: RoomShare, size: int, pace: "_BodyRate", until: timedelta) -> None:
        """Take of the room what the body has by now."""
        begin = self._clock.elapsed()
        try:
            async with asyncio.timeout(self._left(until)):
                await share.take(size - share.size)
        except (TimeoutError, RoomFullError) as error:
            raise _too_many() from error
        pace.pause(self._clock.elapsed() - begin)

    def _left(self, until: timedelta) -> float:
        return (until - self._clock.elapsed()).total_seconds()


class _Body:
    """What has come of a body. A large one lies in memory of its own.

    As bytes it would be copied whenever it grows, and its memory would stay with the process.
    """

    __slots__ = ("_memory", "_parts", "announced", "size")

    def __init__(self, announced: int) -> None:
        self.announced = announced
        self.size = 0
        self._parts: list[bytes] = []
        self._memory: mmap.mmap | None = None

    def add(self, part: bytes) -> None:
        """Put a part behind the others; beyond the length announced it is only counted."""
        begin, self.size = self.size, self.size + len(part)
        if self._memory is None and self.size <= SMALL:
            self._parts.append(part)
        elif self.size <= self.announced:
            if self._memory is None:
                # Pages are there from when something is written to them.
                self._memory = mmap.mmap(-1, self.announced)
                self._memory[:begin] = b"".join(self._parts)
                self._parts.clear()
            self._memory[begin : self.size] = part

    def take(self) -> bytes | memoryview:
        """Return what has come, and keep nothing of it."""
        memory, parts = self._memory, self._parts
        self._memory, self._parts = None, []
        return b"".join(parts) if memory is None else memoryview(memory)[: self.size]


class _BodyRate:
    """How fast a body comes, the time left out in which it waits for room.

    Raises Rejected where that is too slow. A small body, or one that may be, has time enough.
    """

    __slots__ = ("_before", "_begin", "_is_large", "_size", "due")

    def __init__(self, begin: timedelta, *, is_large: bool) -> None:
        self._begin = begin
        self._is_large = is_large
        self._size = self._before = 0
        self.due = begin + BEAT
        """When it is to be looked at next."""

    def note(self, now: timedelta, size: int, *, is_crowded: bool) -> None:
        """Note how much has come."""
        self._size = size
        self._is_large = self._is_large or size > SMALL
        if now >= self.due:
            self.look(now, is_crowded=is_crowded)

    def look(self, now: timedelta, *, is_crowded: bool) -> None:
        """Look at what has come since the last time."""
        if self._is_large and self._size < LEAST * ((now - self._begin) / BEAT):
            raise Rejected(408, f"the body comes with less than {LEAST} bytes/s", closes=True)
        if self._is_large and is_crowded and self._size - self._before < LEAST_CROWDED:
            raise _too_many()
        self._before, self.due = self._size, now + BEAT

    def pause(self, span: timedelta) -> None:
        """Leave out a time in which nothing was read."""
        self._begin += span
        self.due += span


def _size(request: BodyRequest) -> int:
    """Return how large the body is: as it says, or the most where it does not say."""
    size = request.content_length
    if size is None:
        return MAX_BODY if request.can_read_body else 0
    if size > MAX_BODY:
        raise _too_large()
    return size


def _decode(body: bytes | memoryview) -> Review | str:
    """Return the review, or why it is none: an exception would keep the body by its traceback."""
    try:
        return decode_review(body)
    except DecodeError as error:
        return str(error)


def _too_large() -> Rejected:
    return Rejected(413, f"request body: more than {MAX_BODY} bytes", closes=True)


def _too_many() -> Rejected:
    return Rejected(429, "too many large requests at a time; try again", closes=True)
