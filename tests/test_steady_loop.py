"""Time of the tests' event loop: what the machine takes does not count, what a test does, does."""

import asyncio
import time

from tests.steady_loop import LONGEST_WAIT, SteadyLoop


async def test_what_the_machine_takes_does_not_count() -> None:
    """A process that sleeps within a turn has no core, as one that waits for its turn."""
    begin = asyncio.get_running_loop().time()
    await asyncio.sleep(0)
    time.sleep(50 * LONGEST_WAIT)  # noqa: ASYNC251 (stops the loop, as the machine would)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert asyncio.get_running_loop().time() - begin < 25 * LONGEST_WAIT


async def test_computing_counts() -> None:
    loop, begin = asyncio.get_running_loop(), time.thread_time()
    earlier = loop.time()
    while (spent := time.thread_time() - begin) < 5 * LONGEST_WAIT:
        pass
    await asyncio.sleep(0)

    assert loop.time() - earlier >= spent


async def test_waiting_counts_in_full() -> None:
    begin = time.monotonic()
    await asyncio.sleep(20 * LONGEST_WAIT)

    assert time.monotonic() - begin >= 20 * LONGEST_WAIT * 0.99


async def test_every_test_has_it_that_needs_no_control_plane() -> None:
    assert isinstance(asyncio.get_running_loop(), SteadyLoop)
