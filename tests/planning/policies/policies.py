"""Policies and StatefulSets for tests to bend."""

from datetime import UTC, datetime, timedelta
from typing import Any

from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.names import Uid
from rollout_operator.model.policy.policy import Policy, PolicyHead

CREATED = datetime(2026, 1, 2, tzinfo=UTC)


def policy(name: str = "db", *, age: int = 0, **fields: Any) -> Policy:
    """Return a policy over `app: db`, of which none is older than `age` hours."""
    head = PolicyHead(
        namespace="prod",
        name=name,
        uid=Uid(f"uid-{name}"),
        created=CREATED - timedelta(hours=age),
    )
    return Policy(**{"head": head, "selector": LabelSelector(labels={"app": "db"}), **fields})
