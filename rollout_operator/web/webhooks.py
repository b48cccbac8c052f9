"""The webhook server on -server-tls.port: which requests are reviews, and how much they may send.

Bodies are read within limits of size, memory and time. All large bodies share one room of memory,
by what has arrived and never by what was announced. `web.dispatch` answers the reviews,
`web.connection` accepts the clients.
"""

import asyncio
import mmap
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Final, cast

import msgspec
from aiohttp import HttpVersion11, StreamReader, hdrs, web
from aiohttp.helpers import rfc822_formatted_time

from rollout_operator.aio.clock import Clock
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.decode.wire import SMALL
from rollout_operator.model.names import DecodeError, OperatorError
from rollout_operator.model.scaling import Review
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.connection import (
    FLAG,
    SERVER,
    WRITE_LIMIT,
    ConnectionLimits,
    ConnectionListener,
    Connections,
    ReviewConnection,
)
from rollout_operator.web.dispatch import Deadline, Reviewer
from rollout_operator.web.middleware import (
    TRACE,
    UNMATCHED,
    ClusterCheck,
    ClusterRules,
    Meter,
    clean_header,
    name_method,
    name_route,
)

# The API server takes objects up to 3 MiB; a review holds two, with their JSON escapes.
MAX_BODY: Final = 7 << 20
# Of all bodies beyond SMALL together. Small bodies do not count: connections are few, and a client
# that fills the room with large bodies must not hold up common bodies.
MAX_BODIES: Final = 16 << 20
# Decoding more than this would delay all others on the loop.
MAX_ON_LOOP: Final = 256 << 10
# How often the rate of a large body is measured, and how many bytes must have come in each such
# time since its first: on average, and of late where others wait for room.
_BEAT: Final = timedelta(seconds=1)
LEAST: Final = 64 << 10
LEAST_CROWDED: Final = 1 << 20
# A body that waits still has its first 64 KiB, and as much again in the buffers of its connection.
MAX_WAITING: Final = 32
_JSON: Final = "application/json"
_STOP_LIMIT: Final = timedelta(seconds=1)
# nginx's number for a client that went away before the answer.
_GONE: Final = 499
_ANSWER: Final = {hdrs.CONTENT_TYPE: _JSON, hdrs.SERVER: SERVER}
_HEAD: Final = (
    "".join(["HTTP/1.1 200 OK\r\n", *(f"{name}: {value}\r\n" for name, value in _ANSWER.items())])
    + "Content-Length: %d\r\nDate: %s\r\n%s\r\n"
).encode()
_TEXT: Final = {
    hdrs.CONTENT_TYPE: "text/plain; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    hdrs.SERVER: SERVER,
}


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    client_name: str = ""
    """Common name that a client's certificate must have; empty for any, or none at all."""
    client_host: str = ""
    """DNS name that a client's certificate must be for; empty for any, or none at all."""
    flag: str = FLAG
    """The flag that sets the port."""
    write_limit: timedelta = WRITE_LIMIT
    limits: ConnectionLimits = msgspec.field(default_factory=ConnectionLimits)


