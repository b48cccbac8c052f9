"""What the status of a native budget says, as the disruption controller counts it."""

import pytest
from rollout_lab.drains import next_budget_status

from rollout_operator.kube.api import JsonObject


def _pod(name: str, *, is_ready: bool = True, is_leaving: bool = False) -> JsonObject:
    owner = {"kind": "StatefulSet", "name": "web", "uid": "u", "controller": True}
    head: JsonObject = {"name": name, "labels": {"app": "web"}, "ownerReferences": [owner]}
    if is_leaving:
        head["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    condition = {"type": "Ready", "status": str(is_ready)}
    return {"metadata": head, "status": {"conditions": [condition]}}


SETS: list[JsonObject] = [
    {"metadata": {"name": "web"}, "spec": {"replicas": 5}},
    {"metadata": {"name": "other"}, "spec": {"replicas": 9}},
]
# One of five is gone, one ends, one is not ready.
PODS = [
    _pod("web-0"),
    _pod("web-1"),
    _pod("web-2", is_leaving=True),
    _pod("web-3", is_ready=False),
]


@pytest.mark.parametrize(
    ("spec", "expected", "desired", "allowed"),
    [
        pytest.param({"maxUnavailable": 4}, 5, 1, 1, id="so many of the wanted"),
        pytest.param({"maxUnavailable": 0}, 5, 5, 0, id="none"),
        pytest.param({"maxUnavailable": 9}, 5, 0, 2, id="more than there are"),
        pytest.param({"maxUnavailable": "70%"}, 5, 1, 1, id="a part that may miss, rounded up"),
        pytest.param({"minAvailable": 1}, 4, 1, 1, id="so many of the existing"),
        pytest.param({"minAvailable": "30%"}, 5, 2, 0, id="a part that must stay, rounded up"),
    ],
)
def test_what_a_budget_allows(spec: JsonObject, expected: int, desired: int, allowed: int) -> None:
    selector = {"matchLabels": {"app": "web"}}
    budget: JsonObject = {"metadata": {"generation": 3}, "spec": {"selector": selector, **spec}}

    assert next_budget_status(budget, SETS, PODS) == {
        "observedGeneration": 3,
        "expectedPods": expected,
        "desiredHealthy": desired,
        "currentHealthy": 2,
        "disruptionsAllowed": allowed,
    }


def test_a_budget_without_pods_allows_nothing() -> None:
    budget: JsonObject = {"spec": {"selector": {"matchLabels": {"app": "x"}}, "minAvailable": 0}}

    assert next_budget_status(budget, SETS, PODS)["disruptionsAllowed"] == 0
