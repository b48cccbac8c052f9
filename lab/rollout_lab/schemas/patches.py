"""Patches as the real API server applies them: merge patch, JSON patch and strategic merge patch.

Decides what each makes of an object, for what is sent in the lab; the rest is not modelled. Whether
the result may be stored is decided by the rules of its kind, and preconditions by the server's
frame.
"""

import re
from collections.abc import Sequence
from typing import Final

from rollout_lab.model.request import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiRefusal,
    Body,
    not_modelled,
)
from rollout_lab.schemas.metadata import explain_undecodable
from rollout_lab.schemas.refusals import expect
from rollout_lab.schemas.tidy import copy_head, copy_json
from rollout_operator.kube.api import JsonObject

# Kinds that only a schema describes: how their lists merge is not known.
_CUSTOM: Final = frozenset({"ReplicaTemplate", "ZoneAwarePodDisruptionBudget"})


def apply_patch(obj: JsonObject, content_type: str, body: Body) -> JsonObject:
    """Return a new object, patched; it shares with `obj` what `tidy.copy_head` shares.

    Raises Refusal (422), NotModelled for what no server takes.
    """
    result = _patched(obj, content_type, body)
    problem = explain_undecodable(result)
    expect(not problem, "a patch", problem)
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


# JSON patch (RFC 6902), oddities included: what replaces or tests an absent field finds null there.
# A negative index counts from the end; what a step adds, removes or replaces is no item of a list.

_REFUSED: Final = "the server rejected our request due to an error in our request"


def apply_json_patch(obj: JsonObject, steps: Sequence[JsonObject]) -> JsonObject:
    """Return the patched object. Raises Refusal (422)."""
    try:
        return patched(obj, steps)
    except ValueError as error:
        raise ApiRefusal(422, "Invalid", _REFUSED) from error


def patched(obj: JsonObject, steps: Sequence[JsonObject]) -> JsonObject:
    """Return a changed copy of an object. Raises ValueError where a step does not apply."""
    result = copy_json(obj)
    for step in steps:
        _apply(result, copy_json(step))
    return result


def _apply(doc: JsonObject, step: JsonObject) -> None:
    kind, path, value = step.get("op"), step.get("path"), step.get("value")
    if not isinstance(path, str) or not path.startswith("/"):
        not_modelled(f"a JSON patch of the whole document: {step}")
    holder, key = _get_holder(doc, path)
    match kind:
        case "add" | "replace":
            holder[key] = value  # to replace is to add where it is absent
        case "remove":
            if key not in holder:
                raise ValueError(f"{key} is not there")
            del holder[key]
        case "test":
            found = holder.get(key)
            # In Python true is 1: not in JSON.
            is_same = found == value and isinstance(found, bool) is isinstance(value, bool)
            if not is_same or _is_written_otherwise(value):
                raise ValueError(f"{path} has another value")
        case _:
            not_modelled(f"the step {kind!r} of a JSON patch")


# What Python's encoder escapes and Go's does not, or the other way round.
_ESCAPED_ONCE: Final = re.compile("[<>&\x7f-\u2027\u202a-\U0010ffff]")


def _is_written_otherwise(value: object) -> bool:
    """Return whether the server never finds a value equal: it compares them as they are written."""
    if isinstance(value, dict):
        return any(map(_is_written_otherwise, value.values()))
    if isinstance(value, list):
        return any(map(_is_written_otherwise, value))
    return isinstance(value, str) and _ESCAPED_ONCE.search(value) is not None


def _get_holder(doc: JsonObject, path: str) -> tuple[JsonObject, str]:
    """Return what holds the last part of a path, and that part. Items of lists are only passed."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    holder: object = doc
    for part in parts[1:-1]:
        if isinstance(holder, list):
            holder = holder[_index(part, len(holder))]
        else:
            holder = holder.get(part) if isinstance(holder, dict) else None
    if isinstance(holder, list):
        not_modelled(f"a JSON patch of an item of a list: {path}")
    if not isinstance(holder, dict):
        raise ValueError(f"nothing holds {path}")
    return holder, parts[-1]


def _index(key: str, size: int) -> int:
    """Return an index into a list of some size; a negative index counts from the end."""
    index = int(key)
    if not -size <= index < size:
        raise ValueError(f"no index {index} among {size}")
    return index % size


# Strategic merge patch: lists of objects merge under a key.

# Merge keys of lists of objects, by the name of the field.
_KEYS: Final = {
    "containers": "name",
    "conditions": "type",
    "ownerReferences": "uid",
    "webhooks": "name",
}
_PATCH: Final = "$patch"


def merge_strategic(original: JsonObject, patch: JsonObject) -> JsonObject:
    """Return the patched object; neither argument is changed. Raises NotModelled."""
    result = dict(original)
    for key, value in patch.items():
        if key.startswith("$"):
            not_modelled(f"the directive {key} of a strategic merge patch")
        before = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(before, dict) and isinstance(value, dict):
            result[key] = merge_strategic(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            result[key] = _merge_list(key, before, value)
        else:
            result[key] = _clean(value)
    return result


def _merge_list(key: str, before: list[object], patch: list[object]) -> list[object]:
    if all(isinstance(item, str) for item in (*before, *patch)) and key != "finalizers":
        return patch
    merge_key = _KEYS.get(key)
    items = [item for item in patch if isinstance(item, dict)]
    if merge_key is None or len(items) != len(patch):
        not_modelled(f"the merge of the list {key}")
    merged, added, places = list(before), [], [-1]
    for item in items:
        expect(merge_key in item, f"an item of {key}", item)
        place = _position(merged, item, merge_key)
        if _PATCH in item:
            expect(item[_PATCH] == "delete", f"the directive in {key}", item)
            merged = [kept for at, kept in enumerate(merged) if at != place]
        elif place < 0:
            added.append(_clean(item))
        else:
            found = merged[place]
            assert isinstance(found, dict)
            merged[place] = merge_strategic(found, item)
            places.append(place)
    # What is new comes before all that was there. Together with others, their order decides.
    is_plain = places == sorted(places) and not (added and len(places) > 1)
    expect(is_plain, f"the order of {key}", patch)
    return [*added, *merged]


def _clean(value: object) -> object:
    """Return a value without nulls. Raises NotModelled for directives."""
    if isinstance(value, dict):
        expect(not any(key[:1] == "$" for key in value), "a directive", value)
        return {key: _clean(item) for key, item in value.items() if item is not None}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _position(items: list[object], wanted: JsonObject, merge_key: str) -> int:
    for index, item in enumerate(items):
        if isinstance(item, dict) and item.get(merge_key) == wanted[merge_key]:
            return index
    return -1
