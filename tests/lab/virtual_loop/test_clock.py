"""The clock of a simulated process: right, wrong, fast or slow (section 3.2, clock)."""

import asyncio
from datetime import timedelta

import pytest
from rollout_lab.virtual_loop.pace import SimulatedClock

from tests.virtual_time import EPOCH, elapsed, in_virtual_time

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR])
@in_virtual_time
async def test_a_jump_moves_the_wall_clock_only(jump: timedelta) -> None:
    clock = SimulatedClock(EPOCH)
    await clock.sleep(HOUR)
    clock.jump(jump)
    clock.jump(timedelta(seconds=1))

    assert clock.now() == EPOCH + HOUR + jump + timedelta(seconds=1)
    assert clock.elapsed() == HOUR
    assert clock.offset == jump + timedelta(seconds=1)


@pytest.mark.parametrize("rate", [0.5, 2.0])
@in_virtual_time
async def test_a_rate_holds_from_then_on(rate: float) -> None:
    clock = SimulatedClock(EPOCH)
    await asyncio.sleep(100)
    clock.rate = rate
    assert clock.elapsed() == timedelta(seconds=100)

    await clock.sleep(timedelta(seconds=60))
    assert clock.elapsed() == timedelta(seconds=160)
    assert clock.now() == EPOCH + timedelta(seconds=160)
    assert elapsed().total_seconds() == 100 + 60 / rate

    clock.rate = 1.0
    await clock.sleep(timedelta(seconds=10))
    assert clock.elapsed() == timedelta(seconds=170)


@in_virtual_time
async def test_it_never_stands_still() -> None:
    clock = SimulatedClock(EPOCH)
    with pytest.raises(ValueError, match=r"rate: 0\.0 <= 0"):
        clock.rate = 0.0
    assert clock.rate == 1.0


@in_virtual_time
async def test_a_span_below_zero_is_no_wait() -> None:
    clock = SimulatedClock(EPOCH)
    await clock.sleep(timedelta(seconds=-5))
    assert elapsed() == timedelta(0)
