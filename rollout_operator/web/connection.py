"""TLS connections, accepted one at a time within limits that hold against any client.

Not aiohttp's runner, which accepts up to a hundred connections in a turn of the loop, each of up to
300 KiB from the start of its handshake. Here one connection is accepted in a turn, the oldest idle
one goes when there are too many, and no request head may take for ever: aiohttp bounds only the
minutes between requests.

Large bodies are sent in pieces that all clients share: handed over whole, what a slow client has
not taken yet is a copy of its own, and five hundred of them held gigabytes.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Final, cast

import msgspec
from aiohttp import StreamReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.typedefs import Handler

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.model.names import ConfigError
from rollout_operator.telemetry.logs import log

# Time-outs that users know: idle connections of Prometheus and of the API server stay open.
_IDLE_LIMIT: Final = timedelta(minutes=3)
_READ_LIMIT: Final = timedelta(seconds=10)
WRITE_LIMIT: Final = timedelta(seconds=10)
# A request line or a header longer than this is refused with 400.
_LINE_LIMIT: Final = 8190
# Of a head or of trailers: aiohttp keeps twice as much until they have ended.
_FIELDS_LIMIT: Final = 1 << 15
# After an answer that did not read the body, the rest of the body is read for this long.
_LINGER_LIMIT: Final = timedelta(seconds=1)
# In place of aiohttp's header, which names versions.
SERVER: Final = "rollout-operator"
# Twice as much of a body is held while no review reads it.
_BUFFER: Final = 1 << 15
# For connections to the webhook port that never sent a request. Those that did may idle as long as
# those of the admin server: the API server closes them itself after 90 s, so that we never close
# under a request on its way.
_SILENCE_LIMIT: Final = timedelta(seconds=60)
_HEAD_LIMIT: Final = timedelta(seconds=10)
# Requests sent before the answer to the first has come: API servers never do, and each is held.
_AHEAD_LIMIT: Final = 1 << 16
# TLS records that wait for being read; a record has 16 KiB.
_RECORDS_LIMIT: Final = 1 << 15
_logger: Final = logging.getLogger(__name__)
FLAG: Final = "-server-tls.port"
_HIGHEST_PORT: Final = 65535
# An API server keeps a few; each costs up to 300 KiB, on the loop that uses most.
_MAX_CONNECTIONS: Final = 256
_HANDSHAKE_LIMIT: Final = timedelta(seconds=5)
# How long a peer may take to confirm the end of a connection.
_GOODBYE_LIMIT: Final = timedelta(seconds=1)
# Connections that wait in the kernel: a flood must not keep good connections from being queued.
_BACKLOG: Final = 1024
# As much may lie unread in the kernel for each connection; inherited by accepted sockets.
_RECEIVE_BUFFER: Final = 1 << 15
# How often slow connections are looked for.
_SWEEP: Final = timedelta(seconds=1)
# After an accept that failed for want of file descriptors or memory.
PAUSE: Final = timedelta(milliseconds=100)
_OUT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Once aiohttp holds more than this, it waits for the transport.
PIECE: Final = 1 << 16


class Connection(web.RequestHandler):
    """A client's connection, cut if no request comes within `read_limit`, or too large a one."""

    __slots__ = (
        "_ahead",
        "_crowd",
        "_fields",
        "_line",
        "_payload",
        "_progress",
        "_read_limit",
        "_silence",
    )

    def __init__(
        self,
        server: web.Server,
        *,
        read_limit: timedelta = _READ_LIMIT,
        crowd: "Crowd | None" = None,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            logger=_logger,
            access_log=None,  # type: ignore[arg-type]  # None turns it off, as `web.run_app` says
            keepalive_timeout=_IDLE_LIMIT.total_seconds(),
            lingering_time=_LINGER_LIMIT.total_seconds(),
            max_line_size=_LINE_LIMIT,
            max_field_size=_LINE_LIMIT,
            auto_decompress=False,
            read_bufsize=_BUFFER,
        )
        self._crowd = crowd
        self._read_limit = read_limit
        self._silence: asyncio.TimerHandle | None = None
        # Not `transport`, which aiohttp forgets once it closes: a peer may not let it end.
        self._line: asyncio.Transport | None = None
        self._ahead = 0
        self._fields = 0
        """Bytes that came since the last progress."""
        self._payload: StreamReader = EMPTY_PAYLOAD
        """The body that came last, or comes now."""
        self._progress = (0, 0)
        """How many heads have come, and how much of that body."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._line = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(self._read_limit.total_seconds(), self.force_close)
        if self._crowd is not None:
            self._crowd.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.end_silence()
        if self._crowd is not None:
            self._crowd.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._ahead = self._ahead + len(data) if self._is_ahead() else 0
        if self._ahead > _AHEAD_LIMIT:
            self.cut()
            return
        super().data_received(data)
        if self._messages:
            self._payload = self._messages[-1][1]
        before, self._progress = self._progress, (self._request_count, self._payload.total_bytes)
        self._fields = self._fields + len(data) if self._progress == before else 0
        if self._fields > _FIELDS_LIMIT:
            self.cut()

    def _is_ahead(self) -> bool:
        """Return whether what comes now is no part of the request that is answered."""
        return not self.is_idle

    @property
    def is_idle(self) -> bool:
        return not (self._messages or self._request_in_progress)

    def cut(self) -> None:
        if self._line is not None:
            self._line.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP, without aiohttp's text, which quotes what was sent."""
        if (
            isinstance(exc, UnicodeEncodeError)
            and not request.headers.get(hdrs.EXPECT, "").isascii()
        ):
            # aiohttp failed to quote an expectation that is no UTF-8.
            status, exc = 417, HttpProcessingError(code=417)
        brief = "malformed request\n" if isinstance(exc, HttpProcessingError) else message
        response = super().handle_error(request, status, exc, brief)
        response.headers[hdrs.SERVER] = SERVER
        return response

    def end_silence(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


class Crowd:
    """The connections to one server, at most `most`: each costs memory and a descriptor."""

    def __init__(self, most: int) -> None:
        self._most = most
        # Oldest first.
        self._all: dict[Connection, None] = {}

    def add(self, connection: Connection) -> None:
        """Add one, in place of the oldest that is idle, or else of the oldest."""
        if len(self._all) >= self._most:
            oldest = next((each for each in self._all if each.is_idle), next(iter(self._all)))
            del self._all[oldest]
            oldest.cut()
        self._all[connection] = None

    def remove(self, connection: Connection) -> None:
        self._all.pop(connection, None)


@web.middleware
async def end_silence(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Record on the connection that a request head has come; precedes all other middlewares."""
    if isinstance(request.protocol, Connection):
        request.protocol.end_silence()
    return await handler(request)


class _TlsTransport(asyncio.Transport):
    """The methods of TLS transports, in asyncio and in uvloop."""

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many encrypted bytes may wait until nothing more is received."""


class ReviewConnection(Connection):
    """A connection to the webhook port after its handshake."""

    __slots__ = (
        "_client_host",
        "_client_name",
        "_connections",
        "_content",
        "_due",
        "_head_limit",
    )

    def __init__(
        self,
        server: web.Server,
        connections: "Connections",
        *,
        idle_limit: timedelta = _SILENCE_LIMIT,
        head_limit: timedelta = _HEAD_LIMIT,
        client_name: str = "",
        client_host: str = "",
    ) -> None:
        """`client_name` and `client_host` are a name in the client's certificate, empty for any."""
        super().__init__(server, read_limit=idle_limit)
        self._client_host = client_host
        self._client_name = client_name
        self._connections = connections
        self._head_limit = head_limit.total_seconds()
        # When it is cut unless something happens, on the loop's time. Not a timer of its own: with
        # two of them for each request, a tenth of a review's time went into timers.
        self._due: float | None = None
        self._content: StreamReader | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether a request head has come and its answer has not gone."""
        return self._content is not None

    @property
    def is_leaving(self) -> bool:
        """Return whether the answer must be the last on this connection."""
        return self._connections.is_leaving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls = cast(_TlsTransport, transport)
        # Sending waits until all is on its way: no answer is held for a slow reader. Not high=0,
        # with TLS that would pause on an empty buffer, for ever.
        tls.set_write_buffer_limits(high=1, low=0)
        tls.set_read_buffer_limits(high=_RECORDS_LIMIT)
        super().connection_made(tls)
        self._connections.add(self)
        is_named = not self._client_name or self._client_name in _list_names(tls)
        is_of_host = not self._client_host or self._client_host in _list_hosts(tls)
        if not is_named or not is_of_host:
            log.info("Closing connection of a client of another name", peer=_name(tls))
            self.cut()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Not anew for each byte: a head that comes drop by drop has no more time than others.
        if self._content is None and self._due is None and data:
            self._due = asyncio.get_running_loop().time() + self._head_limit
        super().data_received(data)

    def _is_ahead(self) -> bool:
        return self._content is not None and self._content.is_eof()

    def begin(self, content: StreamReader) -> None:
        """Begin with a request whose head has come, and whose body comes in `content`."""
        self._due = None
        self.end_silence()
        self._content = content
        self._ahead = 0
        self._connections.move_last(self)
        CURRENT.set(self)

    def begin_review(self) -> None:
        """Begin with a review whose body has come: its answer matters to a cluster."""
        self._connections.begin_review(self)

    def end_review(self) -> None:
        self._connections.end_review(self)

    def begin_answer(self, limit: timedelta) -> None:
        """Begin with an answer, which must be taken within `limit`."""
        self._due = asyncio.get_running_loop().time() + limit.total_seconds()

    def end(self) -> None:
        self._due = None
        self._content = None
        self.end_review()

    def is_overdue(self, now: float) -> bool:
        """Return whether a request head or the taking of an answer takes too long."""
        return self._due is not None and self._due < now


CURRENT: Final[ContextVar[ReviewConnection | None]] = ContextVar("connection", default=None)
"""Of the task that answers its requests."""


@contextmanager
def giving_way() -> Iterator[None]:
    """Let the connection go for others meanwhile: its review may be made up, and it may wait."""
    connection = CURRENT.get()
    if connection is None:
        yield
        return
    connection.end_review()
    try:
        yield
    finally:
        connection.begin_review()


class Connections:
    """All connections to the webhook port, at most `most`, in the order in which they must go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._handshakes: dict[asyncio.Task[None], None] = {}
        # Oldest first, by the time of connecting, of the last request head or of the last answer.
        self._waiting: dict[ReviewConnection, None] = {}
        self._busy: dict[ReviewConnection, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self.is_leaving = False

    def __len__(self) -> int:
        return len(self._handshakes) + len(self._waiting) + len(self._busy)

    def make_room(self) -> bool:
        """Make room for one more; return whether there is.

        The larger crowd, of handshakes or of idle connections, loses its oldest; a connection with
        a review in flight stays, unless it is `giving_way`. If handshakes always went first, silent
        connections after their handshake would keep every honest one out.
        """
        # More than one may have to go: a handshake may still succeed in the turn that cancels it.
        while len(self) >= self._most:
            if len(self._handshakes) > len(self._waiting):
                task = next(iter(self._handshakes))
                del self._handshakes[task]
                task.cancel()
            elif self._waiting:
                connection = next(iter(self._waiting))
                del self._waiting[connection]
                connection.cut()
            else:
                return False
        return True

    def begin_handshake(self, task: asyncio.Task[None]) -> None:
        self._handshakes[task] = None
        task.add_done_callback(lambda task: self._handshakes.pop(task, None))

    def add(self, connection: ReviewConnection) -> None:
        self._waiting[connection] = None
        self._empty.clear()

    def remove(self, connection: ReviewConnection) -> None:
        self._waiting.pop(connection, None)
        self._busy.pop(connection, None)
        if not self._waiting and not self._busy:
            self._empty.set()

    def move_last(self, connection: ReviewConnection) -> None:
        """Have a connection in use go after all idle ones."""
        if connection in self._waiting:
            del self._waiting[connection]
            self._waiting[connection] = None

    def begin_review(self, connection: ReviewConnection) -> None:
        if connection in self._waiting:
            del self._waiting[connection]
            self._busy[connection] = None

    def end_review(self, connection: ReviewConnection) -> None:
        if connection in self._busy:
            del self._busy[connection]
            self._waiting[connection] = None
        else:
            self.move_last(connection)

    async def leave(self, limit: timedelta) -> None:
        """Close idle connections, let the others finish within `limit`, and cut the rest."""
        self.is_leaving = True
        for connection in list(self._waiting):
            if not connection.is_busy:
                connection.force_close()
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self._empty.wait()
        except TimeoutError:
            for connection in [*self._waiting, *self._busy]:
                connection.cut()
            await self._empty.wait()

    def cut_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in [*self._waiting, *self._busy]:
            if connection.is_overdue(now):
                connection.cut()


def _list_names(tls: asyncio.Transport) -> list[str]:
    certificate = tls.get_extra_info("peercert") or {}
    return [
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]


def _list_hosts(tls: asyncio.Transport) -> list[str]:
    certificate = tls.get_extra_info("peercert") or {}
    return [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]


def _name(tls: asyncio.Transport) -> str:
    address = tls.get_extra_info("peername")
    return str(address[0]) if address else ""


def _is_ours(record: logging.LogRecord) -> bool:
    # What strangers send is no error of ours: without this each garbage request would write a
    # stack trace. They get their 400.
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_logger.addFilter(_is_ours)


def bind(port: int, *, flag: str, host: str = "") -> socket.socket:
    """Return a socket on `host`, or on all addresses, of IPv4 alone if IPv6 is off.

    Port 0 takes a free one. Raises ConfigError that names `flag`, e.g. `-server.port`.
    """
    if not 0 <= port <= _HIGHEST_PORT:
        raise ConfigError(f"{flag}: {port} is not within 0 and {_HIGHEST_PORT}")
    try:
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"{flag}: port {port} is in use") from error
        cause = os.strerror(error.errno or 0).lower()
        raise ConfigError(f"{flag}: cannot listen on port {port}: {cause}") from error


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = _MAX_CONNECTIONS
    handshake: timedelta = _HANDSHAKE_LIMIT
    idle: timedelta = _SILENCE_LIMIT
    head: timedelta = _HEAD_LIMIT
    sweep: timedelta = _SWEEP


class ConnectionListener:
    def __init__(
        self,
        make_connection: Callable[[Connections], ReviewConnection],
        certificate: Callable[[], ssl.SSLContext],
        clock: Clock,
        limits: ConnectionLimits,
    ) -> None:
        self.connections = Connections(limits.connections)
        self._make_connection = make_connection
        self._certificate = certificate
        self._clock = clock
        self._sweep = limits.sweep
        self._handshake = limits.handshake.total_seconds()
        self._socket: socket.socket | None = None
        self._tasks: TaskStack | None = None
        self._is_short = False
        self._is_full = False

    @property
    def port(self) -> int:
        """Return the port, between `start` and `stop`."""
        assert self._socket is not None, "start first"
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def is_accepting(self) -> bool:
        return self._tasks is not None and not self._tasks.list_dead()

    async def start(self, port: int, *, flag: str = FLAG) -> None:
        self._socket = bind(port, flag=flag)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.setblocking(False)
        self._socket.listen(_BACKLOG)
        self._tasks = TaskStack()
        await self._tasks.__aenter__()
        self._tasks.start("webhook listener", self._run(self._socket))
        self._tasks.start("webhook sweep", self._cut_slow())

    async def stop(self) -> None:
        """Accept nothing more, and end the handshakes in progress."""
        if self._tasks is not None:
            await self._tasks.stop()
            self._tasks = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _run(self, listening: socket.socket) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                # One connection in a turn of the loop: in a flood, those that came before
                # meanwhile get on with their handshakes and requests.
                await asyncio.sleep(0)
                accepted = await self._accept(listening)
                if accepted is None:
                    continue
                if not self.connections.make_room():
                    accepted.close()
                    self._log_full()
                    continue
                self._is_full = False
                handshake = self._shake_hands(accepted)
                self.connections.begin_handshake(tasks.create_task(handshake, name="handshake"))

    async def _cut_slow(self) -> None:
        while True:
            await self._clock.sleep(self._sweep)
            self.connections.cut_overdue()

    async def _accept(self, listening: socket.socket) -> socket.socket | None:
        try:
            accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        except OSError as error:
            if error.errno in _OUT_OF:
                await self._pause(error)
            return None  # else the peer has given up before its turn came
        self._is_short = False
        return accepted

    async def _pause(self, error: OSError) -> None:
        if not self._is_short:
            log.error("Cannot accept connections", err=error)
        self._is_short = True
        await self._clock.sleep(PAUSE)

    def _log_full(self) -> None:
        if not self._is_full:
            log.warn(
                "Closing new connections: all have reviews in flight", count=len(self.connections)
            )
        self._is_full = True

    async def _shake_hands(self, accepted: socket.socket) -> None:
        peer = _name_peer(accepted)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make_connection(self.connections),
                accepted,
                ssl=self._certificate(),
                ssl_handshake_timeout=self._handshake,
                ssl_shutdown_timeout=_GOODBYE_LIMIT.total_seconds(),
            )
        except OSError as error:  # of TLS and of time as well
            log.debug("Connection ended before its handshake", peer=peer, err=error)


def _name_peer(accepted: socket.socket) -> str:
    try:
        return str(accepted.getpeername()[0])
    except OSError:  # it has ended already
        return ""


async def write_pieces(response: web.StreamResponse, data: bytes, end: int) -> None:
    """Write what comes before `end`, after the response has begun. Raises ConnectionError."""
    pieces = memoryview(data)
    for start in range(0, end, PIECE):
        await response.write(pieces[start : min(start + PIECE, end)])
        # The kernel may take megabytes at once, of each of hundreds: others have a turn between.
        await asyncio.sleep(0)


async def send_all(request: web.Request, response: web.StreamResponse) -> None:
    """Send a whole response. Raises ConnectionError."""
    await response.prepare(request)
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= PIECE or request.method == hdrs.METH_HEAD:
        await response.write_eof()
        return
    last = (len(body) - 1) // PIECE * PIECE
    await write_pieces(response, body, last)
    # Not that of `Response`, which would write the body once more.
    await web.StreamResponse.write_eof(response, body[last:])
