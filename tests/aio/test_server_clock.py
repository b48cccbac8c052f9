"""What the API server's clock shows, from the dates of its answers (D-22: time is the server's)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from rollout_operator.aio.server_clock import ESTIMATE_LASTS, ServerClock
from tests.fakes_clock import FakeClock

THEN = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MS = timedelta(milliseconds=1)
HOUR = timedelta(hours=1)


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
    server.note_header(header)
    assert server.now() is None
    server.note_header(date(THEN))
    server.note_header(header)
    assert server.now() == THEN


@pytest.mark.parametrize(
    ("answers", "then", "shown"),
    [
        pytest.param(
            [(0 * MS, THEN)], 180250 * MS, THEN + 180250 * MS, id="time goes on between answers"
        ),
        pytest.param(
            [(0 * MS, THEN), (2 * SECOND, THEN + SECOND)],
            0 * MS,
            THEN + 2 * SECOND,
            id="an answer out of order or late never sets it back",
        ),
        pytest.param(
            [(0 * MS, THEN), (ESTIMATE_LASTS, THEN)],
            0 * MS,
            THEN + ESTIMATE_LASTS,
            id="nor does a late one after minutes of good ones",
        ),
        pytest.param(
            [(0 * MS, THEN), (100 * MS, THEN + SECOND)],
            0 * MS,
            THEN + SECOND,
            id="whole seconds, the best one counts: the server was at 9.9 s at first",
        ),
        pytest.param(
            [(0 * MS, THEN), (100 * MS, THEN + SECOND), (900 * MS, THEN + SECOND)],
            0 * MS,
            THEN + 1900 * MS,
            id="and goes on from there",
        ),
        pytest.param(
            # An hour ahead for ever would let every downscale go an hour early.
            [
                (0 * MS, THEN + HOUR),
                (ESTIMATE_LASTS, THEN + ESTIMATE_LASTS),
                (ESTIMATE_LASTS, THEN + 2 * ESTIMATE_LASTS),
            ],
            0 * MS,
            THEN + 2 * ESTIMATE_LASTS,
            id="a clock that is set back is followed within minutes",
        ),
    ],
)
def test_the_time_that_answers_show(
    server: ServerClock,
    clock: FakeClock,
    answers: Sequence[tuple[timedelta, datetime]],
    then: timedelta,
    shown: datetime,
) -> None:
    """A wall clock of ours that is years behind changes nothing: only spans of it are used."""
    for span, moment in answers:
        clock.jump(span)
        server.note_header(date(moment))
    clock.jump(then)
    assert clock.now() < THEN - timedelta(days=365)
    assert server.now() == shown


def test_the_truth_is_never_more_than_a_second_ahead(server: ServerClock, clock: FakeClock) -> None:
    start = clock.elapsed()
    for _ in range(500):
        clock.jump(1370 * MS)
        truth = THEN + (clock.elapsed() - start)
        server.note_header(date(truth.replace(microsecond=0)))
        shown = server.now()
        assert shown is not None
        assert truth - SECOND < shown <= truth


def test_a_clock_of_ours_that_runs_fast_does_not_add_up(
    server: ServerClock, clock: FakeClock
) -> None:
    """One second in a thousand, for a day: 86 s where the first answer counted for ever."""
    for minute in range(1440):
        server.note_header(date(THEN + timedelta(minutes=minute)))
        clock.jump(timedelta(minutes=1.001))
    shown = server.now()
    assert shown is not None
    assert shown - (THEN + timedelta(days=1)) < SECOND
