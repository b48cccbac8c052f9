"""Large answers to many slow readers: one body in memory, and all of it in the end."""

import asyncio
import socket
import tracemalloc
from contextlib import ExitStack
from datetime import timedelta

import pytest
from aiohttp import ClientSession, web

from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.connection import PIECE, write_pieces
from rollout_operator.web.middleware import measure
from tests.web.admin_world import CLOSE, listening

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
