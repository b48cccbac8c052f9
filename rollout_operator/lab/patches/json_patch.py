"""JSON patch (RFC 6902) as the real API server applies it, oddities included.

What replaces or tests an absent field of an object finds null there; an index may count from the
end. To the sender of a PATCH all steps that do not apply end in one and the same refusal.
"""

from collections.abc import Sequence
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.request import ApiRefusal, not_modelled
from rollout_operator.lab.schemas.tidy import copy_json

_REFUSED: Final = "the server rejected our request due to an error in our request"
_Holder = JsonObject | list[object]


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
    holder, key = _find(doc, path)
    match kind:
        case "add":
            _add(holder, key, value)
        case "remove":
            _remove(holder, key)
        case "replace":
            _replace(holder, key, value)
        case "test":
            found = _get(holder, key)
            # In Python true is 1: not in JSON.
            if found != value or isinstance(found, bool) is not isinstance(value, bool):
                raise ValueError(f"{path} has another value")
        case _:
            not_modelled(f"the step {kind!r} of a JSON patch")


def _find(doc: JsonObject, path: str) -> tuple[_Holder, str]:
    """Return what holds the last part of a path, and that part."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    holder: object = doc
    for part in parts[1:-1]:
        holder = _get(holder, part) if isinstance(holder, dict | list) else None
    if not isinstance(holder, dict | list):
        raise ValueError(f"nothing holds {path}")
    return holder, parts[-1]


def _get(holder: _Holder, key: str) -> object:
    return holder.get(key) if isinstance(holder, dict) else holder[_index(key, len(holder))]


def _index(key: str, size: int) -> int:
    """Return an index into a list of some size; negative ones count from the end."""
    index = int(key)
    if not -size <= index < size:
        raise ValueError(f"no index {index} among {size}")
    return index % size


def _add(holder: _Holder, key: str, value: object) -> None:
    if isinstance(holder, dict):
        holder[key] = value
    elif key == "-":
        holder.append(value)
    else:
        holder.insert(_index(key, len(holder) + 1), value)


def _remove(holder: _Holder, key: str) -> None:
    if isinstance(holder, list):
        del holder[_index(key, len(holder))]
    elif key in holder:
        del holder[key]
    else:
        raise ValueError(f"{key} is not there")


def _replace(holder: _Holder, key: str, value: object) -> None:
    if isinstance(holder, list):
        holder[_index(key, len(holder))] = value
    else:
        holder[key] = value  # also where it is absent
