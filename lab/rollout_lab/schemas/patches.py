"""Patches as the real API server applies them, and who owns which field after an apply.

Decides what each makes of an object, for what is sent in the lab; the rest is not modelled. Whether
the result may be stored is decided by the rules of its kind, and preconditions by the server's
frame.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_lab.model.fields import child, children, metadata_of, text
from rollout_lab.model.request import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiRefusal,
    Body,
    not_modelled,
)
from rollout_lab.schemas.metadata import copy_head, copy_json, expect, explain_undecodable
from rollout_operator.kube.api import JsonObject

# Kinds that only a schema describes: how their lists merge is not known.
_CUSTOM: Final = frozenset({"ReplicaTemplate", "ZoneAwarePodDisruptionBudget"})


def apply_patch(obj: JsonObject, content_type: str, body: Body) -> JsonObject:
    """Return a new object, patched; it shares with `obj` what `copy_head` shares.

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


APPLY: Final = "Apply"
UPDATE: Final = "Update"
_PREFIX: Final = "f:"
# Of `metadata` only these belong to writers.
_OF_METADATA: Final = ("annotations", "finalizers", "labels", "ownerReferences")

Path = tuple[str, ...]
_ABSENT: Final = object()


class FieldOwner(msgspec.Struct, frozen=True, kw_only=True):
    """One manager in one way of writing, and the fields that are its own."""

    manager: str
    operation: str
    api_version: str
    time: str
    subresource: str = ""
    fields: frozenset[Path] = frozenset()

    @property
    def identity(self) -> tuple[str, ...]:
        """Return what tells it from other owners."""
        return (self.manager, self.operation, self.api_version, self.subresource)

    @property
    def description(self) -> str:
        shown = msgspec.json.encode(self.manager).decode()
        if self.subresource:
            shown += f' with subresource "{self.subresource}"'
        return f"{shown} using {self.api_version}" if self.operation == UPDATE else shown


def record_update(
    old: JsonObject, new: JsonObject, writer: FieldOwner
) -> Sequence[Mapping[str, object]]:
    """Return `managedFields` after a write but by apply; of a new object `old` is empty.

    What it changes is its own from then on, and of no other manager.
    """
    before, after = dict(_list_leaves(old)), dict(_list_leaves(new))
    changed = frozenset(path for path, value in after.items() if before.get(path, _ABSENT) != value)
    gone = before.keys() - after.keys()
    owners = [replace(owner, fields=owner.fields - gone) for owner in _read_owners(old)]
    own = next((owner for owner in owners if owner.identity == writer.identity), writer)
    if changed:
        mine = own.fields | changed
        others = [
            replace(owner, fields=owner.fields - changed) for owner in owners if owner is not own
        ]
        owners = [*others, replace(writer, fields=mine)]
    return _render(owners)


def record_apply(
    old: JsonObject, config: JsonObject, writer: FieldOwner
) -> Sequence[Mapping[str, object]]:
    """Return `managedFields` after an apply that was allowed."""
    wanted = dict(_list_leaves(config))
    changed = _collect_changed(old, wanted)
    owners = _read_owners(old)
    own = next((owner for owner in owners if owner.identity == writer.identity), None)
    others = [replace(owner, fields=owner.fields - changed) for owner in owners if owner is not own]
    is_as_before = own is not None and own.fields == wanted.keys() and not changed
    if is_as_before:
        return _render(owners)
    return _render([*others, replace(writer, fields=frozenset(wanted))])


def apply_fields(
    old: JsonObject, config: JsonObject, writer: FieldOwner, *, is_forced: bool
) -> JsonObject:
    """Return an object with the fields of an apply, without those that its manager lets go.

    Raises Refusal (409) where another manager owns what it would change, unless that is forced.
    """
    wanted = dict(_list_leaves(config))
    owners = _read_owners(old)
    others = [owner for owner in owners if owner.identity != writer.identity]
    changed = _collect_changed(old, wanted)
    if not is_forced:
        _check_conflicts(others, changed)
    own = next((owner.fields for owner in owners if owner.identity == writer.identity), frozenset())
    held = frozenset(path for owner in others for path in owner.fields)
    new = copy_json(old)
    for path in own - wanted.keys() - held:
        _remove(new, path)
    for path in changed:
        _set(new, path, wanted[path])
    for key in ("uid", "resourceVersion"):
        if given := text(config, "metadata", key):
            metadata_of(new)[key] = given
    return new


