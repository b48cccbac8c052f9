"""Conversations with pods: one per set at a time, and what is remembered of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rollout_operator.aio.queue import Backoff
from rollout_operator.controllers.scaling import PodCaller
from rollout_operator.controllers.worker import Workers
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint, StatefulSet
from rollout_operator.model.scaling import CallPods, PodAnswer, PodCalls
from rollout_operator.pods import PodError
from tests.controllers.scaling_objects import delayed
from tests.virtual_time import EPOCH, VirtualClock, in_virtual_time
from tests.web.downscale_world import raw

SECOND = timedelta(seconds=1)
BACKOFF = Backoff(first=SECOND, most=SECOND)


class FakeCalls:
    """A `Calls` that takes a second for each kind of call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refusing: set[Uid] = set()
        self.silent: set[Uid] = set()
        self.bugs = 0
        self.takes = SECOND

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]:
        await self._take("DELETE", endpoints)
        return {
            one.uid: PodError(
                f"DELETE {one.pod}: HTTP status 500", may_arrive=one.uid in self.silent
            )
            for one in endpoints
            if one.uid in self.refusing | self.silent
        }

    async def fetch_answers(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodAnswer]:
        begun = VirtualClock().now()
        await self._take("POST", endpoints)
        return {
            one.uid: PodAnswer(
                called_at=begun, since=None, problem=f"POST {one.pod}: HTTP status 500"
            )
            if one.uid in self.refusing
            else PodAnswer(called_at=begun, since=None, problem="no answer", is_lost=True)
            if one.uid in self.silent
            else PodAnswer(called_at=begun, since=EPOCH)
            for one in endpoints
        }

    async def _take(self, method: str, endpoints: Sequence[Endpoint]) -> None:
        self.calls += [f"{method} {one.pod}" for one in endpoints]
        if self.bugs:
            self.bugs -= 1
            raise ZeroDivisionError
        await VirtualClock().sleep(self.takes)


