"""Accepting TLS connections: one at a time, within limits that hold against any client.

Decides how connections come in: the certificate of the moment, the time for a handshake, what
happens where the process has no file descriptors left. How many there may be, and which has to go,
is decided in `connection`; the answers, in `webhooks`.

Not a runner of aiohttp: that accepts a hundred connections in a turn of the loop, however many
there are, and each costs up to 300 KiB from the start of its handshake. Here one connection is
accepted in a turn, and the oldest idle connection goes where there are too many.

Connections of our HTTP servers, none of which waits for ever.

aiohttp bounds only the idle time between requests, which is minutes. Here the first whole request
must come within a time limit as well, and on the webhook port each request head that began to come.
`Connections` decides which connection has to go where there are too many. Clients of the admin
server that read slowly are cut in `metrics.measure`.

Send what may be large in pieces, each only when the last piece is on its way.

One body is for many clients. Handed over whole, the part that a slow client has not taken yet is a
copy of its own, with the headers before it: five hundred of them held gigabytes of one status page.
In pieces each client holds two at most, and all share the body itself.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from typing import Final, cast

import msgspec
from aiohttp import StreamReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.model.names import ConfigError
from rollout_operator.telemetry.logs import log

# Time-outs that users know: idle connections of Prometheus and of the API server stay open.
IDLE_LIMIT: Final = timedelta(minutes=3)
READ_LIMIT: Final = timedelta(seconds=10)
WRITE_LIMIT: Final = timedelta(seconds=10)
# A request line or a header longer than this is refused with 400.
LINE_LIMIT: Final = 8190
# After an answer that did not read the body, the rest of the body is read for this long.
LINGER_LIMIT: Final = timedelta(seconds=1)
# In place of aiohttp's header, which names versions.
SERVER: Final = "rollout-operator"
# Twice as much of a body is held while no review reads it.
BUFFER: Final = 1 << 15
# For connections to the webhook port that never sent a request. Those that did may idle as long as
# those of the admin server: the API server closes them itself after 90 s, so that we never close
# under a request on its way.
SILENCE_LIMIT: Final = timedelta(seconds=60)
HEAD_LIMIT: Final = timedelta(seconds=10)
# Requests sent before the answer to the first has come: API servers never do, and each is held.
AHEAD_LIMIT: Final = 1 << 16
# TLS records that wait for being read; a record has 16 KiB.
RECORDS_LIMIT: Final = 1 << 15


class Connection(web.RequestHandler):
    """One client's connection; it is cut where no request has come within `read_limit`."""

    __slots__ = ("_read_limit", "_silence")

    def __init__(self, server: web.Server, *, read_limit: timedelta = READ_LIMIT) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            logger=_logger,
            access_log=None,  # type: ignore[arg-type]  # None turns it off, as `web.run_app` says
            keepalive_timeout=IDLE_LIMIT.total_seconds(),
            lingering_time=LINGER_LIMIT.total_seconds(),
            max_line_size=LINE_LIMIT,
            max_field_size=LINE_LIMIT,
            auto_decompress=False,
            read_bufsize=BUFFER,
        )
        self._read_limit = read_limit
        self._silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(self._read_limit.total_seconds(), self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.end_silence()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP, without aiohttp's text: that quotes what was sent, bodies too."""
        brief = "malformed request\n" if isinstance(exc, HttpProcessingError) else message
        response = super().handle_error(request, status, exc, brief)
        response.headers[hdrs.SERVER] = SERVER
        return response

    def end_silence(self) -> None:
        """Cut it no longer for its silence: a whole request head has come."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


@web.middleware
async def end_silence(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Record on the connection that it is not silent; must come before every other middleware."""
    if isinstance(request.protocol, Connection):
        request.protocol.end_silence()
    return await handler(request)


class _TlsTransport(asyncio.Transport):
    """What transports of TLS connections have beyond others, in asyncio and in uvloop."""

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many encrypted bytes may wait until nothing more is received."""


class ReviewConnection(Connection):
    """A connection to the webhook port after its handshake; one of `connections`."""

    __slots__ = (
        "_ahead",
        "_client_host",
        "_client_name",
        "_connections",
        "_content",
        "_due",
        "_head_limit",
        "_tls",
    )

    def __init__(
        self,
        server: web.Server,
        connections: "Connections",
        *,
        idle_limit: timedelta = SILENCE_LIMIT,
        head_limit: timedelta = HEAD_LIMIT,
        client_name: str = "",
        client_host: str = "",
    ) -> None:
        """Make a connection.

        With `client_name` or `client_host` only for clients whose certificate has that common name,
        or that DNS name.
        """
        super().__init__(server, read_limit=idle_limit)
        self._client_host = client_host
        self._client_name = client_name
        self._connections = connections
        self._head_limit = head_limit.total_seconds()
        # When it is cut unless something happens, on the loop's time. Not a timer of its own: with
        # two of them for each request, a tenth of a review's time went into timers.
        self._due: float | None = None
        self._tls: asyncio.Transport | None = None
        self._content: StreamReader | None = None
        self._ahead = 0

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
        tls.set_read_buffer_limits(high=RECORDS_LIMIT)
        self._tls = tls
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
        if self._content is None:
            # Not anew for each byte: a head that comes drop by drop has no more time than others.
            if self._due is None and data:
                self._due = asyncio.get_running_loop().time() + self._head_limit
        elif self._content.is_eof():
            self._ahead += len(data)
            if self._ahead > AHEAD_LIMIT:
                self.cut()
                return
        super().data_received(data)

    def begin(self, content: StreamReader) -> None:
        """Begin with a request whose head has come, and whose body comes in `content`."""
        self._due = None
        self.end_silence()
        self._content = content
        self._ahead = 0
        self._connections.move_last(self)

    def begin_review(self) -> None:
        """Begin with a review whose body has come: its answer matters to a cluster."""
        self._connections.begin_review(self)

    def begin_answer(self, limit: timedelta) -> None:
        """Begin with an answer, which must have been taken within `limit`."""
        self._due = asyncio.get_running_loop().time() + limit.total_seconds()

    def end(self) -> None:
        """End a request, whose answer has gone."""
        self._due = None
        self._content = None
        self._connections.end_review(self)

    def cut(self) -> None:
        """End the connection at once, whatever is on its way."""
        if self._tls is not None:
            self._tls.abort()

    def is_overdue(self, now: float) -> bool:
        """Return whether a request head or the taking of an answer lasts for too long."""
        return self._due is not None and self._due < now


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

        Of those in a handshake and those that wait, the larger crowd loses its oldest; a connection
        with a review in flight stays. Were handshakes always to go first, silent connections that
        have shaken hands would keep every good one from getting through its own.
        """
        if len(self) < self._most:
            return True
        if len(self._handshakes) > len(self._waiting):
            task = next(iter(self._handshakes))
            del self._handshakes[task]
            task.cancel()
            return True
        for connection in self._waiting:
            del self._waiting[connection]
            connection.cut()
            return True
        return False

    def begin_handshake(self, task: asyncio.Task[None]) -> None:
        """Add a connection whose handshake `task` makes."""
        self._handshakes[task] = None
        task.add_done_callback(lambda task: self._handshakes.pop(task, None))

    def add(self, connection: ReviewConnection) -> None:
        """Add a connection after its handshake."""
        self._waiting[connection] = None
        self._empty.clear()

    def remove(self, connection: ReviewConnection) -> None:
        """Remove a connection that has ended."""
        self._waiting.pop(connection, None)
        self._busy.pop(connection, None)
        if not self._waiting and not self._busy:
            self._empty.set()

    def move_last(self, connection: ReviewConnection) -> None:
        """Have a connection that is in use go after all others that wait."""
        if connection in self._waiting:
            del self._waiting[connection]
            self._waiting[connection] = None

    def begin_review(self, connection: ReviewConnection) -> None:
        """Keep a connection while its review is in flight."""
        if connection in self._waiting:
            del self._waiting[connection]
            self._busy[connection] = None

    def end_review(self, connection: ReviewConnection) -> None:
        """Have a connection wait again, after all others."""
        if connection in self._busy:
            del self._busy[connection]
            self._waiting[connection] = None
        else:
            self.move_last(connection)

    async def leave(self, limit: timedelta) -> None:
        """Close all that wait for a request, let the others finish within `limit`, cut the rest."""
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
        """Cut those that are slow with a request head or with taking an answer."""
        now = asyncio.get_running_loop().time()
        for connection in [*self._waiting, *self._busy]:
            if connection.is_overdue(now):
                connection.cut()


def _list_names(tls: asyncio.Transport) -> list[str]:
    """Return the common names in the certificate that the client has shown, which TLS verified."""
    certificate = tls.get_extra_info("peercert") or {}
    return [
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]


def _list_hosts(tls: asyncio.Transport) -> list[str]:
    """Return the DNS names in that certificate."""
    certificate = tls.get_extra_info("peercert") or {}
    return [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]


def _name(tls: asyncio.Transport) -> str:
    address = tls.get_extra_info("peername")
    return str(address[0]) if address else ""


def _is_ours(record: logging.LogRecord) -> bool:
    # What strangers send is no error of ours: without this each garbage request would write a
    # stack trace. They get their 400.
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_logger: Final = logging.getLogger(__name__)
_logger.addFilter(_is_ours)


FLAG: Final = "-server-tls.port"
_HIGHEST_PORT: Final = 65535
# An API server keeps a few; each costs up to 300 KiB, on the loop that uses most.
MAX_CONNECTIONS: Final = 256
HANDSHAKE_LIMIT: Final = timedelta(seconds=5)
# How long a peer may take to confirm the end of a connection.
GOODBYE_LIMIT: Final = timedelta(seconds=1)
# Connections that wait in the kernel: a flood must not keep good connections from being queued.
BACKLOG: Final = 1024
# As much may lie unread in the kernel for each connection; inherited by accepted sockets.
RECEIVE_BUFFER: Final = 1 << 15
# How often slow connections are looked for.
SWEEP: Final = timedelta(seconds=1)
# After an accept that failed for want of file descriptors or memory.
PAUSE: Final = timedelta(milliseconds=100)
_OUT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def bind(port: int, *, flag: str, host: str = "") -> socket.socket:
    """Return a socket on `host`, or on all addresses, of IPv4 alone where IPv6 is off.

    Port 0 takes a free one.

    Raises ConfigError that names `flag`, e.g. `-server.port`.
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
    """Bounds of connections, which tests shorten."""

    connections: int = MAX_CONNECTIONS
    handshake: timedelta = HANDSHAKE_LIMIT
    idle: timedelta = SILENCE_LIMIT
    head: timedelta = HEAD_LIMIT
    sweep: timedelta = SWEEP


class ConnectionListener:
    """A listening port whose connections speak through `make_connection`."""

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
        """Return the port that is listened on. Only between `start` and `stop`."""
        assert self._socket is not None, "start first"
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def is_accepting(self) -> bool:
        """Return whether new connections are accepted."""
        return self._tasks is not None and not self._tasks.list_dead()

    async def start(self, port: int, *, flag: str = FLAG) -> None:
        """Listen; when this returns, connections are accepted. Raises ConfigError."""
        self._socket = bind(port, flag=flag)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.setblocking(False)
        self._socket.listen(BACKLOG)
        self._tasks = TaskStack()
        await self._tasks.__aenter__()
        self._tasks.start("webhook listener", self._run(self._socket))
        self._tasks.start("webhook sweep", self._cut_slow())

    async def stop(self) -> None:
        """Accept nothing more, and end the handshakes under way."""
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
                ssl_shutdown_timeout=GOODBYE_LIMIT.total_seconds(),
            )
        except OSError as error:  # of TLS and of time as well
            log.debug("Connection ended before its handshake", peer=peer, err=error)


def _name_peer(accepted: socket.socket) -> str:
    try:
        return str(accepted.getpeername()[0])
    except OSError:  # it has ended already
        return ""


# Once aiohttp holds more than this, it waits for the transport.
PIECE: Final = 1 << 16


async def write_pieces(response: web.StreamResponse, data: bytes, end: int) -> None:
    """Write what comes before `end` to a response that has begun. Raises ConnectionError."""
    pieces = memoryview(data)
    for start in range(0, end, PIECE):
        await response.write(pieces[start : min(start + PIECE, end)])
        # The kernel may take megabytes at once, of each of hundreds: others have a turn between.
        await asyncio.sleep(0)


async def send_all(request: web.Request, response: web.StreamResponse) -> None:
    """Send a whole response; when this returns all of it is on its way. Raises ConnectionError."""
    await response.prepare(request)
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= PIECE or request.method == hdrs.METH_HEAD:
        await response.write_eof()
        return
    last = (len(body) - 1) // PIECE * PIECE
    await write_pieces(response, body, last)
    # Not that of `Response`, which would write the body once more.
    await web.StreamResponse.write_eof(response, body[last:])
