"""Pods and StatefulSets as trees of JSON, for tests to bend."""

import json
from copy import deepcopy
from typing import Any

# Trees of JSON, as tests bend them: typing them would hide what they show.
Tree = dict[str, Any]

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
SINCE = "2026-01-01T00:00:30Z"


def container(name: str = "app", *, ready: Any = True, state: Any = None) -> Tree:
    return {"name": name, "ready": ready, "state": RUNNING if state is None else state}


def condition(status: str, *, type: str = "Ready", **more: Any) -> Tree:
    return {"type": type, "status": status, "lastTransitionTime": SINCE, **more}


def pod_tree(**status: Any) -> Tree:
    """Return a ready pod; keywords replace parts of its status, None removes them."""
    whole: Tree = {
        "phase": "Running",
        "conditions": [condition("True", type="PodScheduled"), condition("True")],
        "containerStatuses": [container()],
    }
    return {
        "metadata": {
            "name": "zone-a-0",
            "namespace": "prod",
            "uid": "pod-uid",
            "resourceVersion": "42",
            "labels": {"controller-revision-hash": "zone-a-7", "name": "zone-a"},
            "ownerReferences": [
                {"kind": "Other", "name": "other", "uid": "other-uid"},
                {"kind": "StatefulSet", "name": "zone-a", "uid": "set-uid", "controller": True},
            ],
        },
        "spec": {"containers": [{"name": "app", "image": "x"}]},
        "status": without_none(whole | status),
    }


def set_tree(**spec: Any) -> Tree:
    return {
        "kind": "StatefulSet",
        "metadata": {
            "name": "zone-a",
            "namespace": "prod",
            "uid": "set-uid",
            "resourceVersion": "77",
            "generation": 3,
            "labels": {"rollout-group": "g", "team": "x"},
            "annotations": {"rollout-max-unavailable": "2", "kubectl/last-applied": "{}"},
        },
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"name": "zone-a"}},
            "template": {"metadata": {"labels": {"name": "zone-a", "x": "y"}}},
            "updateStrategy": {"type": "OnDelete"},
            **spec,
        },
        "status": {
            "observedGeneration": 2,
            "replicas": 3,
            "readyReplicas": 2,
            "availableReplicas": 1,
            "currentRevision": "zone-a-7",
            "updateRevision": "zone-a-8",
        },
    }


def custom_tree(kind: str, api: str, name: str, spec: Tree, **head: Any) -> Tree:
    """Return an object of a custom resource with such a spec; None takes a field away."""
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "prod",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "generation": 1,
            **head,
        },
        "spec": without_none(spec),
    }


def without_none(tree: Tree) -> Tree:
    return {key: value for key, value in tree.items() if value is not None}


def as_json(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def with_metadata(tree: Tree, **changes: Any) -> Tree:
    """Return the object with other metadata; None takes a field away."""
    return {**deepcopy(tree), "metadata": without_none({**tree["metadata"], **changes})}
