"""Answers to reviews, compared byte by byte with what Go's encoder writes."""

import base64
import json

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replace_fields

from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version
from rollout_operator.web.dispatch import MAX_MESSAGE, MAX_WARNING, MAX_WARNINGS, render_answer

SET = Scalable(kind="StatefulSet", uid=Uid("s-1"), replicas=2)
REVIEW = Review(version=Version.V1, uid="u-1", operation="UPDATE", old=SET, new=SET)
V1 = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u-1",'
LAST = {"grafana.com/last-downscale": "2026-01-02T03:04:05Z"}


def verdict(
    text: str = "", *, allowed: bool = True, code: int = 0, warnings: tuple[str, ...] = ()
) -> Verdict:
    reason = Reason(code=Code.NO_DOWNSCALE, text=text)
    return Verdict(is_allowed=allowed, reason=reason, code=code, warnings=warnings)


def reported(
    message: bytes, code: bytes = b"", warnings: bytes = b"", *, is_allowed: bool = True
) -> bytes:
    """Return the end of an answer with a message."""
    status = b'"status":{"metadata":{},"message":"%b"%b}' % (message, code)
    return b'"allowed":%b,%b%b}}' % (b"true" if is_allowed else b"false", status, warnings)


@pytest.mark.parametrize(
    ("given", "rest"),
    [
        pytest.param(verdict(), b'"allowed":true}}', id="ADM-06 nothing to say"),
        pytest.param(verdict("fine"), reported(b"fine"), id="PREP-26 allowed with a message"),
        pytest.param(
            verdict("no", allowed=False), reported(b"no", is_allowed=False), id="NODOWN-07"
        ),
        pytest.param(
            verdict("later", allowed=False, code=429),
            reported(b"later", b',"code":429', is_allowed=False),
            id="ADM-06 with a code",
        ),
        pytest.param(
            verdict(allowed=False),
            reported(b"refused: no_downscale", is_allowed=False),
            id="a refusal always says something",
        ),
        pytest.param(
            verdict(warnings=("a", "b")), b'"allowed":true,"warnings":["a","b"]}}', id="warnings"
        ),
        pytest.param(
            verdict("no", allowed=False, code=403, warnings=("a",)),
            reported(b"no", b',"code":403', b',"warnings":["a"]', is_allowed=False),
            id="order of keys",
        ),
        pytest.param(
            verdict("a <b> & 'c' \"d\" \\ \u00e9 \U0001f600"),
            reported(
                b"a \\u003cb\\u003e \\u0026 'c' \\\"d\\\" \\\\ " + "\u00e9 \U0001f600".encode()
            ),
            id="Go's escapes",
        ),
        pytest.param(
            verdict("a\nb\x1b[1m\x7f\u2028\u202e"),
            reported(b"a\\\\nb\\\\x1b[1m\\\\x7f\\\\u2028\\\\u202e"),
            id="SEC-13 what steers a terminal is escaped",
        ),
        pytest.param(verdict("a\ud800b"), reported(b"a\\\\ud800b"), id="half a character"),
    ],
)
def test_answers_byte_by_byte(given: Verdict, rest: bytes) -> None:
    assert render_answer(REVIEW, given) == V1 + rest


def test_version_and_uid_are_echoed() -> None:
    """ADM-05, T-12: also a UID that no API server would give."""
    review = replace_fields(REVIEW, version=Version.V1BETA1, uid='<"\u2028\n')

    assert render_answer(review, verdict()) == (
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":'
        b'{"uid":"\\u003c\\"\\u2028\\n","allowed":true}}'
    )


@pytest.mark.parametrize("filler", ["x", "\n", "\U0001f600"])
def test_texts_are_bounded(filler: str) -> None:
    """SEC-13: annotations of 256 KiB may be quoted."""
    given = verdict(filler * 300_000, warnings=(filler * 300_000,) * 20)
    response = json.loads(render_answer(REVIEW, given))["response"]

    assert len(response["status"]["message"]) == MAX_MESSAGE
    assert {len(warning) for warning in response["warnings"]} == {MAX_WARNING}
    assert len(response["warnings"]) == MAX_WARNINGS


def test_a_text_that_fits_is_not_cut() -> None:
    given = verdict("x" * MAX_MESSAGE, warnings=("y" * MAX_WARNING,))
    response = json.loads(render_answer(REVIEW, given))["response"]

    assert response["status"]["message"] == "x" * MAX_MESSAGE
    assert response["warnings"] == ["y" * MAX_WARNING]


def patched(review: Review = REVIEW, *, may_patch: bool = True, allowed: bool = True) -> bytes:
    given = replace(verdict("no" if not allowed else "", allowed=allowed), annotations=LAST)
    return render_answer(review, given, may_patch=may_patch)


def test_a_patch_on_a_set_without_annotations() -> None:
    """D-23, SEC-24: the whole map is added, as there is none to add to."""
    patch = (
        b'[{"op":"add","path":"/metadata/annotations",'
        b'"value":{"grafana.com/last-downscale":"2026-01-02T03:04:05Z"}}]'
    )

    assert patched() == (
        V1 + b'"allowed":true,"patch":"' + base64.b64encode(patch) + b'","patchType":"JSONPatch"}}'
    )


@pytest.mark.parametrize("operation", ["UPDATE", "CREATE"])
def test_a_patch_touches_only_its_key(operation: str) -> None:
    """D-23, SEC-24: other annotations stay; `/` is escaped in the path."""
    new = replace_fields(SET, has_annotations=True)
    answer = json.loads(patched(replace_fields(REVIEW, new=new, operation=operation)))

    assert json.loads(base64.b64decode(answer["response"]["patch"])) == [
        {
            "op": "add",
            "path": "/metadata/annotations/grafana.com~1last-downscale",
            "value": "2026-01-02T03:04:05Z",
        }
    ]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(patched(may_patch=False), id="a validating webhook must not patch"),
        pytest.param(
            patched(replace_fields(REVIEW, new=Scalable(kind="Scale", replicas=1))),
            id="D-23 a Scale has no annotations",
        ),
        pytest.param(
            patched(replace_fields(REVIEW, new=Unusable("absent"))), id="nothing to patch"
        ),
        pytest.param(patched(replace_fields(REVIEW, operation="DELETE")), id="DELETE"),
    ],
)
def test_no_patch(answer: bytes) -> None:
    assert answer == V1 + b'"allowed":true}}'


def test_a_refusal_has_no_patch() -> None:
    assert b"patch" not in patched(allowed=False)
