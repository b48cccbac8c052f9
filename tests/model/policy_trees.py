"""MultiAZRollouts as trees of JSON, for tests to bend."""

from typing import Any, Final

Tree = dict[str, Any]

SELECTOR: Final = {"matchLabels": {"app": "db"}}


def policy_tree(name: str = "db", *, rolling: Any = None, **spec: Any) -> Tree:
    """Return a policy with such a spec and such a `rollingUpdate`; None takes a field away."""
    fields = {"statefulSetSelector": SELECTOR, "rollingUpdate": rolling, **spec}
    return {
        "apiVersion": "rollout.grafana.com/v1alpha1",
        "kind": "MultiAZRollout",
        "metadata": {
            "name": name,
            "namespace": "prod",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {key: value for key, value in fields.items() if value is not None},
    }
