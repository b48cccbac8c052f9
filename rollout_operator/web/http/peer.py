"""One connection of an asker of reviews: when it is given up, and what it is in the middle of.

Decides that a request head which began to come must be whole soon, and tells `Peers` whether the
connection waits or has a review in flight. Which one must go where there are too many is decided
by `Peers`.
"""

import asyncio
from datetime import timedelta
from typing import Final, cast

from aiohttp import StreamReader, web

from rollout_operator.telemetry.logs import log
from rollout_operator.web.http.connection import Connection

# For connections that never asked. Those that did may idle as long as those of the admin server:
# the API server closes them itself after 90 s, so that we never close under a request on its way.
IDLE_LIMIT: Final = timedelta(seconds=60)
HEAD_LIMIT: Final = timedelta(seconds=10)
# Requests sent before the answer to the first has come: API servers never do, and each is held.
AHEAD_LIMIT: Final = 1 << 16
# TLS records that wait for being read; a record has 16 KiB.
RECORDS_LIMIT: Final = 1 << 15


class _TlsTransport(asyncio.Transport):
    """What the transports of TLS connections know, of asyncio and of uvloop, beyond others."""

    def set_read_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many encrypted bytes may wait until nothing more is received."""


class Peer(Connection):
    """A connection after its handshake. `peers` must outlive it."""

    __slots__ = (
        "_ahead",
        "_client_name",
        "_content",
        "_due",
        "_head_limit",
        "_line",
        "_peers",
    )

    def __init__(
        self,
        server: web.Server,
        peers: "Peers",
        *,
        idle_limit: timedelta = IDLE_LIMIT,
        head_limit: timedelta = HEAD_LIMIT,
        client_name: str = "",
    ) -> None:
        """Make a connection; with `client_name` only for clients whose certificate has it."""
        super().__init__(server, read_limit=idle_limit)
        self._client_name = client_name
        self._peers = peers
        self._head_limit = head_limit.total_seconds()
        # When it is cut unless something happens, on the loop's time. Not a timer of its own: with
        # two of them for each request, a tenth of a review's time went into timers.
        self._due: float | None = None
        self._line: asyncio.Transport | None = None
        self._content: StreamReader | None = None
        self._ahead = 0

    @property
    def is_asking(self) -> bool:
        """Tell whether a request head has come and its answer has not gone."""
        return self._content is not None

    @property
    def is_leaving(self) -> bool:
        """Tell whether the answer must be the last on this connection."""
        return self._peers.is_leaving

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        line = cast(_TlsTransport, transport)
        # Sending waits until all is on its way: no answer is held for a slow reader. Not high=0,
        # with TLS that would pause on an empty buffer, for ever.
        line.set_write_buffer_limits(high=1, low=0)
        line.set_read_buffer_limits(high=RECORDS_LIMIT)
        self._line = line
        super().connection_made(line)
        self._peers.welcome(self)
        if self._client_name and self._client_name not in _list_names(line):
            log.info("Closing connection of a client of another name", peer=_peer(line))
            self.cut()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._peers.forget(self)
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
        """Note that a whole request head has come, whose body comes in `content`."""
        self._due = None
        self.note_request()
        self._content = content
        self._ahead = 0
        self._peers.refresh(self)

    def begin_review(self) -> None:
        """Note that the body has come: from now on the answer matters to a cluster."""
        self._peers.occupy(self)

    def begin_answer(self, limit: timedelta) -> None:
        """Note that the answer is on its way, and must have been taken within `limit`."""
        self._due = asyncio.get_running_loop().time() + limit.total_seconds()

    def end(self) -> None:
        """Note that the answer has gone."""
        self._due = None
        self._content = None
        self._peers.release(self)

    def cut(self) -> None:
        """End the connection at once, whatever is on its way."""
        if self._line is not None:
            self._line.abort()

    def is_overdue(self, now: float) -> bool:
        """Tell whether a request head or the taking of an answer lasts for too long."""
        return self._due is not None and self._due < now


def _list_names(line: asyncio.Transport) -> list[str]:
    """Return the common names in the certificate that the client has shown, which TLS verified."""
    certificate = line.get_extra_info("peercert") or {}
    return [
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    ]


def _peer(line: asyncio.Transport) -> str:
    address = line.get_extra_info("peername")
    return str(address[0]) if address else ""


class Peers:
    """All connections there are, at most `most`, in the order in which they have to go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._greeting: dict[asyncio.Task[None], None] = {}
        # Oldest first, by the time of connecting, of the last request head or of the last answer.
        self._waiting: dict[Peer, None] = {}
        self._busy: dict[Peer, None] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self.is_leaving = False

    def __len__(self) -> int:
        return len(self._greeting) + len(self._waiting) + len(self._busy)

    def make_room(self) -> bool:
        """Make room for one more; tell whether there is.

        Of those in a handshake and those that wait, the larger crowd loses its oldest; one with a
        review in flight stays. Were handshakes to go first always, silent connections that have
        shaken hands would keep every good one from getting through its own.
        """
        if len(self) < self._most:
            return True
        if len(self._greeting) > len(self._waiting):
            task = next(iter(self._greeting))
            del self._greeting[task]
            task.cancel()
            return True
        for peer in self._waiting:
            del self._waiting[peer]
            peer.cut()
            return True
        return False

    def greet(self, task: asyncio.Task[None]) -> None:
        """Take note of a connection whose handshake `task` makes."""
        self._greeting[task] = None
        task.add_done_callback(self._end_greeting)

    def welcome(self, peer: Peer) -> None:
        """Take note of a connection after its handshake."""
        self._waiting[peer] = None
        self._empty.clear()

    def forget(self, peer: Peer) -> None:
        """Take note that a connection has ended."""
        self._waiting.pop(peer, None)
        self._busy.pop(peer, None)
        if not self._waiting and not self._busy:
            self._empty.set()

    def refresh(self, peer: Peer) -> None:
        """Take note that a connection is in use."""
        if peer in self._waiting:
            del self._waiting[peer]
            self._waiting[peer] = None

    def occupy(self, peer: Peer) -> None:
        """Take note that a review is in flight."""
        if peer in self._waiting:
            del self._waiting[peer]
            self._busy[peer] = None

    def release(self, peer: Peer) -> None:
        """Take note that a connection waits again."""
        if peer in self._busy:
            del self._busy[peer]
            self._waiting[peer] = None
        else:
            self.refresh(peer)

    async def leave(self, limit: timedelta) -> None:
        """Close all that wait for a request, let the others finish within `limit`, cut the rest."""
        self.is_leaving = True
        for peer in list(self._waiting):
            if not peer.is_asking:
                peer.force_close()
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self._empty.wait()
        except TimeoutError:
            for peer in [*self._waiting, *self._busy]:
                peer.cut()
            await self._empty.wait()

    def cut_overdue(self) -> None:
        """Cut those that are slow with a request head or with taking an answer."""
        now = asyncio.get_running_loop().time()
        for peer in [*self._waiting, *self._busy]:
            if peer.is_overdue(now):
                peer.cut()

    def _end_greeting(self, task: asyncio.Task[None]) -> None:
        self._greeting.pop(task, None)
