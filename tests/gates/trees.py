"""Health checks as trees of JSON, for tests to bend."""

from typing import Any, Final

from tests.model.wire_trees import Tree, custom_tree

QUERY: Final = "scalar(sum(rate(errors{${targetMatchers}}[${range}])))"
SUCCESS: Final = "(${current} < bool 1) + (${current} < bool (2 * ${baseline})) > bool 0"


def health_check_tree(name: str = "ingester-health", **spec: Any) -> Tree:
    """Return a health check of the group ingester with such a spec."""
    fields = {
        "selector": {"matchLabels": {"rollout-group": "ingester"}},
        "prometheusURL": "http://prometheus.prod.svc:9090",
        "checks": [{"name": "errors", "query": QUERY, "successQuery": SUCCESS}],
        **spec,
    }
    return custom_tree("RolloutHealthCheck", "rollout-operator.grafana.com/v1", name, fields)
