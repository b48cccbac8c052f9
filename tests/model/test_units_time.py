"""Times and long durations: section 24, FLAG-35, PREP-16, SEC-25."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import (
    format_go_time,
    format_prometheus_duration,
    format_rfc3339,
    parse_prometheus_duration,
    parse_rfc3339,
    quote,
)
from tests.examples import repeatable

REPEATABLE: Final = repeatable(300)
DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
EAST: Final = timezone(2 * HOUR)
WEST: Final = timezone(-5.5 * HOUR)
INDIA: Final = timezone(5.5 * HOUR)
GO_TIME: Final = datetime(2006, 1, 2, 15, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1y", 365 * DAY, id="FLAG-35 24 a year"),
        pytest.param("2w", 14 * DAY, id="24 weeks"),
        pytest.param("1d", DAY, id="24 days"),
        pytest.param("12h", 12 * HOUR, id="24 hours"),
        pytest.param("90m", 1.5 * HOUR, id="24 minutes"),
        pytest.param("15s", timedelta(seconds=15), id="24 seconds"),
        pytest.param("250ms", timedelta(milliseconds=250), id="24 milliseconds"),
        pytest.param("1h30m", 1.5 * HOUR, id="24 descending"),
        pytest.param(
            "1y1w1d1h1m1s1ms",
            373 * DAY + HOUR + timedelta(minutes=1, seconds=1, milliseconds=1),
            id="24 all units",
        ),
        pytest.param("1m1ms", timedelta(minutes=1, milliseconds=1), id="m and ms are two"),
        pytest.param("0", timedelta(0), id="24 a bare zero"),
        pytest.param("0s", timedelta(0), id="zero with unit"),
        pytest.param("007d", 7 * DAY, id="leading zeros"),
    ],
)
def test_prometheus_durations_are_read(text: str, expected: timedelta) -> None:
    assert parse_prometheus_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="24 empty"),
        pytest.param("1", id="no unit"),
        pytest.param("00", id="two zeros"),
        pytest.param("-1d", id="negative"),
        pytest.param("+1d", id="sign"),
        pytest.param("1.5d", id="24 fraction"),
        pytest.param("1d1d", id="24 a unit twice"),
        pytest.param("1m1h", id="24 ascending"),
        pytest.param("1h1d", id="24 days after hours"),
        pytest.param("1D", id="upper case"),
        pytest.param("1d ", id="blank"),
        pytest.param("1d\n", id="line feed"),
        pytest.param("1 d", id="blank inside"),
        pytest.param("d", id="no number"),
        pytest.param("1us", id="a unit of Go only"),
        pytest.param("\u0661d", id="a digit of another script"),
        pytest.param("1mo", id="months"),
        pytest.param("1_0d", id="underscore"),
    ],
)
def test_other_long_durations_are_refused_with_the_value(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_prometheus_duration(text)
    assert str(caught.value) == f"not a valid duration string: {quote(text)}"


@pytest.mark.parametrize("text", ["9999999999y", "2739726y9999999999w", "9" * 100_000 + "y"])
def test_a_huge_long_duration_is_refused_in_a_short_sentence(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_prometheus_duration(text)
    assert len(str(caught.value)) < 300


GRAMMAR: Final = re.compile(
    "0|(?=.)([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m(?!s))?([0-9]+s)?([0-9]+ms)?"
)


@REPEATABLE
@given(st.text(alphabet="019ywdhms.- ", max_size=9))
@example("1m1ms")
@example("1ms1m")
def test_exactly_the_grammar_of_prometheus_is_a_long_duration(text: str) -> None:
    try:
        parse_prometheus_duration(text)
    except InvalidInput as error:
        is_read = str(error).startswith("duration out of range")
    else:
        is_read = True
    assert is_read == (GRAMMAR.fullmatch(text) is not None)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0s"),
        (365 * DAY, "1y"),
        (730 * DAY, "2y"),
        (366 * DAY, "366d"),
        (372 * DAY, "372d"),
        (364 * DAY, "52w"),
        (7 * DAY, "1w"),
        (8 * DAY, "8d"),
        (365 * DAY + HOUR, "365d1h"),
        (1.5 * HOUR, "1h30m"),
        (timedelta(seconds=1, milliseconds=5), "1s5ms"),
    ],
)
def test_long_durations_are_written_as_prometheus_writes_them(span: timedelta, text: str) -> None:
    """FLAG-35: the default reads `1y` in the usage."""
    assert format_prometheus_duration(span) == text


@REPEATABLE
@given(st.integers(0, 10**13))
def test_a_written_long_duration_reads_back_the_same(milliseconds: int) -> None:
    span = timedelta(milliseconds=milliseconds)
    assert parse_prometheus_duration(format_prometheus_duration(span)) == span


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2006-01-02T15:04:05Z", GO_TIME, id="24 UTC"),
        pytest.param("2006-01-02T17:04:05+02:00", GO_TIME, id="24 offset"),
        pytest.param("2006-01-02T15:04:05-00:00", GO_TIME, id="24 no offset"),
        pytest.param("2006-01-02T15:04:05.5Z", GO_TIME + timedelta(seconds=0.5), id="24 one digit"),
        pytest.param(
            "2006-01-02T15:04:05.123456789Z",
            GO_TIME + timedelta(microseconds=123456),
            id="24 nanoseconds are cut",
        ),
        pytest.param("2006-01-02T15:04:05.0000009+00:00", GO_TIME, id="24 less than a microsecond"),
        pytest.param(
            "2006-01-02T15:04:05,25Z", GO_TIME + timedelta(seconds=0.25), id="a comma, as in Go"
        ),
        pytest.param("2024-02-29T00:00:00Z", datetime(2024, 2, 29, tzinfo=UTC), id="a leap day"),
        pytest.param(
            "9998-12-31T23:59:59Z",
            datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC),
            id="SEC-25 the last year",
        ),
        pytest.param(
            "0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC), id="SEC-25 the first year"
        ),
    ],
)
def test_times_are_read(text: str, expected: datetime) -> None:
    assert parse_rfc3339(text) == expected


def test_a_time_keeps_the_offset_it_was_written_with() -> None:
    assert parse_rfc3339("2006-01-02T15:04:05+02:00").utcoffset() == 2 * HOUR


OTHER_TIMES: Final = (
    "", "now", "2006-01-02", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z", "2006-01-02t15:04:05Z",
    "2006-01-02T15:04:05z", "2006-01-02T15:04Z", "2006-01-02T15:04:05.Z",
    "2006-01-02T15:04:05+0200", "2006-01-02T15:04:05+02", "2006-01-02T15:04:05+2:00",
    "2006-01-02T15:04:05 +02:00", "2006-01-02T15:04:05+24:00", "2006-01-02T15:04:05-99:99",
    "2006-01-02T24:00:00Z", "2006-01-02T15:60:00Z", "2006-01-02T15:04:60Z", "2006-02-29T15:04:05Z",
    "2006-00-01T15:04:05Z", "0000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+02:00",
    "10000-01-01T00:00:00Z", "20060102T150405Z", "2006-W01-1T15:04:05Z", " 2006-01-02T15:04:05Z",
    "2006-01-02T15:04:05Z\n", "\u0662006-01-02T15:04:05Z", "1136214245",
)  # fmt: skip


@pytest.mark.parametrize("text", OTHER_TIMES)
def test_sec25_other_times_are_refused_with_the_value(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_rfc3339(text)
    assert str(caught.value).startswith(f"{quote(text)} is no RFC 3339 time")


@pytest.mark.parametrize("text", ["9" * 10_240, "2006-01-02T15:04:05." + "9" * 10_240])
def test_sec25_ten_kibibytes_are_refused_in_a_short_sentence(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_rfc3339(text)
    assert len(str(caught.value)) < 300


def test_sec25_a_fraction_of_ten_kibibytes_is_cut() -> None:
    text = f"2006-01-02T15:04:05.{'9' * 10_240}Z"
    assert parse_rfc3339(text) == GO_TIME + timedelta(microseconds=999_999)


@REPEATABLE
@given(st.datetimes(max_value=datetime(9998, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_written_time_is_read_back(time: datetime) -> None:
    assert parse_rfc3339(format_rfc3339(time)) == time


@REPEATABLE
@given(st.text(alphabet="0123456789-:TZ+.,\u0661 ", min_size=15, max_size=30))
def test_sec25_any_text_is_an_aware_time_or_refused(text: str) -> None:
    try:
        time = parse_rfc3339(text)
    except InvalidInput:
        return
    assert time.utcoffset() is not None
    assert format_go_time(time)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        pytest.param(
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            "2026-01-02 03:04:05 +0000 UTC",
            id="PREP-16 24 UTC",
        ),
        pytest.param(
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=EAST),
            "2026-01-02 03:04:05 +0200 +0200",
            id="24 another offset has no name",
        ),
        pytest.param(
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=WEST),
            "2026-01-02 03:04:05 -0530 -0530",
            id="24 west of it",
        ),
        pytest.param(
            datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=INDIA),
            "2026-01-02 03:04:05.25 +0530 +0530",
            id="24 a fraction without zeros",
        ),
        pytest.param(
            datetime(2026, 1, 2, 3, 4, 5, 7, tzinfo=UTC),
            "2026-01-02 03:04:05.000007 +0000 UTC",
            id="24 a small fraction",
        ),
        pytest.param(
            datetime(1, 1, 1, tzinfo=EAST), "0001-01-01 00:00:00 +0200 +0200", id="SEC-25 year 1"
        ),
    ],
)
def test_times_are_shown_as_go_prints_them(time: datetime, text: str) -> None:
    assert format_go_time(time) == text
