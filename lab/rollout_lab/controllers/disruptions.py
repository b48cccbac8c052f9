"""What the disruption controller writes into the status of a native budget.

Decides how many pods of a budget are healthy, how many must be, and so how many may be evicted.
Pure; the eviction itself is decided by the API server.
"""

import math
from collections.abc import Sequence

from rollout_lab.model.fields import (
    child,
    condition_of,
    controller_of,
    is_terminating,
    name_of,
    number,
    text,
)
from rollout_lab.schemas.metadata import labels_of, matches
from rollout_operator.kube.api import JsonObject


def next_budget_status(
    budget: JsonObject, sets: Sequence[JsonObject], pods: Sequence[JsonObject]
) -> JsonObject:
    spec = child(budget, "spec")
    selector = spec.get("selector")
    mine = [pod for pod in pods if isinstance(selector, dict) and matches(selector, labels_of(pod))]
    owners = {text(controller_of(pod), "name") for pod in mine}
    wanted = sum(
        number(sts, "spec", "replicas", default=1) for sts in sets if name_of(sts) in owners
    )
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if isinstance(least, int):
        expected, desired = len(mine), least
    else:
        expected = wanted
        desired = _scale(least, wanted) if least else max(wanted - _scale(most, wanted), 0)
    healthy = sum(_is_healthy(pod) for pod in mine)
    return {
        "observedGeneration": number(budget, "metadata", "generation"),
        "expectedPods": expected,
        "desiredHealthy": desired,
        "currentHealthy": healthy,
        "disruptionsAllowed": max(healthy - desired, 0) if expected else 0,
    }


def _scale(bound: object, wanted: int) -> int:
    """Return a count, or a percentage of `wanted`, rounded up as Kubernetes does for both."""
    if isinstance(bound, str):
        return math.ceil(int(bound.removesuffix("%")) * wanted / 100)
    return bound if isinstance(bound, int) else 0


def _is_healthy(pod: JsonObject) -> bool:
    return not is_terminating(pod) and condition_of(pod, "Ready").get("status") == "True"