class WebhookServer:
    def __init__(
        self,
        port: int,
        *,
        reviewer: Reviewer,
        certificate: Callable[[], ssl.SSLContext],
        metrics: Metrics,
        cluster: ClusterRules,
        clock: Clock,
        options: ServerOptions | None = None,
    ) -> None:
        """Port 0 takes a free one; `certificate` is called for each new connection.

        Raises ConfigError where `cluster` holds a bad pattern.
        """
        self._wanted_port = port
        self._options = options or ServerOptions()
        self._reviewer = reviewer
        self._metrics = metrics
        self._clock = clock
        self._cluster = ClusterCheck(cluster, metrics)
        self._bodies = Bodies(clock)
        self._meters = {
            path: Meter(metrics, hdrs.METH_POST, name_route(path)) for path in reviewer.paths
        }
        self._listener = ConnectionListener(
            self._make_connection, certificate, clock, self._options.limits
        )
        self._server: web.Server | None = None

    @property
    def port(self) -> int:
        """Return the port, between `start` and `stop`."""
        return self._listener.port

    @property
    def is_serving(self) -> bool:
        """Return whether new connections are accepted: False before `start` and after a fault."""
        return self._listener.is_accepting

    async def start(self) -> None:
        self._server = web.Server(self._answer, handler_cancellation=True)
        await self._listener.start(self._wanted_port, flag=self._options.flag)

    def leave(self) -> None:
        """End each connection with its next answer, which says so; new ones are still accepted.

        Closing an idle connection could hit the next review, and clients do not repeat a POST.
        """
        self._listener.connections.is_leaving = True

    async def drain(self, limit: timedelta) -> None:
        """Accept nothing more, answer all requests that came, and close each connection after that.

        A request not answered within `limit` is cancelled.
        """
        await self._listener.stop()
        await self._listener.connections.leave(limit)

    async def stop(self) -> None:
        await self.drain(_STOP_LIMIT)
        if self._server is not None:
            await self._server.shutdown(_STOP_LIMIT.total_seconds())
            self._server = None
        self._bodies.close()

    def _make_connection(self, connections: Connections) -> ReviewConnection:
        assert self._server is not None, "start first"
        limits = self._options.limits
        return ReviewConnection(
            self._server,
            connections,
            idle_limit=limits.idle,
            head_limit=limits.head,
            client_name=self._options.client_name,
            client_host=self._options.client_host,
        )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, measured; it is sent here, so that its time counts."""
        connection = cast(ReviewConnection, request.protocol)
        connection.begin(request.content)
        begin = self._clock.elapsed()
        path, _, query = request.raw_path.partition("?")
        meter = self._choose_meter(request, path)
        meter.begin()
        status = _GONE
        try:
            deadline = self._reviewer.set_deadline(begin, query)
            response = await self._decide(request, path, meter.route, deadline)
            if connection.is_leaving:
                response.force_close()
            await self._send(request, response)
            status = response.status
            meter.sent(response.content_length or 0)
            return response
        finally:
            meter.end(request, status, (self._clock.elapsed() - begin).total_seconds())
            connection.end()

    def _choose_meter(self, request: web.BaseRequest, path: str) -> Meter:
        meter = self._meters.get(path)
        if meter is not None and request.method == hdrs.METH_POST:
            return meter
        return Meter(
            self._metrics, name_method(request), UNMATCHED if meter is None else meter.route
        )

    async def _decide(
        self, request: web.BaseRequest, path: str, route: str, deadline: Deadline
    ) -> web.Response:
        if (rejection := self._cluster.assess(request, route)) is not None:
            rejection.headers[hdrs.SERVER] = SERVER
            return rejection
        if path not in self._meters:
            return _reject(404, "no such path")
        try:
            _check(request)
            keeps = self._reviewer.keeps(path)
            review = await self._bodies.read(request, deadline.until, keeps=keeps)
        except Rejected as error:
            log.debug(
                "Rejecting request", hook=path, status=error.status, peer=request.remote,
                agent=clean_header(request.headers.get(hdrs.USER_AGENT, "")), err=error,
            )  # fmt: skip
            return _reject(error.status, str(error), closes=error.closes)
        cast(ReviewConnection, request.protocol).begin_review()
        body = await self._reviewer.answer(path, review, deadline, partial(_keep_trace, request))
        if request.version == HttpVersion11:
            return _Answer(body=body)
        return web.Response(body=body, headers=_ANSWER)

    async def _send(self, request: web.BaseRequest, response: web.Response) -> None:
        """Send the answer; a client that does not take it in time is cut."""
        cast(ReviewConnection, request.protocol).begin_answer(self._options.write_limit)
        try:
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            return  # the client has gone; the server sees the same and cleans up


class _Answer(web.Response):
    """A review's answer over HTTP/1.1, with the head that aiohttp would put together slowly."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send all of it, once."""
        if self._eof_sent:
            return
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        last = b"" if self._keep_alive else b"Connection: close\r\n"
        date = rfc822_formatted_time().encode()
        body = cast(bytes, self.body)
        await request.writer.write(_HEAD % (len(body), date, last) + body)
        await request.writer.drain()
        self._eof_sent = True

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: `prepare` has sent all."""


class Rejected(OperatorError):
    """A request that is no review: its answer is an HTTP status and this text.

    `closes` ends the connection with the answer.
    """

    def __init__(self, status: int, text: str, *, closes: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.closes = closes


class Bodies:
    """Reads bodies; large ones share one room."""

    def __init__(self, clock: Clock, thread: Executor | None = None) -> None:
        """Large bodies are decoded in `thread`, which `close` ends."""
        self._clock = clock
        self.room: Final = _Room(MAX_BODIES, largest=MAX_BODY)
        # One: several would only wait for each other, and the loop for all of them.
        self._thread = thread or ThreadPoolExecutor(max_workers=1, thread_name_prefix="bodies")

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    async def read(
        self, request: web.BaseRequest, until: timedelta, *, keeps: bool = False
    ) -> Review:
        """Return the review in the body, which must have come by `until` on `clock.elapsed()`.

        With `keeps` it can be passed on. Raises Rejected.
        """
        content = request.content
        if content.is_eof() and content.total_bytes <= SMALL:
            # The common case: it has come whole with its head.
            body = _decode(content.read_nowait(), keeps=keeps)
        else:
            body = await self._read_slowly(request, until, keeps=keeps)
        if isinstance(body, str):
            raise Rejected(400, body)
        return body

    async def _read_slowly(
        self, request: web.BaseRequest, until: timedelta, *, keeps: bool
    ) -> Review | str:
        share = _RoomShare(self.room, _size(request))
        body = _Body(share.announced)
        try:
            await self._collect(request, body, share, until)
            if body.size > MAX_ON_LOOP:
                return await self._decode_beside(body, share, keeps=keeps)
            return _decode(body.take(), keeps=keeps)
        finally:
            # Not left to the garbage collector: a task that was cancelled is part of a cycle.
            body.take()
            share.leave()

    async def _decode_beside(
        self, body: "_Body", share: "_RoomShare", *, keeps: bool
    ) -> Review | str:
        decoding = asyncio.wrap_future(self._thread.submit(_decode, body.take(), keeps=keeps))
        # A thread goes on where the task that waits for it is cancelled.
        decoding.add_done_callback(share.hold())
        return await asyncio.shield(decoding)

    async def _collect(
        self, request: web.BaseRequest, body: "_Body", share: "_RoomShare", until: timedelta
    ) -> None:
        content = request.content
        if content.is_eof():
            body.add(content.read_nowait())
            return
        is_large = request.content_length is not None and share.announced > SMALL
        rate = _BodyRate(self._clock.elapsed(), is_large=is_large)
        try:
            while not content.at_eof():
                body.add(await self._receive(content, rate, until))
                if body.size > share.announced:
                    raise _too_large()
                if body.size > SMALL:
                    await self._take(share, body.size, rate, until)
                rate.add(self._clock.elapsed(), body.size, is_crowded=self.room.is_crowded)
        except web.RequestPayloadError as error:
            raise Rejected(400, "the body is broken", closes=True) from error

    async def _receive(self, content: StreamReader, rate: "_BodyRate", until: timedelta) -> bytes:
        while True:
            try:
                async with asyncio.timeout(self._left(min(until, rate.due))):
                    return await content.readany()
            except TimeoutError as error:
                now = self._clock.elapsed()
                if now >= until:
                    raise Rejected(408, "the body did not come in time", closes=True) from error
                rate.check(now, is_crowded=self.room.is_crowded)

    async def _take(
        self, share: "_RoomShare", size: int, rate: "_BodyRate", until: timedelta
    ) -> None:
        begin = self._clock.elapsed()
        try:
            async with asyncio.timeout(self._left(until)):
                await self.room.take(share, size - share.size)
        except (TimeoutError, _RoomFullError) as error:
            raise _too_many() from error
        rate.pause(self._clock.elapsed() - begin)

    def _left(self, until: timedelta) -> float:
        return (until - self._clock.elapsed()).total_seconds()


class _Body:
    """The part of a body that has come.

    Large ones have memory of their own: as bytes they would be copied at each growth, and their
    memory would stay with the process.
    """

    __slots__ = ("_memory", "_parts", "announced", "size")

    def __init__(self, announced: int) -> None:
        self.announced = announced
        self.size = 0
        self._parts: list[bytes] = []
        self._memory: mmap.mmap | None = None

    def add(self, part: bytes) -> None:
        """Append a part; what exceeds the announced length is only counted."""
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
        """Return the bytes and keep none of them."""
        memory, parts = self._memory, self._parts
        self._memory, self._parts = None, []
        return b"".join(parts) if memory is None else memoryview(memory)[: self.size]


class _BodyRate:
    """The rate at which a body comes, without the time spent waiting for room.

    Raises Rejected if it is too slow. A body that may be small has time enough.
    """

    __slots__ = ("_before", "_begin", "_is_large", "_size", "due")

    def __init__(self, begin: timedelta, *, is_large: bool) -> None:
        self._begin = begin
        self._is_large = is_large
        self._size = self._before = 0
        self.due = begin + _BEAT
        """When it is measured next."""

    def add(self, now: timedelta, size: int, *, is_crowded: bool) -> None:
        self._size = size
        self._is_large = self._is_large or size > SMALL
        if now >= self.due:
            self.check(now, is_crowded=is_crowded)

    def check(self, now: timedelta, *, is_crowded: bool) -> None:
        if self._is_large and self._size < LEAST * ((now - self._begin) / _BEAT):
            raise Rejected(408, f"the body comes with less than {LEAST} bytes/s", closes=True)
        if self._is_large and is_crowded and self._size - self._before < LEAST_CROWDED:
            raise _too_many()
        self._before, self.due = self._size, now + _BEAT

    def pause(self, span: timedelta) -> None:
        """Leave out a time in which nothing was read."""
        self._begin += span
        self.due += span


def _size(request: web.BaseRequest) -> int:
    """Return the announced size, the largest one where none is announced."""
    size = request.content_length
    if size is None:
        return MAX_BODY if request.can_read_body else 0
    if size > MAX_BODY:
        raise _too_large()
    return size


def _decode(body: bytes | memoryview, *, keeps: bool) -> Review | str:
    """Return the review, or why it is none: an exception would keep the body by its traceback."""
    try:
        return decode_review(body, keeps=keeps)
    except DecodeError as error:
        return str(error)


def _too_large() -> Rejected:
    return Rejected(413, f"request body: more than {MAX_BODY} bytes", closes=True)


def _too_many() -> Rejected:
    return Rejected(429, "too many large requests at a time; try again", closes=True)


class _RoomFullError(Exception):
    """There is no room, and too many bodies already wait for it."""


class _RoomShare:
    """One body's share of the room, released when each holder has called `leave`."""

    __slots__ = ("_holders", "_room", "announced", "size")

    def __init__(self, room: "_Room", announced: int) -> None:
        self._room = room
        self._holders = 1
        self.announced = announced
        self.size = 0

    def hold(self) -> Callable[[object], None]:
        """Add a holder; return the callback by which it leaves."""
        self._holders += 1
        return lambda _: self.leave()

    def leave(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._room.release(self)


class _Room:
    """Memory for bodies: `size` bytes at a time, for bodies of at most `largest` each.

    When it is used up, bodies wait with what they have. One of them always goes on, so that halves
    of many bodies never block each other.
    """

    def __init__(self, most: int, *, largest: int) -> None:
        # Any body can become whole in what is left beyond that.
        self._common = most - largest
        self._used = 0
        self._favourite: _RoomShare | None = None
        self._waiting: dict[_RoomShare, tuple[int, asyncio.Future[None]]] = {}

    @property
    def used(self) -> int:
        return self._used

    @property
    def is_crowded(self) -> bool:
        return bool(self._waiting)

    async def take(self, share: "_RoomShare", size: int) -> None:
        """Give a share `size` more bytes. Raises _RoomFullError."""
        if self._give(share, size):
            return
        if len(self._waiting) >= MAX_WAITING:
            raise _RoomFullError
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[share] = (size, turn)
        try:
            await turn
        finally:
            self._waiting.pop(share, None)

    def release(self, share: "_RoomShare") -> None:
        """End a share, and let waiting bodies go on that now fit."""
        self._used -= share.size
        share.size = 0
        if self._favourite is share:
            self._favourite = None
        # The body that lacks least is whole soonest, and then there is more room.
        for waiting in sorted(self._waiting, key=lambda share: share.announced - share.size):
            size, turn = self._waiting[waiting]
            if not turn.done() and self._give(waiting, size):
                del self._waiting[waiting]
                turn.set_result(None)

    def _give(self, share: "_RoomShare", size: int) -> bool:
        if self._used + size > self._common:
            self._favourite = self._favourite or share
            if self._favourite is not share:
                return False
        self._used += size
        share.size += size
        return True


def _keep_trace(request: web.BaseRequest, keys: Mapping[str, str]) -> None:
    request[TRACE] = dict(keys)


def _check(request: web.BaseRequest) -> None:
    """Raise Rejected where a request is not of a webhook."""
    if request.method != hdrs.METH_POST:
        raise Rejected(405, "method not allowed")
    if request.headers.getall(hdrs.CONTENT_TYPE, ()) != [_JSON]:
        raise Rejected(400, "wrong content type")


def _reject(status: int, text: str, *, closes: bool = False) -> web.Response:
    response = web.Response(
        status=status, body=f"{text}\n".encode("utf-8", "replace"), headers=_TEXT
    )
    if status == 405:
        response.headers[hdrs.ALLOW] = hdrs.METH_POST
    if closes:
        response.force_close()
    return response
