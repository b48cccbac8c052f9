"""The format of the zone tracker: ZONE-02, ZONE-05, ZONE-06, T-08, W-16."""

import json
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.names import DecodeError, InvalidInput
from rollout_operator.model.scaling import (
    decode_entry,
    decode_zone_map,
    format_entry,
    is_recorded,
    render_changed,
)
from tests.examples import repeatable

AT: Final = "2020-01-01T00:00:00Z"
NOW: Final = datetime(2020, 1, 1, tzinfo=UTC)
REPEATABLE: Final = repeatable(200)


def body(**changes: object) -> bytes:
    """Return a ConfigMap with labels, annotations, and data of several people."""
    one = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "zones",
            "resourceVersion": "7",
            "labels": {"owner": "another-team"},
            "annotations": {"note": "kept"},
        },
        "data": {"zone-a": format_entry(AT), "README": "not an entry"},
        "binaryData": {"other": "AAE="},
    }
    return msgspec.json.encode({**one, **changes})


def test_zone02_an_entry_is_as_in_all_releases() -> None:
    assert format_entry(AT) == '{"lastDownscaled":"2020-01-01T00:00:00Z"}'


@pytest.mark.parametrize(
    ("text", "time"),
    [
        pytest.param(format_entry(AT), AT, id="ZONE-02 as it is written"),
        pytest.param(f'{{"LastDownscaled":"{AT}"}}', AT, id="T-08 capital L"),
        pytest.param(f'{{"LASTDOWNSCALED":"{AT}"}}', AT, id="all capitals"),
        pytest.param(f' {{ "lastDownscaled" : "{AT}" }}\n', AT, id="blanks"),
        pytest.param(f'{{"more":{{"a":1}},"lastDownscaled":"{AT}"}}', AT, id="other fields"),
        pytest.param(f'{{"lastDownscaled":"x","LastDownscaled":"{AT}"}}', AT, id="the last wins"),
        pytest.param(
            '{"lastDownscaled":"soon"}', "soon", id="whatever it is: ZONE-06 is for later"
        ),
        pytest.param("{}", "", id="no field"),
        pytest.param("null", "", id="null, as Go reads it"),
        pytest.param('{"lastDownscaled":null}', "", id="null in the field"),
    ],
)
def test_entries_are_read(text: str, time: str) -> None:
    assert decode_entry(text) == time


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(AT, id="a bare time"),
        pytest.param(json.dumps(AT), id="a text"),
        pytest.param("[]", id="a list"),
        pytest.param("5", id="a number"),
        pytest.param("9" * 5000, id="a long number"),
        pytest.param('{"lastDownscaled":5}', id="a number in the field"),
        pytest.param('{"lastDownscaled":{}}', id="an object in the field"),
        pytest.param(f'{{"lastDownscaled":"{AT}"', id="cut off"),
        pytest.param(f"{format_entry(AT)}x", id="more behind it"),
        pytest.param('{"a":' * 100_000, id="deep"),
        pytest.param("\x1b[31m", id="control characters"),
        pytest.param("x" * 100_000, id="100 KB"),
    ],
)
def test_zone05_what_is_no_entry_is_refused_in_a_short_line(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode_entry(text)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


@REPEATABLE
@given(st.one_of(st.text(max_size=30), st.recursive(st.none(), st.lists).map(json.dumps)))
def test_any_text_is_an_entry_or_refused(text: str) -> None:
    try:
        time = decode_entry(text)
    except InvalidInput:
        return
    assert time == ""


@pytest.mark.parametrize("data", [{}, {"data": None}], ids=["empty", "null"])
def test_a_map_without_data_has_no_entries(data: dict[str, None]) -> None:
    """T-08, ZONE-04."""
    one = decode_zone_map(body(**data) if data else body(data={}))
    assert (one.version, one.data) == ("7", {})
    assert render_changed(one, "zone-a", "x")["data"] == {"zone-a": "x"}


@pytest.mark.parametrize(
    "wrong", [b"", b"null", b"[]", b"{}", body(data=[]), body(data={"a": 1}), body(metadata={})]
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
    after = render_changed(decode_zone_map(body()), "zone-a", None)
    assert after["data"] == {"README": "not an entry"}
    assert (
        render_changed(decode_zone_map(body()), "zone-z", None)["data"]
        == decode_zone_map(body()).data
    )


@pytest.mark.parametrize(
    ("text", "recorded"),
    [
        pytest.param(format_entry(AT), True, id="the same"),
        pytest.param(format_entry("2020-01-01T00:00:01Z"), True, id="later"),
        pytest.param(format_entry("2020-01-01T02:00:00+02:00"), True, id="another offset"),
        pytest.param(format_entry("2019-12-31T23:59:59Z"), False, id="earlier"),
        pytest.param(format_entry("soon"), False, id="no time"),
        pytest.param("garbage", False, id="no entry"),
        pytest.param(None, False, id="none"),
    ],
)
def test_what_is_recorded(text: str | None, recorded: bool) -> None:
    assert is_recorded(text, NOW) is recorded
    assert not is_recorded(text, NOW + timedelta(days=1))
