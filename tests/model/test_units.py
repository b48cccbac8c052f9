"""Texts with a unit are read and written exactly as Go does (section 24)."""

import re
from datetime import datetime, timedelta, timezone
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import (
    IntOrPercent,
    format_duration,
    format_rfc3339,
    parse_duration,
    parse_go_bool,
    parse_go_int,
    parse_max_unavailable,
    quote,
)
from tests.examples import repeatable

REPEATABLE: Final = repeatable(200)

GO_DURATION: Final = re.compile(
    "[+-]?(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)"
)
# What Go's 64 bits of nanoseconds hold, in whole microseconds.
LONGEST: Final = timedelta(microseconds=(2**63 - 1) // 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0", timedelta(0), id="24 a bare zero"),
        pytest.param("-0", timedelta(0), id="24 a bare zero with sign"),
        pytest.param("5m", timedelta(minutes=5), id="FLAG-42 minutes"),
        pytest.param("1h30m", timedelta(hours=1.5), id="FLAG-42 several units"),
        pytest.param("1.5h", timedelta(hours=1.5), id="DEP-05 fraction"),
        pytest.param(".5s", timedelta(seconds=0.5), id="24 fraction without whole"),
        pytest.param("1.s", timedelta(seconds=1), id="24 point without fraction"),
        pytest.param("300ms", timedelta(milliseconds=300), id="DEP-05 milliseconds"),
        pytest.param("+2us", timedelta(microseconds=2), id="24 sign"),
        pytest.param("2\u00b5s", timedelta(microseconds=2), id="24 micro sign"),
        pytest.param("2\u03bcs", timedelta(microseconds=2), id="24 Greek mu"),
        pytest.param("-1m30s", timedelta(seconds=-90), id="24 one sign for all"),
        pytest.param("30m1h", timedelta(hours=1.5), id="24 units in any order"),
        pytest.param("1h1h", timedelta(hours=2), id="24 a unit twice"),
        pytest.param("1ns", timedelta(microseconds=1), id="positive stays positive"),
        pytest.param("-1ns", timedelta(microseconds=-1), id="negative stays negative"),
        pytest.param("1001ns", timedelta(microseconds=2), id="away from zero"),
        pytest.param("0" * 5000 + "1s", timedelta(seconds=1), id="leading zeros"),
        pytest.param("0." + "3" * 5000 + "s", timedelta(microseconds=333334), id="long fraction"),
        pytest.param(
            "9223372036854775807ns", LONGEST + timedelta(microseconds=1), id="the largest"
        ),
        pytest.param(
            "-9223372036854775808ns", -LONGEST - timedelta(microseconds=1), id="the smallest"
        ),
    ],
)
def test_go_durations_are_read(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", 'time: invalid duration ""', id="empty"),
        pytest.param("-", 'time: invalid duration "-"', id="sign alone"),
        pytest.param("5", 'time: missing unit in duration "5"', id="no unit"),
        pytest.param("1h5", 'time: missing unit in duration "1h5"', id="no last unit"),
        pytest.param("1d", 'time: unknown unit "d" in duration "1d"', id="DEP-05 days"),
        pytest.param("1y", 'time: unknown unit "y" in duration "1y"', id="DEP-05 years"),
        pytest.param("1H", 'time: unknown unit "H" in duration "1H"', id="upper case"),
        pytest.param("1h 5m", 'time: unknown unit "h " in duration "1h 5m"', id="blank inside"),
        pytest.param(" 1h", 'time: invalid duration " 1h"', id="blank before"),
        pytest.param("1h-5m", 'time: unknown unit "h-" in duration "1h-5m"', id="sign inside"),
        pytest.param(".s", 'time: invalid duration ".s"', id="point alone"),
        pytest.param("1..5s", 'time: missing unit in duration "1..5s"', id="two points"),
        pytest.param("1_0s", 'time: unknown unit "_" in duration "1_0s"', id="underscore"),
        pytest.param("\u0665s", 'time: invalid duration "\u0665s"', id="digits of other scripts"),
        pytest.param(
            "9223372036854775808ns",
            'time: invalid duration "9223372036854775808ns"',
            id="one nanosecond too long",
        ),
        pytest.param("2562047h60m", 'time: invalid duration "2562047h60m"', id="too long in sum"),
    ],
)
def test_other_durations_are_refused_with_the_value(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_duration(text)

    assert str(caught.value) == message


def test_a_huge_duration_is_refused_quickly_and_quoted_in_part() -> None:
    """SEC-13: an annotation may have 256 KiB."""
    with pytest.raises(InvalidInput) as caught:
        parse_duration("9" * 250_000 + "s")

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("span", "text"),
    [
        pytest.param(timedelta(0), "0s", id="24 zero"),
        pytest.param(timedelta(hours=12), "12h0m0s", id="24 hours"),
        pytest.param(timedelta(minutes=90), "1h30m0s", id="24 ninety minutes"),
        pytest.param(timedelta(minutes=5), "5m0s", id="24 minutes"),
        pytest.param(timedelta(seconds=15), "15s", id="24 seconds"),
        pytest.param(timedelta(seconds=1.5), "1.5s", id="24 sub-second"),
        pytest.param(timedelta(milliseconds=100), "100ms", id="24 milliseconds"),
        pytest.param(timedelta(microseconds=1500), "1.5ms", id="24 part of a millisecond"),
        pytest.param(timedelta(microseconds=7), "7\u00b5s", id="24 microseconds"),
        pytest.param(timedelta(seconds=-90), "-1m30s", id="24 negative"),
        pytest.param(timedelta(days=365), "8760h0m0s", id="24 no days"),
        pytest.param(timedelta(hours=1, microseconds=10), "1h0m0.00001s", id="24 small rest"),
    ],
)
def test_durations_are_written_as_go_writes_them(span: timedelta, text: str) -> None:
    assert format_duration(span) == text


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


