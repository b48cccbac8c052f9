"""Texts with a unit, in whatever order their letters come (section 24); cases are in units.txt."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import (
    IntOrPercent,
    format_duration,
    format_go_time,
    format_prometheus_duration,
    format_rfc3339,
    parse_duration,
    parse_go_int,
    parse_prometheus_duration,
    parse_rfc3339,
    quote,
)
from tests.examples import repeatable

REPEATABLE: Final = repeatable(200)

GO_DURATION: Final = re.compile(
    "[+-]?(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)"
)
# What Go's 64 bits of nanoseconds hold, in whole microseconds.
LONGEST: Final = timedelta(microseconds=(2**63 - 1) // 1000)


@REPEATABLE
@given(st.timedeltas(min_value=-LONGEST, max_value=LONGEST))
@example(LONGEST)
@example(-LONGEST)
def test_a_written_duration_reads_back_the_same(span: timedelta) -> None:
    assert parse_duration(format_duration(span)) == span


@REPEATABLE
@given(st.text(alphabet="0159.+-nusmhd \u00b5\u0665_", max_size=12))
@example("1h")
@example("0")
def test_exactly_the_grammar_of_go_is_a_duration(text: str) -> None:
    """The texts are too short to be too long in time, except with many digits of hours."""
    try:
        parse_duration(text)
    except InvalidInput:
        is_read = False
    else:
        is_read = True

    is_duration = GO_DURATION.fullmatch(text) is not None
    assert is_read == is_duration or (is_duration and re.search("[0-9]{7}", text) is not None)


@REPEATABLE
@given(st.integers(min_value=-(2**65), max_value=2**65))
def test_an_integer_is_read_if_it_fits(number: int) -> None:
    if -(2**63) <= number < 2**63:
        assert parse_go_int(str(number)) == number
    else:
        with pytest.raises(InvalidInput):
            parse_go_int(str(number))


@REPEATABLE
@given(st.integers(min_value=1, max_value=100), st.integers(min_value=0, max_value=10_000))
def test_a_share_never_exceeds_itself(percent: int, replicas: int) -> None:
    pods = IntOrPercent(percent, is_percent=True).of(replicas)

    assert pods >= 1
    assert pods == 1 or pods * 100 <= percent * replicas < (pods + 1) * 100


def test_a_quote_is_one_line_and_not_endless() -> None:
    assert quote('a"b\n') == '"a\\"b\\n"'
    assert quote("x" * 500) == '"' + "x" * 200 + '..."'


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


@REPEATABLE
@given(st.integers(0, 10**13))
def test_a_written_long_duration_reads_back_the_same(milliseconds: int) -> None:
    span = timedelta(milliseconds=milliseconds)
    assert parse_prometheus_duration(format_prometheus_duration(span)) == span


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
