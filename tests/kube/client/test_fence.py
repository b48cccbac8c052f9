"""Writes go by the fence of who holds the Lease (SI-22): read last, and only for so long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rollout_operator.model.errors import NotElected, Unreachable
from tests.kube.client_bench import DELETE, FETCH, POD, WRITES, Bench, Use, open_bench
from tests.kube.fake_api import reply

# What a connection may take else is 5 s.
SOON = timedelta(milliseconds=100)
LIMIT = timedelta(seconds=3)


@pytest.mark.parametrize("use", WRITES, ids=str)
async def test_si22_what_the_fence_keeps_is_not_sent(bench: Bench, use: Use) -> None:
    """SI-22: reads pass it."""

    def keep(call: str) -> timedelta | None:
        raise NotElected(f"cannot {call}", call=call)

    bench.server.on("GET", POD, reply({}))
    with pytest.raises(NotElected):
        await use.run(bench.client(fence=keep))
    await FETCH.run(bench.client(fence=keep))
    assert [request.method for request in bench.server.requests] == ["GET"]


@pytest.mark.parametrize("left", [SOON, timedelta(0), -SOON], ids=str)
async def test_si22_a_write_waits_no_longer_for_a_connection_than_it_may_be_sent(
    bench: Bench, left: timedelta
) -> None:
    """SI-22: another process may act by the time an API server that hangs takes it."""
    async with silence() as url, open_bench(bench.server, url) as slow:
        async with asyncio.timeout(LIMIT.total_seconds()):
            with pytest.raises(Unreachable):
                await DELETE.run(slow.client(fence=lambda call: left))


@asynccontextmanager
async def silence() -> AsyncIterator[str]:
    """Take connections and say nothing, so that no handshake comes to its end; yield the URL."""
    closing = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closing.wait()
        writer.transport.abort()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        closing.set()
