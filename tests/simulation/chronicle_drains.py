"""Hand-made histories of evictions and deletes under a budget, in a group of zones a, b and c."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from rollout_operator.kube.api import PODS, ZONE_BUDGETS, JsonObject
from rollout_operator.lab.model.history import Called
from rollout_operator.lab.model.request import ApiRequest
from rollout_operator.model.names import DISRUPTION_RECORD
from tests.judge.budgets import EVICTION_PATH
from tests.judge.promises import Promises
from tests.judge.verdict import find_violations
from tests.simulation.chronicle import NAMESPACE, OPERATOR, PERSON, Chronicle, s

Story = Callable[[Chronicle], object]
BUDGET: Final = "ingester"
BY_PARTITION: Final[JsonObject] = {"podNamePartitionRegex": "zone-[a-z]-([0-9]+)"}


def judge(story: Story, promises: Promises | None = None, **spec: Any) -> list[str]:
    """Return the ids of what a story breaks, under a budget with this spec."""
    told = Chronicle()
    told.zones()
    budget(told, 0, **spec)
    story(told)
    found = find_violations(told.history, promises or Promises())
    return [one.invariant for one in found.violations]


def budget(told: Chronicle, at: float, **spec: Any) -> None:
    """Create the budget that selects all pods, or write it anew."""
    selector: JsonObject = {"matchLabels": {}}
    told.write(
        at,
        ZONE_BUDGETS,
        BUDGET,
        {"metadata": {"name": BUDGET}, "spec": {"selector": selector, **spec}},
    )


def unbudget(told: Chronicle, at: float) -> None:
    """Delete the budget."""
    told.write(at, ZONE_BUDGETS, BUDGET, None)


def mark(told: Chronicle, at: float, name: str, **parts: Any) -> None:
    """Have the operator write on a pod that it may go; `body` and `uid` may be wrong ones."""
    pod = deepcopy(told.objects[PODS.plural, name])
    metadata = pod["metadata"]
    assert isinstance(metadata, dict)
    said = {"uid": parts.pop("uid", metadata["uid"]), "engine": parts.pop("engine", "eviction")}
    said |= {"by": parts.get("actor", OPERATOR), "at": f"{at}"}
    metadata["annotations"] = {DISRUPTION_RECORD: json.dumps(said)}
    told.write(at, PODS, name, pod, actor=OPERATOR, call=told.number + 1)
    swap: JsonObject = {"metadata": {"uid": "u", "resourceVersion": "7"}}
    told.call(at, "patch", PODS, name, **{"body": swap, **parts})


def unmark(told: Chronicle, at: float, name: str) -> None:
    """Have a record taken back."""
    pod = deepcopy(told.objects[PODS.plural, name])
    metadata = pod["metadata"]
    assert isinstance(metadata, dict)
    metadata["annotations"] = {}
    told.write(at, PODS, name, pod, actor=OPERATOR, call=told.number + 1)
    told.call(at, "patch", PODS, name, body=[])


def evict(told: Chronicle, at: float, name: str, **how: Any) -> None:
    """Have a person evict a pod: it is marked, allowed and carried out, if nothing else is said.

    `marked` and `allowed` may be False; `dry` is how a dry run says that it is one.
    """
    told.number += 1
    number, dry = told.number, how.get("dry", "")
    told.call(at - 0.3, "list", PODS)
    if how.get("marked", True):
        mark(told, at - 0.2, name)
    is_allowed = how.get("allowed", True)
    told.review(
        at - 0.1,
        name,
        number,
        path=EVICTION_PATH,
        resource="pods/eviction",
        allowed=is_allowed,
        dry_run=dry == "query",
        actor=how.get("actor", OPERATOR),
    )
    if is_allowed and not dry:
        going = deepcopy(told.objects[PODS.plural, name])
        metadata = going["metadata"]
        assert isinstance(metadata, dict)
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        told.write(at, PODS, name, going, actor=PERSON, call=told.number + 1)
        told.call(at, "delete", PODS, name, actor=PERSON)
    ask(told, at, name, number, dry=dry, status=201 if is_allowed else 429)


def ask(told: Chronicle, at: float, name: str, number: int, **how: Any) -> None:
    """Add the answer to an eviction."""
    dry = how.get("dry", "")
    options: JsonObject = {"deleteOptions": {"dryRun": ["All"]}} if dry == "body" else {}
    request = ApiRequest(
        verb="create",
        resource=PODS,
        namespace=NAMESPACE,
        name=name,
        subresource="eviction",
        query={"dryRun": "All"} if dry == "query" else {},
        body=options,
    )
    told.history.add(
        Called(
            at=s(at),
            begun=s(at - 1),
            number=number,
            actor=PERSON,
            request=request,
            status=how.get("status", 201),
            message=how.get("message", ""),
        )
    )


def delete(told: Chronicle, at: float, name: str, **how: Any) -> None:
    """Have the operator delete a pod, marked before if nothing else is said."""
    if how.pop("marked", True):
        mark(told, at - 0.05, name, engine="rollout")
    told.delete(at, name, **how)
