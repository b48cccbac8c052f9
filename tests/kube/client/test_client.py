"""What the client sends to an HTTP server and what it makes of the answers, failures apart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from aiohttp import web

from rollout_operator import __version__
from rollout_operator.kube.api import PODS, Timeouts
from rollout_operator.model.names import NotFound, Unreachable
from tests.kube.client_bench import (
    DELETE,
    FETCH,
    OBJECT_WRITES,
    POD,
    POD_LIST,
    READS,
    SET_STATUS,
    SHORT,
    WRITES,
    Bench,
    event,
    pods,
    read_watch,
)
from tests.kube.fake_api import Answer, cut, refuse, reply, stream


async def test_fetch_returns_the_object_as_it_came(bench: Bench) -> None:
    body = '{"kind": "Pod",  "metadata": {"name": "zürich"}}'.encode()
    bench.server.on("GET", POD, reply(body))
    assert await bench.client().fetch(PODS, "prod", "a-0") == body
    assert bench.server.requests[0].query == {}


async def test_rate_07_every_request_names_its_user_agent(bench: Bench) -> None:
    bench.server.on("GET", POD, reply({}))
    bench.server.on("GET", POD_LIST, reply(pods(1)), stream([]))
    bench.server.on("DELETE", POD, reply({}))
    bench.server.on("PUT", SET_STATUS, reply({}))
    for use in OBJECT_WRITES:
        bench.server.on(use.method, use.path, reply({}))
    for use in (*READS, *WRITES):
        await use.run(bench.client())
    assert len(bench.server.requests) == 9
    for request in bench.server.requests:
        assert request.headers["x-cluster"] == "ops"
        assert request.headers["user-agent"] == f"rollout-operator/{__version__}"
        assert request.headers["accept"] == "application/json"
        assert request.headers["accept-encoding"] == "identity"


async def test_pages_carry_items_version_and_token(bench: Bench) -> None:
    bench.server.on("GET", POD_LIST, reply(pods(2, "100", "next+/=")), reply(pods(1, "100")))
    client = bench.client()
    first = await client.fetch_page(PODS, "prod", selector="a in (b,c),!d", limit=2)
    assert [msgspec.json.decode(item) for item in first.items] == pods(2)["items"]
    assert (first.resource_version, first.next_token) == ("100", "next+/=")
    last = await client.fetch_page(
        PODS, "prod", limit=2, token=first.next_token, resource_version="0"
    )
    assert (len(last.items), last.next_token) == (1, "")
    assert [request.query for request in bench.server.requests] == [
        {"limit": "2", "labelSelector": "a in (b,c),!d"},
        # A token stands for a version: the server refuses both together.
        {"limit": "2", "continue": "next+/="},
    ]


async def test_a_page_without_items_is_empty(bench: Bench) -> None:
    bench.server.on("GET", POD_LIST, reply({"metadata": {"resourceVersion": "3"}, "items": None}))
    page = await bench.client().fetch_page(PODS, "prod", resource_version="0")
    assert (list(page.items), page.resource_version) == ([], "3")
    assert bench.server.requests[0].query["resourceVersion"] == "0"


async def test_si_07_a_delete_carries_its_precondition(bench: Bench) -> None:
    bench.server.on("DELETE", POD, reply({}))
    await DELETE.run(bench.client())
    assert bench.server.requests[0].json == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u-1", "resourceVersion": "7"},
    }


async def test_the_servers_time_is_known_from_any_answer_to_any_client(bench: Bench) -> None:
    """SI-11: a client without a request yet knows the time by the answers to others."""
    ahead = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    date = ahead.strftime("%a, %d %b %Y %H:%M:%S GMT")
    bench.server.on("GET", POD, refuse(404, "NotFound", "", Date=date))
    client = bench.client()
    assert client.server_time() is None
    with pytest.raises(NotFound):
        await FETCH.run(client)
    for shown in (client.server_time(), bench.client().server_time()):
        assert shown is not None
        assert ahead <= shown < ahead + timedelta(seconds=2)


async def test_a_watch_yields_events_until_the_server_ends_it(bench: Bench) -> None:
    body = event("ADDED", 6) + event("BOOKMARK", 9)
    bench.server.on("GET", POD_LIST, stream([body[:20], body[20:21], body[21:]]))
    events = await read_watch(bench.client())
    assert [item.type for item in events] == ["ADDED", "BOOKMARK"]
    assert msgspec.json.decode(events[1].object) == {"metadata": {"resourceVersion": "9"}}
    assert bench.server.requests[0].query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "1",
    }


async def test_a_watch_requests_a_selection_and_whole_seconds(bench: Bench) -> None:
    bench.server.on("GET", POD_LIST, stream([]))
    async with bench.watch(40.4, version="", selector="a=b"):
        pass
    assert bench.server.requests[0].query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "40",
        "labelSelector": "a=b",
    }


async def test_flag_15_no_watch_is_requested_for_longer_than_any_call(bench: Bench) -> None:
    bench.server.on("GET", POD_LIST, stream([]))
    timeouts = Timeouts().at_most(timedelta(seconds=7))
    async with bench.watch(600, timeouts=timeouts):
        pass
    assert bench.server.requests[0].query["timeoutSeconds"] == "7"
    assert (timeouts.read, timeouts.page) == (timedelta(seconds=7), timedelta(seconds=7))


async def test_entering_a_watch_waits_for_its_head_only(bench: Bench) -> None:
    more = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield event("ADDED", 6)
        await more.wait()
        yield event("ADDED", 7)

    bench.server.on("GET", POD_LIST, stream(slowly()))
    async with bench.watch() as events:
        assert bench.measured() == {("core/v1/pods collection", "GET", "200"): 1}
        assert (await anext(events)).type == "ADDED"
        more.set()
        assert (await anext(events)).type == "ADDED"
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_leaving_a_watch_closes_its_connection(bench: Bench) -> None:
    is_left = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            while True:
                await response.write(event("BOOKMARK", 6))
                await asyncio.sleep(0)
        except OSError:
            is_left.set()
            raise

    bench.server.on("GET", POD_LIST, answer)
    async with bench.watch(60) as events:
        await anext(events)
    async with asyncio.timeout(5):
        await is_left.wait()


async def test_more_than_a_hundred_watches_leave_connections_for_calls(bench: Bench) -> None:
    """MAZ-60: three or more watches of each namespace are open all the time."""
    ended = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await ended.wait()
        return response

    bench.server.on("GET", POD_LIST, answer)
    bench.server.on("GET", POD, reply({}))
    async with AsyncExitStack() as stack:
        stack.callback(ended.set)
        for _ in range(101):
            await stack.enter_async_context(bench.watch())
        async with asyncio.timeout(5):
            await bench.client().fetch(PODS, "prod", "a-0")


async def test_an_error_of_the_reader_passes_through_a_watch(bench: Bench) -> None:
    bench.server.on("GET", POD_LIST, stream([event("ADDED", 6)]))
    with pytest.raises(TimeoutError, match="of the reader"):
        async with bench.watch():
            raise TimeoutError("of the reader")


async def test_fp_09_a_silent_stream_is_unreachable(bench: Bench) -> None:
    never = asyncio.Event()

    async def silent() -> AsyncIterator[bytes]:
        yield event("ADDED", 6)
        await never.wait()

    bench.server.on("GET", POD_LIST, stream(silent()))
    async with bench.watch(1, timeouts=SHORT) as events:
        assert (await anext(events)).type == "ADDED"
        with pytest.raises(Unreachable, match=r"watch pods in namespace prod: silent for 0\.5s"):
            await anext(events)
    never.set()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(cut(HEAD + b'20\r\n{"type":"ADD'), id="FP-13 cut within a chunk"),
        pytest.param(cut(HEAD), id="FP-13 cut after the head"),
        pytest.param(stream([event("ADDED", 6)[:-9]]), id="FP-13 ended within a line"),
        pytest.param(stream([b"not json\n"]), id="FP-13 garbage"),
        pytest.param(stream([b"x" * 9_000_000, b"y" * 9_000_000]), id="FP-13 line of 18 MB"),
    ],
)
async def test_a_broken_stream_is_unreachable(bench: Bench, answer: Answer) -> None:
    bench.server.on("GET", POD_LIST, answer)
    with pytest.raises(Unreachable, match="cannot watch pods in namespace prod"):
        await read_watch(bench.client())
