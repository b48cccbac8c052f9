"""Pods over HTTP: who answers, what is done, since when they are prepared, and what is recorded.

PREP-20, FP-17, FP-25, FP-26, DELAY-07, DELAY-09.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from rollout_lab.model.history import History, PodCalled
from rollout_lab.nodes.behaviour import (
    ACTS_THEN_RESETS,
    BROKEN,
    HANGS,
    REFUSES,
    Behaviour,
    PodReply,
    Response,
)
from rollout_lab.nodes.pods import PodEndpoints
from rollout_lab.virtual_loop.pace import Timers

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint
from tests.virtual_time import EPOCH, VirtualClock, elapsed, in_virtual_time

IP = "10.0.0.1"


class Called:
    """One pod behind an address, and requests to it."""

    def __init__(self, behaviour: Behaviour, timers: Timers) -> None:
        self.history = History()
        self.served = PodEndpoints(
            self.history, elapsed=elapsed, now=VirtualClock().now, timers=timers
        )
        self.enter("u", behaviour)

    def enter(self, uid: str, behaviour: Behaviour | None = None) -> None:
        self.served.enter(IP, pod="a-0", uid=uid, behaviour=behaviour or Behaviour())

    async def send(
        self, method: str = "POST", path: str = "prepare", ip: str = IP
    ) -> tuple[int, bytes]:
        endpoint = Endpoint(pod="a-0", uid=Uid("u"), ip=ip, host="a-0.a", port=80, path=path)
        return await self.served.serve(method, endpoint, "operator-1")

    async def prepare(self, path: str = "delayed") -> int:
        """Return how many seconds after the beginning of the world the pod was prepared."""
        _, body = await self.send(path=path)
        return int(json.loads(body)["timestamp"] - EPOCH.timestamp())

    async def expect_reset(self) -> None:
        with pytest.raises(ConnectionResetError, match="has ended"):
            await self.send()

    @property
    def is_prepared(self) -> bool:
        return self.served.prepared("u")

    @property
    def records(self) -> list[tuple[float, int, bool]]:
        calls = self.history.list_all(PodCalled)
        return [(one.at.total_seconds(), one.status, one.acted) for one in calls]


@contextmanager
def pod(response: Response | None = None, behaviour: Behaviour | None = None) -> Iterator[Called]:
    timers = Timers()
    behaviour = behaviour or (Behaviour(prepare=response) if response else Behaviour())
    yield Called(behaviour, timers)
    timers.stop()


@in_virtual_time
async def test_a_post_prepares_a_delete_un_prepares_and_a_get_changes_nothing() -> None:
    with pod() as called:
        prepared = []
        for method in ("GET", "POST", "GET", "DELETE", "GET"):
            assert (await called.send(method))[0] == 200
            prepared.append(called.is_prepared)
        assert prepared == [False, True, True, False, False]


@in_virtual_time
async def test_a_slow_pod_answers_at_its_time_and_the_record_says_when() -> None:
    with pod(Response(after=timedelta(seconds=3))) as called:
        await called.send()
        assert called.history.records == [
            PodCalled(
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
        ]


@pytest.mark.parametrize(
    ("response", "outcome", "is_prepared"),
    [
        pytest.param(BROKEN, 500, False, id="FP-25 an error is answered and nothing is done"),
        pytest.param(Response(status=204), 204, True, id="any 2xx confirms"),
        pytest.param(Response(status=307), 307, False, id="FP-25 a redirect is no confirmation"),
        pytest.param(Response(status=500, acts=True), 500, True, id="acts, and says it did not"),
        pytest.param(Response(acts=False), 200, False, id="confirms what it did not do"),
        pytest.param(Response(body=b'{"timestamp":1e400}'), 200, True, id="FP-25 says anything"),
        pytest.param(ACTS_THEN_RESETS, ConnectionResetError, True, id="FP-25 reset after acting"),
        pytest.param(
            Response(reply=PodReply.RESETS), ConnectionResetError, False, id="reset before"
        ),
        pytest.param(REFUSES, ConnectionRefusedError, False, id="refuses"),
    ],
)
@in_virtual_time
async def test_answers(response: Response, outcome: int | type[OSError], is_prepared: bool) -> None:
    with pod(response) as called:
        if isinstance(outcome, int):
            status, body = await called.send()
            assert status == outcome
            assert response.body is None or body == response.body
        else:
            with pytest.raises(outcome, match=r"a-0|refused"):
                await called.send()
        assert called.is_prepared is is_prepared
        said = outcome if isinstance(outcome, int) else 0
        assert called.records == ([] if response is REFUSES else [(0, said, is_prepared)])


@in_virtual_time
async def test_where_no_pod_lives_nothing_listens() -> None:
    nothing = r"10\.0\.0\.9:80: nothing listens"
    with pod() as called, pytest.raises(ConnectionRefusedError, match=nothing):
        await called.send(ip="10.0.0.9")


@pytest.mark.parametrize("response", [HANGS, Response(after=timedelta(hours=2))])
@in_virtual_time
async def test_a_pod_that_ends_before_it_answers_has_done_nothing(response: Response) -> None:
    with pod(response) as called:
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(called.expect_reset())
            await asyncio.sleep(3600)
            assert not call.done()
            called.served.leave(IP)
        await asyncio.sleep(7200)
        assert not called.is_prepared
        ended = 0 if response is HANGS else 3600
        assert called.records == [(ended, 0, False)]


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@in_virtual_time
async def test_a_pod_that_has_begun_acts_although_its_caller_has_left(method: str) -> None:
    """SI-10: a call that timed out may still prepare the pod, later."""
    with pod() as called:
        if method == "DELETE":
            await called.send()
        called.served.answer("a-0", method, Response(after=timedelta(seconds=9)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await called.send(method)
        assert called.is_prepared is (method == "DELETE"), "not yet"
        await asyncio.sleep(7)
        assert called.is_prepared is (method == "POST")
        assert called.records[-1] == (9, 0, True)


@in_virtual_time
async def test_what_a_test_says_of_a_name_goes_before_the_behaviour() -> None:
    """FP-26: the undo fails at first, and works later."""
    with pod() as called:
        await called.send()
        called.served.answer("a-0", "DELETE", BROKEN)
        assert (await called.send("DELETE"))[0] == 500
        assert (await called.send("POST"))[0] == 200
        called.served.answer("a-0", "DELETE", None)
        called.served.answer("a-0", "", Response(status=503))
        assert (await called.send("DELETE"))[0] == 503
        called.served.answer("a-0", "", None)
        assert (await called.send("DELETE"))[0] == 200
        assert not called.is_prepared


@in_virtual_time
async def test_a_pod_says_the_same_time_until_a_delete_that_it_answers() -> None:
    """DELAY-09, SEED-076, SEED-077; FP-25: what is not confirmed counts as the pod has it."""
    with pod() as called:
        await asyncio.sleep(100)
        assert await called.prepare() == 100
        await asyncio.sleep(100)
        called.served.answer("a-0", "DELETE", BROKEN)
        await called.send("DELETE", "delayed")
        assert await called.prepare() == 100
        called.served.answer("a-0", "DELETE", None)
        assert await called.send("DELETE", "delayed") == (200, b"")
        called.served.answer("a-0", "POST", ACTS_THEN_RESETS)
        with pytest.raises(ConnectionResetError):
            await called.prepare()
        called.served.answer("a-0", "POST", None)
        await asyncio.sleep(100)
        assert await called.prepare() == 200


@in_virtual_time
async def test_each_path_has_its_own_state() -> None:
    """SEED-080: preparing for a shutdown and for a delay are two things."""
    with pod() as called:
        assert await called.prepare("shutdown") == 0
        await asyncio.sleep(10)
        assert await called.prepare() == 10
        await called.send("DELETE", "delayed")
        assert called.is_prepared
        await asyncio.sleep(10)
        assert (await called.prepare("shutdown"), await called.prepare()) == (0, 20)


@pytest.mark.parametrize("uid", ["u", "u-2"])
@in_virtual_time
async def test_a_pod_that_starts_again_has_forgotten_and_its_uid_has_not(uid: str) -> None:
    """The delay of a restarted or replaced pod starts again."""
    with pod() as called:
        assert await called.prepare() == 0
        called.served.leave(IP)
        await asyncio.sleep(60)
        called.enter(uid)
        assert called.is_prepared
        assert called.served.prepared("u-2") is False
        assert await called.prepare() == 60
        assert [one.uid for one in called.history.list_all(PodCalled)] == ["u", uid]


@in_virtual_time
async def test_the_clock_of_a_pod_may_be_wrong() -> None:
    """FP-17."""
    with pod(Response(clock_offset=timedelta(hours=1))) as called:
        assert await called.prepare() == 3600
