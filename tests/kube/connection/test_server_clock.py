"""What the API server's clock shows, from the dates of its answers (D-22: time is the server's)."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from rollout_operator.kube.client.client import Client
from rollout_operator.kube.client.rate_limit import RateLimiter
from rollout_operator.kube.connection.lean import new_configuration
from rollout_operator.kube.connection.server_clock import ESTIMATE_LASTS, ServerClock
from rollout_operator.kube.connection.transport import open_transport
from rollout_operator.telemetry.metrics import Metrics
from tests.fakes_clock import FakeClock

THEN = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)


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


def test_nothing_is_known_before_the_first_answer(server: ServerClock) -> None:
    assert server.now() is None


@pytest.mark.parametrize("header", ["", "nonsense", "Wed, 99 Foo 2031", "2031-05-06T07:08:09Z"])
def test_a_date_that_is_none_is_ignored(server: ServerClock, header: str) -> None:
    server.note(header)
    assert server.now() is None
    server.note(date(THEN))
    server.note(header)
    assert server.now() == THEN


def test_time_goes_on_between_answers_whatever_our_wall_clock_shows(
    server: ServerClock, clock: FakeClock
) -> None:
    """A clock of ours that is years behind changes nothing: only spans of it are used."""
    server.note(date(THEN))
    clock.jump(timedelta(minutes=3, milliseconds=250))
    assert clock.now() < THEN - timedelta(days=365)
    assert server.now() == THEN + timedelta(minutes=3, milliseconds=250)


def test_answers_out_of_order_or_late_never_set_it_back(
    server: ServerClock, clock: FakeClock
) -> None:
    server.note(date(THEN))
    clock.jump(2 * SECOND)
    server.note(date(THEN + SECOND))
    assert server.now() == THEN + 2 * SECOND


def test_nor_does_a_late_answer_after_minutes_of_good_ones(
    server: ServerClock, clock: FakeClock
) -> None:
    server.note(date(THEN))
    clock.jump(ESTIMATE_LASTS)
    server.note(date(THEN))
    assert server.now() == THEN + ESTIMATE_LASTS


def test_dates_are_whole_seconds_and_the_best_one_counts(
    server: ServerClock, clock: FakeClock
) -> None:
    """Truth: the server is at 9.9 s at first, and shows 9."""
    server.note(date(THEN))
    clock.jump(timedelta(milliseconds=100))
    server.note(date(THEN + SECOND))
    assert server.now() == THEN + SECOND
    clock.jump(timedelta(milliseconds=900))
    server.note(date(THEN + SECOND))
    assert server.now() == THEN + timedelta(milliseconds=1900)


def test_the_truth_is_never_more_than_a_second_ahead(server: ServerClock, clock: FakeClock) -> None:
    start = clock.elapsed()
    for _ in range(500):
        clock.jump(timedelta(milliseconds=1370))
        truth = THEN + (clock.elapsed() - start)
        server.note(date(truth.replace(microsecond=0)))
        shown = server.now()
        assert shown is not None
        assert truth - SECOND < shown <= truth


def test_a_servers_clock_that_is_set_back_is_followed_within_minutes(
    server: ServerClock, clock: FakeClock
) -> None:
    """An hour ahead for ever would let every downscale go an hour early."""
    server.note(date(THEN + timedelta(hours=1)))
    for step in range(2):
        clock.jump(ESTIMATE_LASTS)
        server.note(date(THEN + (step + 1) * ESTIMATE_LASTS))
    assert server.now() == THEN + 2 * ESTIMATE_LASTS


def test_a_clock_of_ours_that_runs_fast_does_not_add_up(
    server: ServerClock, clock: FakeClock
) -> None:
    """One second in a thousand, for a day: 86 s where the first answer counted for ever."""
    for minute in range(1440):
        server.note(date(THEN + timedelta(minutes=minute)))
        clock.jump(timedelta(minutes=1.001))
    shown = server.now()
    assert shown is not None
    assert shown - (THEN + timedelta(days=1)) < SECOND


async def test_one_clock_is_shared_by_all_who_ask_one_server(clock: FakeClock) -> None:
    """SI-11: who has asked nothing yet knows the time by the answers to others."""
    transport = open_transport(new_configuration(), None, "test", clock, {})
    try:
        silent = Client(transport, RateLimiter(0, 0), Metrics())
        assert silent.server_time() is None

        transport.server_clock.note(date(THEN))

        assert silent.server_time() == THEN
    finally:
        await transport.close()
