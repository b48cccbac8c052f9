"""Strategic merge patches: which lists merge by which key, and in which order they come out.

Decides for what is sent in the lab: lists of objects under a key, and `$patch: delete` in them. All
other directives are not modelled, nor are lists of objects that are not named here.
"""

from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.request import not_modelled
from rollout_operator.lab.schemas.refusals import expect

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
    if all(isinstance(one, str) for one in (*before, *patch)) and key != "finalizers":
        return patch
    merge_key = _KEYS.get(key)
    items = [one for one in patch if isinstance(one, dict)]
    if merge_key is None or len(items) != len(patch):
        not_modelled(f"the merge of the list {key}")
    merged, added, places = list(before), [], [-1]
    for one in items:
        expect(merge_key in one, f"an item of {key}", one)
        place = _position(merged, one, merge_key)
        if _PATCH in one:
            expect(one[_PATCH] == "delete", f"the directive in {key}", one)
            merged = [kept for at, kept in enumerate(merged) if at != place]
        elif place < 0:
            added.append(_clean(one))
        else:
            found = merged[place]
            assert isinstance(found, dict)
            merged[place] = merge_strategic(found, one)
            places.append(place)
    # What is new comes before all that was there. Together with others, their order decides.
    is_plain = places == sorted(places) and not (added and len(places) > 1)
    expect(is_plain, f"the order of {key}", patch)
    return [*added, *merged]


def _clean(value: object) -> object:
    """Return a value without nulls. Raises NotModelled for directives."""
    if isinstance(value, dict):
        expect(not any(key[:1] == "$" for key in value), "a directive", value)
        return {key: _clean(one) for key, one in value.items() if one is not None}
    return [_clean(one) for one in value] if isinstance(value, list) else value


def _position(items: list[object], wanted: JsonObject, merge_key: str) -> int:
    for index, one in enumerate(items):
        if isinstance(one, dict) and one.get(merge_key) == wanted[merge_key]:
            return index
    return -1
