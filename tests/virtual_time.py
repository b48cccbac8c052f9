"""Tests on virtual time: the loop jumps to the next timer as soon as no task can run.

    @in_virtual_time
    async def test_an_hour_takes_a_millisecond() -> None: ...

A test whose tasks all wait for something that no timer brings fails at once, and so does one that
leaves tasks behind. For tests without sockets.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec

from rollout_lab.virtual_loop.loop import VirtualTimeLoop

EPOCH = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

P = ParamSpec("P")


def elapsed() -> timedelta:
    """Return the time since the running loop began."""
    return timedelta(seconds=asyncio.get_running_loop().time())


class VirtualClock:
    """The `aio.clock.Clock` of the running loop; the wall clock goes along."""

    def now(self) -> datetime:
        return EPOCH + elapsed()

    def elapsed(self) -> timedelta:
        return elapsed()

    async def sleep(self, span: timedelta) -> None:
        await asyncio.sleep(max(span.total_seconds(), 0))


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test on a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(_run_alone(test(*args, **kwargs)))

    return run


async def _run_alone(test: Coroutine[Any, Any, None]) -> None:
    await test
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"left over: {sorted(map(repr, left))}"
