"""Workers: one per key, many keys, a bug in one stays there (D-18, LI-09)."""

import asyncio
from collections import defaultdict
from datetime import timedelta

import pytest

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.controllers.worker import Result, Workers

BACKOFF = Backoff(first=timedelta(milliseconds=1), most=timedelta(milliseconds=4))


class Recorder:
    """A reconciler that notes what it is asked and can be held or made to fail per key."""

    def __init__(self, queue: WorkQueue[str]) -> None:
        self.looks: list[str] = []
        self.seen: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.busy: set[str] = set()
        self.held: dict[str, asyncio.Event] = {}
        self.bugs: dict[str, int] = {}
        self.results: dict[str, Result] = {}
        self.until: dict[str, int] = {}
        self._queue = queue

    async def reconcile(self, key: str) -> Result:
        assert key not in self.busy, "never two workers on one key"
        self.busy.add(key)
        self.looks.append(key)
        self.seen[key].set()
        try:
            if key in self.held:
                await self.held[key].wait()
            if self.bugs.get(key, 0) > 0:
                self.bugs[key] -= 1
                raise RuntimeError("bug")
            return self.results.get(key, Result())
        finally:
            self.busy.discard(key)
            if self.looks.count(key) >= self.until.get(key, 10**9):
                self._queue.close()


def make(count: int = 4) -> tuple[WorkQueue[str], Recorder, Workers[str]]:
    queue: WorkQueue[str] = WorkQueue()
    recorder = Recorder(queue)
    workers = Workers(queue, recorder.reconcile, count=count, backoff=BACKOFF, rng=lambda: 1.0)
    return queue, recorder, workers


async def test_a_key_added_while_it_is_looked_at_is_looked_at_again() -> None:
    """LI-12."""
    queue, recorder, workers = make()
    recorder.held["a"] = asyncio.Event()
    recorder.until["a"] = 2
    queue.add("a")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(workers.run())
        await recorder.seen["a"].wait()
        queue.add("a")
        recorder.held["a"].set()
    assert recorder.looks == ["a", "a"]


async def test_a_slow_key_does_not_delay_another() -> None:
    """W-06, LI-09."""
    queue, recorder, workers = make(count=2)
    recorder.held["slow"] = asyncio.Event()
    recorder.until["quick"] = 1
    queue.add("slow")
    queue.add("quick")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(workers.run())
        await recorder.seen["quick"].wait()
        recorder.held["slow"].set()
    assert recorder.looks == ["slow", "quick"]


async def test_a_bug_backs_off_and_does_not_end_the_worker() -> None:
    queue, recorder, workers = make(count=1)
    recorder.bugs["bad"] = 3
    recorder.until["bad"] = 4
    queue.add("bad")
    queue.add("good")
    async with asyncio.timeout(10):
        await workers.run()
    assert recorder.looks == ["bad", "good", "bad", "bad", "bad"]


async def test_a_result_asks_for_another_look() -> None:
    queue, recorder, workers = make(count=1)
    recorder.results["a"] = Result(again=timedelta(milliseconds=1))
    recorder.until["a"] = 3
    queue.add("a")
    async with asyncio.timeout(10):
        await workers.run()
    assert recorder.looks == ["a", "a", "a"]


async def test_closing_the_queue_ends_the_workers_after_their_key() -> None:
    """PROC-05: the current key is finished, nothing new is begun."""
    queue, recorder, workers = make(count=1)
    recorder.held["a"] = asyncio.Event()
    queue.add("a")
    queue.add("b")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(workers.run())
        await recorder.seen["a"].wait()
        assert workers.busy == 1
        queue.close()
        recorder.held["a"].set()
    assert recorder.looks == ["a"]
    assert workers.busy == 0


async def test_a_cancellation_that_nobody_asked_for_does_not_end_the_worker() -> None:
    """LI-14: one that leaks out of a library would end workers one by one, silently."""
    queue: WorkQueue[str] = WorkQueue()
    looks: list[str] = []

    async def leak(key: str) -> Result:
        looks.append(key)
        if len(looks) < 3:
            raise asyncio.CancelledError
        queue.close()
        return Result()

    queue.add("a")
    workers = Workers(queue, leak, count=1, backoff=BACKOFF, rng=lambda: 1.0)
    async with asyncio.timeout(10):
        await workers.run()
    assert looks == ["a", "a", "a"]


async def test_a_bug_is_logged_with_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    queue, recorder, workers = make(count=1)
    recorder.bugs["bad"] = 1
    recorder.until["bad"] = 2
    queue.add("bad")
    async with asyncio.timeout(10):
        await workers.run()
    line = next(line for line in capfd.readouterr().err.splitlines() if "by a bug" in line)
    assert "in reconcile" in line
