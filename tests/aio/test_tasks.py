"""Tasks have a parent, die loudly and stop in reverse (LI-14)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from rollout_operator.aio.tasks import Children, TaskDied, TaskStack, gather_all, race


async def test_tasks_stop_in_reverse_order_and_each_is_waited_for() -> None:
    stopped: list[str] = []

    async def serve(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # clean-up that takes a turn
            stopped.append(name)

    async with TaskStack() as stack:
        for name in ("first", "second", "third"):
            stack.start(name, serve(name))
        await asyncio.sleep(0)
    assert stopped == ["third", "second", "first"]


async def test_a_task_that_fails_is_reported_with_its_cause() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async with TaskStack() as stack:
        stack.start("bad part", fail())
        with pytest.raises(TaskDied, match="bad part has ended") as caught:
            await stack.watch()
        assert stack.list_dead() == ("bad part",)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_task_that_just_returns_counts_as_dead() -> None:
    async def leave() -> None:
        return

    async with TaskStack() as stack:
        stack.start("quitter", leave())
        with pytest.raises(TaskDied, match="quitter"):
            await stack.watch()


async def test_stopping_reports_no_death() -> None:
    async with TaskStack() as stack:
        stack.start("steady", _serve_for_ever())
        async with asyncio.TaskGroup() as tasks:
            watcher = tasks.create_task(stack.watch())
            await asyncio.sleep(0)
            await stack.stop()
            assert not watcher.done()
            watcher.cancel()
    assert stack.list_dead() == ()


async def _serve_for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_race_returns_which_was_first_and_cancels_the_others() -> None:
    cancelled: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("slow")

    assert await race(slow=slow(), fast=asyncio.sleep(0)) == "fast"
    assert cancelled == ["slow"]


async def test_a_race_raises_what_the_first_raised() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await race(slow=_serve_for_ever(), bad=fail())


async def _fail() -> None:
    await asyncio.sleep(0.001)
    raise ValueError("broken")


async def _gather_in_vain() -> None:
    with pytest.raises(ValueError, match="broken"):
        await gather_all([_fail()])


async def _group_in_vain() -> None:
    with pytest.raises(ExceptionGroup):
        async with Children() as children:
            children.create_task(_fail())


@pytest.mark.parametrize("work", [_gather_in_vain, _group_in_vain])
async def test_a_child_that_fails_leaves_no_cancellation_behind(
    work: Callable[[], Awaitable[None]],
) -> None:
    """Else a timeout around it, that expires later, ends as a cancellation without a cause."""

    async def wait_after_it() -> None:
        async with asyncio.timeout(0.05):
            await work()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait_after_it()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_parent_that_is_cancelled_stays_so() -> None:
    """Whether its children fail or not, before it waits for them or then."""

    async def live(*, waits_inside: bool) -> None:
        async with Children() as children:
            children.create_task(asyncio.Event().wait())
            if waits_inside:
                await asyncio.Event().wait()

    for waits_inside in (True, False):
        task = asyncio.create_task(live(waits_inside=waits_inside))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()


@pytest.mark.parametrize("waits_inside", [True, False])
@pytest.mark.parametrize("turns", range(-1, 5))
async def test_a_cancellation_that_comes_as_a_child_fails_is_not_lost(
    turns: int, *, waits_inside: bool
) -> None:
    """Just before, in the same turn, while another child cleans up; then the parent goes on."""
    fails = asyncio.Event()

    async def fail() -> None:
        await fails.wait()
        raise ValueError("broken")

    async def clean_up_slowly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)

    async def live() -> None:
        with suppress(ExceptionGroup):
            async with Children() as children:
                children.create_task(fail())
                children.create_task(clean_up_slowly())
                await asyncio.sleep(60 if waits_inside else 0)
        await asyncio.sleep(60)

    task = asyncio.create_task(live())
    await asyncio.sleep(0.01)
    if turns < 0:
        task.cancel()
    fails.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    if turns >= 0:
        task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()


async def test_a_child_that_fails_in_its_clean_up_loses_no_cancellation() -> None:
    """A limit around both still ends what comes after it."""

    async def fail_in_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("broken")

    async def live() -> None:
        async with asyncio.timeout(0.01):
            with pytest.raises(ValueError, match="broken"):
                await gather_all([fail_in_the_end()])
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await live()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_child_that_fails_before_its_parent_waits_is_reported_as_well() -> None:
    async def wait_inside() -> None:
        async with Children() as children:
            children.create_task(_fail())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup):
        await wait_inside()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
