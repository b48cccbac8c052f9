"""Disruption budgets as trees of JSON, for tests to bend."""

from typing import Any, Final

from tests.model.wire_trees import Tree, custom_tree

LABELS: Final = {"rollout-group": "ingester"}
REGEX: Final = "ingester-zone-[a-z]-([0-9]+)"


def budget_tree(name: str = "ingester", **spec: Any) -> Tree:
    """Return a budget of the group ingester with such a spec; None takes a field away."""
    fields = {"selector": {"matchLabels": LABELS}, **spec}
    api = "rollout-operator.grafana.com/v1"
    return custom_tree("ZoneAwarePodDisruptionBudget", api, name, fields)
