"""The client on an HTTP server: stories, and what depends on cancelling, connections or threads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS
from rollout_operator.kube.kubeconfig import Credential
from tests.kube.client.stage import CallStage
from tests.kube.fake_api import POD, POD_LIST, THIS, FakeApi, event, reply, stream
from tests.stories import check_stories

test_story = check_stories(__file__, calls=CallStage)


async def test_cancelling_a_call_passes_through(api: FakeApi) -> None:
    answers, requested = asyncio.Event(), asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        requested.set()
        await answers.wait()
        return web.json_response({})

    api.on("DELETE", POD, answer)
    call = asyncio.ensure_future(api.client().delete(PODS, "prod", "a-0", precondition=THIS))
    await requested.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    answers.set()


async def test_neither_netrc_nor_proxies_are_looked_up_for_a_call(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiohttp would look both up for each request, in threads; a netrc would break every call."""
    netrc = tmp_path / "netrc"
    await asyncio.to_thread(netrc.write_text, "default login me password pw\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    api.on("GET", POD, reply({}))
    await api.client().fetch(PODS, "prod", "a-0")
    assert "authorization" not in api.requests[0].headers


async def test_many_refused_calls_load_the_credential_once() -> None:
    loads = 0

    async def load() -> str:
        nonlocal loads
        loads += 1
        return "Bearer second"

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        is_good = request.headers["authorization"] == "Bearer second"
        return web.json_response({}, status=200 if is_good else 401)

    credential = Credential("Bearer first", load, LoopClock(), reread_every=timedelta(hours=1))
    async with FakeApi() as api:
        api.connect(credential=credential)
        api.on("GET", POD, answer)
        client = api.client()
        await asyncio.gather(*[client.fetch(PODS, "prod", "a-0") for _ in range(20)])
    assert loads == 1


async def test_entering_a_watch_waits_for_its_head_only(api: FakeApi) -> None:
    more = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield event("ADDED", 6)
        await more.wait()
        yield event("ADDED", 7)

    api.on("GET", POD_LIST, stream(slowly()))
    async with api.watch() as events:
        assert api.measured() == {("core/v1/pods collection", "GET", "200"): 1}
        assert (await anext(events)).type == "ADDED"
        more.set()
        assert (await anext(events)).type == "ADDED"
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_leaving_a_watch_closes_its_connection(api: FakeApi) -> None:
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

    api.on("GET", POD_LIST, answer)
    async with api.watch(60) as events:
        await anext(events)
    async with asyncio.timeout(5):
        await is_left.wait()


async def test_more_than_a_hundred_watches_leave_connections_for_calls(api: FakeApi) -> None:
    """MAZ-60: three or more watches of each namespace are open all the time."""
    ended = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await ended.wait()
        return response

    api.on("GET", POD_LIST, answer)
    api.on("GET", POD, reply({}))
    async with AsyncExitStack() as stack:
        stack.callback(ended.set)
        for _ in range(101):
            await stack.enter_async_context(api.watch())
        async with asyncio.timeout(5):
            await api.client().fetch(PODS, "prod", "a-0")


async def test_an_error_of_the_reader_passes_through_a_watch(api: FakeApi) -> None:
    api.on("GET", POD_LIST, stream([event("ADDED", 6)]))
    with pytest.raises(TimeoutError, match="of the reader"):
        async with api.watch():
            raise TimeoutError("of the reader")
