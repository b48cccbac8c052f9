"""Rules that all kinds share: names, labels and what an update of `metadata` cannot change.

Who sets uid, creationTimestamp, resourceVersion and namespace is the server's frame
(`lab.apiserver.api`).
"""

import re
from typing import Final

from rollout_lab.model.fields import children, metadata_of, name_of
from rollout_lab.schemas.labels import strings
from rollout_lab.schemas.refusals import expect, invalid
from rollout_operator.kube.api import JsonObject, Resource

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD: Final = re.compile("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LONGEST_LABEL: Final = 63
_LONGEST_NAME: Final = 253
_FIXED: Final = ("name", "namespace", "uid")
_OF_DELETION: Final = ("deletionTimestamp", "deletionGracePeriodSeconds")

_NUMBERS: Final = ("replicas", "minReadySeconds", "revisionHistoryLimit")
# Kinds whose fields are judged by a schema, after they were read.
_BY_SCHEMA: Final = frozenset({"ReplicaTemplate", "ZoneAwarePodDisruptionBudget"})
_NAMES: Final = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}


def explain_undecodable(obj: JsonObject) -> str:
    """Return why an object cannot be read at all, in the words of the decoder; empty where it can.

    Decides for the fields that all objects share and those that decide a rollout; others pass.
    """
    for key in ("spec", "status", "metadata"):
        value = obj.get(key)
        if value is not None and not isinstance(value, dict):
            return _render_undecodable(value, key, "struct")
    metadata, spec = metadata_of(obj), obj.get("spec")
    for key in ("labels", "annotations"):
        if text := _explain_map(metadata.get(key), f"metadata.{key}"):
            return text
    if isinstance(spec, dict) and obj.get("kind") not in _BY_SCHEMA:
        for key in _NUMBERS:
            value = spec.get(key)
            if value is not None and type(value) is not int:
                return _render_undecodable(value, f"spec.{key}", "int32")
    return ""


def _explain_map(value: object, field: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, dict):
        return _render_undecodable(value, field, "map[string]string")
    for key, item in value.items():
        if item is not None and not isinstance(item, str):
            return _render_undecodable(item, f"{field}.{key}", "string")
    return ""


def _render_undecodable(value: object, field: str, wanted: str) -> str:
    found = _NAMES.get(type(value), "object")
    return f"json: cannot unmarshal {found} into Go struct field .{field} of type {wanted}"


def check_name(field: str, name: str, *, is_label: bool = False) -> None:
    """Raise NotModelled where a name is no DNS subdomain, or no DNS label."""
    longest = _LONGEST_LABEL if is_label else _LONGEST_NAME
    has_form = _NAME.fullmatch(name) and not (is_label and "." in name)
    expect(bool(has_form) and len(name) <= longest, field, name)


def check_metadata(obj: JsonObject) -> None:
    """Raise NotModelled for what is malformed in labels, annotations and owner references."""
    check_labels("metadata.labels", strings(obj, "metadata", "labels"))
    for key in strings(obj, "metadata", "annotations"):
        _check_key("metadata.annotations", key.lower())
    owners = children(obj, "metadata", "ownerReferences")
    for owner in owners:
        expect(all(owner.get(part) for part in ("kind", "name", "uid")), "owner", owner)
    expect(sum(owner.get("controller") is True for owner in owners) <= 1, "owners", owners)


def check_labels(field: str, labels: dict[str, str]) -> None:
    """Raise NotModelled for labels whose key or value is malformed."""
    for key, value in labels.items():
        _check_key(field, key)
        has_form = not value or _WORD.fullmatch(value)
        expect(bool(has_form) and len(value) <= _LONGEST_LABEL, field, value)


def _check_key(field: str, key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    has_form = _WORD.fullmatch(name) and (not slash or _NAME.fullmatch(prefix))
    expect(bool(has_form) and len(name) <= _LONGEST_LABEL, field, key)


def keep_metadata(old: JsonObject, new: JsonObject) -> None:
    """Put back in `new.metadata` what an update can never change, whatever it says."""
    before, after = metadata_of(old), metadata_of(new)
    for key in ("generation", "creationTimestamp"):
        after.pop(key, None)
        if key in before:
            after[key] = before[key]
    after.setdefault("uid", before.get("uid"))
    if "deletionTimestamp" in before:
        after["deletionTimestamp"] = before["deletionTimestamp"]
        if "deletionGracePeriodSeconds" in before:
            after.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])


def check_metadata_update(resource: Resource, old: JsonObject, new: JsonObject) -> None:
    """Raise Refusal (422) where what may not change in `metadata` did."""
    before, after = metadata_of(old), metadata_of(new)
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    for key in _FIXED:
        if after.get(key) != before.get(key):
            value = str(after.get(key) or "")
            raise invalid(kind, name_of(old), f"metadata.{key}", value, "field is immutable")
    for key in _OF_DELETION:
        expect(after.get(key) == before.get(key), f"metadata.{key}", after.get(key))
    if "deletionTimestamp" in before:
        known, found = before.get("finalizers"), after.get("finalizers")
        listed = known if isinstance(known, list) else []
        added = [item for item in found if item not in listed] if isinstance(found, list) else []
        expect(not added, "finalizers of what is being deleted", added)
    check_metadata(new)
