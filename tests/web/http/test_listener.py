"""Connections of the webhook server: certificates, floods, slow peers."""

import asyncio
import resource
import socket
import ssl
from datetime import timedelta

import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.model.names import ConfigError
from rollout_operator.model.outcome import Verdict
from rollout_operator.web.connection import PAUSE, ConnectionLimits
from rollout_operator.web.webhooks import ServerOptions
from tests.web.webhook_world import (
    ALLOWED,
    FINE,
    MILLISECOND,
    PATIENCE,
    Gate,
    Line,
    Setting,
    WebhookWorld,
    body_of,
    contexts,
    ends,
    limited,
    post,
    serving,
)

pytestmark = pytest.mark.thorough


async def test_both_families_are_listened_on(world: WebhookWorld) -> None:
    for host in ("127.0.0.1", *(["::1"] if socket.has_dualstack_ipv6() else [])):
        line = await world.connect(host)
        assert (await line.send_request(post(body_of()))).body == ALLOWED


async def test_a_port_in_use_is_named(world: WebhookWorld) -> None:
    """HTTP-04."""
    other = WebhookWorld(Setting(port=world.server.port))

    with pytest.raises(ConfigError, match=r"^-server-tls\.port: port \d+ is in use$"):
        await other.server.start()
    assert not other.server.is_serving
    await other.server.stop()


