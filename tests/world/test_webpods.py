"""Pods answer as they are told, everything is written down, and each UID has its own state."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import aiohttp
import pytest

from tests.world.api import Json
from tests.world.egress import EgressTrap, Place
from tests.world.webpods import (
    BROKEN,
    DELAYED_PATH,
    NO_CONTENT,
    OK,
    Behaviour,
    Flood,
    Hang,
    Reset,
    Respond,
    WebPods,
    redirect,
)

ASK_LIMIT = aiohttp.ClientTimeout(total=10)
LATE = Respond(after=timedelta(seconds=30))


def pod(name: str, uid: str = "") -> Json:
    return {"metadata": {"name": name, "uid": uid or f"{name}-uid"}}


@pytest.fixture
async def pods() -> AsyncIterator[WebPods]:
    async with WebPods() as opened:
        for name in ("a-0", "a-1"):
            await opened.seat(pod(name))
        yield opened


async def ask(pods: WebPods, method: str, name: str, path: str = "/prepare") -> tuple[int, bytes]:
    """Return status and body, and follow nothing."""
    url = f"http://{pods.address(name)}:{pods.port}{path}"
    headers = {"Host": f"{name}.a.here:80", "X-Cluster": "here"}
    async with (
        aiohttp.ClientSession(timeout=ASK_LIMIT) as session,
        session.request(method, url, headers=headers, data=b"", allow_redirects=False) as answer,
    ):
        return answer.status, await answer.read()


async def test_everything_about_a_call_is_written_down(pods: WebPods) -> None:
    await ask(pods, "POST", "a-1", "/a%2Fb?c=d")
    await pods.wait_until("done", lambda: pods.calls[-1].done_at is not None)

    (call,) = pods.calls_to("a-1", "POST")
    assert (call.pod, call.uid, call.method, call.path) == ("a-1", "a-1-uid", "POST", "/a%2Fb?c=d")
    assert (call.host, call.headers["x-cluster"]) == ("a-1.a.here:80", "here")
    assert call.address == pods.address("a-1") != pods.address("a-0")
    assert (call.done_at or 0) >= call.at
    assert call.is_success
    with pytest.raises(TimeoutError, match=r"(?s)not a miracle.*POST a-1 \(a-1-uid\)"):
        await pods.wait_until("a miracle", lambda: False, timedelta(milliseconds=50))


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [
        pytest.param(OK, 200, id="200"),
        pytest.param(NO_CONTENT, 204, id="204"),
        pytest.param(BROKEN, 500, id="500"),
        pytest.param(redirect("http://127.0.0.1:9/"), 307, id="redirect"),
        pytest.param(Respond(after=timedelta(milliseconds=50)), 200, id="late"),
        pytest.param(Flood(1_000_000), 200, id="huge body"),
    ],
)
async def test_pods_answer_as_told(pods: WebPods, behaviour: Behaviour, status: int) -> None:
    pods.behave("a-0", behaviour)

    assert (await ask(pods, "POST", "a-0"))[0] == status
    assert (await ask(pods, "POST", "a-1"))[0] == 200
    assert (pods.is_prepared("a-0"), pods.is_prepared("a-1")) == (status < 300, True)


@pytest.mark.parametrize(
    ("behaviour", "is_prepared"),
    [
        pytest.param(Hang(), False, id="no answer"),
        pytest.param(LATE, True, id="FP-25 late: it prepares although its caller has left"),
        pytest.param(Reset(), False, id="FP-25 reset"),
        pytest.param(Reset(is_done=True), True, id="FP-25 reset after processing"),
        pytest.param(Flood(), False, id="a body without end"),
    ],
)
async def test_calls_without_a_whole_answer(
    pods: WebPods, behaviour: Behaviour, is_prepared: bool
) -> None:
    """Nobody but the pod knows what it has done."""
    pods.behave("a-0", behaviour)
    asking = asyncio.ensure_future(ask(pods, "POST", "a-0"))
    await pods.wait_until("called", lambda: bool(pods.calls))
    await asyncio.wait([asking], timeout=0.2)
    asking.cancel()
    await asyncio.wait([asking])

    await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0.05))])
    assert pods.is_prepared("a-0") is is_prepared
    assert not pods.calls[0].is_success


async def test_a_pod_says_since_when_it_is_prepared(pods: WebPods) -> None:
    """DELAY-09, SEED-075 to SEED-077: until a DELETE, or its end; apart from `prepared`."""
    begin = int(time.time())
    said = json.loads((await ask(pods, "POST", "a-0", f"{DELAYED_PATH}?a=b"))[1])
    assert begin <= said["timestamp"] == pods.delayed_since["a-0-uid"] <= time.time()
    pods.delayed_since["a-0-uid"] = 7
    assert json.loads((await ask(pods, "POST", "a-0", DELAYED_PATH))[1]) == {"timestamp": 7}
    assert not pods.is_prepared("a-0")

    await ask(pods, "POST", "a-0")
    await ask(pods, "DELETE", "a-0", DELAYED_PATH)
    await pods.wait_until("cancelled", lambda: not pods.delayed_since)
    assert pods.is_prepared("a-0")
    pods.behave("a-0", Respond(body=b"[1]"))
    assert await ask(pods, "POST", "a-0", DELAYED_PATH) == (200, b"[1]")

    await pods.leave(pod("a-0"))
    assert pods.delayed_since == {}


async def test_refusing_means_that_nothing_listens(pods: WebPods) -> None:
    await pods.refuse("a-0")
    await pods.refuse("a-2")
    await pods.seat(pod("a-2"))

    for name in ("a-0", "a-2"):
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(pods, "POST", name)
        await pods.listen(name)
        assert (await ask(pods, "POST", name))[0] == 200


async def test_only_some_requests_may_fail(pods: WebPods) -> None:
    """FP-26: the undo fails at first."""
    pods.behave("", NO_CONTENT)
    pods.behave("a-0", BROKEN, method="DELETE", times=2)

    assert (await ask(pods, "POST", "a-0"))[0] == 204
    assert [(await ask(pods, "DELETE", "a-0"))[0] for _ in range(3)] == [500, 500, 204]
    assert not pods.is_prepared("a-0")
    pods.behave("a-0", BROKEN)
    assert (await ask(pods, "POST", "a-0"))[0] == 500
    pods.behave_well("a-0")
    assert (await ask(pods, "POST", "a-0"))[0] == 204


@pytest.mark.parametrize("keeps", [False, True])
async def test_a_replaced_pod_starts_clean(keeps: bool) -> None:
    async with WebPods(keeps_addresses=keeps) as pods:
        first = await pods.seat(pod("a-0", "old"))
        await ask(pods, "POST", "a-0")
        await pods.leave(pod("a-0", "old"))
        second = await pods.seat(pod("a-0", "new"))
        await pods.leave(pod("a-0", "old"))

        assert (second == first) is keeps
        assert not pods.is_prepared("a-0")
        await ask(pods, "DELETE", "a-0")
        assert [call.uid for call in pods.calls] == ["old", "new"]
        assert pods.prepared == {"old"}


@pytest.mark.parametrize("said", [b"GET /secret", b""])
async def test_the_trap_tells_of_every_connection(said: bytes) -> None:
    """SI-21"""

    async def intrude(trap: EgressTrap) -> None:
        async with trap:
            trap.assert_silent()
            place = trap.places[-1]
            with socket.create_connection((place.address, place.port)) as caller:
                caller.sendall(said)

    for trap in (EgressTrap(count=2), EgressTrap(Place("127.0.0.1", 0))):
        with pytest.raises(AssertionError, match=f"(?s)SI-21: .*said={said!r}"):
            await intrude(trap)
        assert len({place.address for place in trap.places}) == len(trap.places)
