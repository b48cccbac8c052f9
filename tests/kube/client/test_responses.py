"""What the client makes of answers, without sending anything: tables, and streams cut anywhere."""

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.kube.api import (
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    Call,
    Served,
    discovery_call,
)
from rollout_operator.kube.responses import (
    MAX_EXCERPT,
    Splitter,
    decode_event,
    decode_group,
    decode_resources,
    error_of,
    excerpt,
    parse_retry_after,
    read_mismatch,
    read_status,
)
from rollout_operator.model.names import ApiError, InvalidInput, TooManyRequests
from tests.kube.fake_api import status_body
from tests.stories import check_tables

CALLS: Final = {
    "get": Call(verb="get", resource=PODS, namespace="prod", name="a-0"),
    "list": Call(verb="list", resource=PODS, namespace="prod"),
    "watch": Call(verb="watch", resource=PODS, namespace="prod"),
    "delete": Call(verb="delete", resource=PODS, namespace="prod", name="a-0"),
    "update": Call(
        verb="update", resource=STATEFULSETS, namespace="prod", name="a", subresource="status"
    ),
    "create": Call(verb="create", resource=STATEFULSETS, namespace="prod"),
    "patch": Call(verb="patch", resource=VALIDATING_WEBHOOKS, namespace="", name="guard"),
}
USER: Final = 'forbidden: User "system:serviceaccount:prod:rollout-operator" cannot'
MESSAGES: Final = {
    "BY_ROLE": f'pods "a-0" is {USER} delete resource "pods" in API group ""',
    "BY_STATUS_ROLE": f'x is {USER} update resource "statefulsets/status"',
    "BY_CLUSTER_ROLE": f'x is {USER} patch resource "x" at the cluster scope',
    "BY_WEBHOOK": 'admission webhook "guard.example.org" denied the request: not today',
    "BY_POLICY": "pods \"a-0\" is forbidden: ValidatingAdmissionPolicy 'x' denied request: no",
    "NO_WEBHOOK": 'Internal error occurred: failed calling webhook "guard.example.org": timed out',
}


def unescape(text: str) -> str:
    """Return a text with its escapes, where `x*300` is a long one."""
    if len(text) > 2 and text[1] == "*" and text[2:].isdigit():
        return text[0] * int(text[2:])
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def show_error(verb: str, code: str, reason: str = "", *words: str) -> str:
    """Return the class of an error; causes of fields are given as `cause=data`."""
    causes = [word.partition("=")[2] for word in words if word.startswith("cause=")]
    message = " ".join(word for word in words if not word.startswith("cause="))
    details = [
        {"reason": "FieldValueInvalid", "field": one} if one.islower() else {"reason": one}
        for one in causes
    ]
    body = status_body(int(code), reason, MESSAGES.get(message, message), causes=details)
    call = CALLS[verb]
    error = error_of(call, int(code), read_status(json.dumps(body).encode()))
    assert (error.call, error.status) == (call.text, int(code))
    assert error.reason == next((one for one in causes if not one.islower()), reason)
    assert f"{error}" == f"cannot {call.text}: {error.problem}"
    return type(error).__name__


def show_text(verb: str, code: str, reason: str, message: str, log_in: str = "") -> str:
    """Return all that is said of it."""
    body = json.dumps(status_body(int(code), reason, MESSAGES.get(message, message))).encode()
    return str(error_of(CALLS[verb], int(code), read_status(body), log_in=log_in))


def show_page(verb: str, code: str) -> str:
    """Return the class of an answer that is a page which quotes a denial."""
    page = f"<html>{MESSAGES['BY_WEBHOOK']}</html>".encode()
    return type(error_of(CALLS[verb], int(code), read_status(page))).__name__


def show_retry(header: str, seconds: str = "0") -> str:
    header = unescape(header.replace("_", " ").strip("'"))
    body = status_body(429, "TooManyRequests", "", retryAfterSeconds=int(seconds))
    found = read_status(json.dumps(body).encode())
    wait = parse_retry_after(header, found)
    error = error_of(CALLS["list"], 429, found, header)
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == wait
    return "unknown" if wait is None else f"{wait / timedelta(seconds=1):g}s"


def show_body(text: str = "") -> str:
    """Return the class for a body that is unreadable; it is only a message."""
    error = error_of(CALLS["get"], 500, read_status(unescape(text).encode("latin-1")))
    assert str(error).isprintable()
    assert len(str(error)) < 2 * MAX_EXCERPT
    return type(error).__name__


def show_excerpt(*words: str) -> str:
    text = excerpt(unescape(" ".join(words)))
    assert len(text) <= MAX_EXCERPT
    return text if len(text) < 100 else f"{len(text)} characters, {text[-5:]}"


def show_mismatch(kind: str, body: str) -> str:
    found = read_mismatch(kind, body.encode())
    return f"{found.route}: {found.cluster_validation_error_message}" if found else "none"


