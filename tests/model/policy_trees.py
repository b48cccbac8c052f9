"""MultiAZRollouts as trees of JSON, for tests to bend."""

from typing import Any, Final

from tests.model.wire_trees import Tree, custom_tree

SELECTOR: Final = {"matchLabels": {"app": "db"}}


def policy_tree(name: str = "db", *, rolling: Any = None, **spec: Any) -> Tree:
    """Return a policy with such a spec and such a `rollingUpdate`; None takes a field away."""
    fields = {"statefulSetSelector": SELECTOR, "rollingUpdate": rolling, **spec}
    head = {"generation": 2, "creationTimestamp": "2026-01-02T03:04:05Z"}
    return custom_tree("MultiAZRollout", "rollout.grafana.com/v1alpha1", name, fields, **head)


def status_tree() -> Tree:
    """Return a policy whose status has a value in each field."""
    time = "2026-01-02T03:04:05.25Z"
    sets = [{"name": "db-a", "source": "Label", "replicas": 3}]
    status = {
        "observedGeneration": 2,
        "phase": "Waiting",
        "currentZone": "a",
        "currentStatefulSet": "db-a",
        "updatedPods": 1,
        "totalPods": 3,
        "readyPods": 2,
        "startTime": time,
        "nextBatchTime": time,
        "unknownZones": ["c"],
        "zones": [{"name": "a", "order": 1, "state": "Updating", "statefulSets": sets}],
        "lastBatch": {
            "number": 3,
            "zone": "a",
            "statefulSet": "db-a",
            "updateRevision": "db-a-2",
            "pods": [{"name": "db-a-2", "uid": "u2"}],
            "startTime": time,
            "completionTime": time,
        },
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": time}],
    }
    return {**policy_tree(), "status": status}
