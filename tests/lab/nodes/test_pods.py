"""Pods over HTTP: who answers, what is done, what history says of it (PREP-20, FP-25, FP-26)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from rollout_operator.lab.model.history import History, PodCalled
from rollout_operator.lab.nodes.behaviour import (
    ACTS_THEN_RESETS,
    BROKEN,
    HANGS,
    REFUSES,
    Behaviour,
    PodReply,
    Response,
)
from rollout_operator.lab.nodes.pods import PodEndpoints
from rollout_operator.lab.virtual_loop.pace import Timers
from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.names import Uid
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time

IP = "10.0.0.1"


def endpoint(ip: str = IP) -> Endpoint:
    return Endpoint(pod="a-0", uid=Uid("u"), ip=ip, host="a-0.a.ns.svc", port=80, path="prepare")


@contextmanager
def pods(behaviour: Behaviour | None = None) -> Iterator[PodEndpoints]:
    timers = Timers()
    served = PodEndpoints(History(), elapsed=elapsed, now=VirtualClock().now, timers=timers)
    served.enter(IP, pod="a-0", uid="u", behaviour=behaviour or Behaviour())
    yield served
    timers.stop()


def calls_of(served: PodEndpoints) -> list[PodCalled]:
    return served._history.list_all(PodCalled)


async def ask(served: PodEndpoints, method: str = "POST") -> int:
    status, _ = await served.serve(method, endpoint(), "operator-1")
    return status


@in_virtual_time
async def test_a_post_prepares_and_a_delete_takes_it_back() -> None:
    with pods() as served:
        assert not served.prepared("u")
        assert await ask(served) == 200
        assert served.prepared("u")
        assert await ask(served, "DELETE") == 200
        assert not served.prepared("u")
        assert [(one.method, one.status, one.acted) for one in calls_of(served)] == [
            ("POST", 200, True),
            ("DELETE", 200, True),
        ]


@in_virtual_time
async def test_a_get_changes_nothing() -> None:
    with pods() as served:
        await ask(served)
        assert await ask(served, "GET") == 200
        assert served.prepared("u")


@in_virtual_time
async def test_a_slow_pod_answers_at_its_time_and_the_record_says_when() -> None:
    slow = Behaviour(prepare=Response(after=timedelta(seconds=3)))
    with pods(slow) as served:
        assert await ask(served) == 200
        assert elapsed() == timedelta(seconds=3)
        [record] = calls_of(served)
        assert record == PodCalled(
            at=timedelta(seconds=3),
            begun=timedelta(0),
            actor="operator-1",
            method="POST",
            pod="a-0",
            uid="u",
            path="/prepare",
            status=200,
            acted=True,
        )


@pytest.mark.parametrize(
    ("response", "status", "is_prepared"),
    [
        pytest.param(BROKEN, 500, False, id="FP-25 an error is answered and nothing is done"),
        pytest.param(Response(status=204), 204, True, id="any 2xx confirms"),
        pytest.param(Response(status=307), 307, False, id="FP-25 a redirect is no confirmation"),
        pytest.param(Response(status=500, acts=True), 500, True, id="acts, and says it did not"),
        pytest.param(Response(acts=False), 200, False, id="confirms what it did not do"),
    ],
)
def test_answers(response: Response, status: int, is_prepared: bool) -> None:
    @in_virtual_time
    async def scene() -> None:
        with pods(Behaviour(prepare=response)) as served:
            assert await ask(served) == status
            assert served.prepared("u") is is_prepared
            assert [one.acted for one in calls_of(served)] == [is_prepared]

    scene()


@pytest.mark.parametrize(
    ("response", "is_prepared"),
    [
        pytest.param(ACTS_THEN_RESETS, True, id="FP-25 reset after it has acted"),
        pytest.param(Response(reply=PodReply.RESETS), False, id="reset before"),
    ],
)
def test_resets(response: Response, is_prepared: bool) -> None:
    @in_virtual_time
    async def scene() -> None:
        with pods(Behaviour(prepare=response)) as served:
            with pytest.raises(ConnectionResetError, match="a-0"):
                await ask(served)
            assert served.prepared("u") is is_prepared
            assert [(one.status, one.acted) for one in calls_of(served)] == [(0, is_prepared)]

    scene()


@in_virtual_time
async def test_a_refusing_pod_gets_no_record() -> None:
    with pods(Behaviour(prepare=REFUSES)) as served:
        with pytest.raises(ConnectionRefusedError, match="refused"):
            await ask(served)
        assert calls_of(served) == []


@in_virtual_time
async def test_where_no_pod_lives_nothing_listens() -> None:
    nothing = r"10\.0\.0\.9:80: nothing listens"
    with pods() as served, pytest.raises(ConnectionRefusedError, match=nothing):
        await served.serve("POST", endpoint("10.0.0.9"), "operator-1")


@in_virtual_time
async def test_a_hanging_pod_never_answers_until_it_ends() -> None:
    with pods(Behaviour(prepare=HANGS)) as served:
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(expect_reset(served))
            await asyncio.sleep(3600)
            assert not call.done()
            served.leave(IP)
        assert [(one.at, one.status, one.acted) for one in calls_of(served)] == [
            (timedelta(0), 0, False)
        ]


async def expect_reset(served: PodEndpoints) -> None:
    with pytest.raises(ConnectionResetError, match="has ended"):
        await ask(served)


@in_virtual_time
async def test_a_pod_that_ends_in_the_middle_has_done_nothing() -> None:
    with pods(Behaviour(prepare=Response(after=timedelta(seconds=9)))) as served:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(expect_reset(served))
            await asyncio.sleep(4)
            served.leave(IP)
        await asyncio.sleep(9)
        assert not served.prepared("u")
        assert [(one.at, one.status, one.acted) for one in calls_of(served)] == [
            (timedelta(seconds=4), 0, False)
        ]


@in_virtual_time
async def test_a_pod_that_has_begun_acts_although_its_caller_has_left() -> None:
    """SI-10: a call that timed out may still prepare the pod, later."""
    with pods(Behaviour(prepare=Response(after=timedelta(seconds=9)))) as served:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await ask(served)
        assert not served.prepared("u")
        await asyncio.sleep(7)
        assert served.prepared("u")
        assert [(one.at, one.status, one.acted) for one in calls_of(served)] == [
            (timedelta(seconds=9), 0, True)
        ]


@in_virtual_time
async def test_what_a_test_says_of_a_name_goes_before_the_behaviour() -> None:
    """FP-26: the undo fails at first, and works later."""
    with pods() as served:
        await ask(served)
        served.answer("a-0", "DELETE", BROKEN)
        assert await ask(served, "DELETE") == 500
        assert await ask(served, "POST") == 200
        served.answer("a-0", "DELETE", None)
        served.answer("a-0", "", Response(status=503))
        assert await ask(served, "DELETE") == 503
        served.answer("a-0", "", None)
        assert await ask(served, "DELETE") == 200
        assert not served.prepared("u")


@in_virtual_time
async def test_state_belongs_to_the_uid_and_not_to_the_address() -> None:
    with pods() as served:
        await ask(served)
        served.leave(IP)
        served.enter(IP, pod="a-0", uid="u-2", behaviour=Behaviour())
        assert served.prepared("u")
        assert not served.prepared("u-2")
        await ask(served)
        assert [one.uid for one in calls_of(served)] == ["u", "u-2"]
