"""Connections of the webhook server: floods, readers that take nothing, and no descriptors."""

import asyncio
import resource
import socket
import ssl
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from rollout_operator.aio.clock import LoopClock
from rollout_operator.model.names import ConfigError
from rollout_operator.web.connection import PAUSE, ConnectionLimits, Connections, ReviewConnection
from rollout_operator.web.webhooks import ServerOptions
from tests.web.served import (
    ALLOWED,
    FINE,
    MILLISECOND,
    PATIENCE,
    Line,
    ServedWebhooks,
    body_of,
    post,
    serving,
)

pytestmark = pytest.mark.thorough


async def test_both_families_are_listened_on(webhooks: ServedWebhooks) -> None:
    for host in ("127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])):
        line = await webhooks.connect(host)
        assert (await line.send_request(post(body_of()))).body == ALLOWED


async def test_a_port_in_use_is_named(webhooks: ServedWebhooks) -> None:
    """HTTP-04."""
    other = ServedWebhooks(port=webhooks.server.port)
    with pytest.raises(ConfigError, match=r"^-server-tls\.port: port \d+ is in use$"):
        await other.server.start()
    assert not other.server.is_serving
    await other.server.stop()


async def test_slow_readers_are_cut() -> None:
    """SEC-05: a client that does not take the answers loses the connection."""
    limits = ConnectionLimits(sweep=10 * MILLISECOND)
    options = ServerOptions(write_limit=50 * MILLISECOND, limits=limits)
    async with serving(options=options) as webhooks:
        webhooks.hook.verdict = replace(FINE, warnings=("x" * 256,) * 10)
        plain = socket.create_connection(("127.0.0.1", webhooks.server.port))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        tls: Any = {"ssl": webhooks.client_context, "server_hostname": "localhost"}
        line = Line(*await asyncio.open_connection(sock=plain, limit=1, **tls))
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of read transports
        with pytest.raises((ConnectionError, ssl.SSLError)):  # noqa: PT012 (when, is not known)
            async with asyncio.timeout(PATIENCE):
                while True:
                    line.writer.write(post(body_of()))
                    await line.writer.drain()
                    await asyncio.sleep(0)
        await line.close()


async def test_a_flood_takes_turns_with_requests(webhooks: ServedWebhooks) -> None:
    """SEC-06: one connection is accepted in a turn of the loop, however many there are."""
    good = await webhooks.connect()
    before = webhooks.given
    good.writer.write(post(body_of()))
    silent = [socket.create_connection(("127.0.0.1", webhooks.server.port)) for _ in range(300)]
    assert (await good.read()).body == ALLOWED
    assert webhooks.given - before < 100
    for one in silent:
        one.close()


async def test_all_go_that_must() -> None:
    """SEC-06: also where a handshake succeeded as it was cancelled, and peers let none close."""
    connections, tls = Connections(2), Mock()
    for connection in [ReviewConnection(Mock(), connections) for _ in range(3)]:
        connection.connection_made(tls)
        connection.force_close()
    assert (connections.make_room(), len(connections), tls.abort.call_count) == (True, 1, 2)


class PauseClock(LoopClock):
    """A clock that knows when the listener has paused for the third time."""

    def __init__(self) -> None:
        self.pauses = 0
        self.third = asyncio.Event()

    async def sleep(self, span: timedelta) -> None:
        self.pauses += span == PAUSE
        if self.pauses == 3:
            self.third.set()
        await super().sleep(span)


async def test_running_out_of_descriptors(lines: list[str]) -> None:
    """EMFILE: one log line, no spinning, and the connection is taken up later."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    clock = PauseClock()
    async with serving(clock=clock) as webhooks:
        with socket.socket() as client:
            client.setblocking(False)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
                address = ("127.0.0.1", webhooks.server.port)
                await asyncio.get_running_loop().sock_connect(client, address)
                await asyncio.wait_for(clock.third.wait(), PATIENCE)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (await webhooks.send_request(post(body_of()))).body == ALLOWED
    assert ["Too many open files" in line for line in lines if "Cannot accept" in line] == [True]
