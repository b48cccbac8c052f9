"""LI-11: retries slow down to a bound, and a value that does not stay is written more seldom."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.aio.queue import Backoff, Rewrites
from tests.examples import repeatable
from tests.virtual_time import VirtualClock, in_virtual_time

TENTH = Backoff(first=timedelta(seconds=0.1), most=timedelta(seconds=10))


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [
        pytest.param(0, 0, id="nothing failed: no wait"),
        pytest.param(1, 0.1, id="first failure"),
        pytest.param(2, 0.2, id="doubles"),
        pytest.param(7, 6.4, id="still below the bound"),
        pytest.param(8, 10, id="LI-11 bounded"),
        pytest.param(10**9, 10, id="LI-11 does not overflow after years"),
    ],
)
def test_the_bound_doubles_up_to_most(failures: int, seconds: float) -> None:
    assert TENTH.bound(failures) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("rng", "seconds"),
    [
        pytest.param(0.0, 0, id="least"),
        pytest.param(0.25, 0.1, id="in between"),
        pytest.param(1.0, 0.4, id="most"),
        pytest.param(7.0, 0.4, id="a chance beyond 1 stays within the bound"),
        pytest.param(-1.0, 0, id="a chance below 0 is no negative wait"),
    ],
)
def test_full_jitter_spans_from_zero_to_the_bound(rng: float, seconds: float) -> None:
    assert TENTH.delay(3, rng) == timedelta(seconds=seconds)


@repeatable()
@given(failures=st.integers(-5, 10**12), rng=st.floats(0, 1), first=st.integers(1, 10**6))
def test_a_delay_is_never_outside_its_bounds(failures: int, rng: float, first: int) -> None:
    backoff = Backoff(first=timedelta(microseconds=first), most=timedelta(seconds=30))
    assert timedelta(0) <= backoff.delay(failures, rng) <= backoff.bound(failures)
    assert backoff.bound(failures) <= timedelta(seconds=30)
    assert backoff.bound(failures) <= backoff.bound(failures + 1)


@pytest.mark.parametrize(
    ("first", "most"),
    [
        pytest.param(0, 1, id="zero would be a hot loop"),
        pytest.param(-1, 1, id="negative"),
        pytest.param(2, 1, id="first above most"),
    ],
)
def test_nonsense_is_refused_at_once(first: int, most: int) -> None:
    with pytest.raises(ValueError, match="backoff: first"):
        Backoff(first=timedelta(seconds=first), most=timedelta(seconds=most))


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