async def test_a_new_certificate_is_served_at_once(world: WebhookWorld) -> None:
    """D-30: connections that are open stay, new ones get the new certificate."""
    line = await world.connect()
    assert (await line.send_request(post(body_of()))).body == ALLOWED
    old = world.client_context
    contexts.cache_clear()
    world.server_context, world.client_context = contexts()

    assert (await line.send_request(post(body_of()))).body == ALLOWED
    assert (await world.send_request(post(body_of()))).body == ALLOWED
    world.client_context = old
    with pytest.raises(ssl.SSLCertVerificationError):
        await world.connect()
    assert world.server.is_serving


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="SEC-02 plain HTTP"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="SEC-02 HTTP/2"),
        pytest.param(bytes(range(256)), id="SEC-02 garbage"),
    ],
)
async def test_other_protocols_get_a_clean_close(
    world: WebhookWorld, garbage: bytes, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    line = await world.dial()
    line.writer.write(garbage)

    await line.rest()
    assert caplog.records == []
    assert "peer=::ffff:127.0.0.1 err=" in lines[0], "who it was, and nothing else"
    assert (await world.send_request(post(body_of()))).body == ALLOWED


async def test_a_handshake_has_a_limit() -> None:
    """SEC-06: neither silence nor half a ClientHello lasts."""
    async with serving(limited(handshake=50 * MILLISECOND)) as world:
        silent, half = await world.dial(), await world.dial()
        half.writer.write(b"\x16\x03\x01\x02\x00\x01\x00")

        assert await ends(silent)
        await half.rest()
        assert (await world.send_request(post(body_of()))).body == ALLOWED


async def test_a_connection_without_a_request_is_closed() -> None:
    """SEC-06: idle after the handshake; after a request it may idle for longer."""
    async with serving(limited(idle=500 * MILLISECOND)) as world:
        requested = await world.connect()
        assert (await requested.send_request(post(body_of()))).body == ALLOWED
        assert await ends(await world.connect())
        assert (await requested.send_request(post(body_of()))).body == ALLOWED


@pytest.mark.parametrize("requested_before", [False, True])
async def test_slow_heads_are_cut(requested_before: bool) -> None:
    """SEC-05: a head must be whole in time, however many bytes come in between."""
    async with serving(limited(head=100 * MILLISECOND)) as world:
        line = await world.connect()
        if requested_before:
            assert (await line.send_request(post(body_of()))).body == ALLOWED
        for byte in (b"P", b"O", b"S"):
            line.writer.write(byte)
            await line.writer.drain()

        assert await ends(line)


async def flood(line: Line) -> None:
    """Send and send, until the connection is cut."""
    async with asyncio.timeout(PATIENCE):
        while True:
            line.writer.write(post(body_of()))
            await line.writer.drain()
            await asyncio.sleep(0)


async def test_slow_readers_are_cut() -> None:
    """SEC-05: a client that does not take the answers loses the connection."""
    options = ServerOptions(
        write_limit=50 * MILLISECOND, limits=ConnectionLimits(sweep=10 * MILLISECOND)
    )
    async with serving(Setting(options=options)) as world:
        warning = "x" * 256
        world.hook.verdict = Verdict(is_allowed=True, reason=FINE.reason, warnings=(warning,) * 10)
        plain = socket.create_connection(("127.0.0.1", world.server.port))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        line = Line(
            *await asyncio.open_connection(
                sock=plain, ssl=world.client_context, server_hostname="localhost", limit=1
            )
        )
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of read transports
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await flood(line)
        await line.close()


async def test_requests_ahead_of_answers_are_bounded(world: WebhookWorld) -> None:
    """D-50: a few may follow, a flood ends the connection and the review."""
    gate, line = Gate(), await world.connect()
    await world.hold(line, gate)
    line.writer.write(post(body_of() + b" " * 20_000) * 32)

    assert await ends(line)
    gate.opened.set()
    assert len(world.hook.reviewed) == 1


async def test_a_few_requests_may_follow(world: WebhookWorld) -> None:
    line = await world.connect()
    line.writer.write(post(body_of()) * 3)

    assert [(await line.read()).body for _ in range(3)] == [ALLOWED] * 3


async def test_a_flood_of_silent_connections() -> None:
    """SEC-06: good ones are served, those before as well as those in between."""
    async with serving(limited(connections=16)) as world:
        good = await world.connect()
        assert (await good.send_request(post(body_of()))).body == ALLOWED
        silent = []
        for number in range(600):
            silent.append(await world.dial())
            if number % 100 == 50:
                assert (await world.send_request(post(body_of()))).body == ALLOWED

        assert (await good.send_request(post(body_of()))).body == ALLOWED
        ended = await asyncio.gather(*(ends(line) for line in silent[:500]))
        assert all(ended), "the oldest have gone"


async def test_a_flood_takes_turns_with_requests(world: WebhookWorld) -> None:
    """SEC-06: one connection is accepted in a turn of the loop, however many there are."""
    good = await world.connect()
    before = world.given
    good.writer.write(post(body_of()))
    address = ("127.0.0.1", world.server.port)
    flood = [socket.create_connection(address) for _ in range(300)]

    assert (await good.read()).body == ALLOWED
    assert world.given - before < 100
    for one in flood:
        one.close()


async def test_the_oldest_that_waits_goes_first() -> None:
    """SEC-06: by its last use; one with a review in flight never goes."""
    async with serving(limited(connections=4)) as world:
        used, idle, young = [await world.connect() for _ in range(3)]
        assert (await used.send_request(post(body_of()))).body == ALLOWED
        gate, busy = Gate(), await world.connect()
        await world.hold(busy, gate)
        await world.connect()

        assert await ends(idle)
        await world.connect()
        assert await ends(young)
        await world.connect()
        assert await ends(used)
        gate.opened.set()
        assert (await busy.read()).body == ALLOWED


async def test_where_all_are_busy_the_new_one_is_closed(lines: list[str]) -> None:
    """SEC-06: one line says so, and the next connection is accepted once there is room."""
    async with serving(limited(connections=2)) as world:
        gate = Gate()
        busy = [await world.connect() for _ in range(2)]
        for line in busy:
            await world.hold(line, gate)
        for _ in range(3):
            await ends(await world.dial())
        assert len([line for line in lines if "all have reviews in flight" in line]) == 1
        gate.opened.set()

        assert [(await line.read()).body for line in busy] == [ALLOWED] * 2
        assert (await world.send_request(post(body_of()))).body == ALLOWED


async def test_uploads_in_progress_may_have_to_go() -> None:
    """SEC-05: a slow body is no review in flight."""
    async with serving(limited(connections=3)) as world:
        slow = [await world.connect() for _ in range(3)]
        for line in slow:
            line.writer.write(post(b"{", length=1000))
            await line.writer.drain()

        assert (await world.send_request(post(body_of()))).body == ALLOWED
        assert await ends(slow[0])


async def test_a_request_on_its_way_makes_a_connection_young() -> None:
    """SEC-06: an old connection with a new request goes after those that do nothing."""
    async with serving(limited(connections=3)) as world:
        old, idle, other = [await world.connect() for _ in range(3)]
        body = body_of()
        old.writer.write(post(body[:-1], length=len(body)))
        await old.writer.drain()
        assert (await other.send_request(post(body))).body == ALLOWED
        await world.connect()

        assert await ends(idle)
        assert (await old.send_request(body[-1:])).body == ALLOWED


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
    async with serving(Setting(clock=clock)) as world:
        with socket.socket() as client:
            client.setblocking(False)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
                await asyncio.get_running_loop().sock_connect(
                    client, ("127.0.0.1", world.server.port)
                )
                async with asyncio.timeout(PATIENCE):
                    await clock.third.wait()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (await world.send_request(post(body_of()))).body == ALLOWED

    (line,) = [line for line in lines if "Cannot accept" in line]
    assert "Too many open files" in line
