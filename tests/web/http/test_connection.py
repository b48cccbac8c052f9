"""Connections: clients that are slow, silent or speak garbage."""

import asyncio
import socket
from datetime import timedelta

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.connection import end_silence
from rollout_operator.web.middleware import measure
from tests.web.admin_world import CLOSE, World, listening

MILLISECOND = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(32 << 20, id="larger than all buffers"),
        pytest.param(60_000, id="small enough to be kept in memory for a slow reader"),
    ],
)
async def test_a_client_that_does_not_read_is_cut(size: int) -> None:
    """D-50: the answer is not read, the connection ends, and nothing of it is held."""
    gave_up = asyncio.Event()

    @web.middleware
    async def report_end(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        gave_up.set()
        return response

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        # The smallest that the kernel gives, so that it does not take all at once.
        own: socket.socket = request.transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        return web.Response(body=b"x" * size)

    limited = measure(Metrics(), write_limit=50 * MILLISECOND)
    app = web.Application(middlewares=[report_end, limited])
    app.router.add_get("/large", answer)
    async with listening(app) as port:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, f"GET /large HTTP/1.1\r\n{CLOSE}".encode())
            async with asyncio.timeout(10):
                await gave_up.wait()
            assert await read_all(client) < size


async def test_a_client_that_sends_no_request_is_cut() -> None:
    """HTTP-02: a whole request must come within the read time-out, drop by drop or not."""
    app = web.Application(middlewares=[end_silence])
    async with listening(app, read_limit=50 * MILLISECOND) as port:
        silent = await asyncio.open_connection("127.0.0.1", port)
        slow = await asyncio.open_connection("127.0.0.1", port)
        slow[1].write(b"GET /x HTTP/1.1\r\nHost: ")
        async with asyncio.timeout(10):
            assert await silent[0].read() == b""
            assert await slow[0].read() == b""
        for _, writer in (silent, slow):
            writer.close()


async def test_a_connection_with_a_request_may_idle() -> None:
    """HTTP-02: Prometheus keeps its connection between scrapes."""
    app = web.Application(middlewares=[end_silence])
    async with listening(app, read_limit=50 * MILLISECOND) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"404: Not Found")
            other, closing = await asyncio.open_connection("127.0.0.1", port)
            await other.read()  # the read time-out of a newer connection has passed
            closing.close()
        writer.close()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01", id="TLS on the plain port"),
        pytest.param(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n", id="endless request line"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n", id="endless header"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n", id="many headers"),
        pytest.param(b"GET / HTTP/9.9.9\r\n\r\n", id="no version of HTTP"),
        pytest.param(b"GET / HTTP/1.1\r\n: x\r\n\r\n", id="a header without name"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", id="length below zero"),
        pytest.param(
            b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            id="both length and chunks",
        ),
    ],
)
async def test_garbage_gets_400_and_no_stack_trace(
    admin: World, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await admin.send(raw)

    assert answer.startswith(b"HTTP/1.0 400 ")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert await admin.get("/livez") == (200, "alive\n")


@pytest.mark.parametrize("path", [b"/livez", b"/none"])
@pytest.mark.parametrize("wanted", [b"x", b"\xc3\xa9", b"\xff", b"100-continue\x80"])
async def test_an_unknown_expectation(
    admin: World, path: bytes, wanted: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"GET %b HTTP/1.1\r\nExpect: %b\r\n%b" % (path, wanted, CLOSE.encode())
    answer = await admin.send(head)

    assert answer.startswith(b"HTTP/1.1 417 ")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_body_is_not_waited_for_long(admin: World) -> None:
    answer = await admin.send(
        b"POST /ready HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nonly a bit"
    )

    assert answer.startswith(b"HTTP/1.1 405 ")


async def read_all(client: socket.socket) -> int:
    """Return how many bytes come until the connection ends, in order or not."""
    loop = asyncio.get_running_loop()
    size = 0
    try:
        while part := await loop.sock_recv(client, 1 << 20):
            size += len(part)
    except ConnectionResetError:
        pass
    return size
