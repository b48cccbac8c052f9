"""News of the page for browsers that stay: server-sent events, to a bounded number of them.

Each client has a place in the second, so that all of them together never keep the loop for long. A
client is sent only what has changed since the last time, and nothing while that is still on its
way; a client that takes nothing for a while is cut.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from heapq import heapify, heappop, heappush
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

from rollout_operator.web.http.connection import WRITE_LIMIT
from rollout_operator.web.http.sending import write_pieces
from rollout_operator.web.status.sections import Fragment

MOST_CLIENTS: Final = 256
INTERVAL: Final = timedelta(seconds=1)
# So many clients are served each second: more of them have their turn more seldom.
CLIENTS_A_SECOND: Final = 50
# Proxies cut what is silent for a minute or less; the page warns of a lost connection after 25 s.
HEARTBEAT: Final = timedelta(seconds=10)
# How long a browser waits until it connects again, also where it found no place.
RETRY: Final = timedelta(seconds=3)
RETRY_AFTER: Final = timedelta(seconds=10)
_PLACES: Final = MOST_CLIENTS.bit_length() - 1


class EventStreams:
    """The streams of one server. Must be used from one event loop."""

    def __init__(
        self, get: Callable[[], Awaitable[Fragment]], *, write_limit: timedelta = WRITE_LIMIT
    ) -> None:
        """`get` returns what a page shows now; `write_limit` is a client's time to take a piece."""
        self._get = get
        self._write_limit = write_limit
        self._free = list(range(MOST_CLIENTS))
        heapify(self._free)
        self._closing = asyncio.Event()

    @property
    def clients(self) -> int:
        """Return how many streams there are."""
        return MOST_CLIENTS - len(self._free)

    def close(self) -> None:
        """End all streams, and begin no other."""
        self._closing.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send news until the client goes or the server stops; 503 where all places are taken."""
        if not self._free or self._closing.is_set():
            return web.Response(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                text="too many live pages: load /status again\n",
                headers={hdrs.RETRY_AFTER: f"{RETRY_AFTER.total_seconds():.0f}"},
            )
        place = heappop(self._free)
        try:
            return await self._stream(request, place)
        finally:
            heappush(self._free, place)

    async def _stream(self, request: web.Request, place: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream"})
        # nginx would gather what is sent.
        response.headers["X-Accel-Buffering"] = "no"
        transport = request.transport
        if request.method == hdrs.METH_HEAD or transport is None:
            return response
        transport.set_write_buffer_limits(high=0)
        client = _Client(response, transport, self._write_limit)
        try:
            await response.prepare(request)
            await client.send(b"retry: %d\n\n" % (RETRY // timedelta(milliseconds=1)))
            while not transport.is_closing() and not self._closing.is_set():
                if not client.is_behind():
                    await client.update(await self._get())
                await self._wait(_measure_wait(place, self._choose_interval()))
        except TimeoutError:
            transport.abort()
        except ConnectionError:
            return response  # the client has gone; the server sees the same and cleans up
        return response

    def _choose_interval(self) -> float:
        return max(INTERVAL.total_seconds(), self.clients / CLIENTS_A_SECOND)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return


class _Client:
    """The last news to one client, and since when it takes nothing."""

    def __init__(
        self, response: web.StreamResponse, transport: asyncio.WriteTransport, limit: timedelta
    ) -> None:
        self._response = response
        self._transport = transport
        self._limit = limit.total_seconds()
        self._seen: Fragment | None = None
        self._sent = 0.0
        """When something was sent last, on the loop's time."""

    def is_behind(self) -> bool:
        """Return whether bytes still wait for the client. Raises TimeoutError after a while."""
        if not self._transport.get_write_buffer_size():
            return False
        if _now() - self._sent > self._limit:
            raise TimeoutError
        return True

    async def update(self, fragment: Fragment) -> None:
        """Send what has changed, or after some time without it that all is well."""
        if self._seen is None or fragment.number != self._seen.number:
            news = fragment.render_news(self._seen)
            self._seen = fragment
            await self.send(news)
        elif _now() - self._sent >= HEARTBEAT.total_seconds():
            await self.send(b"event: alive\ndata: 1\n\n")

    async def send(self, data: bytes) -> None:
        """Send bytes. Raises TimeoutError and ConnectionError."""
        self._sent = _now()
        async with asyncio.timeout(self._limit):
            await write_pieces(self._response, data, len(data))


def _measure_wait(place: int, interval: float) -> float:
    """Return the seconds until the next turn of a place: neighbours are half a round apart."""
    turn = int(f"{place:0{_PLACES}b}"[::-1], 2) / MOST_CLIENTS * interval
    wait = (turn - _now()) % interval
    return wait if wait > interval / 2 else wait + interval


def _now() -> float:
    return asyncio.get_running_loop().time()
