"""Webhook configurations as trees of JSON, for tests to bend."""

from typing import Any

from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL
from tests.model.wire_trees import Tree, without_none

OURS = {INJECT_CA_LABEL: "true", NAMESPACE_LABEL: "ops"}


def hook_tree(name: str = "guard.ops", **client_config: Any) -> Tree:
    """Return one hook; keywords replace parts of its `clientConfig`, None removes them."""
    service = {"namespace": "ops", "name": "rollout-operator", "path": "/admission/x", "port": 443}
    config = {"service": service, **client_config}
    return {
        "name": name,
        "clientConfig": without_none(config),
        "rules": [{"operations": ["UPDATE"], "resources": ["statefulsets"]}],
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
    }


def configuration_tree(
    name: str = "guard", version: int = 7, *hooks: Tree, labels: dict[str, str] | None = None
) -> Tree:
    """Return a configuration as an item of a list, labelled for `ops` unless given."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": f"{version}",
            "labels": {"team": "x", **(OURS if labels is None else labels)},
            "annotations": {"kubectl/last-applied": "{}"},
        },
        "webhooks": list(hooks) or [hook_tree()],
    }
