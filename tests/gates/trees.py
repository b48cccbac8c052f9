"""Health checks as trees of JSON, for tests to bend."""

from typing import Any, Final

QUERY: Final = "scalar(sum(rate(errors{${targetMatchers}}[${range}])))"
SUCCESS: Final = "(${current} < bool 1) + (${current} < bool (2 * ${baseline})) > bool 0"


def health_check_tree(name: str = "ingester-health", **spec: Any) -> dict[str, Any]:
    """Return a health check of the group ingester with such a spec."""
    return {
        "apiVersion": "rollout-operator.grafana.com/v1",
        "kind": "RolloutHealthCheck",
        "metadata": {
            "name": name,
            "namespace": "prod",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "generation": 1,
        },
        "spec": {
            "selector": {"matchLabels": {"rollout-group": "ingester"}},
            "prometheusURL": "http://prometheus.prod.svc:9090",
            "checks": [{"name": "errors", "query": QUERY, "successQuery": SUCCESS}],
            **spec,
        },
    }
