"""Disruption budgets as trees of JSON, for tests to bend."""

import json
from typing import Any, Final

Tree = dict[str, Any]

LABELS: Final = {"rollout-group": "ingester"}
REGEX: Final = "ingester-zone-[a-z]-([0-9]+)"
TWO_GROUPS: Final = "ingester-zone-([a-z])-([0-9]+)"


def budget_tree(name: str = "ingester", **spec: Any) -> Tree:
    """Return a budget of the group ingester with such a spec; None takes a field away."""
    fields = {"selector": {"matchLabels": LABELS}, **spec}
    return {
        "apiVersion": "rollout-operator.grafana.com/v1",
        "kind": "ZoneAwarePodDisruptionBudget",
        "metadata": {
            "name": name,
            "namespace": "prod",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "generation": 1,
        },
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def with_head(tree: Tree, **metadata: Any) -> Tree:
    """Return the budget with other metadata; None takes a field away."""
    head = {**tree["metadata"], **metadata}
    return {**tree, "metadata": {key: value for key, value in head.items() if value is not None}}


def as_json(tree: Any) -> bytes:
    return json.dumps(tree).encode()
