"""What is remembered of calls without an answer: which pods, where, and for how long (SI-10)."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from rollout_operator.guards.downscales.backlog import UnansweredCancels
from rollout_operator.model.downscale import Endpoint, Target
from rollout_operator.model.names import Uid
from rollout_operator.pods.client import PodError
from tests.virtual_time import VirtualClock, in_virtual_time

A, B = Uid("uid-a"), Uid("uid-b")
LASTS = timedelta(seconds=10)
SECOND = timedelta(seconds=1)


def endpoint(pod: str, path: str = "prepare") -> Endpoint:
    return Endpoint(pod=pod, uid=Uid(f"uid-{pod}"), ip="10.0.0.1", host=pod, port=80, path=path)


ONE, TWO = endpoint("one"), endpoint("two")


class Calls:
    """Pods that fail as they are told to."""

    def __init__(self, **failed: bool) -> None:
        """Let pods fail, and say of each whether its call may arrive still."""
        self.failed = {
            Uid(f"uid-{pod}"): PodError(pod, may_arrive=may) for pod, may in failed.items()
        }
        self.takes = 0.0

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]:
        await asyncio.sleep(self.takes)
        return self.failed


@in_virtual_time
async def test_only_those_without_an_answer_and_only_for_so_long() -> None:
    clock = VirtualClock()
    unanswered = UnansweredCancels(clock, LASTS)
    calls = Calls(one=True, two=False)
    assert await unanswered.cancel_all(calls, A, [ONE, TWO]) == calls.failed
    assert unanswered.list_waits(A, [ONE, TWO]) == {ONE.uid: LASTS}
    assert unanswered.list_waits(B, [ONE, TWO]) == {}
    assert unanswered.list_waits(A, [endpoint("one", "elsewhere")]) == {}
    await clock.sleep(4 * SECOND)
    assert unanswered.list_waits(A, [ONE]) == {ONE.uid: 6 * SECOND}
    assert list(unanswered.by_set) == [A]
    await clock.sleep(6 * SECOND)
    assert unanswered.list_waits(A, [ONE]) == {}
    assert dict(unanswered.by_set) == {}, "nothing is kept of what is over"


@in_virtual_time
async def test_an_answer_to_a_later_call_says_nothing_of_an_earlier_one() -> None:
    clock = VirtualClock()
    unanswered = UnansweredCancels(clock, LASTS)
    await unanswered.cancel_all(Calls(one=True), A, [ONE])
    await clock.sleep(SECOND)
    await unanswered.cancel_all(Calls(), A, [ONE])
    assert unanswered.list_waits(A, [ONE]) == {ONE.uid: 9 * SECOND}
    unanswered.forget(A)
    assert unanswered.list_waits(A, [ONE]) == {}


@in_virtual_time
async def test_calls_that_are_cut_short_have_no_answer() -> None:
    unanswered = UnansweredCancels(VirtualClock(), LASTS)
    calls = Calls()
    calls.takes = 60
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await unanswered.cancel_all(calls, A, [ONE, TWO])
    assert unanswered.list_waits(A, [ONE, TWO]) == {ONE.uid: LASTS, TWO.uid: LASTS}


@in_virtual_time
async def test_what_another_process_may_have_sent() -> None:
    """D-24: where a note does not tell the path, it may be any."""
    unanswered = UnansweredCancels(VirtualClock(), LASTS)
    unanswered.suspect(A, [ONE.uid], Target(port=80, path="prepare", service="s"))
    unanswered.suspect(A, [TWO.uid], None)
    elsewhere = endpoint("one", "elsewhere"), endpoint("two", "elsewhere")
    assert set(unanswered.list_waits(A, [ONE, TWO])) == {ONE.uid, TWO.uid}
    assert set(unanswered.list_waits(A, elsewhere)) == {TWO.uid}
