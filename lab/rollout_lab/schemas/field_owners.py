"""Which field managers own which fields of an object, and what server-side apply makes of that.

Decides by plain merging: maps are merged field by field, lists are one field. That holds for kinds
whose schema says nothing else of their lists, as for those of Flux that are written by apply. Whose
fields are followed is decided in `kinds`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_lab.model.fields import child, children, metadata_of, text
from rollout_lab.model.request import ApiRefusal, not_modelled
from rollout_lab.schemas.tidy import copy_json
from rollout_operator.kube.api import JsonObject

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
        """Return it in the words of a conflict."""
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