def _check_conflicts(others: Iterable[FieldOwner], changed: frozenset[Path]) -> None:
    found = [(owner, path) for owner in others for path in sorted(owner.fields & changed)]
    if not found:
        return
    causes: list[JsonObject] = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {owner.description}",
            "field": _show(path),
        }
        for owner, path in found
    ]
    raise ApiRefusal(409, "Conflict", _explain_conflicts(found), causes=causes)


def _explain_conflicts(found: Sequence[tuple[FieldOwner, Path]]) -> str:
    if len(found) == 1:
        owner, path = found[0]
        return f"Apply failed with 1 conflict: conflict with {owner.description}: {_show(path)}"
    by_owner: dict[str, list[str]] = {}
    for owner, path in found:
        by_owner.setdefault(owner.description, []).append(f"- {_show(path)}")
    texts = [f"conflicts with {who}:\n" + "\n".join(paths) for who, paths in by_owner.items()]
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(texts)


def _collect_changed(old: JsonObject, wanted: Mapping[Path, object]) -> frozenset[Path]:
    """Return what an apply gives another value; an empty map changes none that is there."""
    before = dict(_list_leaves(old))
    maps = {path[:end] for path in before for end in range(1, len(path))}
    return frozenset(
        path
        for path, value in wanted.items()
        if before.get(path, _ABSENT) != value and not (value == {} and path in maps)
    )


def _list_leaves(obj: JsonObject) -> Iterator[tuple[Path, object]]:
    """Yield all that belongs to writers: a list, a text or a number is one field."""
    for key, value in obj.items():
        if key == "metadata":
            given = {
                field: child(obj, key)[field] for field in _OF_METADATA if field in child(obj, key)
            }
            yield from _list_below((key,), given, is_top=True)
        elif key not in ("apiVersion", "kind"):
            yield from _list_below((key,), value)


def _list_below(
    path: Path, value: object, *, is_top: bool = False
) -> Iterator[tuple[Path, object]]:
    if not isinstance(value, dict) or not (value or is_top):
        yield path, value
        return
    for key, inner in value.items():
        yield from _list_below((*path, key), inner)


def _read_owners(obj: JsonObject) -> list[FieldOwner]:
    return [
        FieldOwner(
            manager=text(entry, "manager"),
            operation=text(entry, "operation"),
            api_version=text(entry, "apiVersion"),
            time=text(entry, "time"),
            subresource=text(entry, "subresource"),
            fields=frozenset(_read_fields((), child(entry, "fieldsV1"))),
        )
        for entry in children(obj, "metadata", "managedFields")
    ]


def _read_fields(path: Path, found: JsonObject) -> Iterator[Path]:
    below = [key for key in found if key.startswith(_PREFIX)]
    if path and not below:
        yield path
    for key in below:
        yield from _read_fields((*path, key.removeprefix(_PREFIX)), child(found, key))


def _render(owners: Iterable[FieldOwner]) -> Sequence[Mapping[str, object]]:
    """Return them in the order that objects have them in; an owner of nothing is none."""
    held = [owner for owner in owners if owner.fields]
    held.sort(key=lambda owner: (owner.operation, owner.time, owner.manager))
    return [_render_owner(owner) for owner in held]


def _render_owner(owner: FieldOwner) -> Mapping[str, object]:
    fields: JsonObject = {}
    for path in sorted(owner.fields):
        _set(fields, tuple(f"{_PREFIX}{step}" for step in path), {})
    entry = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.api_version,
        "time": owner.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**entry, "subresource": owner.subresource} if owner.subresource else entry


def _show(path: Path) -> str:
    return "".join(f".{step}" for step in path)


def _set(obj: JsonObject, path: Path, value: object) -> None:
    for step in path[:-1]:
        inner = obj.setdefault(step, {})
        if not isinstance(inner, dict):
            not_modelled(f"an apply of {_show(path)}, where {step} is no map")
        obj = inner
    obj[path[-1]] = value


def _remove(obj: JsonObject, path: Path) -> None:
    """Take a field away, and each map that is empty then."""
    first, *rest = path
    if not rest:
        obj.pop(first, None)
        return
    inner = child(obj, first)
    _remove(inner, tuple(rest))
    if not inner:
        obj.pop(first, None)
