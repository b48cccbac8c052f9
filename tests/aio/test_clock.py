"""What the API server's clock shows, from the dates of its answers (D-22: time is the server's)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from rollout_operator.aio.clock import ESTIMATE_LASTS, ServerClock, refine_time
from tests.fakes_clock import FakeClock

THEN = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MS = timedelta(milliseconds=1)


@pytest.fixture
def clock() -> FakeClock:
    clock = FakeClock()
    clock.jump(timedelta(hours=7))
    return clock


@pytest.fixture
def server(clock: FakeClock) -> ServerClock:
    return ServerClock(clock)


def date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


@pytest.mark.parametrize("header", ["", "nonsense", "Wed, 99 Foo 2031", "2031-05-06T07:08:09Z"])
def test_a_date_that_is_none_is_ignored(server: ServerClock, header: str) -> None:
    server.record_header(header)
    assert server.now() is None
    server.record_header(date(THEN))
    server.record_header(header)
    assert server.now() == THEN


LONG = ESTIMATE_LASTS.total_seconds()


@pytest.mark.parametrize(
    ("answers", "then", "shown"),
    [
        pytest.param([(0, 0)], 180.25, 180.25, id="time goes on between answers"),
        pytest.param([(0, 0), (2, 1)], 0, 2, id="one out of order or late never sets it back"),
        pytest.param([(0, 0), (LONG, 0)], 0, LONG, id="nor does a late one after many good ones"),
        # Whole seconds: the server was at 9.9 s at first.
        pytest.param([(0, 0), (0.1, 1)], 0, 1, id="the best one counts"),
        pytest.param([(0, 0), (0.1, 1), (0.9, 1)], 0, 1.9, id="and goes on from there"),
        # An hour ahead for ever would let every downscale go an hour early.
        pytest.param(
            [(0, 3600), (LONG, LONG), (LONG, 2 * LONG)], 0, 2 * LONG, id="a clock that is set back"
        ),
    ],
)
def test_the_time_that_answers_show(
    server: ServerClock,
    clock: FakeClock,
    answers: Sequence[tuple[float, float]],
    then: float,
    shown: float,
) -> None:
    """A wall clock of ours that is years behind changes nothing: only spans of it are used.

    An answer comes so many seconds after the one before, and shows so many since `THEN`.
    """
    for span, moment in answers:
        clock.jump(span * SECOND)
        server.record_header(date(THEN + moment * SECOND))
    clock.jump(then * SECOND)
    assert clock.now() < THEN - timedelta(days=365)
    assert server.now() == THEN + shown * SECOND


def test_the_truth_is_never_more_than_a_second_ahead(server: ServerClock, clock: FakeClock) -> None:
    start = clock.elapsed()
    for _ in range(500):
        clock.jump(1370 * MS)
        truth = THEN + (clock.elapsed() - start)
        server.record_header(date(truth.replace(microsecond=0)))
        shown = server.now()
        assert shown is not None
        assert truth - SECOND < shown <= truth


def test_a_clock_of_ours_that_runs_fast_does_not_add_up(
    server: ServerClock, clock: FakeClock
) -> None:
    """One second in a thousand, for a day: 86 s where the first answer counted for ever."""
    for minute in range(1440):
        server.record_header(date(THEN + timedelta(minutes=minute)))
        clock.jump(timedelta(minutes=1.001))
    shown = server.now()
    assert shown is not None
    assert shown - (THEN + timedelta(days=1)) < SECOND


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param(0.4, 0.4, id="our own clock is finer"),
        pytest.param(-5, 0, id="and may be slow"),
        pytest.param(1.6, 1.6, id="answers take time"),
        pytest.param(5, 2, id="or fast"),
    ],
)
def test_fractions_of_a_second_are_those_of_our_own_clock(own: float, expected: float) -> None:
    """RELB-38: only as far as the server's clock allows them."""
    shown = datetime(2026, 1, 1, tzinfo=UTC)
    found = refine_time(shown, shown + timedelta(seconds=own))
    assert found == shown + timedelta(seconds=expected)
    assert refine_time(None, shown) == shown
