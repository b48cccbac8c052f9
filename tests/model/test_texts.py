"""Texts of all kinds: units, patterns, images, the zone tracker, reasons, and secrets.

Cases are in the tables; here is what holds for any text, or takes more than a line.
"""

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Final

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollout_operator.kube import client, kubeconfig
from rollout_operator.model.decode import objects
from rollout_operator.model.names import DecodeError, InvalidInput
from rollout_operator.model.outcome import Code, Reason, find_leading, render_path
from rollout_operator.model.scaling import (
    decode_entry,
    decode_zone_map,
    format_entry,
    render_changed,
)
from rollout_operator.model.units import (
    Confidential,
    IntOrPercent,
    compile_pattern,
    format_duration,
    format_go_time,
    format_prometheus_duration,
    format_rfc3339,
    has_open_alternation,
    parse_duration,
    parse_go_int,
    parse_prometheus_duration,
    parse_rfc3339,
    quote,
)
from rollout_operator.releases import registry
from rollout_operator.releases.model.releases import check_tag, parse_reference
from tests.examples import repeatable

REPEATABLE: Final = repeatable(200)

GO_DURATION: Final = re.compile(
    "[+-]?(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)"
)
# What Go's 64 bits of nanoseconds hold, in whole microseconds.
LONGEST: Final = timedelta(microseconds=(2**63 - 1) // 1000)


def read(parse: Callable[[str], object], text: str) -> object | None:
    """Return what is read of a text, None where it is refused."""
    try:
        return parse(text)
    except InvalidInput:
        return None


times = st.datetimes(max_value=datetime(9998, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@REPEATABLE
@given(st.timedeltas(min_value=-LONGEST, max_value=LONGEST), st.integers(0, 10**13), times)
@example(LONGEST, 0, datetime.min.replace(tzinfo=UTC))
@example(-LONGEST, 0, datetime.min.replace(tzinfo=UTC))
def test_what_is_written_is_read_back(span: timedelta, milliseconds: int, time: datetime) -> None:
    assert parse_duration(format_duration(span)) == span
    long = timedelta(milliseconds=milliseconds)
    assert parse_prometheus_duration(format_prometheus_duration(long)) == long
    assert parse_rfc3339(format_rfc3339(time)) == time


@REPEATABLE
@given(st.text(alphabet="0159.+-nusmhd \u00b5\u0665_", max_size=12))
@example("1h")
@example("0")
def test_exactly_the_grammar_of_go_is_a_duration(text: str) -> None:
    """The texts are too short to be too long in time, except with many digits of hours."""
    is_read = read(parse_duration, text) is not None
    is_duration = GO_DURATION.fullmatch(text) is not None
    assert is_read == is_duration or (is_duration and re.search("[0-9]{7}", text) is not None)


@REPEATABLE
@given(st.integers(min_value=-(2**65), max_value=2**65))
def test_an_integer_is_read_if_it_fits(number: int) -> None:
    fits = -(2**63) <= number < 2**63
    assert read(parse_go_int, str(number)) == (number if fits else None)


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
@given(st.text(alphabet="0123456789-:TZ+.,\u0661 ", min_size=15, max_size=30))
def test_sec25_any_text_is_an_aware_time_or_refused(text: str) -> None:
    time = read(parse_rfc3339, text)
    if isinstance(time, datetime):
        assert time.utcoffset() is not None
        assert format_go_time(time)


# Patterns of tenants: bounded, in linear time, matched as a whole (SEC-16, D-41, W-28)


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("(a+)+$", "a" * 252 + "!"),
        ("((a|a)*)*b", "a" * 253),
        ("(.*)(.*)(.*)(.*)(.*)x", "a" * 253),
        ("([a-z]+)*-([a-z]+)*-([0-9]+)*x", "a-" * 126),
        (f"({'a?' * 250}{'a' * 250})", "a" * 250 + "b"),
    ],
)
def test_sec_16_pathological_patterns_are_harmless(pattern: str, subject: str) -> None:
    """A backtracking engine would not come back from any of these."""
    compiled = compile_pattern(pattern)
    begin = time.process_time()
    for _ in range(10):
        assert compiled.capture(subject, 1) is None
    assert time.process_time() - begin < 1


def test_a_bad_pattern_writes_nothing_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput):
        compile_pattern("([bad")
    assert capfd.readouterr() == ("", "")


@given(st.text(st.sampled_from("ab|()[]\\QE^-:?*"), max_size=40))
def test_w28_only_an_open_alternation_changes_what_matches(pattern: str) -> None:
    """Without one, a pattern between anchors matches the same with a group of its own."""
    try:
        compile_pattern(pattern)
        loose = compile_pattern(f"(^{pattern}$)")
    except InvalidInput:
        return
    if has_open_alternation(pattern) or "\\Q" in pattern:
        return
    whole = compile_pattern(f"({pattern})")
    for text in ("", "a", "b", "ab", "aab", "|", "(", "^"):
        assert whole.capture(text, 1) == loose.capture(text, 1)


# Names of images, as container engines read them (RELB-29, RT-95)


