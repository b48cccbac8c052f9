"""Cutting a watch into events (FP-10, FP-13): any chunks, garbage, ERROR lines."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.kube.api import PODS, Call, JsonObject
from rollout_operator.kube.responses import Splitter, decode_event
from rollout_operator.model.names import ApiError, Denied, Gone, TooManyRequests, Unreachable
from tests.kube.fake_api import status_body

WATCH = Call(verb="watch", resource=PODS, namespace="prod")


def line(kind: str, item: object) -> bytes:
    return json.dumps({"type": kind, "object": item}, ensure_ascii=False).encode() + b"\n"


def events_of(chunks: list[bytes]) -> list[tuple[str, bytes]]:
    splitter = Splitter()
    lines = [text for chunk in chunks for text in splitter.feed(chunk)] + splitter.finish()
    events = [decode_event(text, WATCH) for text in lines]
    return [(event.type, bytes(event.object)) for event in events]


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_EVENTS = st.lists(
    st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), _NAMES), max_size=8
)


@given(events=_EVENTS, cuts=st.lists(st.integers(0, 2000), max_size=30))
def test_fp_13_events_do_not_depend_on_how_the_stream_is_cut(
    events: list[tuple[str, str]], cuts: list[int]
) -> None:
    body = b"".join(line(kind, {"metadata": {"name": name}}) for kind, name in events)
    places = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
    chunks = [body[start:end] for start, end in pairwise(places)]
    seen = events_of(chunks)
    assert seen == events_of([body])
    assert [(kind, json.loads(item)["metadata"]["name"]) for kind, item in seen] == events


def test_fp_13_single_bytes_cut_within_characters() -> None:
    body = line("ADDED", {"metadata": {"name": "zürich-東京-🎈"}})
    [(_, item)] = events_of([bytes([byte]) for byte in body])
    assert json.loads(item)["metadata"]["name"] == "zürich-東京-🎈"


def test_blank_lines_between_events_mean_nothing() -> None:
    assert [kind for kind, _ in events_of([b"\n\r\n", line("ADDED", {}), b" \n"])] == ["ADDED"]


def test_a_last_line_without_its_line_feed_counts() -> None:
    assert [kind for kind, _ in events_of([line("DELETED", {}).rstrip()])] == ["DELETED"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(b'{"type":"ADDED","object":{"met', "truncated", id="FP-13 cut in a line"),
        pytest.param(b"<html>bad gateway</html>", "malformed", id="FP-13 page of a proxy"),
        pytest.param(b'{"type":"ADDED"}', "`object`", id="FP-13 no object"),
        pytest.param(b'{"type":7,"object":{}}', "`str`", id="FP-13 type is a number"),
        pytest.param(b'{"type":"PATCHED","object":{}}', "'PATCHED' is unknown", id="FP-13 type"),
        pytest.param(b'{"type":"ERROR","object":7}', "`object`", id="FP-13 error is a number"),
        pytest.param(b"\xff\xfe{}", "malformed", id="FP-13 not UTF-8"),
    ],
)
def test_garbage_is_unreachable_and_shown(text: bytes, problem: str) -> None:
    with pytest.raises(Unreachable) as caught:
        decode_event(text, WATCH)
    message = str(caught.value)
    assert message.startswith("cannot watch pods in namespace prod: no watch event: ")
    assert problem in message
    assert len(message) < 900
    assert message.isprintable()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        pytest.param(status_body(410, "Expired", "too old"), Gone, id="FP-10 410 as a line"),
        pytest.param(status_body(410, "Gone", "too old"), Gone, id="FP-10 410 of old servers"),
        pytest.param(status_body(429, "TooManyRequests", "later"), TooManyRequests, id="FP-12"),
        pytest.param(status_body(500, "InternalError", "etcd"), Unreachable, id="FP-13 500"),
        pytest.param(status_body(504, "Timeout", "slow"), Unreachable, id="FP-13 504"),
        pytest.param(status_body(403, "Forbidden", "no"), Denied, id="role taken away"),
        pytest.param({}, Unreachable, id="no Status"),
    ],
)
def test_error_lines_raise_what_the_answer_would(status: JsonObject, kind: type[ApiError]) -> None:
    with pytest.raises(kind):
        decode_event(line("ERROR", status), WATCH)


@pytest.mark.parametrize("step", [1, 7, 100], ids=lambda step: f"chunks of {step}")
def test_a_line_without_an_end_is_bounded(step: int) -> None:
    splitter = Splitter(limit=100)
    assert splitter.feed(b"x" * 99 + b"\n") == [b"x" * 99]
    for _ in range(100 // step):
        assert splitter.feed(b"x" * step) == []
    with pytest.raises(ValueError, match="longer than 100 bytes"):
        splitter.feed(b"x" * step)
