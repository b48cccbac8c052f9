"""What asyncio promises holds in every order: each of its parts under many seeds.

A violation found by a simulation must be one of the operator, not of a loop that no operator will
ever run on.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

import pytest

from rollout_operator.lab.virtual_loop.loop import VirtualTimeLoop

SEEDS = range(60)
Test = Callable[[random.Random], Coroutine[Any, Any, None]]


def under_all_seeds(test: Test) -> Callable[[], None]:
    """Run an asynchronous test in many orders; the seed is in the error."""

    def run() -> None:
        for seed in SEEDS:
            try:
                loop = VirtualTimeLoop(random.Random(seed))
                with asyncio.Runner(loop_factory=lambda loop=loop: loop) as runner:  # type: ignore[misc]  # bound
                    runner.run(test(random.Random(seed)))
            except AssertionError as error:
                raise AssertionError(f"seed {seed}") from error

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def _pause(rng: random.Random) -> None:
    await asyncio.sleep(rng.choice((0, 0, 0.1, 0.2)))


@under_all_seeds
async def test_callbacks_of_one_future_keep_their_order(rng: random.Random) -> None:
    order: list[int] = []
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for number in range(5):
        future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]  # bound
    future.set_result(None)
    await asyncio.sleep(0)
    for number in range(5, 8):
        future.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]  # bound
    await asyncio.sleep(1)

    assert order == list(range(8))


@under_all_seeds
async def test_a_task_group_reports_an_error_once(rng: random.Random) -> None:
    """Who waits for a child in the group's body must not be woken before the group itself."""

    async def fail() -> None:
        await _pause(rng)
        raise ValueError

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as tasks:
            await tasks.create_task(fail())

    assert [type(error) for error in caught.value.exceptions] == [ValueError]


@under_all_seeds
async def test_a_task_group_waits_for_all_and_cancels_the_rest(rng: random.Random) -> None:
    ended: list[str] = []

    async def work(name: str, *, fails: bool) -> None:
        try:
            await _pause(rng)
            if fails:
                raise ValueError(name)
            await asyncio.sleep(10)
        finally:
            await _pause(rng)
            ended.append(name)

    async def work_all() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in "abcd":
                tasks.create_task(work(name, fails=name == "c"))

    with pytest.raises(ExceptionGroup) as caught:
        await work_all()

    assert sorted(ended) == sorted(set(ended))
    assert [f"{error}" for error in caught.value.exceptions] == ["c"]
    assert asyncio.get_running_loop().time() < 10


@under_all_seeds
async def test_a_ready_callback_that_is_cancelled_never_runs(rng: random.Random) -> None:
    loop = asyncio.get_running_loop()
    ran: list[str] = []
    for _ in range(20):
        soon = loop.call_soon(ran.append, "soon")
        timer = loop.call_later(0.1, ran.append, "timer")
        other = loop.create_future()
        chained = loop.call_soon(lambda _: ran.append("chained"), other)
        after = loop.create_future()
        loop.call_soon(after.set_result, None)
        soon.cancel()
        chained.cancel()
        loop.call_at(loop.time() + 0.1, timer.cancel)
        loop.call_soon(lambda done: done.set_result(None), other)
        await other
        await after
        await asyncio.sleep(0.05)
        timer.cancel()

    assert ran == []


@under_all_seeds
async def test_a_timeout_ends_in_time_and_takes_nothing_else(rng: random.Random) -> None:
    loop = asyncio.get_running_loop()
    for span in (0.05, 0.1, 0.2):
        start = loop.time()
        try:
            async with asyncio.timeout(0.1) as limit:
                await asyncio.sleep(span)
        except TimeoutError:
            assert limit.expired()
            assert span >= 0.1
        else:
            assert span <= 0.1
        assert loop.time() - start <= 0.1 + 1e-9
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


@under_all_seeds
async def test_nested_timeouts_are_distinguished(rng: random.Random) -> None:
    outer = asyncio.timeout(0.1)

    async def wait() -> None:
        async with outer:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await asyncio.sleep(1)
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError):
        await wait()
    assert outer.expired()
    assert asyncio.get_running_loop().time() == 0.1