class Bench:
    """Talks with what they work on."""

    def __init__(self) -> None:
        self.calls = FakeCalls()
        self.heard: list[Uid] = []
        self.pod_calls = PodCaller(
            self.calls, now=VirtualClock().now, on_answers=self.heard.append, late_calls=10 * SECOND
        )

    def begin(self, letter: str = "b", *, cancel: str = "", post: str = "") -> None:
        """Begin a conversation with pods of a zone, by ordinals."""
        self.pod_calls.begin(
            CallPods(
                zone=_set(letter),
                cancel=tuple(_endpoint(letter, one) for one in cancel),
                post=tuple(_endpoint(letter, one) for one in post),
            )
        )

    async def call_again(self, letter: str = "b", **how: str) -> None:
        """Begin a conversation, and wait for its end."""
        self.begin(letter, **how)
        await wait(2)

    def known(self, letter: str = "b") -> Mapping[Uid, PodCalls]:
        """Return what is remembered of the pods of a zone."""
        return self.pod_calls.known([_set(letter).uid])

    @asynccontextmanager
    async def talking(self, count: int = 2) -> AsyncIterator[None]:
        """Run workers."""
        queue = self.pod_calls.queue
        workers = Workers(
            queue, self.pod_calls.reconcile, count=count, backoff=BACKOFF, rng=lambda: 1
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(workers.run())
            yield
            queue.close()


async def wait(seconds: float) -> None:
    """Let time pass."""
    await VirtualClock().sleep(seconds * SECOND)


def _set(letter: str) -> StatefulSet:
    return decode_statefulset(raw(delayed(letter, 5)))


def _endpoint(letter: str, ordinal: str) -> Endpoint:
    name = f"zone-{letter}-{ordinal}"
    return Endpoint(
        pod=name, uid=Uid(f"{letter}{ordinal}"), ip="10.0.0.1", host=name, port=80, path="delayed"
    )


def _at(seconds: float) -> object:
    return EPOCH + seconds * SECOND


@in_virtual_time
async def test_deletes_come_before_posts() -> None:
    """DELAY-06: and what was said is remembered by the pod's UID, as old as its end."""
    bench = Bench()
    async with bench.talking():
        bench.begin(cancel="01", post="43")
        await wait(3)
    assert bench.calls.calls == [
        "DELETE zone-b-0",
        "DELETE zone-b-1",
        "POST zone-b-4",
        "POST zone-b-3",
    ]
    known = bench.known()
    assert known[Uid("b0")] == PodCalls(cancelled_at=EPOCH + SECOND)
    assert known[Uid("b4")] == PodCalls(answer=PodAnswer(called_at=EPOCH + 2 * SECOND, since=EPOCH))
    assert bench.heard == [_set("b").uid]


@in_virtual_time
async def test_a_pod_that_does_not_confirm_is_remembered_as_tried() -> None:
    """SEED-079, W-13: what it said before stays known, so that it is un-prepared soon again."""
    bench = Bench()
    async with bench.talking():
        await bench.call_again(post="4")
        bench.calls.refusing = {Uid("b4")}
        await bench.call_again(cancel="4")
        calls = bench.known()[Uid("b4")]
        assert calls.answer is not None
        assert (calls.cancelled_at, calls.tried_at) == (None, _at(3))
        bench.calls.refusing = set()
        await bench.call_again(cancel="4")
        assert bench.known()[Uid("b4")] == PodCalls(cancelled_at=EPOCH + 5 * SECOND)


@in_virtual_time
async def test_a_pod_without_a_word_has_a_problem() -> None:
    """DELAY-07: its former word does not count any more."""
    bench = Bench()
    async with bench.talking():
        await bench.call_again(post="4")
        bench.calls.refusing = {Uid("b4")}
        await bench.call_again(post="4")
    answer = bench.known()[Uid("b4")].answer
    assert answer is not None
    assert (answer.since, answer.problem) == (None, "POST zone-b-4: HTTP status 500")


@in_virtual_time
async def test_one_conversation_per_set_and_many_sets_at_once() -> None:
    """W-06: calls to b meanwhile are dropped, and planned again when b has answered."""
    bench = Bench()
    bench.calls.takes = 30 * SECOND
    async with bench.talking():
        bench.begin("b", post="4")
        await wait(1)
        bench.begin("b", post="43")
        bench.begin("c", post="4")
        await wait(1)
        assert bench.calls.calls == ["POST zone-b-4", "POST zone-c-4"]
        assert bench.heard == []
        await wait(30)
        assert bench.heard == [_set("b").uid, _set("c").uid]
        bench.begin("b", post="3")
        await wait(1)
        assert bench.calls.calls[2:] == ["POST zone-b-3"]
        await wait(30)


@in_virtual_time
async def test_a_conversation_that_has_not_begun_yet_stands() -> None:
    """It is planned in each reconcile, and these come often: no call is pushed back by that."""
    bench = Bench()
    bench.begin(post="4")
    bench.begin(cancel="0", post="43")
    async with bench.talking():
        await wait(3)
    assert bench.calls.calls == ["POST zone-b-4"]


@in_virtual_time
async def test_pods_that_are_gone_are_forgotten() -> None:
    """SEED-077: and sets with all their pods; what others said stays."""
    bench = Bench()
    async with bench.talking():
        bench.begin("b", post="43")
        await bench.call_again("c", post="4")
        bench.pod_calls.keep(_set("b").uid, {Uid("b3"): True})
        assert bench.known("b").keys() == {"b3"}
        bench.pod_calls.forget(_set("b").uid)
        bench.pod_calls.forget(_set("x").uid)
        assert bench.known("b") == {}
        assert bench.known("c").keys() == {"c4"}


@in_virtual_time
async def test_an_answer_after_its_pod_has_gone_is_forgotten_with_the_next_reconcile() -> None:
    bench = Bench()
    async with bench.talking():
        bench.begin("b", post="4")
        await wait(0.5)
        bench.pod_calls.keep(_set("b").uid, {})
        await wait(1)
        assert bench.known().keys() == {"b4"}
        bench.pod_calls.keep(_set("b").uid, {})
        assert bench.known() == {}


@pytest.mark.parametrize("how", [{"cancel": "0"}, {"post": "4"}])
@in_virtual_time
async def test_a_bug_ends_one_conversation_and_no_other(how: dict[str, str]) -> None:
    """D-18: the set can be talked to again, and the worker lives."""
    bench = Bench()
    bench.calls.bugs = 1
    async with bench.talking(count=1):
        bench.begin("b", **how)
        await wait(0.5)
        await bench.call_again("c", post="4")
        assert bench.known("c").keys() == {"c4"}
        await bench.call_again("b", post="3")
        assert bench.known("b").keys() == {"b3"}


@in_virtual_time
async def test_nothing_is_said_after_the_queue_was_closed() -> None:
    """SI-22: a conversation that is planned while stopping never begins."""
    bench = Bench()
    async with bench.talking():
        bench.pod_calls.queue.close()
        await bench.call_again(post="4")
    assert bench.calls.calls == []


def _lasts(bench: Bench) -> timedelta | None:
    answer = bench.known()[Uid("b4")].answer
    assert answer is not None
    return answer.lasts


@in_virtual_time
async def test_li11_a_pod_that_gives_no_time_is_called_soon_and_then_ever_more_seldom() -> None:
    """LI-11, DELAY-07: after 5 s, doubling to a minute; one that has answered as ever."""
    bench = Bench()
    bench.calls.refusing = {Uid("b4")}
    waits = list[timedelta | None]()
    async with bench.talking():
        for _ in range(6):
            await bench.call_again(post="4")
            waits.append(_lasts(bench))
        bench.calls.refusing = set()
        await bench.call_again(post="4")
        assert _lasts(bench) is None
        assert bench.known()[Uid("b4")].failures == 0
    assert waits == [one * SECOND for one in (5, 10, 20, 40, 60, 60)]


@in_virtual_time
async def test_a_pod_that_has_become_ready_is_called_at_once() -> None:
    bench, uid = Bench(), _set("b").uid
    bench.calls.refusing = {Uid("b4")}
    async with bench.talking():
        for _ in range(4):
            await bench.call_again(post="43")
        bench.pod_calls.keep(uid, {Uid("b4"): False, Uid("b3"): False})
        assert _lasts(bench) == 40 * SECOND
        bench.pod_calls.keep(uid, {Uid("b4"): True, Uid("b3"): True})
        assert _lasts(bench) == timedelta(0)
        assert bench.known()[Uid("b3")] == PodCalls(
            answer=PodAnswer(called_at=EPOCH + 7 * SECOND, since=EPOCH)
        )
        await bench.call_again(post="4")
        bench.pod_calls.keep(uid, {Uid("b4"): True, Uid("b3"): True})
        assert _lasts(bench) == 5 * SECOND, "once"


@in_virtual_time
async def test_a_delete_without_an_answer_counts_until_it_can_arrive_no_more() -> None:
    """DELAY-08, SI-10: neither an answer to a later one nor a new word reverts that."""
    bench = Bench()
    async with bench.talking():
        bench.calls.silent = {Uid("b4")}
        await bench.call_again(cancel="43")
        bench.calls.silent = set()
        await bench.call_again(cancel="4")
        await bench.call_again(post="43")
    known = bench.known()
    assert known[Uid("b4")].answer is not None
    assert known[Uid("b4")].unanswered_at == EPOCH + SECOND
    assert known[Uid("b3")].unanswered_at is None


@pytest.mark.parametrize(("after", "is_owed"), [(1, True), (30, False)])
@in_virtual_time
async def test_a_pod_that_a_late_call_may_prepare_is_un_prepared_once_more(
    after: int, is_owed: bool
) -> None:
    """LI-05: its POST was given up, and may arrive after the DELETE that it has confirmed."""
    bench = Bench()
    async with bench.talking():
        bench.calls.silent = {Uid("b4")}
        bench.begin(post="4")
        await wait(1 + after)
        bench.calls.silent = set()
        await bench.call_again(cancel="4")
    calls = bench.known()[Uid("b4")]
    assert calls.cancelled_at is not None
    assert (calls.answer is not None) is is_owed
