"""Words become values exactly as with Go's `flag` package (FLAG-01, DEP-02)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    LIST,
    LONG_SPAN,
    TEXT,
    Flag,
    FlagKind,
    HelpRequested,
    ParsedArguments,
    UsageError,
    parse_arguments,
    parse_mixed,
)
from tests.examples import repeatable


def flag(name: str, kind: FlagKind[Any], default: object, alias: str = "") -> Flag[Any]:
    return Flag(name=name, kind=kind, default=default, alias=alias, help="", group="")


NAME: Final = flag("a.name", TEXT, "none", alias="a-name")
ON: Final = flag("on", BOOL, False)
COUNT: Final = flag("count", INT, 1)
RATE: Final = flag("rate", FLOAT, 0.5)
SPAN: Final = flag("span", DURATION, timedelta(0))
PARTS: Final = flag("parts", LIST, ())
LONG: Final = flag("long", LONG_SPAN, timedelta(days=365))
FLAGS: Final = (NAME, ON, COUNT, RATE, SPAN, PARTS, LONG)


def parse(*words: str) -> ParsedArguments:
    return parse_arguments(FLAGS, words)


@pytest.mark.parametrize(
    ("words", "expected", "leftovers"),
    [
        pytest.param([], {}, (), id="DEP-02 none"),
        pytest.param(["-a.name=x"], {"a.name": "x"}, (), id="FLAG-01 SEED-061 one dash"),
        pytest.param(["--a.name=x"], {"a.name": "x"}, (), id="FLAG-01 two dashes"),
        pytest.param(["-a.name", "x"], {"a.name": "x"}, (), id="FLAG-01 separate value"),
        pytest.param(["--a.name", "x"], {"a.name": "x"}, (), id="FLAG-01 both"),
        pytest.param(["-a.name="], {"a.name": ""}, (), id="empty value"),
        pytest.param(["-a.name", ""], {"a.name": ""}, (), id="empty word as value"),
        pytest.param(["-a.name=x=y"], {"a.name": "x=y"}, (), id="only the first = splits"),
        pytest.param(["-a.name", "-on"], {"a.name": "-on"}, (), id="a value may have a dash"),
        pytest.param(["-a.name", "--"], {"a.name": "--"}, (), id="a value may be two dashes"),
        pytest.param(["-a-name=x"], {"a.name": "x"}, (), id="other spelling"),
        pytest.param(["-a.name=x", "-a-name=y"], {"a.name": "y"}, (), id="last spelling wins"),
        pytest.param(["-on"], {"on": True}, (), id="FLAG-01 boolean alone"),
        pytest.param(["-on=false"], {"on": False}, (), id="FLAG-01 boolean by ="),
        pytest.param(["-on=T"], {"on": True}, (), id="FLAG-01 short boolean"),
        pytest.param(
            ["-on", "false", "-count=2"],
            {"on": True, "count": 1},
            ("false", "-count=2"),
            id="FLAG-01 a word after a boolean ends the flags",
        ),
        pytest.param(["-count=2", "-count=3"], {"count": 3}, (), id="DEP-02 last wins"),
        pytest.param(["-on=true", "-on=false"], {"on": False}, (), id="DEP-02 last boolean wins"),
        pytest.param(
            ["-count=2", "word", "-count=3"],
            {"count": 2},
            ("word", "-count=3"),
            id="DEP-02 stops at the first word",
        ),
        pytest.param(["--", "-count=3"], {"count": 1}, ("-count=3",), id="two dashes end it"),
        pytest.param(["-", "-count=3"], {"count": 1}, ("-", "-count=3"), id="a dash is a word"),
        pytest.param(["", "-count=3"], {"count": 1}, ("", "-count=3"), id="empty is a word"),
    ],
)
def test_the_grammar_of_go(
    words: list[str], expected: Mapping[str, object], leftovers: tuple[str, ...]
) -> None:
    read = parse(*words)

    by_name = {each.name: each for each in FLAGS}
    assert {name: read.value(by_name[name]) for name in expected} == expected
    assert read.leftovers == leftovers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-x"], "flag provided but not defined: -x"),
        (["--x=1"], "flag provided but not defined: -x"),
        pytest.param(
            ["-coun=1"],
            "flag provided but not defined: -coun; did you mean -count?",
            id="DEP-02 no shortened names",
        ),
        (["-COUNT=1"], "flag provided but not defined: -COUNT; did you mean -count?"),
        (["-name=x"], "flag provided but not defined: -name; did you mean -a.name?"),
        (["-a.name"], "flag needs an argument: -a.name"),
        (["-on", "-a.name"], "flag needs an argument: -a.name"),
        (["-a-name"], "flag needs an argument: -a-name"),
        (["-=x"], "bad flag syntax: -=x"),
        (["--=x"], "bad flag syntax: --=x"),
        (["---on"], "bad flag syntax: ---on"),
        (["-on=yes"], 'invalid boolean value "yes" for -on: parse error: write true or false'),
        (["-on="], 'invalid boolean value "" for -on: parse error: write true or false'),
        (["-count=x"], 'invalid value "x" for flag -count: parse error: write a whole number'),
        (["-count", ""], 'invalid value "" for flag -count: parse error: write a whole number'),
        (["-count=1.0"], 'invalid value "1.0" for flag -count: parse error: write a whole number'),
        (["-count= 1"], 'invalid value " 1" for flag -count: parse error: write a whole number'),
        (
            ["-count=9223372036854775808"],
            'invalid value "9223372036854775808" for flag -count: value out of range',
        ),
        (
            ["-span=1d"],
            'invalid value "1d" for flag -span: parse error:'
            ' time: unknown unit "d" in duration "1d": units are ms, s, m and h',
        ),
        (
            ["-span=5"],
            'invalid value "5" for flag -span: parse error: time: missing unit in duration "5":'
            " write 5s or 5m",
        ),
        (["-rate=fast"], 'invalid value "fast" for flag -rate: parse error: write a number'),
        (["-rate=1e400"], 'invalid value "1e400" for flag -rate: value out of range'),
        (
            ['-count=a"b\n'],
            'invalid value "a\\"b\\n" for flag -count: parse error: write a whole number',
        ),
        (
            ["-long=30"],
            'invalid value "30" for flag -long: not a valid duration string: "30":'
            " write 30h or 30d",
        ),
        (
            ["-long=1.5h"],
            'invalid value "1.5h" for flag -long: not a valid duration string: "1.5h":'
            " write it as in 12h or 1d12h",
        ),
    ],
)
def test_errors_are_worded_as_in_go_and_exit_with_2(words: list[str], message: str) -> None:
    """DEP-02, PROC-04."""
    with pytest.raises(UsageError) as caught:
        parse(*words)

    assert str(caught.value) == message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("words", "is_full"),
    [
        (["-h"], False),
        (["--h"], False),
        (["-help"], False),
        (["--help"], False),
        (["-count=2", "-h"], False),
        (["-h", "-x"], False),
        (["-h=1"], False),
        (["-help-all"], True),
        (["--help-all"], True),
        (["-count=2", "-help-all", "-h"], True),
    ],
)
def test_help_is_requested(words: list[str], is_full: bool) -> None:
    """PROC-04: words are read from left to right, so what stands behind does not matter."""
    with pytest.raises(HelpRequested) as caught:
        parse(*words)

    assert caught.value.is_full == is_full


def test_an_error_before_help_counts() -> None:
    with pytest.raises(UsageError, match="not defined: -x"):
        parse("-x", "-h")


def test_help_among_leftovers_is_a_word() -> None:
    assert parse("word", "-h").leftovers == ("word", "-h")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("8001", 8001),
        ("-5", -5),
        ("+5", 5),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_integers_are_decimal(text: str, expected: int) -> None:
    assert parse(f"-count={text}").value(COUNT) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("0x1F41", "0b101", "0o17", "017", "1_000", "08", "0x", "_1", "1_"),
        *("--1", "1e3", "\u0661", "1 "),
    ],
)
def test_other_integers_are_refused(text: str) -> None:
    """What Go reads as of another base is not read as decimal either."""
    with pytest.raises(UsageError, match="parse error"):
        parse(f"-count={text}")


@pytest.mark.parametrize("text", ["9" * 10_000, "-9223372036854775809"])
def test_integers_beyond_64_bits_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="value out of range"):
        parse(f"-count={text}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5.0),
        ("2.5", 2.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1", -1.0),
        ("1e2", 100.0),
        ("1E-2", 0.01),
        ("1e-400", 0.0),
        ("inf", float("inf")),
        ("-Infinity", float("-inf")),
    ],
)
def test_floats_are_read(text: str, expected: float) -> None:
    assert parse(f"-rate={text}").value(RATE) == expected


@pytest.mark.parametrize(
    "text", ["", ".", "1_0", " 1", "0x1", "0x1p-2", "1e", "\u0661", "infin", "1,5"]
)
def test_other_floats_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="parse error"):
        parse(f"-rate={text}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("a", ("a",)),
        ("a,b", ("a", "b")),
        pytest.param(" a , b ", ("a", "b"), id="blanks do not count"),
        pytest.param("a,,b,", ("a", "b"), id="an empty part would match everything"),
    ],
)
def test_lists_are_split_at_commas(text: str, expected: tuple[str, ...]) -> None:
    assert parse(f"-parts={text}").value(PARTS) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1y", timedelta(days=365)), ("2w", timedelta(days=14)), ("0", timedelta(0))],
)
def test_long_spans_know_years(text: str, expected: timedelta) -> None:
    """FLAG-35: durations as Prometheus has them, and only there (FLAG-42)."""
    assert parse(f"-long={text}").value(LONG) == expected
    assert parse("-long", text).value(LONG) == expected


@pytest.mark.parametrize("text", ["", "1", "1.5h", "30m1h", "-1d", "1h 5m"])
def test_other_long_spans_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"-long={text}")
    assert str(caught.value).startswith(f'invalid value "{text}" for flag -long: ')


def test_years_are_no_unit_of_the_other_spans() -> None:
    with pytest.raises(UsageError, match='invalid value "1y" for flag -span'):
        parse("-span=1y")


def test_a_flag_is_given_or_at_its_default() -> None:
    words = parse("-count=1")

    assert words.has(COUNT)
    assert not words.has(NAME)
    assert words.value(NAME) == "none"


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (TEXT, "x", "x"),
        (INT, 8001, "8001"),
        (FLOAT, 5.0, "5"),
        (FLOAT, 2.5, "2.5"),
        (BOOL, True, "true"),
        (BOOL, False, "false"),
        (DURATION, timedelta(minutes=5), "5m0s"),
        (LONG_SPAN, timedelta(days=365), "1y"),
        (LONG_SPAN, timedelta(hours=1.5), "1h30m"),
        (LIST, ("a", "b"), "a,b"),
    ],
)
def test_values_are_shown_as_they_are_written(
    kind: FlagKind[Any], value: object, shown: str
) -> None:
    assert kind.show(value) == shown
    assert kind.parse(shown) == value


@repeatable(300)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["-on", "-count", "--count=2", "-h", "--", "-", "-a.name", "-span=1s"]),
            st.text(alphabet="-=ahon.1 ", max_size=6),
        ),
        max_size=5,
    )
)
@example(["-on=", "x"])
def test_any_words_are_read_or_refused_for_a_reason(words: list[str]) -> None:
    """What is left over is always the end of the words, untouched."""
    read = outcome(words)

    if isinstance(read, UsageError):
        assert str(read)
    elif isinstance(read, ParsedArguments):
        assert read.leftovers == tuple(words[len(words) - len(read.leftovers) :])


def outcome(words: list[str]) -> ParsedArguments | UsageError | HelpRequested:
    try:
        return parse(*words)
    except (UsageError, HelpRequested) as error:
        return error


@pytest.mark.parametrize(
    ("words", "expected", "others"),
    [
        pytest.param(["pod", "-on"], {"on": True}, ("pod",), id="D-76 a flag after a word"),
        pytest.param(
            ["a", "-count", "2", "b", "--on=false"],
            {"count": 2, "on": False},
            ("a", "b"),
            id="D-76 flags between words",
        ),
        pytest.param(["a", "--", "-on", "--"], {}, ("a", "-on", "--"), id="two dashes end flags"),
        pytest.param(["-", "-on"], {"on": True}, ("-",), id="a dash is a word"),
    ],
)
def test_flags_may_stand_between_words(
    words: list[str], expected: Mapping[str, object], others: tuple[str, ...]
) -> None:
    parsed = parse_mixed(FLAGS, words)

    assert parsed.leftovers == others
    assert {flag.name: parsed.value(flag) for flag in FLAGS if parsed.has(flag)} == expected


def test_what_follows_a_word_is_refused_like_what_comes_first() -> None:
    with pytest.raises(UsageError, match="flag provided but not defined: -nope"):
        parse_mixed(FLAGS, ["pod", "-nope"])
