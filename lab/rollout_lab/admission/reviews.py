"""AdmissionReview v1 between the API server and a webhook: the question, and what an answer says.

Decides the words of the question, and reads answers; what is no review is not modelled. What an
answer leads to is `webhooks`' part.
"""

import base64
import random
import uuid
from collections.abc import Sequence
from typing import Final

import msgspec

from rollout_lab.admission.rules import Attempt, RegisteredHook
from rollout_lab.model.fields import child, text
from rollout_lab.model.request import ApiRefusal, not_modelled
from rollout_lab.schemas.refusals import expect, expect_one_of
from rollout_operator.kube.api import JsonObject

_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
# What a subresource is a form of.
_FORMS: Final = {
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
}
_LEAST_REFUSAL: Final = 400
# Of a refusal, beside causes and hint: these are strings.
_DETAILS: Final = ("name", "group", "kind", "uid")


class CallFailed(Exception):
    """A webhook could not be called; the text says what."""


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A useful answer of a webhook."""

    is_allowed: bool
    status: JsonObject
    """Of a refusal, empty where it says nothing."""
    patch: Sequence[JsonObject] = ()
    warnings: tuple[str, ...] = ()


def make_uid(rng: random.Random) -> str:
    """Return a random UUID (version 4) from this random source."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def encode_review(attempt: Attempt, obj: JsonObject | None, uid: str) -> bytes:
    """Return the question about an attempt; `obj` is the new object as it is by now."""
    resource = attempt.kind.resource
    named = {
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
    }
    kind = _FORMS.get(attempt.subresource) or {
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
    }
    # Left out where empty, as Go does.
    optional = {
        "subResource": attempt.subresource,
        "requestSubResource": attempt.subresource,
        "name": attempt.name,
        "namespace": attempt.namespace,
    }
    request = {
        "uid": uid,
        "kind": kind,
        "resource": named,
        "requestKind": kind,
        "requestResource": named,
        **{key: value for key, value in optional.items() if value},
        "operation": attempt.operation,
        "userInfo": {"username": attempt.user, "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": attempt.old,
        "dryRun": attempt.dry_run,
        "options": {
            **attempt.options,
            "kind": _OPTIONS[attempt.operation],
            "apiVersion": "meta.k8s.io/v1",
        },
    }
    return msgspec.json.encode({"kind": _KIND, "apiVersion": _VERSION, "request": request})


def decode_answer(body: bytes, uid: str, *, is_mutating: bool) -> HookAnswer:
    """Return what a webhook answered. Raises NotModelled where it is no useful answer."""
    try:
        review = msgspec.json.decode(body, type=JsonObject)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        not_modelled(f"a webhook that answers no review: {error}")
    response = child(review, "response")
    expect_one_of((_VERSION,), "apiVersion of a review", review.get("apiVersion"))
    expect_one_of((_KIND,), "kind of a review", review.get("kind"))
    expect_one_of((uid,), "response.uid", response.get("uid"))
    coded, kind = response.get("patch"), response.get("patchType")
    expect_one_of((None, "JSONPatch") if is_mutating else (None,), "response.patchType", kind)
    expect(bool(coded) is (kind is not None), "response.patch", coded)
    patch: Sequence[JsonObject] = ()
    if coded:
        try:
            patch = msgspec.json.decode(base64.b64decode(str(coded)), type=list[JsonObject])
        except ValueError as error:  # no base64, or no list of steps
            not_modelled(f"a webhook's patch that is none: {error}")
    warnings = response.get("warnings")
    return HookAnswer(
        is_allowed=response.get("allowed") is True,
        status=child(response, "status"),
        patch=patch,
        warnings=tuple(map(str, warnings)) if isinstance(warnings, list) else (),
    )


def denial(hook: RegisteredHook, status: JsonObject) -> ApiRefusal:
    """Return the refusal that a webhook's denial becomes, worded as the real server words it."""
    code, denied = status.get("code"), f'admission webhook "{hook.name}" denied the request'
    said = text(status, "message") or text(status, "reason")
    details = child(status, "details")
    causes, seconds = details.get("causes"), details.get("retryAfterSeconds")
    return ApiRefusal(
        code if isinstance(code, int) and code >= _LEAST_REFUSAL else _LEAST_REFUSAL,
        text(status, "reason"),
        f"{denied}: {said}" if said else f"{denied} without explanation",
        causes=causes if isinstance(causes, list) else (),
        retry_after=seconds if isinstance(seconds, int) else 0,
        details={key: details[key] for key in _DETAILS if details.get(key)},
    )


def internal_error(why: str) -> ApiRefusal:
    """Return the refusal of a server that could not do it."""
    causes: list[JsonObject] = [{"message": why}]
    return ApiRefusal(500, "InternalError", f"Internal error occurred: {why}", causes=causes)
