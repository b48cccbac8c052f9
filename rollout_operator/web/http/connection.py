"""Connections of our HTTP servers, none of which waits for ever.

aiohttp bounds only the idle time between requests, which is minutes. Here the first whole request
must come within a time limit as well, and on the webhook port each request head that began to come.
`Connections` decides which connection has to go where there are too many. Clients of the admin
server that read slowly are cut in `metrics.measure`.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Final, cast

from aiohttp import StreamReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

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
