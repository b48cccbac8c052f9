"""The format of the zone tracker: ZONE-02, ZONE-05, ZONE-06, T-08, W-16."""

import json
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
    render_changed,
)
from tests.examples import repeatable

AT: Final = "2020-01-01T00:00:00Z"
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
    after = render_changed(decode_zone_map(body()), "zone-a", None)
    assert after["data"] == {"README": "not an entry"}
    assert (
        render_changed(decode_zone_map(body()), "zone-z", None)["data"]
        == decode_zone_map(body()).data
    )
