"""Connections of the admin server: silent clients, slow readers, large answers, addresses."""

import asyncio
import socket
import tracemalloc
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta

import pytest
from aiohttp import ClientSession, web
from aiohttp.typedefs import Handler

from rollout_operator.model.names import ConfigError
from rollout_operator.telemetry.exposition import PIECE as PIECE_OF_METRICS
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.connection import PIECE, end_silence, write_pieces
from rollout_operator.web.middleware import measure
from tests.web.served import CLOSE, ServedAdmin, listening, serving_admin

MILLISECOND = timedelta(milliseconds=1)
READERS = 20
LARGE = 8 << 20
"""More than the kernel takes for a reader."""


def serve(body: bytes, requested: list[str]) -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        requested.append(request.path)
        return web.Response(body=body)

    limited = measure(Metrics(), write_limit=timedelta(seconds=30))
    app = web.Application(middlewares=[limited])
    app.router.add_get("/large", answer)
    return app


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


async def test_a_client_that_sends_no_request_is_cut_and_one_that_did_may_idle() -> None:
    """HTTP-02: it must be whole in time, drop by drop or not; Prometheus keeps its connection."""
    app = web.Application(middlewares=[end_silence])
    async with listening(app, read_limit=50 * MILLISECOND) as port:
        scraper = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            scraper[1].write(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
            await scraper[0].readuntil(b"404: Not Found")
            silent = await asyncio.open_connection("127.0.0.1", port)
            slow = await asyncio.open_connection("127.0.0.1", port)
            slow[1].write(b"GET /x HTTP/1.1\r\nHost: ")
            async with asyncio.timeout(10):
                assert await silent[0].read() == b""
                assert await slow[0].read() == b""
            silent[1].close()
            slow[1].close()
        scraper[1].close()


@pytest.mark.parametrize("size", [1, PIECE, PIECE + 1, 2 * PIECE, 5 * PIECE - 1])
async def test_what_is_sent_in_pieces_arrives_whole(size: int) -> None:
    body = bytes(number % 251 for number in range(size))
    async with listening(serve(body, [])) as port, ClientSession() as client:
        url = f"http://127.0.0.1:{port}/large"
        for _ in range(2):  # on one connection: nothing too much is left on it
            async with client.get(url) as answer:
                assert await answer.read() == body
            async with client.head(url) as head:
                assert (int(head.headers["Content-Length"]), await head.read()) == (size, b"")


async def test_others_have_a_turn_between_two_pieces() -> None:
    """D-51: five hundred callers at once, of each of which the kernel takes megabytes."""
    written, seen = 0, set[int]()

    class Taken(web.StreamResponse):
        async def write(self, data: bytes | bytearray | memoryview) -> None:
            nonlocal written
            written += len(data)

    async def read() -> None:
        while True:
            seen.add(written)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(read())
        await write_pieces(Taken(), bytes(5 * PIECE), 5 * PIECE)
        other.cancel()
    assert seen >= {PIECE, 2 * PIECE, 3 * PIECE, 4 * PIECE}


async def test_readers_that_take_nothing_share_one_body() -> None:
    """D-50: not a copy of what is left for each, which filled the memory with a page of 22 MiB."""
    requested: list[str] = []
    with ExitStack() as stack:
        async with listening(serve(bytes(LARGE), requested)) as port:
            tracemalloc.start()
            stack.callback(tracemalloc.stop)
            for _ in range(READERS):
                reader = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                reader.sendall(f"GET /large HTTP/1.1\r\n{CLOSE}".encode())
            async with asyncio.timeout(10):
                while len(requested) < READERS:  # noqa: ASYNC110 (no event)
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            _, peak = tracemalloc.get_traced_memory()
            stack.close()
    assert peak < READERS * 8 * PIECE


async def test_requests_at_work_are_counted() -> None:
    """METR-13; and a handler that breaks is counted as 500, as the client sees it."""
    metrics = Metrics()
    requested, go = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        requested.set()
        await go.wait()
        raise ValueError("broken")

    def render() -> str:
        return b"".join(metrics.render()).decode()

    app = web.Application(middlewares=[measure(metrics, write_limit=timedelta(seconds=5))])
    app.router.add_get("/slow", answer)
    inflight = 'rollout_operator_inflight_requests{method="GET",route="slow"}'
    async with listening(app) as port, ClientSession() as client:
        waiting = asyncio.create_task(client.get(f"http://127.0.0.1:{port}/slow").__aenter__())
        await requested.wait()
        assert f"{inflight} 1\n" in render()
        go.set()
        assert (await waiting).status == 500
    assert f"{inflight} 0\n" in render()
    counted = 'seconds_count{method="GET",route="slow",status_code="500",ws="false"} 1'
    assert counted in render()


async def test_a_scrape_leaves_turns_to_others(admin: ServedAdmin) -> None:
    """D-51: what is read between two turns is bounded, and what others remove there is no error."""
    turn = 0
    reads: Counter[int] = Counter()

    def read() -> float:
        reads[turn] += 1
        return 1

    async def take_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            admin.metrics.forget_group(f"group-{turn}")
            await asyncio.sleep(0)

    for number in range(3 * PIECE_OF_METRICS):
        admin.metrics.watch_age.labels(f"kind-{number}").set_function(read)
    for number in range(100):
        admin.metrics.begin_group(f"group-{number}")
    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(take_turns())
        status, text = await admin.get("/metrics")
        other.cancel()
    assert status == 200
    assert 'watch_age_seconds{kind="kind-1499"} 1\n' in text
    assert sum(reads.values()) == 3 * PIECE_OF_METRICS
    # One sample more, since only the sample after a piece shows that it is full.
    assert max(reads.values()) <= PIECE_OF_METRICS + 1

    reads.clear()
    pages = await asyncio.gather(*(admin.get("/metrics") for _ in range(30)))
    assert {status for status, _ in pages} == {200}
    assert sum(reads.values()) < 30 * 3 * PIECE_OF_METRICS, "parallel scrapes are one"


async def test_another_port_and_both_address_families_are_served(admin: ServedAdmin) -> None:
    """MAZ-63, MT-70, DEP-13: until the server stops, which ends idle connections."""
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=r"^METRICS_PORT: port \d+ is in use$"):
            await admin.server.listen_also(port, "METRICS_PORT")
    await admin.server.listen_also(port, "METRICS_PORT")
    urls = [f"http://127.0.0.1:{port}/metrics"]
    urls += [f"http://[::1]:{admin.server.port}/livez"] * socket.has_dualstack_ipv6()
    for url in urls:
        async with admin.client.get(url) as answer:
            assert answer.status == 200


async def test_stop_frees_the_port_and_closes_idle_connections() -> None:
    async with serving_admin() as admin:
        port = admin.server.port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await admin.server.stop()
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
