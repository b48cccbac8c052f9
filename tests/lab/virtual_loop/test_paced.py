"""A loop whose time can be stopped serves what has no time, and goes on where it stood."""

import asyncio
import os
from collections.abc import Coroutine

import pytest
from rollout_lab.virtual_loop.pace import PacedLoop

LONG_S = 600.0


def run(work: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=PacedLoop) as runner:
        runner.run(work)


def paced() -> PacedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PacedLoop)
    return loop


def test_minutes_pass_at_once_where_the_pace_says_so() -> None:
    async def work() -> None:
        paced().pace = 1e6
        begin = paced().time()
        await asyncio.sleep(LONG_S)
        assert paced().time() - begin >= LONG_S

    run(work())


def test_what_is_read_is_served_while_time_stands() -> None:
    """A key has to be able to let it go on."""
    source, sink = os.pipe()

    async def work() -> None:
        loop = paced()
        loop.pace = 1e6
        timer = asyncio.create_task(asyncio.sleep(LONG_S))
        loop.pace = 0.0
        stood = loop.time()
        key = asyncio.Event()
        loop.add_reader(source, key.set)
        os.write(sink, b" ")
        await key.wait()
        assert loop.time() == stood
        assert not timer.done()
        loop.remove_reader(source)
        loop.pace = 1e6
        await timer

    run(work())
    os.close(source)
    os.close(sink)


def test_time_does_not_go_back() -> None:
    async def work() -> None:
        with pytest.raises(ValueError, match="pace: -1 < 0"):
            paced().pace = -1

    run(work())
