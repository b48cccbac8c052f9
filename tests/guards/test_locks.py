"""One lock per group, held by one at a time, and none left over: D-25, W-15, SEED-111."""

import asyncio
import gc
from pathlib import Path
from typing import Final
from weakref import ref

import pytest

from rollout_operator.guards.turns import Locks, calls_lock, group_lock
from rollout_operator.model.names import GroupName, Uid
from tests.goldens import Golden
from tests.stories import Steps, Story, read_stories
from tests.virtual_time import in_virtual_time

TURNS: Final = 20


class LockStage(Steps):
    """Callers that come for locks, and leave when they are told."""

    def __init__(self) -> None:
        self.locks = Locks()
        self.lines: list[str] = []
        self.callers: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def look(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    async def do_come(self, name: str, *keys: str) -> None:
        leave = asyncio.Event()
        self.callers[name] = asyncio.create_task(self._visit(name, keys, leave)), leave
        await self._settle()

    async def _visit(self, name: str, keys: tuple[str, ...], leave: asyncio.Event) -> None:
        held = self.locks.hold_all(keys) if len(keys) > 1 else self.locks.hold(keys[0])
        async with held:
            self.lines.append(f"{name} in")
            await leave.wait()
            self.lines.append(f"{name} out")
            assert name != "faulty"

    async def do_leave(self, name: str) -> None:
        self.callers[name][1].set()
        await self._settle()

    async def do_cancel(self, name: str) -> None:
        self.callers[name][0].cancel()
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("locks.txt")))
def test_story(story: Story, golden: Golden) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        stage = LockStage()
        found.extend(await stage.play(story.commands))
        tasks = [task for task, _ in stage.callers.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    run()
    story.check(found, golden)


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
