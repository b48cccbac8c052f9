"""Requests that no API server sends: broken reviews, broken HTTP, and far too much of it."""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

from tests.world.api import Json

# Answered or given up after 0.9 s, also where a body never comes.
QUERY: Final = "?timeout=1s"
MARK: Final = "mark-of-a-body-0815"
LARGEST_BODY: Final = 7 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Bytes for the TLS port, and what may come back."""

    name: str
    parts: Sequence[bytes]
    statuses: frozenset[int]
    """200 means a verdict, which must be a refusal; 0 that nothing comes back."""


def review(old: Json, replicas_to: object, **request: object) -> Json:
    """Return a review of a StatefulSet as the API server holds it, that is to be scaled."""
    new = deepcopy(old)
    new["spec"]["replicas"] = replicas_to
    new["metadata"].setdefault("annotations", {})["note"] = MARK
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "kind": {"group": "apps", "version": "v1", "kind": "StatefulSet"},
            "resource": {"group": "apps", "version": "v1", "resource": "statefulsets"},
            "operation": "UPDATE",
            "namespace": old["metadata"]["namespace"],
            "name": old["metadata"]["name"],
            "userInfo": {"username": "mallory"},
            "object": new,
            "oldObject": old,
            "dryRun": False,
            **request,
        },
    }


def post(path: str, body: bytes, *lines: str, kind: str = "application/json") -> bytes:
    """Return a whole request after which the connection ends."""
    head = [
        f"POST {path}{QUERY} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *lines,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


Change = Callable[[Json], object]


def _in_spec(where: str, value: object) -> Change:
    return lambda tree: tree["request"][where]["spec"].update(replicas=value)


def _in_request(**values: object) -> Change:
    return lambda tree: tree["request"].update(values)


def _without(*keys: str) -> Change:
    def change(tree: Json) -> None:
        for key in keys[:-1]:
            tree = tree[key]
        del tree[keys[-1]]

    return change


def _in_metadata(**values: object) -> Change:
    def change(tree: Json) -> None:
        for where in ("object", "oldObject"):
            tree["request"][where]["metadata"].update(values)

    return change


def _set(**values: object) -> Change:
    return lambda tree: tree.update(values)


BAD_COUNTS: Final = (
    *(True, 5.0, 2.5, "2", [2], {"a": 2}, -(2**31) - 1, 2**31, 2**63, 10**400, 1e300),
    *(json.loads('"\\ud800"'), "0x2", "", "2\r\n"),
)
# Each makes of a review that is refused one that must be refused too, or is no review at all.
CHANGES: Final[dict[str, Change]] = {
    **{f"old replicas {str(bad)[:12]!r}": _in_spec("oldObject", bad) for bad in BAD_COUNTS},
    **{f"new replicas {str(bad)[:12]!r}": _in_spec("object", bad) for bad in BAD_COUNTS[:7]},
    "no request": _without("request"),
    "request null": _set(request=None),
    "request is a list": _set(request=[]),
    "no dryRun": _without("request", "dryRun"),
    "dryRun is a word": _in_request(dryRun="true"),
    "no uid": _without("request", "uid"),
    "uid null": _in_request(uid=None),
    "uid is a number": _in_request(uid=7),
    "no oldObject": _without("request", "oldObject"),
    "oldObject null": _in_request(oldObject=None),
    "object null": _in_request(object=None),
    "object is a text": _in_request(object="{}"),
    "objects swapped for pods": lambda tree: tree["request"]["object"].update(kind="Pod"),
    "old kind absent": _without("request", "oldObject", "kind"),
    "version absent": _without("request", "oldObject", "apiVersion"),
    "apps/v1beta1": lambda tree: tree["request"]["oldObject"].update(apiVersion="apps/v1beta1"),
    "labels are a list": _in_metadata(labels=[]),
    "a label is a number": _in_metadata(labels={"a": 1}),
    "metadata null and labels lost": lambda tree: tree["request"]["oldObject"].update(metadata=3),
    "v1beta1": _set(apiVersion="admission.k8s.io/v1beta1"),
    "v2": _set(apiVersion="admission.k8s.io/v2"),
    "no apiVersion": _without("apiVersion"),
    "kind Status": _set(kind="Status"),
    "kind null": _set(kind=None),
    "other operation": _in_request(operation="PATCH"),
    "unknown fields": _set(more={"a": [1, 2]}),
    "long names": _in_request(name="n" * 100_000),
    "annotations with everything": _in_metadata(
        annotations={
            MARK: "\x1b[31m%s{}<script>\n\r\0" * 1000,
            "grafana.com/last-downscale": "9" * 20,
        }
    ),
}


def broken_reviews(path: str, good: Json) -> Iterator[Attempt]:
    """Yield a review that must be refused, and what becomes of it where a field is wrong."""
    refused = frozenset({200, 400})
    yield Attempt(name="as it is", parts=[post(path, _json(good))], statuses=frozenset({200}))
    for name, change in CHANGES.items():
        tree = deepcopy(good)
        change(tree)
        yield Attempt(name=name, parts=[post(path, _json(tree))], statuses=refused)


def broken_bodies(path: str, good: Json) -> Iterator[Attempt]:
    """Yield bodies that are no review, by their text rather than by their fields."""
    text = _json(good).decode()
    deep = {depth: "[" * depth + "]" * depth for depth in (100, 10_000, 1_000_000)}
    bodies: dict[str, bytes] = {
        "empty": b"",
        **{f"just {word}": word.encode() for word in ("null", "{}", "[]", "7", '"x"', "nul", "}{")},
        "cut off": text[:-20].encode(),
        "two of them": (text + text).encode(),
        "a byte order mark": b"\xef\xbb\xbf" + text.encode(),
        "utf-16": text.encode("utf-16"),
        "no utf-8": text.replace("u-1", "\udcff").encode("utf-8", "surrogateescape"),
        "NaN": text.replace('"u-1"', "NaN").encode(),
        "yaml": b"apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\n",
        "a list of pods": b'{"kind": "PodList", "apiVersion": "v1", "items": []}',
        "zeros": bytes(100_000),
    }
    for depth, nest in deep.items():
        bodies[f"{depth} deep, as the object"] = text.replace('"u-1"', nest).encode()
    statuses = frozenset({400})
    for name, body in bodies.items():
        yield Attempt(name=name, parts=[post(path, body)], statuses=statuses)
    for name, old, new in (
        ("100,000 keys", '"mallory"', _many_keys()),
        ("10,000 deep, unread", '"mallory"', deep[10_000]),
        ("5,000 digits", '"replicas": 2', f'"replicas": {"9" * 5000}'),
    ):
        body = text.replace(old, new).encode()
        parts = [post(path, body)]
        yield Attempt(name=name, parts=parts, statuses=frozenset({200, 400}))
    yield Attempt(
        name="gzip",
        parts=[post(path, gzip.compress(b" " * (1 << 24)), "Content-Encoding: gzip")],
        statuses=frozenset({400, 413, 415}),
    )


def broken_http(path: str, good: Json) -> Iterator[Attempt]:
    """Yield requests whose HTTP is wrong, doubtful, or not for this server."""
    body = _json(good)
    whole = post(path, body)
    refused = frozenset({400, 404, 405})

    def attempt(name: str, *parts: bytes, statuses: frozenset[int] = refused) -> Attempt:
        return Attempt(name=name, parts=parts, statuses=statuses)

    for method in ("GET", "PUT", "TRACE", "DELETE", "OPTIONS", "post", "CONNECT", "\0"):
        yield attempt(f"method {method}", whole.replace(b"POST", method.encode(), 1))
    for kind in ("text/plain", "application/json; charset=utf-8", "application/yaml", "", "a/b, c"):
        yield attempt(f"content type {kind!r}", post(path, body, kind=kind))
    yield attempt("two content types", post(path, body, "Content-Type: application/json"))
    for other in (f"/{path}", f"{path}/", path.upper(), path.replace("n", "%6e"), f"/a/..{path}"):
        yield attempt(f"path {other}", whole.replace(path.encode(), other.encode(), 1))
    for other in ("/", "/metrics", "/admission/pod-evictions", "*", "x", "/\xff", f"{path}#a"):
        yield attempt(f"path {other!r}", whole.replace(path.encode(), other.encode("latin-1"), 1))
    length = f"Content-Length: {len(body)}".encode()
    chunked = b"Transfer-Encoding: chunked"
    for name, line in {
        "both lengths": length + b"\r\n" + chunked,
        "two lengths": length + b"\r\nContent-Length: 3",
        "length with a sign": b"Content-Length: +9",
        "negative length": b"Content-Length: -9",
        "length in hex": b"Content-Length: 0x10",
        "length of digits of another script": "Content-Length: ٣".encode(),
        "unknown coding": b"Transfer-Encoding: xchunked",
        "coding twice": chunked + b"\r\n" + chunked,
        "bad chunk": chunked,
        "a folded line": length + b"\r\nX-A: 1\r\n b",
        "a space before the colon": length + b"\r\nX-A : 1",
        "a bare line feed in a value": length + b"\r\nX-A: 1\nX-B: 2",
        "a zero in a value": length + b"\r\nX-A: \0",
        "no colon": length + b"\r\nhello",
    }.items():
        # Some are legal in a lenient reading; then the review is judged, and refused.
        statuses = refused | {0, 200, 408, 413, 501} - {501}
        yield attempt(name, whole.replace(length, line, 1), statuses=statuses)
    yield attempt("a header of 64 KiB", post(path, body, f"X-A: {'a' * 65536}"))
    many = [f"X-{number}: 1" for number in range(1000)]
    yield attempt("1,000 headers", post(path, body, *many), statuses=frozenset({200, 400}))
    gone = refused | {0}
    yield attempt("http/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(60), statuses=gone)
    yield attempt("line feeds only", whole.replace(b"\r\n", b"\n"), statuses=gone | {200})
    yield attempt("noise", bytes(range(256)) * 8, statuses=gone)
    yield attempt("tls within tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\r\n\r\n")
    yield attempt("HTTP/0.9", f"POST {path}\r\n\r\n".encode(), statuses=gone)
    yield attempt("HTTP/9.9", whole.replace(b"HTTP/1.1", b"HTTP/9.9", 1), statuses=gone | {505})


def too_much(path: str, good: Json) -> Iterator[Attempt]:
    """Yield bodies that are larger than allowed, or other than announced."""
    body = _json(good)
    head = post(path, b"", kind="application/json")

    def announce(size: int) -> bytes:
        return head.replace(b"Content-Length: 0", f"Content-Length: {size}".encode())

    chunk = b"%x\r\n" % (1 << 16) + b" " * (1 << 16) + b"\r\n"
    endless = head.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    large = frozenset({413, 0})
    for name, parts, statuses in (
        ("one byte too many", [announce(LARGEST_BODY + 1), bytes(1 << 16)], large),
        ("100 MiB", [announce(100 << 20), *[bytes(1 << 20)] * 100], large),
        ("endless chunks", [endless, *[chunk] * (100 << 4)], large),
        ("a length too large", [announce(len(body) + 9), body], frozenset({408})),
        ("a length too small", [announce(len(body) - 9), body], frozenset({400})),
        ("no body at all", [announce(1000)], frozenset({408})),
        ("7 MiB of spaces", [announce(LARGEST_BODY), b" " * LARGEST_BODY], frozenset({400, 408})),
    ):
        yield Attempt(name=name, parts=parts, statuses=statuses)


def _many_keys() -> str:
    return json.dumps({f"k{number}": number for number in range(100_000)})


def _json(tree: Json) -> bytes:
    return json.dumps(tree).encode()
