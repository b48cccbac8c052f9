"""A value that is written again and again."""

import asyncio
from datetime import timedelta
from itertools import pairwise

from rollout_operator.aio.rewrites import Rewrites
from tests.virtual_time import VirtualClock, in_virtual_time


def is_free(rewrites: Rewrites[str, int], place: str, value: int) -> bool:
    """Return whether a value may be written, and record it as written where it may."""
    if rewrites.wait_before(place, value) > timedelta(0):
        return False
    rewrites.record(place, value)
    return True


@in_virtual_time
async def test_three_times_are_free_and_others_do_not_count() -> None:
    rewrites: Rewrites[str, int] = Rewrites(VirtualClock())
    assert [is_free(rewrites, "one", 3) for _ in range(5)] == [True, True, True, False, False]
    assert rewrites.count("one", 3) == 3
    assert is_free(rewrites, "other", 3)
    assert is_free(rewrites, "one", 4), "another value begins anew"
    assert is_free(rewrites, "one", 3)


@in_virtual_time
async def test_the_wait_doubles_up_to_five_minutes() -> None:
    """LI-11: at most 12 writes in the first minute, one in 30 s after five."""
    rewrites: Rewrites[str, int] = Rewrites(VirtualClock())
    times = []
    for second in range(3600):
        if is_free(rewrites, "one", 3):
            times.append(second)
        await asyncio.sleep(1)
    gaps = [later - sooner for sooner, later in pairwise(times[2:])]
    assert gaps[:6] == [10, 20, 40, 80, 160, 300]
    assert set(gaps[6:]) == {300}


@in_virtual_time
async def test_what_stayed_long_or_is_forgotten_begins_anew() -> None:
    rewrites: Rewrites[str, int] = Rewrites(VirtualClock())
    for _ in range(3):
        assert is_free(rewrites, "one", 3)
    await asyncio.sleep(15 * 60)
    assert [is_free(rewrites, "one", 3) for _ in range(4)] == [True, True, True, False]
    rewrites.forget("one")
    assert is_free(rewrites, "one", 3)
