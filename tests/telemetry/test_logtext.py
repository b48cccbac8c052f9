"""One record is one line, whatever it holds (LOG-01, DEP-06, SEC-13, SEC-14, SI-23)."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.outcome import Severity
from rollout_operator.telemetry.logs import MAX_VALUE, describe_error, render_json, render_logfmt
from tests.examples import repeatable

TS: Final = "2026-01-02T03:04:05.000000006Z"
REPEATABLE: Final = repeatable(200)
NASTY: Final = 'a\nb\r\t\x00\x1b[31m\x7f\x85\u2028\u202e\ufeff\ud800"\\=é😀 %s {} <script>'


def logfmt(value: object, key: str = "k") -> str:
    """Return one value as logfmt shows it."""
    line = render_logfmt("info", TS, "m", {key: value}).decode()
    return line.removeprefix(f"level=info ts={TS} msg=m {key}=").removesuffix("\n")


def as_json(keys: Mapping[str, object], message: str = "m") -> dict[str, object]:
    """Return a record read back from JSON."""
    read = json.loads(render_json("info", TS, message, keys))
    assert isinstance(read, dict)
    return read


def test_logfmt_begins_with_level_time_and_message() -> None:
    """LOG-01, DEP-06: key order as given after level, ts, msg."""
    line = render_logfmt("warn", TS, "Deleting pod", {"zone": "zone-b", "pod": "b-0", "n": 3})

    assert line == f'level=warn ts={TS} msg="Deleting pod" zone=zone-b pod=b-0 n=3\n'.encode()


def test_json_has_the_same_keys_in_the_same_order() -> None:
    """LOG-01, DEP-06."""
    line = render_json("warn", TS, "Deleting pod", {"zone": "zone-b", "pod": "b-0", "n": 3})

    begin = f'{{"level":"warn","ts":"{TS}","msg":"Deleting pod",'
    assert line == f'{begin}"zone":"zone-b","pod":"b-0","n":3}}\n'.encode()


@pytest.mark.parametrize(
    ("value", "in_logfmt", "in_json"),
    [
        pytest.param(None, "null", None, id="none"),
        pytest.param("null", '"null"', "null", id="the word null"),
        pytest.param("", '""', "", id="empty"),
        pytest.param(True, "true", True, id="true"),
        pytest.param(False, "false", False, id="false"),
        pytest.param(0, "0", 0, id="zero"),
        pytest.param(-7, "-7", -7, id="integer"),
        pytest.param(1.5, "1.5", 1.5, id="float"),
        pytest.param(float("nan"), "nan", "nan", id="not a number"),
        pytest.param(float("inf"), "inf", "inf", id="endless"),
        pytest.param("plain-text_1.2/3:4,[5]", "plain-text_1.2/3:4,[5]", ..., id="plain"),
        pytest.param("two words", '"two words"', "two words", id="blank"),
        pytest.param("a=b", '"a=b"', "a=b", id="equals sign"),
        pytest.param('a"b', '"a\\"b"', 'a"b', id="quote"),
        pytest.param("a\\b", "a\\b", "a\\b", id="backslash alone needs no quotes"),
        pytest.param("a\\ b", '"a\\\\ b"', "a\\ b", id="backslash within quotes"),
        pytest.param("é", "é", "é", id="beyond ASCII"),
        pytest.param("a\nb", '"a\\nb"', "a\nb", id="SEC-13 line feed"),
        pytest.param("\x1b[31m", '"\\u001b[31m"', "\x1b[31m", id="SEC-13 escape sequence"),
        pytest.param("\u2028", '"\\u2028"', "\u2028", id="SEC-13 line separator"),
        pytest.param("\u202e", '"\\u202e"', "\u202e", id="SEC-13 direction turned around"),
        pytest.param("\ud800", '"\ufffd"', "\ufffd", id="SEC-13 lone surrogate"),
        pytest.param(timedelta(hours=12), "12h0m0s", ..., id="duration of Go"),
        pytest.param(
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z", ..., id="time"
        ),
        pytest.param(Severity.WARN, "warn", "warn", id="enum"),
        pytest.param(b"ab\xff", '"ab\ufffd"', "ab\ufffd", id="bytes"),
        pytest.param(["a", 1, None], '"[\\"a\\",1,null]"', ["a", 1, None], id="list"),
        pytest.param(("a",), '"[\\"a\\"]"', ["a"], id="tuple"),
        pytest.param([], "[]", [], id="empty list"),
        pytest.param({"a": {"b": 1}}, '"{\\"a\\":{\\"b\\":1}}"', {"a": {"b": 1}}, id="mapping"),
        pytest.param(range(3), '"range(0, 3)"', "range(0, 3)", id="anything else"),
    ],
)
def test_values_are_distinguished_by_type(value: object, in_logfmt: str, in_json: object) -> None:
    assert logfmt(value) == in_logfmt
    assert as_json({"k": value})["k"] == (in_logfmt if in_json is ... else in_json)


def test_errors_are_reported_so_that_one_can_act() -> None:
    """DEP-06: under `err`; ours are sentences, others need their class to be understood."""
    group = ExceptionGroup("two", [ValueError("bad\nx"), InvalidInput("spec.a: 0 < 1")])

    assert describe_error(InvalidInput("spec.a: 0 < 1")) == "spec.a: 0 < 1"
    assert describe_error(KeyError("x")) == "KeyError: 'x'"
    assert describe_error(TimeoutError()) == "TimeoutError"
    assert describe_error(InvalidInput()) == "InvalidInput"
    assert describe_error(group) == "ValueError: bad\nx; spec.a: 0 < 1"
    assert logfmt(group, "err") == '"ValueError: bad\\nx; spec.a: 0 < 1"'


@pytest.mark.parametrize(
    "key", ["token", "authorization", "password", "Authorization", "bearer_token", "api.password"]
)
def test_secrets_are_not_shown(key: str) -> None:
    """SEC-14."""
    assert logfmt("s3cret", key) == "<redacted>"
    assert as_json({key: "s3cret"})[key] == "<redacted>"
    assert as_json({"k": {key: "s3cret", "a": [{key: "s3cret"}]}})["k"] == {
        key: "<redacted>",
        "a": [{key: "<redacted>"}],
    }
    assert "s3cret" not in logfmt({key: "s3cret"})


def test_a_key_that_only_begins_like_a_secret_is_reported() -> None:
    assert logfmt(3, "token_bucket") == "3"


def test_long_values_are_cut_with_a_mark() -> None:
    """SEC-13: annotations have up to 256 KiB."""
    for value in ("x" * 262_144, ["x" * 262_144], {"a": "x" * 262_144}, ["abc"] * 262_144):
        assert len(logfmt(value)) < MAX_VALUE + 100
        assert len(str(as_json({"k": value})["k"])) < MAX_VALUE + 100
    assert logfmt("x" * 262_144).endswith("x...(262144-characters)")
    assert logfmt("x" * MAX_VALUE) == "x" * MAX_VALUE


def test_a_value_that_grows_by_its_escapes_stays_bounded() -> None:
    assert len(logfmt("\x00" * 262_144)) < 6 * MAX_VALUE + 100


def test_what_lies_deep_is_left_out() -> None:
    """A structure that holds itself ends as well."""
    loop: list[object] = []
    loop.append(loop)

    assert logfmt(loop) == '"[[[[[[\\"...\\"]]]]]]"'


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("object.name", "object.name"),
        ("two words", "two_words"),
        ('a="b\n', "a__b_"),
        ("", "_"),
        ("level", "level_"),
        ("ts", "ts_"),
        ("msg", "msg_"),
    ],
)
def test_keys_stay_keys(key: str, shown: str) -> None:
    """LOG-02 names with dots stay; what would break the line, or repeat our own keys, does not."""
    assert render_logfmt("info", TS, "m", {key: 1}).decode().endswith(f" msg=m {shown}=1\n")
    assert list(as_json({key: 1})) == ["level", "ts", "msg", shown]


@REPEATABLE
@given(st.text(alphabet=st.characters() | st.sampled_from(NASTY), max_size=40), st.text(max_size=9))
@example(NASTY, NASTY)
@example("null", "")
def test_any_text_is_one_line_that_reads_back(text: str, key: str) -> None:
    """SEC-13, SI-23: valid UTF-8, no control characters, the value can be had again."""
    for render in (render_logfmt, render_json):
        line = render("info", TS, text, {key: text}).decode()
        assert len(line.splitlines()) == 1
        assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", line) is None

    clean = re.sub("[\ud800-\udfff]", "\ufffd", text)
    assert as_json({"k": text}, text) == {"level": "info", "ts": TS, "msg": clean, "k": clean}
    shown = logfmt(text)
    assert (json.loads(shown) if shown.startswith('"') else shown) == clean


@REPEATABLE
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=10,
    )
)
def test_any_structure_is_valid_json(value: object) -> None:
    as_json({"k": value})
