"""Tasks have a parent, die loudly and stop in reverse (LI-14)."""

import asyncio

import pytest

from rollout_operator.aio.tasks import TaskDied, TaskStack, race


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


async def test_a_task_that_fails_is_told_with_its_cause() -> None:
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


async def test_stopping_tells_nobody_of_a_death() -> None:
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


async def test_a_race_tells_who_was_first_and_cancels_the_others() -> None:
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
