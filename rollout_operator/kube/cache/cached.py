"""What caches hold: slim objects of each kind, and which of their changes matter."""

from typing import TypeVar

from msgspec.structs import replace

from rollout_operator.model.budget import Budget, FlawedBudget
from rollout_operator.model.objects import (
    Node,
    Placed,
    Pod,
    StatefulSet,
    Unreadable,
    WatchedObject,
    WebhookConfiguration,
)
from rollout_operator.model.policy.watched import WatchedPolicy

Cached = TypeVar(
    "Cached",
    StatefulSet | Unreadable,
    Pod | Unreadable,
    WebhookConfiguration | Unreadable,
    Budget | FlawedBudget | Unreadable,
    WatchedPolicy | Unreadable,
    Node | Unreadable,
    Placed | Unreadable,
    WatchedObject | Unreadable,
)


def decides(old: Cached, new: Cached) -> bool:
    """Return whether the step from old to new changes anything that a decision reads."""
    if type(old) is not type(new):
        return True
    return bool(replace(old, resource_version=new.resource_version) != new)
