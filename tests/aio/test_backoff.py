"""LI-11: retries slow down to a bound, and a value that does not stay is written more seldom."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.aio.backoff import Backoff
from tests.examples import repeatable

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
