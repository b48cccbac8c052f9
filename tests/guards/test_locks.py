"""One lock per group, held by one at a time, and none left over: D-25, W-15, SEED-111."""

import asyncio
import gc
from contextlib import suppress
from typing import Final
from weakref import ref

import pytest

from rollout_operator.guards.turns import Locks, calls_lock, group_lock
from rollout_operator.model.names import GroupName, Uid

TURNS: Final = 20


class Story:
    """Writes down who came in and went out."""

    def __init__(self) -> None:
        self.locks = Locks()
        self.lines: list[str] = []
        self.begun = asyncio.Event()

    async def visit(self, name: str, key: str, leave: asyncio.Event | None = None) -> None:
        async with self.locks.hold(key):
            self.lines.append(f"{name} in")
            self.begun.set()
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if leave is not None:
                await leave.wait()
            self.lines.append(f"{name} out")


async def test_w15_one_at_a_time_in_the_order_of_coming() -> None:
    story = Story()
    async with asyncio.TaskGroup() as tasks:
        for name in "abc":
            tasks.create_task(story.visit(name, "k"))

    assert story.lines == ["a in", "a out", "b in", "b out", "c in", "c out"]


async def test_another_key_does_not_wait() -> None:
    """D-18: one group never delays another."""
    story, leave = Story(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(story.visit("a", group_lock(GroupName("a")), leave))
        await story.begun.wait()
        await tasks.create_task(story.visit("b", group_lock(GroupName("b"))))
        leave.set()

    assert story.lines == ["a in", "b in", "b out", "a out"]


async def test_whichever_client_fails_inside_leaves_the_lock() -> None:
    locks = Locks()
    with pytest.raises(ValueError, match="inside"):
        async with locks.hold("k"):
            raise ValueError("inside")
    async with locks.hold("k"):
        pass


@pytest.mark.parametrize("victim", ["first", "second"])
async def test_a_cancelled_caller_holds_no_other_up(victim: str) -> None:
    """FP-36: a client that hangs up while it holds the lock, or while it waits."""
    story, leave = Story(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(story.visit("first", "k", leave))
        second = tasks.create_task(story.visit("second", "k"))
        third = tasks.create_task(story.visit("third", "k"))
        await story.begun.wait()
        cancelled = first if victim == "first" else second
        cancelled.cancel()
        with suppress(asyncio.CancelledError):
            await cancelled
        leave.set()
        await third

    assert story.lines[-2:] == ["third in", "third out"]
    assert ("second in" in story.lines) == (victim == "first")


async def test_nothing_is_left_of_locks_that_are_not_held() -> None:
    """A group that comes and goes with each deployment must not cost memory for ever."""
    locks = Locks()
    kept = locks._locks
    async with locks.hold("k"):
        held = ref(kept["k"])
        assert list(kept) == ["k"]
    gc.collect()

    assert held() is None
    assert list(kept) == []


def test_keys_of_groups_and_of_calls_never_meet() -> None:
    assert group_lock(GroupName("x")) != calls_lock(Uid("x"))
    assert group_lock(GroupName("")) != group_lock(GroupName(" "))


async def test_several_locks_are_taken_in_one_order() -> None:
    """Two that want the same locks, named in another order, never wait for each other."""
    story = Story()

    async def visit(name: str, *keys: str) -> None:
        async with story.locks.hold_all(keys):
            story.lines.append(f"{name} in")
            for _ in range(TURNS):
                await asyncio.sleep(0)
            story.lines.append(f"{name} out")

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(visit("a", "k", "l", "k"))
        tasks.create_task(visit("b", "l", "k"))
        tasks.create_task(story.visit("c", "k"))
    assert sorted(story.lines[::2]) == ["a in", "b in", "c in"]
    assert [line[0] for line in story.lines[::2]] == [line[0] for line in story.lines[1::2]]
