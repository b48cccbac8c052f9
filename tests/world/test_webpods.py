"""Pods answer as they are told, everything is written down, and each UID has its own state."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise

import aiohttp
import pytest

from tests.world.api import PODS, Json
from tests.world.egress import EgressTrap, Place
from tests.world.scene import World
from tests.world.sets import Zone, is_ready, wait_pod
from tests.world.webpods import (
    BROKEN,
    DELAYED_PATH,
    NO_CONTENT,
    OK,
    Behaviour,
    Flood,
    Hang,
    PodCall,
    Reset,
    Respond,
    WebPods,
    next_address,
    redirect,
)

ASK_LIMIT = aiohttp.ClientTimeout(total=10)


def pod(name: str, uid: str = "") -> Json:
    return {"metadata": {"name": name, "uid": uid or f"{name}-uid"}}


@pytest.fixture
async def pods() -> AsyncIterator[WebPods]:
    async with WebPods() as opened:
        for name in ("a-0", "a-1"):
            await opened.seat(pod(name))
        yield opened


async def ask(pods: WebPods, method: str, name: str, path: str = "/prepare") -> int:
    """Return the status, after the whole body, and follow nothing."""
    url = f"http://{pods.address(name)}:{pods.port}{path}"
    headers = {"Host": f"{name}.a.here:80", "X-Cluster": "here"}
    async with (
        aiohttp.ClientSession(timeout=ASK_LIMIT) as session,
        session.request(method, url, headers=headers, data=b"", allow_redirects=False) as answer,
    ):
        await answer.read()
        return answer.status


async def seen(pods: WebPods, count: int) -> PodCall:
    await pods.wait_until(f"{count} calls", lambda: len(pods.calls) >= count)
    return pods.calls[count - 1]


async def finished(pods: WebPods) -> PodCall:
    await pods.wait_until("done", lambda: bool(pods.calls) and pods.calls[-1].done_at is not None)
    return pods.calls[-1]


async def test_everything_about_a_call_is_written_down(pods: WebPods) -> None:
    assert await ask(pods, "POST", "a-1", "/a%2Fb?c=d") == 200

    call = await finished(pods)
    assert (call.pod, call.uid, call.method, call.path) == ("a-1", "a-1-uid", "POST", "/a%2Fb?c=d")
    assert call.host == "a-1.a.here:80"
    assert call.headers["x-cluster"] == "here"
    assert call.address == pods.address("a-1") != pods.address("a-0")
    assert call.done_at is not None
    assert call.done_at >= call.at
    assert (call.status, call.is_success) == (200, True)
    assert "POST a-1 (a-1-uid) /a%2Fb?c=d -> 200" in pods.describe()
    assert pods.calls_to("a-0") == pods.calls_to("a-1", "DELETE") == []


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

    assert await ask(pods, "POST", "a-0") == status
    assert await ask(pods, "POST", "a-1") == 200
    assert pods.is_prepared("a-0") is (status < 300)
    assert pods.is_prepared("a-1")


async def ask_since(pods: WebPods, name: str) -> object:
    """POST as for a delayed downscale, and return what the pod says."""
    url = f"http://{pods.address(name)}:{pods.port}{DELAYED_PATH}?a=b"
    async with aiohttp.ClientSession(timeout=ASK_LIMIT) as session, session.post(url) as answer:
        body = await answer.read()
        return json.loads(body) if body else body


async def test_a_pod_says_since_when_it_is_prepared(pods: WebPods) -> None:
    """DELAY-09, SEED-075 to SEED-077: until a DELETE, or its end; apart from `prepared`."""
    begin = int(time.time())
    assert await ask_since(pods, "a-0") == {"timestamp": pods.delayed_since["a-0-uid"]}
    assert begin <= pods.delayed_since["a-0-uid"] <= time.time()
    pods.delayed_since["a-0-uid"] = 7
    assert await ask_since(pods, "a-0") == {"timestamp": 7}
    assert not pods.is_prepared("a-0")

    await ask(pods, "POST", "a-0")
    await ask(pods, "DELETE", "a-0", DELAYED_PATH)
    await pods.wait_until("cancelled", lambda: not pods.delayed_since)
    assert pods.is_prepared("a-0")
    assert await ask_since(pods, "a-0") != {"timestamp": 7}

    await pods.leave(pod("a-0"))
    assert pods.delayed_since == {}


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [(Respond(body=b""), b""), (Respond(body=b"[1]"), [1]), (NO_CONTENT, b"")],
)
async def test_a_pod_may_say_anything_else(
    pods: WebPods, behaviour: Behaviour, said: object
) -> None:
    """FP-25."""
    pods.behave("a-0", behaviour)
    assert await ask_since(pods, "a-0") == said


async def test_a_hanging_pod_answers_nobody(pods: WebPods) -> None:
    pods.behave("a-0", Hang())

    asking = asyncio.ensure_future(ask(pods, "POST", "a-0"))
    call = await seen(pods, 1)
    assert call.done_at is None
    asking.cancel()
    await asyncio.wait([asking])

    assert not pods.is_prepared("a-0")
    assert "-> nothing, not finished" in pods.describe()


async def test_a_body_without_end_goes_on_until_the_caller_leaves(pods: WebPods) -> None:
    pods.behave("a-0", Flood())
    url = f"http://{pods.address('a-0')}:{pods.port}/"

    async with aiohttp.ClientSession(timeout=ASK_LIMIT) as session, session.post(url) as answer:
        for _ in range(50):
            assert len(await answer.content.readexactly(100_000)) == 100_000
    assert pods.calls[0].done_at is None
    assert not pods.is_prepared("a-0")


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_pod_that_resets_may_have_done_it(pods: WebPods, is_done: bool) -> None:
    """FP-25: reset after processing; nobody but the pod knows."""
    pods.behave("a-0", Reset(is_done=is_done))

    with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
        await ask(pods, "POST", "a-0")
    assert pods.is_prepared("a-0") is is_done
    assert not pods.calls[0].is_success


async def test_a_late_pod_prepares_although_its_caller_has_left(pods: WebPods) -> None:
    pods.behave("a-0", Respond(after=timedelta(seconds=30)))

    asking = asyncio.ensure_future(ask(pods, "POST", "a-0"))
    await seen(pods, 1)
    asking.cancel()
    await asyncio.wait([asking])

    await pods.wait_until("prepared", lambda: pods.is_prepared("a-0"))
    assert pods.calls[0].status is None


async def test_refusing_means_that_nothing_listens(pods: WebPods) -> None:
    await pods.refuse("a-0")
    await pods.refuse("a-2")
    await pods.seat(pod("a-2"))

    for name in ("a-0", "a-2"):
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(pods, "POST", name)
        await pods.listen(name)
        assert await ask(pods, "POST", name) == 200


async def test_only_some_requests_may_fail(pods: WebPods) -> None:
    """FP-26: the undo fails at first."""
    pods.behave("", NO_CONTENT)
    pods.behave("a-0", BROKEN, method="DELETE", times=2)

    assert await ask(pods, "POST", "a-0") == 204
    assert [await ask(pods, "DELETE", "a-0") for _ in range(3)] == [500, 500, 204]
    assert not pods.is_prepared("a-0")
    pods.behave("a-0", NO_CONTENT)
    pods.behave("a-0", BROKEN)
    assert await ask(pods, "POST", "a-0") == 500
    pods.behave_well("a-0")
    assert await ask(pods, "POST", "a-0") == 204


@pytest.mark.parametrize("keeps", [False, True])
async def test_a_replaced_pod_starts_clean(keeps: bool) -> None:
    async with WebPods(keeps_addresses=keeps) as pods:
        first = await pods.seat(pod("a-0", "old"))
        await ask(pods, "POST", "a-0")
        assert pods.is_prepared("a-0")

        await pods.leave(pod("a-0", "old"))
        second = await pods.seat(pod("a-0", "new"))
        await pods.leave(pod("a-0", "old"))

        assert (second == first) is keeps
        assert not pods.is_prepared("a-0")
        await ask(pods, "DELETE", "a-0")
        assert [call.uid for call in pods.calls] == ["old", "new"]
        assert pods.prepared == {"old"}


async def test_a_pod_that_goes_breaks_off_what_it_answers(pods: WebPods) -> None:
    pods.behave("a-0", Hang())
    asking = asyncio.ensure_future(ask(pods, "POST", "a-0"))
    await seen(pods, 1)

    await pods.leave(pod("a-0"))

    with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
        await asking


async def test_a_wait_in_vain_shows_the_calls(pods: WebPods) -> None:
    await ask(pods, "POST", "a-0")

    with pytest.raises(TimeoutError, match=r"(?s)not a miracle.*POST a-0"):
        await pods.wait_until("a miracle", lambda: False, timedelta(milliseconds=50))


@pytest.mark.controlplane
@pytest.mark.parametrize("keeps", [False, True])
async def test_the_kubelet_tells_where_each_pod_is(world: World, keeps: bool) -> None:
    """SI-21: the address in the status is the one that answers, for the pod that is there now."""
    pods = await world.serve_pods(keeps_addresses=keeps)
    await world.create(Zone(name="a", replicas=2))
    before = await world.api.get(PODS, world.namespace, "a-0")
    assert before["status"]["podIP"] == pods.address("a-0")
    assert before["status"]["podIPs"] == [{"ip": pods.address("a-0")}]
    await ask(pods, "POST", "a-0")

    await world.api.delete(PODS, world.namespace, "a-0")
    uid = before["metadata"]["uid"]
    after = await wait_pod(
        world.api,
        world.namespace,
        "a-0",
        "ready anew",
        lambda each: is_ready(each) and each["metadata"]["uid"] != uid,
    )
    assert (after["status"]["podIP"] == before["status"]["podIP"]) is keeps
    assert not pods.is_prepared("a-0")
    await ask(pods, "DELETE", "a-0")
    assert [each.uid for each in pods.calls] == [uid, after["metadata"]["uid"]]


def test_no_address_is_given_twice() -> None:
    given = [next_address() for _ in range(1000)]

    assert len(set(given)) == 1000
    for before, after in pairwise(given):
        assert socket.inet_aton(before) < socket.inet_aton(after)
        assert after.startswith("127.")


async def intrude(trap: EgressTrap, said: bytes) -> None:
    async with trap:
        place = trap.places[-1]
        with socket.create_connection((place.address, place.port)) as caller:
            caller.sendall(said)


@pytest.mark.parametrize("said", [b"GET /secret", b""])
async def test_the_trap_tells_of_every_connection(said: bytes) -> None:
    """SI-21"""
    for trap in (EgressTrap(count=2), EgressTrap(Place("127.0.0.1", 0))):
        with pytest.raises(AssertionError, match=f"(?s)SI-21: .*said={said!r}"):
            await intrude(trap, said)
        assert len(trap.visits) == 1
        assert len({place.address for place in trap.places}) == len(trap.places)


async def test_a_silent_trap_is_content() -> None:
    """SI-21"""
    async with EgressTrap(count=3) as trap:
        await trap.settle()
        trap.assert_silent()
