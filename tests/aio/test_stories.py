"""Queues, shared work and time: texts beside this file, and what holds of all values."""

import asyncio
from datetime import timedelta

import uvloop
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.aio.clock import ServerClock
from rollout_operator.aio.queue import Backoff, WorkQueue
from tests.aio.stages import THEN, FlightStage, PageStage, QueueStage, RewriteStage, TableStage
from tests.examples import repeatable
from tests.fakes_clock import FakeClock
from tests.stories import check_stories
from tests.virtual_time import in_virtual_time

test_story = in_virtual_time(
    check_stories(
        __file__,
        flights=FlightStage,
        queue=QueueStage,
        rewrites=RewriteStage,
        shared=PageStage,
        tables=TableStage,
    )
)


@repeatable()
@given(failures=st.integers(-5, 10**12), rng=st.floats(0, 1), first=st.integers(1, 10**6))
def test_a_delay_is_never_outside_its_bounds(failures: int, rng: float, first: int) -> None:
    backoff = Backoff(first=timedelta(microseconds=first), most=timedelta(seconds=30))
    assert timedelta(0) <= backoff.delay(failures, rng) <= backoff.bound(failures)
    assert backoff.bound(failures) <= timedelta(seconds=30)
    assert backoff.bound(failures) <= backoff.bound(failures + 1)


def test_the_shown_time_is_true_to_a_second_whatever_our_clock_does() -> None:
    """D-22: 500 answers in whole seconds, and a day by a clock of ours that runs fast."""
    clock = FakeClock()
    server, start = ServerClock(clock), clock.elapsed()
    for _ in range(500):
        clock.jump(timedelta(milliseconds=1370))
        truth = THEN + (clock.elapsed() - start)
        server.record(truth.replace(microsecond=0))
        shown = server.now()
        assert shown is not None
        assert truth - timedelta(seconds=1) < shown <= truth
    server = ServerClock(clock)
    for minute in range(1440):
        server.record(THEN + timedelta(minutes=minute))
        clock.jump(timedelta(minutes=1.001))
    shown = server.now()
    assert shown is not None
    assert shown - (THEN + timedelta(days=1)) < timedelta(seconds=1)


def test_a_delay_of_next_to_nothing_is_one_on_the_loop_of_the_operator() -> None:
    """LI-12: uvloop has no time of what is due at once, and the key may be added again before."""

    async def add_twice() -> list[str]:
        queue: WorkQueue[str] = WorkQueue()
        for microseconds in (300, 400, 100):
            queue.add_after("a", timedelta(microseconds=microseconds))
            queue.add_after("b", timedelta(milliseconds=2 * microseconds))
        return [await queue.take() for _ in range(2)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(add_twice()) == ["a", "b"]
