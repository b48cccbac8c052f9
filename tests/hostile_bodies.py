"""Bodies of the largest size that are made to cost memory and time: of each path, by name."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import cycle, product
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.model.decode.wire import OBJECT, REVIEW, Fields
from rollout_operator.model.names import PREPARE_DOWNSCALE

LARGEST: Final = 7 << 20
NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_PATH: Final = "/admission/prepare-downscale"
EVICTION_PATH: Final = "/admission/pod-eviction"
BUDGET_PATH: Final = "/admission/zpdb-validation"
PATHS: Final = (NO_DOWNSCALE_PATH, PREPARE_PATH, EVICTION_PATH, BUDGET_PATH)
# Five in turn, so that each path gets a mixture of the bodies below.
WALKS: Final = [
    pytest.param((*PATHS, EVICTION_PATH), id="paths in turn"),
    *(pytest.param((path,), id=path, marks=pytest.mark.prove) for path in PATHS),
]

Json = dict[str, Any]

# Stands where the body is filled up: as the only element of a list, or as a text.
_FILL: Final = "FILL"
_LISTS: Final[Mapping[str, bytes]] = {
    "deep lists": b"[" * 500 + b"]" * 500,
    "small objects": b'{"":0}',
    "numbers": b"0",
    "texts": b'"\\u0041\xf0\x9f\x98\x80"',
}
# A character beyond the first 65,536 makes four bytes of each.
_TEXTS: Final[Mapping[str, bytes]] = {
    "a plain text": b"x",
    "a wide text": "\U0001f600".encode(),
    "a text of escapes": b"\\ud83d\\ude00",
}
_MAPS: Final[Mapping[str, Json]] = {
    "labels": {"metadata": {"labels": [_FILL]}},
    "annotations": {"metadata": {"annotations": [_FILL]}},
    "a selector": {"spec": {"selector": {"matchLabels": [_FILL]}}},
    "unknown fields": {"spec": [_FILL]},
}
_CREATED: Final[Mapping[str, Json]] = {
    EVICTION_PATH: {"apiVersion": "policy/v1", "kind": "Eviction"},
    BUDGET_PATH: {
        "apiVersion": "rollout-operator.grafana.com/v1",
        "kind": "ZoneAwarePodDisruptionBudget",
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    },
}
# As much as is kept of a value, and of the labels that a budget selects by, and a byte more. Of the
# smallest values all fields together are kept.
_VALUES: Final = (4 << 10, (4 << 10) + 1)
_LABELS: Final = (64 << 10, (64 << 10) + 1)
_SIZES: Final = (2 << 10, *_VALUES, *_LABELS)
_FILLERS: Final[Mapping[str, tuple[bytes, bytes]]] = {
    "deep lists": (b"[" * 400 + b"]" * 400, b"[]"),
    "empty lists": (b"[]", b"[]"),
    "numbers": (b"0", b"[]"),
    "small objects": (b'{"":0}', b"[]"),
    "members": (b'"%06x":[]', b"{}"),
    "labels": (b'"%06x":""', b"{}"),
    "a wide text": (_TEXTS["a wide text"], b'""'),
    "a text of escapes": (_TEXTS["a text of escapes"], b'""'),
}
_SET: Final[Json] = {"apiVersion": "apps/v1", "kind": "StatefulSet"}


def list_hostile_bodies(paths: Sequence[str], namespace: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield bodies of at most LARGEST bytes: of the paths in turn, each with a name."""
    turns, make = cycle(paths), partial(_review, namespace=namespace)
    for name, unit in _LISTS.items():
        for what, odd in _ODDITIES.items():
            path = next(turns)
            yield path, f"{name}, {what}", _fill(make(path, **odd), unit)
    for name, fields in _MAPS.items():
        path = next(turns)
        yield path, f"{name} without end", _fill(make(path, fields=fields), b'"%06x":""', b"{}")
    for name, unit in _TEXTS.items():
        labels = {"metadata": {"labels": {PREPARE_DOWNSCALE: _FILL}}}
        for what, odd in (("uid", {"uid": _FILL}), ("label", {"fields": labels})):
            path = next(turns)
            yield path, f"{name} as {what}", _fill(make(path, **odd), unit, b'""')
    options = {"deleteOptions": {"dryRun": [_FILL]}}
    yield paths[-1], "options without end", _fill(make(paths[-1], fields=options), b'"All"')
    yield from _list_filled(turns, namespace)
    yield paths[0], "one key again and again", _repeat(make(paths[0], uid=_FILL))
    yield paths[0], "brackets without end", b"[" * LARGEST


