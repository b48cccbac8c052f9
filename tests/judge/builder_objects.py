"""API objects for histories that are built by hand."""

from collections.abc import Mapping
from typing import Final

from rollout_operator.kube.api import JsonObject

MOMENT: Final = "2026-01-02T03:04:05Z"
# Where a test's words for a StatefulSet stand in it.
PLACES: Final = {
    "replicas": ("spec", "replicas"),
    "strategy": ("spec", "updateStrategy", "type"),
    "generation": ("metadata", "generation"),
    "uid": ("metadata", "uid"),
    "going": ("metadata", "deletionTimestamp"),
    "observed": ("status", "observedGeneration"),
    "ready": ("status", "readyReplicas"),
    "update_revision": ("status", "updateRevision"),
    "current_revision": ("status", "currentRevision"),
    "limit": ("metadata", "annotations", "rollout-max-unavailable"),
    "paused": ("metadata", "annotations", "grafana.com/rollout-paused"),
    "group": ("metadata", "labels", "rollout-group"),
    "min_ready": ("spec", "minReadySeconds"),
}


def statefulset(name: str) -> JsonObject:
    """Return a whole set of group `ingester` with three pods, its status up to date."""
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "generation": 1,
            "creationTimestamp": MOMENT,
            "labels": {"rollout-group": "ingester"},
            "annotations": {},
        },
        "spec": {"replicas": 3, "updateStrategy": {"type": "OnDelete"}},
        "status": {"observedGeneration": 1, "updateRevision": "new", "currentRevision": "old"},
    }


def pod_object(
    name: str,
    *,
    uid: str = "",
    owner: str | None = None,
    ready: bool = True,
    crashing: bool = False,
    revision: str = "old",
    phase: str = "Running",
    labels: Mapping[str, str] | None = None,
) -> JsonObject:
    """Return a pod of the set that its name begins with; without one where `owner` is empty."""
    ready = ready and not crashing
    state = {"waiting": {"reason": "CrashLoopBackOff"}} if crashing else {"running": {}}
    set_uid = name.rpartition("-")[0] if owner is None else owner
    return {
        "metadata": {
            "name": name,
            "uid": uid or f"{name}@0",
            "labels": {"controller-revision-hash": revision, **(labels or {})},
            "ownerReferences": [
                {"kind": "StatefulSet", "name": set_uid, "uid": set_uid, "controller": True}
            ],
        },
        "spec": {"containers": [{"name": "app"}]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "app", "ready": ready, "state": state}],
        },
    }


def preconditions(uid: str, version: str = "7") -> JsonObject:
    """Return the options of a delete that holds only for this pod in this state."""
    return {"kind": "DeleteOptions", "preconditions": {"uid": uid, "resourceVersion": version}}


def metadata_of(found: JsonObject) -> JsonObject:
    """Return the metadata of an object, to be read or changed."""
    return part_of(found, "metadata")


def part_of(found: JsonObject, *path: str) -> JsonObject:
    """Return a part of an object, to be read or changed."""
    for key in path:
        inner = found[key]
        assert isinstance(inner, dict)
        found = inner
    return found


def change_set(found: JsonObject, parts: Mapping[str, object]) -> None:
    """Set what `parts` name where a StatefulSet has it (`PLACES`); None removes it.

    `labels` and `annotations` are added to what is there.
    """
    for key, value in parts.items():
        if key in ("labels", "annotations"):
            assert isinstance(value, Mapping)
            part_of(found, "metadata", key).update(value)
            continue
        *path, last = PLACES[key]
        if value is None:
            part_of(found, *path).pop(last, None)
        else:
            part_of(found, *path)[last] = value