@pytest.mark.parametrize(
    ("text", "bits", "expected"),
    [
        ("0", 64, 0),
        ("-0", 64, 0),
        ("+7", 64, 7),
        ("007", 64, 7),
        ("-2147483648", 32, -(2**31)),
        ("2147483647", 32, 2**31 - 1),
        ("9223372036854775807", 64, 2**63 - 1),
        ("0" * 9000 + "5", 32, 5),
    ],
)
def test_go_integers_are_read(text: str, bits: int, expected: int) -> None:
    assert parse_go_int(text, bits) == expected


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1_0", "0x1", "1.0", "1e3", "--1", "\u0661", "+", "1\n", "\u00b2"],
)
def test_what_only_python_takes_for_an_integer_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not an integer") as caught:
        parse_go_int(text)

    assert quote(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("2147483648", 32),
        ("-2147483649", 32),
        ("9223372036854775808", 64),
        ("-9223372036854775809", 64),
        ("9" * 100_000, 64),
        ("1" + "0" * 30, 64),
    ],
)
def test_integers_out_of_range_are_refused(text: str, bits: int) -> None:
    with pytest.raises(InvalidInput, match=f"does not fit into {bits} bits"):
        parse_go_int(text, bits)


@REPEATABLE
@given(st.integers(min_value=-(2**65), max_value=2**65))
def test_an_integer_is_read_if_it_fits(number: int) -> None:
    if -(2**63) <= number < 2**63:
        assert parse_go_int(str(number)) == number
    else:
        with pytest.raises(InvalidInput):
            parse_go_int(str(number))


def test_booleans_have_twelve_spellings() -> None:
    """FLAG-01."""
    assert all(parse_go_bool(text) for text in ("1", "t", "T", "true", "TRUE", "True"))
    assert not any(parse_go_bool(text) for text in ("0", "f", "F", "false", "FALSE", "False"))


@pytest.mark.parametrize("text", ["", "yes", "on", "tRUE", " true", "2", "01", "no"])
def test_other_booleans_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a boolean"):
        parse_go_bool(text)


