"""AdmissionReview v1 between the API server and a webhook: what is asked, and what an answer says.

Decides the words of the question and which answers are none. What an answer leads to is `webhooks`'
part.
"""

import base64
import binascii
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.admission.rules import Attempt, RegisteredHook
from rollout_operator.lab.model.fields import child, text
from rollout_operator.lab.model.request import ApiRefusal

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
    """A webhook could not be asked, or gave no useful answer; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """A useful answer of a webhook."""

    is_allowed: bool
    status: JsonObject
    """Of a refusal, empty where it says nothing."""
    patch: Sequence[JsonObject] = ()
    warnings: tuple[str, ...] = ()


def make_uid(rng: random.Random) -> str:
    """Return a random UUID (version 4) out of this source of chance."""
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
    """Return what a webhook answered. Raises CallFailed where it is no useful answer."""
    review = _decode_object(body)
    if not review.get("kind"):
        raise CallFailed(f"failed to call webhook: Object 'Kind' is missing in '{_shown(body)}'")
    response = review.get("response")
    if not isinstance(response, dict):
        raise _invalid("webhook response was absent")
    given = text(response, "uid")
    if given != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{given}"')
    kind = (review.get("apiVersion"), review.get("kind"))
    if kind != (_VERSION, _KIND):
        wanted, found = f"{_VERSION}, Kind={_KIND}", f"{kind[0] or '/'}, Kind={kind[1]}"
        raise _invalid(f"expected webhook response of {wanted}, got {found}")
    patch = _patch(response, is_mutating=is_mutating)
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


def _patch(response: JsonObject, *, is_mutating: bool) -> Sequence[JsonObject]:
    coded, kind = response.get("patch"), response.get("patchType")
    if not is_mutating:
        if coded:
            raise _invalid("validating webhook may not return response.patch")
        if kind is not None:
            raise _invalid("validating webhook may not return response.patchType")
        return ()
    if coded and kind is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    if not coded and kind is not None:
        raise _invalid("webhook returned response.patchType but not response.patch")
    if not coded:
        return ()
    if kind != "JSONPatch":
        raise CallFailed(f'unsupported patch type "{kind}"')
    return _decode_patch(str(coded))


def _decode_patch(coded: str) -> Sequence[JsonObject]:
    try:
        raw = base64.b64decode(coded, validate=True)
    except binascii.Error as error:
        raise CallFailed(f"failed to call webhook: illegal base64 data: {error}") from error
    try:
        return msgspec.json.decode(raw, type=list[JsonObject])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CallFailed(f"received undecodable patch in webhook response: {error}") from error


def _decode_object(body: bytes) -> JsonObject:
    try:
        return msgspec.json.decode(body, type=JsonObject)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        text_ = "failed to call webhook: couldn't get version/kind; json parse error"
        raise CallFailed(f"{text_}: {error}") from error


def _invalid(why: str) -> CallFailed:
    return CallFailed(f"received invalid webhook response: {why}")


def _shown(body: bytes) -> str:
    return body.decode("utf-8", "replace")
