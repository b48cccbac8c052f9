"""Strategic merge patches: which lists merge by which key, and how an order is restored.

Decides for the kinds that are modelled. A list that is not named here is replaced as a whole, as
the real server does where a type says nothing. `$retainKeys` is obeyed; a directive that nobody
knows is refused.
"""

from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.request import ApiRefusal, not_modelled

# Merge keys of lists of objects, by the name of the field. `conditions` merge by type in every
# status, `ports` by another key in Services: see `_merge_key`.
_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "podIPs": "ip",
    "hostIPs": "ip",
    "topologySpreadConstraints": "topologyKey",
    "conditions": "type",
    "ownerReferences": "uid",
    "webhooks": "name",
    "matchConditions": "name",
}
# Lists of plain values that merge as sets.
_SETS: Final = frozenset({"finalizers", "podCIDRs"})
# Objects that are replaced as a whole: the selector of a PodDisruptionBudget.
_REPLACED: Final = {"PodDisruptionBudget": "selector"}

_PATCH: Final = "$patch"
_ORDER: Final = "$setElementOrder/"
_DELETE: Final = "$deleteFromPrimitiveList/"
_RETAIN: Final = "$retainKeys"


def merge_strategic(obj: JsonObject, patch: JsonObject) -> JsonObject:
    """Return the patched object; neither argument is changed.

    Raises Refusal (400, 422, 500) as the real server does for patches that make no sense.
    """
    return _Merger(str(obj.get("kind", ""))).merge(obj, patch)