_ODDITIES: Final[Mapping[str, Json]] = {
    "well-formed": {"pad": [_FILL]},
    "well-formed in the object": {"fields": {"pad": [_FILL]}},
    "uid of a wrong type": {"pad": [_FILL], "uid": 1},
    "object of wrong types": {"fields": {"spec": {"replicas": "3", "selector": [_FILL]}}},
}


def _review(path: str, namespace: str, fields: Json | None = None, **more: object) -> Json:
    """Return a review; `fields` are put into the object that decides, `more` into the request."""
    deciding = {**_CREATED.get(path, {**_SET, "spec": {"replicas": 3}})}
    for key, value in (fields or {}).items():
        is_map = isinstance(value, dict) and isinstance(deciding.get(key), dict)
        deciding[key] = {**deciding[key], **value} if is_map else value
    is_created = path in _CREATED
    request = {
        "uid": "u",
        "operation": "CREATE" if is_created else "UPDATE",
        "resource": {"resource": "statefulsets"},
        "namespace": namespace,
        "name": "x",
        "object": deciding if is_created else {**_SET, "spec": {"replicas": 1}},
        "oldObject": None if is_created else deciding,
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _list_filled(turns: Iterator[str], namespace: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield bodies in which every field that is read is as long as is kept, or a little longer.

    Of the whole review, and of the objects alone where the review is a good one.
    """
    for (name, (unit, around)), size in product(_FILLERS.items(), _SIZES):
        path, what = next(turns), f"{size} bytes of {name}"
        value = _fill_up(size, unit, around)
        value = value[:-1].ljust(size - 1) + value[-1:]
        labels = {"spec": {"selector": {"matchLabels": msgspec.Raw(value)}}}
        if size in _LABELS:
            labelled = msgspec.json.encode(_review(path, namespace, labels))
            yield path, f"{what} to select by", labelled
        good = _review(path, namespace)
        yield path, f"{what} in each field", _fill_fields(REVIEW, good, value)
        request = good["request"]
        for key in ("object", "oldObject"):
            known = {one: (request[key] or {}).get(one, "x") for one in ("apiVersion", "kind")}
            request[key] = msgspec.Raw(_fill_fields(OBJECT, known, value))
        yield path, f"{what} in the objects", msgspec.json.encode(good)


def _fill_fields(fields: Fields, good: Json, value: bytes) -> bytes:
    """Return an object of these fields; values are good ones where there are any, else `value`."""
    pairs = []
    for name, part in fields._inner:
        known = good.get(msgspec.json.decode(name))
        if isinstance(part, Fields):
            # Of a review none but its head and its uid are good: it is refused late.
            known = {"uid": "u"} if known is not None and "operation" in known else {}
            text = _fill_fields(part, known, value)
        else:
            text = value if known is None else msgspec.json.encode(known)
        pairs.append(b"%b:%b" % (name, text))
    return b"{%b}" % b",".join(pairs)


def _fill(review: Json, unit: bytes, around: bytes = b"[]") -> bytes:
    """Return the body, with as many of `unit` in the place of FILL as fit."""
    mark = b'["%b"]' % _FILL.encode() if around in {b"[]", b"{}"} else b'"%b"' % _FILL.encode()
    head, _, tail = msgspec.json.encode(review).partition(mark)
    return b"%b%b%b" % (head, _fill_up(LARGEST - len(head) - len(tail), unit, around), tail)


def _fill_up(size: int, unit: bytes, around: bytes) -> bytes:
    """Return a value with as many of `unit` as fit into `size`."""
    room = size - len(around)
    if around == b'""':
        filling = unit * (room // len(unit))
    elif around == b"{}":
        width = len(unit % 0) + 1
        filling = _make_members(unit)[: max(room // width * width - 1, 0)]
    else:
        filling = (b"%b," % unit * (room // (len(unit) + 1)))[:-1]
    return b"%b%b%b" % (around[:1], filling, around[1:])


@cache
def _make_members(unit: bytes) -> bytes:
    """Return members with different names, all of the same length, for the largest body."""
    return b",".join(unit % number for number in range(LARGEST // len(unit % 0)))


def _repeat(review: Json) -> bytes:
    """Return the body with a text of half its size as uid, and then with another uid."""
    head, _, tail = msgspec.json.encode(review).partition(b'"%b"' % _FILL.encode())
    return b'%b"%b","uid":"u"%b' % (head, "\U0001f600".encode() * (LARGEST // 5), tail)
