"""The answer to an AdmissionReview, byte for byte as Go's encoder writes it.

Decides how a verdict reads on the wire: order of keys, what is left out, escapes, lengths. What
the verdict says is decided by the hooks; whether the webhook takes patches is said by the caller.
"""

import base64
import math
from collections.abc import Iterable
from typing import Final

import msgspec

from rollout_operator.model.decode.not_ready import clip
from rollout_operator.model.decode.review import KIND
from rollout_operator.model.outcome import Verdict
from rollout_operator.model.review import Review, Scalable, Version

# What clients show of a warning; the API server cuts longer warnings, and drops warnings beyond its
# total.
MAX_WARNINGS: Final = 10
MAX_WARNING: Final = 256
# Texts may quote what tenants wrote, which may be 256 KiB.
MAX_MESSAGE: Final = 4096

_SCALE: Final = "Scale"
_PATCHABLE: Final = frozenset({"CREATE", "UPDATE"})
# Go escapes these inside of strings, so that JSON may stand inside of HTML and JavaScript; they
# occur nowhere else in JSON.
_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
_HEADS: Final = {
    version: b'{"kind":"%s","apiVersion":"%s","response":{"uid":'
    % (KIND.encode(), version.value.encode())
    for version in Version
}


def render_answer(review: Review, verdict: Verdict, *, may_patch: bool = False) -> bytes:
    """Return the body of the answer; `may_patch` says whether the webhook takes patches."""
    parts = [
        _HEADS[review.version],
        _json(review.uid),
        b',"allowed":true' if verdict.is_allowed else b',"allowed":false',
    ]
    parts.extend(_render_status(verdict))
    if may_patch and verdict.is_allowed and verdict.annotations:
        parts.extend(_render_patch(review, verdict))
    if verdict.warnings:
        warnings = b",".join(_json(clip(text, MAX_WARNING)) for text in _first(verdict))
        parts.append(b',"warnings":[%s]' % warnings)
    parts.append(b"}}")
    return b"".join(parts)


def _render_status(verdict: Verdict) -> Iterable[bytes]:
    text = verdict.reason.text
    if verdict.is_allowed and not text and not verdict.code:
        return
    yield b',"status":{"metadata":{}'
    if not text and not verdict.is_allowed:
        text = f"refused: {verdict.reason.code.value}"
    if text:
        yield b',"message":' + _json(clip(text, MAX_MESSAGE))
    if verdict.retry_after is not None and not verdict.is_allowed:
        seconds = max(math.ceil(verdict.retry_after.total_seconds()), 1)
        yield b',"details":{"retryAfterSeconds":%d}' % seconds
    if verdict.code:
        yield b',"code":%d' % verdict.code
    yield b"}"


def _render_patch(review: Review, verdict: Verdict) -> Iterable[bytes]:
    if not isinstance(review.new, Scalable) or review.new.kind == _SCALE:
        return
    if review.operation not in _PATCHABLE:
        return
    patch = msgspec.json.encode(_plan_steps(review.new, verdict))
    yield b',"patch":"%s","patchType":"JSONPatch"' % base64.b64encode(patch)


def _plan_steps(new: Scalable, verdict: Verdict) -> list[dict[str, object]]:
    root = "/metadata/annotations"
    if not new.has_annotations:
        # Adding to a map that is not there is an error.
        return [{"op": "add", "path": root, "value": dict(verdict.annotations)}]
    return [
        {"op": "add", "path": f"{root}/{_pointer(key)}", "value": value}
        for key, value in verdict.annotations.items()
    ]


def _pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _first(verdict: Verdict) -> tuple[str, ...]:
    return verdict.warnings[:MAX_WARNINGS]


def _json(text: str) -> bytes:
    try:
        encoded = msgspec.json.encode(text)
    except UnicodeEncodeError:  # half a character, from bytes that are no UTF-8
        encoded = msgspec.json.encode(text.encode("utf-8", "replace").decode())
    for char, escape in _ESCAPES:
        if char in encoded:
            encoded = encoded.replace(char, escape)
    return encoded
