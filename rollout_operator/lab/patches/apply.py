"""The patches that the API server takes: merge patch (RFC 7386), JSON patch, strategic merge patch.

Decides what each makes of an object. Whether the result may be stored is decided by the rules of
its kind, and preconditions in `lab.schemas.metadata` by the server's frame.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.lab.model.request import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiRefusal,
    Body,
    not_modelled,
)
from rollout_operator.lab.patches.json_patch import apply_json_patch
from rollout_operator.lab.patches.strategic_merge import merge_strategic
from rollout_operator.lab.schemas.invalid import Problems
from rollout_operator.lab.schemas.shapes import find_misfit
from rollout_operator.lab.schemas.tidy import copy_head

_APPLY: Final = ("application/apply-patch+yaml", "application/apply-patch+cbor")
# What cannot be read has no kind yet.
_NAMELESS: Final = Resource("", "", "", "")
# Kinds that only a schema describes: how their lists merge is not known.
_CUSTOM: Final = frozenset({"ReplicaTemplate", "ZoneAwarePodDisruptionBudget"})
_STEPS: Final = "[]handlers.jsonPatchOp"
_OBJECT: Final = "map[string]interface {}"


def apply_patch(obj: JsonObject, content_type: str, body: Body) -> JsonObject:
    """Return a new object, patched; it shares with `obj` what `tidy.copy_head` shares.

    Raises Refusal (400, 413, 415, 422).
    """
    kind = content_type.partition(";")[0]
    if kind in _APPLY:
        not_modelled("server-side apply")
    if kind not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH):
        raise ApiRefusal(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    result = _patched(obj, kind, body)
    misfit = find_misfit(result)
    if misfit:
        problems = Problems()
        problems.invalid("patch", msgspec.json.encode(result).decode(), misfit)
        raise problems.refusal(_NAMELESS, "")
    return result


def _patched(obj: JsonObject, kind: str, body: Body) -> JsonObject:
    if kind == JSON_PATCH:
        return apply_json_patch(obj, _steps(body))
    if not isinstance(body, dict):
        raise _undecodable("array", _OBJECT)
    if kind == STRATEGIC_PATCH:
        if obj.get("kind") in _CUSTOM:
            not_modelled("the refusal of a strategic merge patch of a custom resource")
        return copy_head(merge_strategic(obj, body))
    return copy_head(merge(obj, body))


def merge(obj: JsonObject, patch: JsonObject) -> JsonObject:
    """Return an object with a merge patch applied: nulls take away, lists are replaced."""
    result = dict(obj)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = merge(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value
    return result


def _steps(body: Body) -> Sequence[JsonObject]:
    if body is None or isinstance(body, dict):
        raise _undecodable("object", _STEPS)
    return body


def _undecodable(found: str, wanted: str) -> ApiRefusal:
    text = f"error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    return ApiRefusal(400, "BadRequest", text)