class _Merger:
    """The merge of one patch into an object of one kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def merge(self, original: JsonObject, patch: JsonObject) -> JsonObject:
        directive = patch.get(_PATCH)
        if directive == "replace":
            return {key: value for key, value in patch.items() if key != _PATCH}
        if directive == "delete":
            return {}
        if directive is not None:
            raise _broken(f"unknown patch type: {directive} in map: {patch}")
        result = _retained(original, patch)
        orders = {key.removeprefix(_ORDER): patch[key] for key in patch if key.startswith(_ORDER)}
        for key, value in patch.items():
            if key.startswith((_ORDER, _RETAIN)):
                continue
            if key.startswith(_DELETE):
                _delete_values(result, key.removeprefix(_DELETE), value)
            elif value is None:
                result.pop(key, None)
            else:
                self._merge_field(result, key, value)
        for key, order in orders.items():
            self._reorder(original, patch, result, key, order)
        return result

    def _merge_field(self, result: JsonObject, key: str, value: object) -> None:
        before = result.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            is_replaced = _REPLACED.get(self._kind) == key
            result[key] = value if is_replaced else self.merge(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            result[key] = self._merge_list(key, before, value)
        else:
            kept, value = _clean(value)
            if kept:
                result[key] = value
            else:
                result.pop(key, None)

    def _merge_list(self, key: str, before: list[object], patch: list[object]) -> list[object]:
        if key in _SETS:
            return _in_order([*dict.fromkeys([*before, *patch])], patch, before, "")
        merge_key = self._merge_key(key)
        if not merge_key:
            return patch
        items = [one for one in patch if isinstance(one, dict)]
        if len(items) != len(patch):
            raise _broken(f"value for key {key} is not a map")
        merged, plain = _without_deleted(before, items, merge_key)
        for one in plain:
            index = _position(merged, one, merge_key)
            if index < 0:
                merged.append(_clean(one)[1])
            else:
                found = merged[index]
                assert isinstance(found, dict)
                merged[index] = self.merge(found, one)
        return _in_order(merged, [*plain], before, merge_key)

    def _reorder(
        self, original: JsonObject, patch: JsonObject, result: JsonObject, key: str, order: object
    ) -> None:
        """Put a list into the order that the patch asks for, beside what it does not name."""
        if not isinstance(order, list):
            raise ApiRefusal(400, "BadRequest", "invalid patch format of setElementOrder list")
        merge_key = "" if key in _SETS else self._merge_key(key)
        if not merge_key and key not in _SETS:
            not_modelled(f"{_ORDER}{key}: the list has no merge key")
        given = patch.get(key)
        if isinstance(given, list):
            _check_order(given, order, merge_key)
        now, before = result.get(key), original.get(key)
        if isinstance(now, list):
            result[key] = _in_order(
                now, order, before if isinstance(before, list) else [], merge_key
            )

    def _merge_key(self, key: str) -> str:
        if key == "ports" and self._kind == "Service":
            return "port"
        if key == "webhooks" and not self._kind.endswith("WebhookConfiguration"):
            return ""
        return _KEYS.get(key, "")


def _retained(original: JsonObject, patch: JsonObject) -> JsonObject:
    """Return a copy of what the patch keeps of an object."""
    keep = patch.get(_RETAIN)
    if keep is None:
        return dict(original)
    if not isinstance(keep, list):
        raise ApiRefusal(400, "BadRequest", "invalid patch format of retainKeys")
    named = [key for key, value in patch.items() if value is not None and key[0] != "$"]
    if any(key not in keep for key in named):
        raise ApiRefusal(400, "BadRequest", "invalid patch format of retainKeys")
    return {key: value for key, value in original.items() if key in keep}


def _delete_values(result: JsonObject, key: str, values: object) -> None:
    before = result.get(key)
    if isinstance(before, list) and isinstance(values, list):
        result[key] = [one for one in before if one not in values]


def _without_deleted(
    before: list[object], patch: list[JsonObject], merge_key: str
) -> tuple[list[object], list[JsonObject]]:
    """Return what stays of a list, and the items of the patch that are no directives."""
    left, plain, is_replaced = list(before), [], False
    for one in patch:
        directive = one.get(_PATCH)
        if directive is None or directive == "delete":
            if merge_key not in one:
                raise _broken(f"map: {one} does not contain declared merge key: {merge_key}")
            if directive is None:
                plain.append(one)
            else:
                left = [kept for kept in left if not _is_same(kept, one, merge_key)]
        elif directive == "replace":
            is_replaced = True
        else:
            raise _broken(f"unknown patch type: {directive} in map: {one}")
    return ([] if is_replaced else left), plain


def _clean(value: object) -> tuple[bool, object]:
    """Return whether a value is kept, and it without nulls and directives."""
    if isinstance(value, dict):
        if _PATCH in value:
            return False, None
        found = {key: _clean(one) for key, one in value.items() if one is not None}
        return True, {key: one for key, (kept, one) in found.items() if kept and key[:1] != "$"}
    if isinstance(value, list):
        return True, [one for kept, one in map(_clean, value) if kept]
    return True, value


def _in_order(
    items: list[object], first: list[object], server: list[object], merge_key: str
) -> list[object]:
    """Return items so that those of `first` follow its order, and the others the server's.

    Where both name two items, the server's order decides which comes first.
    """
    named = [one for one in items if _position(first, one, merge_key) >= 0]
    others = [one for one in items if _position(first, one, merge_key) < 0]
    named.sort(key=lambda one: _position(first, one, merge_key))
    others.sort(key=lambda one: _late(_position(server, one, merge_key), len(items)))
    result: list[object] = []
    while named and others:
        left = _position(server, others[0], merge_key)
        right = _position(server, named[0], merge_key)
        goes_first = left < right
        result.append(others.pop(0) if goes_first else named.pop(0))
    return [*result, *others, *named]


def _late(position: int, size: int) -> int:
    return position if position >= 0 else size


def _position(items: list[object], wanted: object, merge_key: str) -> int:
    for index, one in enumerate(items):
        if _is_same(one, wanted, merge_key):
            return index
    return -1


def _is_same(one: object, other: object, merge_key: str) -> bool:
    if not merge_key:
        return one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return merge_key in one and one[merge_key] == other.get(merge_key)
    return False


def _check_order(items: list[object], order: list[object], merge_key: str) -> None:
    """Refuse a patch whose items are not in the order that it asks for."""
    wanted = [one for one in items if not (isinstance(one, dict) and _PATCH in one)]
    places = [_position(order, one, merge_key) for one in wanted]
    if order and wanted and (min(places) < 0 or places != sorted(places)):
        text = (
            f"The order in patch list:\n{items}\n doesn't match $setElementOrder list:\n{order}\n"
        )
        raise _broken(text)


def _broken(text: str) -> ApiRefusal:
    return ApiRefusal(500, "", text)