@repeatable(500)
@given(st.text(alphabet="aZ09._-:/@[]%?#\\ \n\u00e4", max_size=40))
def test_no_text_leads_out_of_the_path_of_a_url(text: str) -> None:
    """RELB-29: whatever is accepted, and it is read the same again."""
    try:
        reference = parse_reference(text)
    except InvalidInput:
        return
    assert parse_reference(str(reference)) == reference
    assert not set(reference.repository.name) & set("%?#\\ \n@:")
    assert ".." not in reference.repository.name
    assert reference.tag is None or check_tag(reference.tag) == reference.tag


# The format of the zone tracker (ZONE-02, ZONE-05, ZONE-06, T-08, W-16)


AT: Final = "2020-01-01T00:00:00Z"


def body(**changes: object) -> bytes:
    """Return a ConfigMap with labels, annotations, and data of several people."""
    texts = {"labels": {"owner": "another-team"}, "annotations": {"note": "kept"}}
    one = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "zones", "resourceVersion": "7", **texts},
        "data": {"zone-a": format_entry(AT), "README": "not an entry"},
        "binaryData": {"other": "AAE="},
    }
    return msgspec.json.encode({**one, **changes})


def test_zone02_an_entry_is_as_in_all_releases() -> None:
    assert format_entry(AT) == '{"lastDownscaled":"2020-01-01T00:00:00Z"}'


@REPEATABLE
@given(st.one_of(st.text(max_size=30), st.recursive(st.none(), st.lists).map(json.dumps)))
def test_any_text_is_an_entry_or_refused(text: str) -> None:
    assert read(decode_entry, text) in (None, "")


@pytest.mark.parametrize("data", [{}, None], ids=["empty", "null"])
def test_a_map_without_data_has_no_entries(data: dict[str, str] | None) -> None:
    """T-08, ZONE-04."""
    one = decode_zone_map(body(data=data))
    assert (one.version, one.data) == ("7", {})
    assert render_changed(one, "zone-a", "x")["data"] == {"zone-a": "x"}


@pytest.mark.parametrize(
    "wrong",
    [
        *(b"", b"null", b"[]", b"{}", body(data=[]), body(data={"a": 1}), body(metadata={})),
        body().replace(b"README", b"\xff"),
    ],
)
def test_what_is_no_map_is_refused(wrong: bytes) -> None:
    with pytest.raises(DecodeError, match="not a ConfigMap"):
        decode_zone_map(wrong)


def test_w16_all_but_the_own_entry_stays_as_it_was() -> None:
    """W-16, ZONE-09: version, labels, annotations, other entries and what is none."""
    before = msgspec.json.decode(body())
    entry = format_entry("2026-01-02T03:04:05Z")

    after = render_changed(decode_zone_map(body()), "zone-b", entry)

    assert after == {**before, "data": {**before["data"], "zone-b": entry}}


def test_an_entry_is_taken_out() -> None:
    one = decode_zone_map(body())
    assert render_changed(one, "zone-a", None)["data"] == {"README": "not an entry"}
    assert render_changed(one, "zone-z", None)["data"] == one.data


# Reasons: every one has a meaning, and many a remedy


@pytest.mark.parametrize("code", list(Code))
def test_each_line_is_short_and_plain(code: Code) -> None:
    """D-40."""
    assert code.meaning
    for text in (code.meaning, code.remedy):
        assert len(text) <= 100
        assert text == text.strip(" .")
        assert not text or text.isprintable()


def test_the_link_leads_to_the_code() -> None:
    assert render_path(Code.PAUSED) == "/reasons#paused"


@pytest.mark.parametrize(
    ("codes", "leading"),
    [
        ("", None),
        # Nothing is due.
        ("up_to_date", "up_to_date"),
        # What holds the group, before what the zone waits for whose turn it is, before the others.
        ("another_zone_first paused budget_used object_unreadable", "object_unreadable"),
        ("another_zone_first paused several_zones_not_ready", "several_zones_not_ready"),
        ("up_to_date paused", "paused"),
        ("up_to_date another_zone_first", "another_zone_first"),
    ],
)
def test_d40_one_reason_leads_in_every_outlet(codes: str, leading: str | None) -> None:
    """D-40: page, Events and the time in a state go by the same."""
    known = {str(code): code for code in Code}
    for order in permutations(codes.split()):
        found = find_leading([Reason(known[code], "why") for code in order])
        assert (found and found.code) == leading


# No secret stands in the text of a value that holds it


@pytest.mark.parametrize(
    "kind",
    [
        *(kubeconfig.Kubeconfig, kubeconfig.UserCredentials, kubeconfig._File),
        *(kubeconfig._User, kubeconfig._NamedUser),
        *(kubeconfig.LoginProgram, kubeconfig.ProgramCredentials, kubeconfig._Printed),
        *(registry._KeyringEntry, registry._TokenAnswer, objects._Secret),
        client.HttpRequest,
    ],
)
def test_its_text_is_its_name(kind: type[Confidential]) -> None:
    assert repr(kind.__new__(kind)) == f"{kind.__name__}(...)"
