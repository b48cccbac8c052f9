"""The stream of news over a real socket: what comes, to how many, and how it ends."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from aiohttp import web

from rollout_operator.model.description import Phase
from rollout_operator.web import admin
from rollout_operator.web.admin import EventStreams
from rollout_operator.web.cards import Fragment
from tests.virtual_time import in_virtual_time
from tests.web.served import listening, showing
from tests.web.status.descriptions import describe, group, operator
from tests.web.status.streams import BROWSER, LIMIT_S, following


async def test_a_change_arrives_and_what_stays_does_not() -> None:
    async with showing() as shown, following(shown) as stream:
        shown.now = describe(group("a"), group("b"))
        first = await stream.next_event()
        while "g-b" not in first.order:
            first = await stream.next_event()
        shown.now = describe(group("a"), group("b", headline="zone-b is <whole>"))
        news = await stream.next_event()

    assert "Content-Type: text/event-stream\r\n" in stream.head
    assert "Cache-Control: no-store\r\n" in stream.head
    assert news.order == ["summary", "g-a", "g-b"]
    assert [*news.changed] == ["g-b"]
    assert "zone-b is &lt;whole&gt;" in news.changed["g-b"]


async def test_all_clients_share_one_rendering() -> None:
    async with showing() as shown, AsyncExitStack() as stack:
        shown.now = describe(group())
        begun = asyncio.get_running_loop().time()
        streams = [await stack.enter_async_context(following(shown)) for _ in range(20)]
        news = await asyncio.gather(*(stream.next_event() for stream in streams))
        took = asyncio.get_running_loop().time() - begun

    assert all(one == news[0] for one in news)
    assert shown.requested <= 2 + took, "once a second"


async def test_a_client_too_many_is_turned_away_and_the_page_still_works() -> None:
    async with showing() as shown, AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(following(shown)) for _ in range(admin.MOST_CLIENTS)
        ]
        async with shown.client.get(shown.url("/status/events")) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
        assert (await shown.get("/status", **BROWSER))[0] == 200
        streams[7].writer.close()
        async with asyncio.timeout(LIMIT_S):
            url = shown.url("/status/events")
            while (await shown.client.head(url)).status == 503:  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.05)


async def test_streams_end_when_the_server_stops() -> None:
    async with showing() as shown, following(shown) as stream:
        await stream.next_event()
        async with asyncio.timeout(LIMIT_S):
            await shown.server.stop()
        await stream.wait_end()
        await shown.server.start()


class Slow:
    """Streams on a server of their own, with large news and little patience."""

    def __init__(self) -> None:
        self.number = 0
        self.begun = asyncio.Event()
        self.streams = EventStreams(self.get, write_limit=timedelta(seconds=0.3))

    async def get(self) -> Fragment:
        self.number += 1
        self.begun.set()
        return Fragment(self.number, {"summary": f"{self.number % 10}" * 16_000_000})


async def test_a_slow_client_is_cut_and_holds_no_place() -> None:
    """It is sent nothing new while the last has not gone, and no more memory is used for it."""
    slow = Slow()
    app = web.Application()
    app.router.add_get("/events", slow.streams.answer)
    async with listening(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
        writer.write(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(LIMIT_S):
            await slow.begun.wait()
            while slow.streams.clients:  # noqa: ASYNC110 (it has no event for it)
                await asyncio.sleep(0.01)
        writer.close()
        slow.streams.close()

    assert slow.number <= 5


class Stuck(asyncio.WriteTransport):
    """A transport from which nothing goes."""

    def get_write_buffer_size(self) -> int:
        return 1


@in_virtual_time
async def test_a_reader_that_takes_nothing_is_waited_for_and_then_cut() -> None:
    client = admin._Client(web.StreamResponse(), Stuck(), timedelta(seconds=10))
    await asyncio.sleep(9)
    assert client.is_behind()
    await asyncio.sleep(2)
    with pytest.raises(TimeoutError):
        client.is_behind()


@pytest.mark.parametrize("interval", [1.0, 2.5])
async def test_each_place_has_its_own_turn_in_the_interval(interval: float) -> None:
    waits = [admin._measure_wait(one, interval) for one in range(admin.MOST_CLIENTS)]

    assert all(interval / 2 < wait <= interval * 1.5 for wait in waits)
    assert len({round(wait % interval, 4) for wait in waits}) > 200


@pytest.mark.parametrize(("clients", "interval"), [(1, 1.0), (50, 1.0), (200, 4.0)])
async def test_more_clients_have_their_turn_more_seldom(clients: int, interval: float) -> None:
    async def get() -> Fragment:
        raise AssertionError("no client is sent anything here")

    streams = EventStreams(get)
    del streams._free[:clients]
    assert streams._choose_interval() == interval


async def test_a_stream_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "HEARTBEAT", timedelta(seconds=1))
    async with showing() as shown, following(shown) as stream:
        shown.now = describe(group(phase=Phase.HELD), operator=operator())
        async with asyncio.timeout(LIMIT_S):
            while await stream.reader.readline() != b"event: alive\n":
                pass
