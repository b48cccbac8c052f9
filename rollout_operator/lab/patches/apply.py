"""The patches that the API server takes: merge patch (RFC 7386), JSON patch, strategic merge patch.

Decides what each makes of an object. Whether the result may be stored is decided by the rules of
its kind, and preconditions in `lab.schemas.metadata` by the server's frame.
"""

from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.request import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Body,
    not_modelled,
)
from rollout_operator.lab.patches.json_patch import apply_json_patch
from rollout_operator.lab.patches.strategic_merge import merge_strategic
from rollout_operator.lab.schemas.metadata import find_misfit
from rollout_operator.lab.schemas.refusals import expect
from rollout_operator.lab.schemas.tidy import copy_head

# Kinds that only a schema describes: how their lists merge is not known.
_CUSTOM: Final = frozenset({"ReplicaTemplate", "ZoneAwarePodDisruptionBudget"})


def apply_patch(obj: JsonObject, content_type: str, body: Body) -> JsonObject:
    """Return a new object, patched; it shares with `obj` what `tidy.copy_head` shares.

    Raises Refusal (422), NotModelled for what no server takes.
    """
    result = _patched(obj, content_type, body)
    misfit = find_misfit(result)
    expect(not misfit, "a patch", misfit)
    return result


def _patched(obj: JsonObject, content_type: str, body: Body) -> JsonObject:
    is_object = isinstance(body, dict)
    if content_type == JSON_PATCH and body is not None and not isinstance(body, dict):
        return apply_json_patch(obj, body)
    if content_type == MERGE_PATCH and isinstance(body, dict):
        return copy_head(merge(obj, body))
    is_built_in = obj.get("kind") not in _CUSTOM
    if content_type == STRATEGIC_PATCH and isinstance(body, dict) and is_built_in:
        return copy_head(merge_strategic(obj, body))
    form = "an object" if is_object else "a list"
    return not_modelled(f"{form} as {content_type} of a {obj.get('kind')}")


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
