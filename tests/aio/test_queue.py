"""The workqueue's promises, one test each (LI-12: no wake-up is lost)."""

import asyncio
from datetime import timedelta

import pytest
import uvloop

from rollout_operator.aio.queue import QueueClosed, WorkQueue


async def test_a_key_added_often_comes_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(3):
        queue.add("a")
    assert queue.depth == 1
    assert await queue.take() == "a"
    assert queue.depth == 0


async def test_keys_come_in_the_order_of_their_first_add() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("b", "a", "b", "c"):
        queue.add(key)
    assert [await queue.take() for _ in range(3)] == ["b", "a", "c"]


async def test_a_key_is_never_out_twice_and_comes_again_after_done() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    assert queue.depth == 0, "still out: must wait"
    queue.done("a")
    assert await queue.take() == "a"


async def test_done_without_a_new_add_brings_nothing_back() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    queue.done(await queue.take())
    assert queue.depth == 0


async def test_a_waiting_worker_is_woken_by_an_add() -> None:
    queue: WorkQueue[str] = WorkQueue()
    async with asyncio.TaskGroup() as tasks:
        taker = tasks.create_task(queue.take())
        await asyncio.sleep(0)
        queue.add("a")
    assert taker.result() == "a"


async def test_a_cancelled_taker_hands_its_wake_up_on() -> None:
    """LI-12: the taker is cancelled after it was woken and before it ran."""
    queue: WorkQueue[str] = WorkQueue()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(queue.take())
        second = tasks.create_task(queue.take())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
    assert first.cancelled()
    assert second.result() == "a"


async def test_a_delayed_key_comes_at_its_earliest_time() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", timedelta(hours=1))
    queue.add_after("a", timedelta(milliseconds=5))
    queue.add_after("a", timedelta(hours=2))
    assert await asyncio.wait_for(queue.take(), timeout=5) == "a"
    queue.done("a")
    assert queue.depth == 0


async def test_a_delay_of_nothing_is_now() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", timedelta(0))
    assert queue.depth == 1


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


async def test_close_gives_out_nothing_more_and_returns_what_waits() -> None:
    queue: WorkQueue[str] = WorkQueue()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_expect_closed(queue))
        await asyncio.sleep(0)
        queue.add("a")
        queue.close()
    assert waiting.result()
    queue.add("b")
    queue.add_after("c", timedelta(0))
    assert queue.depth == 0


async def test_a_key_that_is_out_may_still_be_done_after_close() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    key = await queue.take()
    queue.add("a")
    queue.close()
    queue.done(key)
    assert queue.depth == 0


async def test_the_wait_of_each_key_is_reported() -> None:
    waits: list[timedelta] = []
    queue: WorkQueue[str] = WorkQueue(on_taken=waits.append)
    queue.add("a")
    await queue.take()
    assert len(waits) == 1
    assert timedelta(0) <= waits[0] < timedelta(seconds=5)


async def _expect_closed(queue: WorkQueue[str]) -> bool:
    with pytest.raises(QueueClosed):
        await queue.take()
    return True