@pytest.mark.parametrize(
    ("text", "replicas", "expected"),
    [
        pytest.param("3", 10, 3, id="T-02 integer"),
        pytest.param("3", 0, 3, id="ROLL-52 may exceed the replicas"),
        pytest.param(" 3\n", 10, 3, id="ROLL-50 blanks around"),
        pytest.param("+3", 10, 3, id="24 sign"),
        pytest.param("99999999999", 10, 99999999999, id="ROLL-52 more than 32 bits"),
        pytest.param(str(2**63 - 1), 10, 2**63 - 1, id="ROLL-52 the largest"),
        pytest.param("30%", 10, 3, id="T-02 share"),
        pytest.param("25%", 10, 2, id="T-02 share rounded down"),
        pytest.param("50%", 3, 1, id="T-02 half of three"),
        pytest.param("30%", 1, 1, id="T-02 at least one"),
        pytest.param("1%", 0, 1, id="ROLL-51 at least one of none"),
        pytest.param("100%", 7, 7, id="ROLL-51 all"),
        pytest.param(" 100% ", 7, 7, id="ROLL-50 blanks around a share"),
    ],
)
def test_max_unavailable_counts_pods(text: str, replicas: int, expected: int) -> None:
    assert parse_max_unavailable(text).of(replicas) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("xxx", id="T-02 text"),
        pytest.param("0", id="T-02 SEED-060 zero"),
        pytest.param("-1", id="T-02 negative"),
        pytest.param("-2", id="SEED-060 negative"),
        pytest.param("300%", id="T-02 more than all"),
        pytest.param("101%", id="ROLL-51 just more than all"),
        pytest.param("0%", id="T-02 share of nothing"),
        pytest.param("-5%", id="ROLL-53 negative share"),
        pytest.param("2.5", id="ROLL-53 fraction"),
        pytest.param("2.5%", id="ROLL-53 fraction of a percent"),
        pytest.param("25 %", id="24 blank before the sign"),
        pytest.param("25%%", id="ROLL-53 two signs"),
        pytest.param("%", id="ROLL-53 sign alone"),
        pytest.param("", id="ROLL-53 empty"),
        pytest.param("  ", id="ROLL-53 blank"),
        pytest.param("1_0", id="24 underscore"),
        pytest.param("\u0663", id="24 digit of another script"),
        pytest.param(str(2**63), id="ROLL-53 more than 64 bits"),
        pytest.param("99999999999%", id="ROLL-53 a share of more than 32 bits"),
        pytest.param("9" * 250_000, id="SEC-13 very long"),
    ],
)
def test_other_max_unavailable_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(InvalidInput, match="neither an integer from 1 nor a share") as caught:
        parse_max_unavailable(text)

    assert quote(text) in str(caught.value)
    assert len(str(caught.value)) < 400


@REPEATABLE
@given(st.integers(min_value=1, max_value=100), st.integers(min_value=0, max_value=10_000))
def test_a_share_never_exceeds_itself(percent: int, replicas: int) -> None:
    pods = IntOrPercent(percent, is_percent=True).of(replicas)

    assert pods >= 1
    assert pods == 1 or pods * 100 <= percent * replicas < (pods + 1) * 100


@pytest.mark.parametrize("text", ["3", "30%"])
def test_a_limit_is_shown_as_it_is_written(text: str) -> None:
    assert str(parse_max_unavailable(text)) == text


def test_times_are_written_in_utc_without_needless_digits() -> None:
    """Section 24, RFC 3339 output."""
    time = datetime(2006, 1, 2, 15, 4, 5, tzinfo=timezone(timedelta(hours=2)))

    assert format_rfc3339(time) == "2006-01-02T13:04:05Z"
    assert format_rfc3339(time.replace(microsecond=120)) == "2006-01-02T13:04:05.00012Z"


def test_a_quote_is_one_line_and_not_endless() -> None:
    assert quote('a"b\n') == '"a\\"b\\n"'
    assert quote("x" * 500) == '"' + "x" * 200 + '..."'