def show_path(verb: str, plural: str, namespace: str, *name: str) -> str:
    kind = {"pods": PODS, "webhooks": VALIDATING_WEBHOOKS}[plural]
    names = {"namespace": namespace.strip("'"), "name": "".join(name).strip("'")}
    call = Call(verb=verb, resource=kind, **(names if name else {"namespace": names["namespace"]}))
    return f"{call.text}: {call.path}"


def show_event(*words: str) -> str:
    """Return the line of a watch as it is read; a Status is `410 Expired`."""
    text = " ".join(words)
    if words[0].isdigit():
        status = status_body(int(words[0]), words[1], "because")
        text = json.dumps({"type": "ERROR", "object": status})
    try:
        event = decode_event(unescape(text).encode("latin-1"), CALLS["watch"])
    except ApiError as error:
        message = str(error)
        assert len(message) < 900
        assert message.isprintable()
        problem = message.partition("no watch event: ")[2]
        return f"{type(error).__name__} {problem.partition(' (byte')[0][:60]}".rstrip()
    return event.type


def show_group(body: str) -> str:
    return " ".join(decode_group(discovery_call("x.example.org", "v1"), body.encode()))


def show_resources(body: str) -> str:
    def show(one: Served) -> str:
        kind = one.resource
        where = "" if kind.is_namespaced else " of the cluster"
        return (
            f"{kind.kind} {kind.plural}{where}{''.join(sorted(f' {s}' for s in one.subresources))}"
        )

    found = decode_resources(discovery_call("x.example.org", "v1"), body.encode())
    return ", ".join(map(show, found)) or "none"


SHOWS: Final[dict[str, Callable[..., str]]] = {
    name.removeprefix("show_"): show
    for name, show in [*globals().items()]
    if name.startswith("show_")
}


def tell(command: str) -> str:
    verb, _, rest = command.partition(" ")
    whole = ("group", "resources", "body")
    words = [rest] if verb in whole else rest.split(" ", 1) if verb == "mismatch" else rest.split()
    if verb == "text":
        words = rest.split(", ")
    try:
        return SHOWS[verb](*words) if verb in SHOWS else show_error(verb, *words)
    except (ApiError, InvalidInput) as error:
        return f"{type(error).__name__}: {error}"


test_answer = check_tables(__file__, responses=tell)


@pytest.mark.parametrize("group", ["..", "a/b", "%2e", "A", "a?b", "a b", "-a", "a" * 300])
def test_sec_12_a_group_cannot_change_the_path(group: str) -> None:
    with pytest.raises(InvalidInput, match="names nothing"):
        discovery_call(group)


# A watch is cut into events, whatever its chunks (FP-13)


def line(kind: str, item: object) -> bytes:
    return json.dumps({"type": kind, "object": item}, ensure_ascii=False).encode() + b"\n"


def events_of(chunks: list[bytes]) -> list[tuple[str, str]]:
    splitter = Splitter()
    lines = [text for chunk in chunks for text in splitter.feed(chunk)] + splitter.finish()
    events = [decode_event(text, CALLS["watch"]) for text in lines]
    objects: list[Any] = [json.loads(bytes(event.object)) for event in events]
    return [(event.type, one.get("name", "")) for event, one in zip(events, objects, strict=True)]


_NAMES: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_TYPES: Final = st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])


@given(
    events=st.lists(st.tuples(_TYPES, _NAMES), max_size=8),
    cuts=st.lists(st.integers(0, 2000), max_size=30),
)
def test_fp_13_events_do_not_depend_on_how_the_stream_is_cut(
    events: list[tuple[str, str]], cuts: list[int]
) -> None:
    body = b"".join(line(kind, {"name": name}) for kind, name in events)
    places = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
    assert events_of([body[start:end] for start, end in pairwise(places)]) == events


def test_fp_13_single_bytes_cut_within_characters_blank_lines_and_no_last_line_feed() -> None:
    body = line("ADDED", {"name": "zürich-東京-🎈"})
    assert events_of([bytes([byte]) for byte in body]) == [("ADDED", "zürich-東京-🎈")]
    assert events_of([b"\n\r\n", line("ADDED", {}), b" \n"]) == [("ADDED", "")]
    assert events_of([line("DELETED", {}).rstrip()]) == [("DELETED", "")]


@pytest.mark.parametrize("step", [1, 7, 100])
def test_a_line_without_an_end_is_bounded(step: int) -> None:
    splitter = Splitter(limit=100)
    assert splitter.feed(b"x" * 99 + b"\n") == [b"x" * 99]
    for _ in range(100 // step):
        assert splitter.feed(b"x" * step) == []
    with pytest.raises(ValueError, match="longer than 100 bytes"):
        splitter.feed(b"x" * step)
