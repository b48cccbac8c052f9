"""JSON patch (RFC 6902) as the real API server applies it, oddities included.

What replaces or tests an absent field of an object finds null there; an index may count from the
end. To the sender of a PATCH all steps that do not apply end in one and the same refusal; the texts
told apart here are those that a webhook's patch leads to.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.request import ApiRefusal, not_modelled
from rollout_operator.lab.schemas.tidy import copy_json

_REFUSED: Final = "the server rejected our request due to an error in our request"
_MOST_STEPS: Final = 10_000
_MISSING: Final = "missing value"
_Holder = JsonObject | list[object]


def apply_json_patch(obj: JsonObject, steps: Sequence[JsonObject]) -> JsonObject:
    """Return the patched object. Raises Refusal (413, 422)."""
    if len(steps) > _MOST_STEPS:
        text = f"The allowed maximum operations in a JSON patch is {_MOST_STEPS}, got {len(steps)}"
        raise ApiRefusal(413, "RequestEntityTooLarge", text)
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
    kind, path = step.get("op"), step.get("path")
    if kind not in ("add", "remove", "replace", "test", "move", "copy"):
        raise ValueError(f"Unexpected kind: {kind or 'unknown'}")
    if not isinstance(path, str):
        raise ValueError(f"{kind} operation failed to decode path: {_MISSING}")
    if kind in ("move", "copy"):
        source = step.get("from")
        if not isinstance(source, str):
            raise ValueError(f"{kind} operation failed to decode from: {_MISSING}")
        _transfer(doc, source, path, is_move=kind == "move")
    elif kind == "add":
        holder, key = _find(
            doc, path, f'add operation does not apply: doc is missing path: "{path}"'
        )
        _add(holder, key, step.get("value"), path)
    elif kind == "remove":
        missing = f'remove operation does not apply: doc is missing path: "{path}"'
        _remove(*_find(doc, path, missing), path)
    elif kind == "replace":
        _replace(doc, path, step.get("value"))
    else:
        _test(doc, path, step.get("value"))


def _find(doc: JsonObject, path: str, missing: str) -> tuple[_Holder, str]:
    """Return what holds the last part of a path, and that part."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    holder: object = doc if len(parts) > 1 else None
    for part in parts[1:-1]:
        try:
            holder = _get(holder, part) if isinstance(holder, dict | list) else None
        except ValueError:
            holder = None
    if isinstance(holder, dict | list):
        return holder, parts[-1]
    raise ValueError(f"{missing}: {_MISSING}")


def _get(holder: _Holder, key: str) -> object:
    return holder.get(key) if isinstance(holder, dict) else holder[_index(key, len(holder))]


def _index(key: str, size: int) -> int:
    """Return an index into a list of some size; negative ones count from the end."""
    try:
        index = int(key)
    except ValueError:
        raise ValueError(f'strconv.Atoi: parsing "{key}": invalid syntax') from None
    if not -size <= index < size:
        raise ValueError(f"Unable to access invalid index: {index}: invalid index referenced")
    return index % size


def _add(holder: _Holder, key: str, value: object, path: str) -> None:
    if isinstance(holder, dict):
        holder[key] = value
    elif key == "-":
        holder.append(value)
    else:
        try:
            holder.insert(_index(key, len(holder) + 1), value)
        except ValueError as error:
            raise ValueError(f"error in add for path: '{path}': {error}") from error


def _remove(holder: _Holder, key: str, path: str) -> None:
    if isinstance(holder, dict):
        if key not in holder:
            text = f"Unable to remove nonexistent key: {key}: {_MISSING}"
            raise ValueError(f"error in remove for path: '{path}': {text}")
        del holder[key]
        return
    try:
        del holder[_index(key, len(holder))]
    except ValueError as error:
        raise ValueError(f"error in remove for path: '{path}': {error}") from error


def _replace(doc: JsonObject, path: str, value: object) -> None:
    if not path:
        not_modelled("a JSON patch that replaces the whole document")
    missing = f"replace operation does not apply: doc is missing path: {path}"
    holder, key = _find(doc, path, missing)
    if isinstance(holder, dict):
        holder[key] = value  # also where it is absent
        return
    try:
        holder[_index(key, len(holder))] = value
    except ValueError:
        text = f"replace operation does not apply: doc is missing key: {path}: {_MISSING}"
        raise ValueError(text) from None


def _test(doc: JsonObject, path: str, value: object) -> None:
    if path:
        holder, key = _find(doc, path, f"test operation does not apply: is missing path: {path}")
        try:
            found = _get(holder, key)
        except ValueError as error:
            raise ValueError(f"error in test for path: '{path}': {error}") from error
    else:
        found = doc
    # In Python true is 1: not in JSON.
    if found != value or isinstance(found, bool) is not isinstance(value, bool):
        _fail(f"testing value {path} failed: test failed")


def _transfer(doc: JsonObject, source: str, path: str, *, is_move: bool) -> None:
    kind = "move" if is_move else "copy"
    missing = f"{kind} operation does not apply: doc is missing"
    holder, key = _find(doc, source, f"{missing} from path: {source}")
    value = _get(holder, key)
    if is_move:
        _remove(holder, key, source)
    else:
        value = copy_json({"": value})[""]
    target, last = _find(doc, path, f"{missing} destination path: {path}")
    _add(target, last, value, path)


def _fail(text: str) -> NoReturn:
    raise ValueError(text)
