"""Objects as people write them, for tests of the rules of each kind."""

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.schemas.kinds import ObjectKind
from rollout_operator.lab.schemas.tidy import copy_json


def workload(kind: str = "StatefulSet", **spec: object) -> JsonObject:
    """Return the least that makes a workload; `spec` adds fields or takes them away by None."""
    fields: JsonObject = {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
        },
        **spec,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def created(kind: ObjectKind, obj: JsonObject) -> JsonObject:
    """Return an object as it is stored."""
    stored = copy_json(obj)
    kind.prepare_create(stored)
    metadata = part(stored, "metadata")
    metadata |= {"uid": "u-1", "resourceVersion": "5", "creationTimestamp": "2026-01-02T03:04:05Z"}
    return stored


def updated(
    kind: ObjectKind, old: JsonObject, new: JsonObject, subresource: str = ""
) -> JsonObject:
    """Return the new version as it is stored; fails where the old one was touched."""
    before, stored = copy_json(old), copy_json(new)
    kind.prepare_update(old, stored, subresource)
    assert old == before, "what the store holds was changed"
    return stored


def part(obj: JsonObject, *path: str) -> JsonObject:
    """Return the object at a path, for a test to look at or to change."""
    for key in path:
        inner = obj[key]
        assert isinstance(inner, dict), f"{key} is {inner!r}"
        obj = inner
    return obj
