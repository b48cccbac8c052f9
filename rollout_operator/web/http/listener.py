"""Accepting TLS connections: one at a time, within limits that hold against any client.

Decides how connections come in: the certificate of the moment, the time for a handshake, what
happens where the process has no file descriptors left. How many there may be, and which has to go,
is decided in `connection`; the answers, in `webhooks`.

Not a runner of aiohttp: that accepts a hundred connections in a turn of the loop, however many
there are, and each costs up to 300 KiB from the start of its handshake. Here one connection is
accepted in a turn, and the oldest idle connection goes where there are too many.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.model.errors import ConfigError
from rollout_operator.telemetry.logs import log
from rollout_operator.web.http.connection import (
    HEAD_LIMIT,
    SILENCE_LIMIT,
    Connections,
    ReviewConnection,
)

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
        peer = _name(accepted)
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


def _name(accepted: socket.socket) -> str:
    try:
        return str(accepted.getpeername()[0])
    except OSError:  # it has ended already
        return ""