@under_all_seeds
async def test_wait_for_loses_no_result(rng: random.Random) -> None:
    async def work() -> int:
        await asyncio.sleep(0.1)
        return 7

    try:
        assert await asyncio.wait_for(work(), 0.1) == 7
    except TimeoutError:
        assert asyncio.get_running_loop().time() == 0.1
    assert await asyncio.wait_for(work(), 0.2) == 7


@under_all_seeds
async def test_a_lock_lets_one_in(rng: random.Random) -> None:
    lock = asyncio.Lock()
    inside: list[int] = []

    async def enter(number: int) -> None:
        await _pause(rng)
        async with lock:
            inside.append(number)
            try:
                await _pause(rng)
                assert inside == [number]
            finally:
                inside.clear()

    async with asyncio.TaskGroup() as tasks:
        entering = [tasks.create_task(enter(number)) for number in range(6)]
        await _pause(rng)
        rng.choice(entering).cancel()

    assert not lock.locked()


@under_all_seeds
async def test_a_semaphore_counts(rng: random.Random) -> None:
    turns, most = asyncio.Semaphore(2), 0
    inside = 0

    async def enter() -> None:
        nonlocal inside, most
        await _pause(rng)
        async with turns:
            inside += 1
            most = max(most, inside)
            try:
                await _pause(rng)
            finally:
                inside -= 1

    async with asyncio.TaskGroup() as tasks:
        entering = [tasks.create_task(enter()) for _ in range(8)]
        await _pause(rng)
        rng.choice(entering).cancel()

    assert most <= 2
    assert inside == 0
    async with turns, asyncio.timeout(1):
        await turns.acquire()


@under_all_seeds
async def test_a_condition_wakes_as_many_as_requested(rng: random.Random) -> None:
    condition, given, taken = asyncio.Condition(), 0, 0

    async def take() -> None:
        nonlocal given, taken
        async with condition:
            await condition.wait_for(lambda: given > 0)
            given -= 1
            taken += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(take())
        for _ in range(4):
            await _pause(rng)
            async with condition:
                given += 1
                condition.notify()

    assert (given, taken) == (0, 4)


@under_all_seeds
async def test_a_queue_keeps_its_order_and_loses_nothing(rng: random.Random) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
    got: list[int] = []

    async def take() -> None:
        while len(got) < 10:
            got.append(await queue.get())
            await _pause(rng)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(take())
        for number in range(10):
            await queue.put(number)

    assert got == list(range(10))


@under_all_seeds
async def test_a_shielded_task_goes_on(rng: random.Random) -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0.2)
        done.append("work")

    async def wait() -> None:
        await asyncio.shield(work())

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(wait())
        await asyncio.sleep(rng.choice((0.1, 0.2)))
        waiting.cancel()
        await asyncio.sleep(1)

    assert done == ["work"]


@under_all_seeds
async def test_wait_returns_with_the_first(rng: random.Random) -> None:
    async with asyncio.TaskGroup() as tasks:
        works = [tasks.create_task(asyncio.sleep(number / 10, number)) for number in range(4)]
        done, pending = await asyncio.wait(works[1:], return_when=asyncio.FIRST_COMPLETED)

    assert {task.result() for task in done} == {1}
    assert len(pending) == 2


@under_all_seeds
async def test_an_asynchronous_generator_is_closed(rng: random.Random) -> None:
    closed: list[str] = []

    async def count() -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                await _pause(rng)
                yield number
        finally:
            await _pause(rng)
            closed.append("closed")

    async def read() -> None:
        async with aclosing(count()) as numbers:
            async for number in numbers:
                if number == 3:
                    return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(read())
        cancelled = tasks.create_task(read())
        await asyncio.sleep(rng.choice((0.05, 0.15)))
        cancelled.cancel()

    assert len(closed) in (1, 2)  # one that was cancelled before its first step has nothing to end
    assert asyncio.get_running_loop().time() < 10


@under_all_seeds
async def test_a_cancelled_task_is_cancelled_once(rng: random.Random) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0.1)
            raise

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work())
        await asyncio.sleep(0.1)
        task.cancel()
        task.cancel()

    assert seen == ["cancelled"]
    assert task.cancelled()
