"""How a node is drained in a simulated world: by evictions, requested as `kubectl drain` does.

Beside it what the disruption controller writes into the status of a native budget, by which the API
server decides whether it allows one.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from rollout_lab.model.fields import (
    child,
    condition_of,
    controller_of,
    is_terminating,
    name_of,
    number,
    text,
)
from rollout_lab.model.request import ApiAnswer, ApiRequest
from rollout_lab.nodes.pods import node_of
from rollout_lab.schemas.metadata import labels_of, matches
from rollout_lab.world import Sandbox
from rollout_operator.kube.api import NATIVE_BUDGETS, PODS, STATEFULSETS, JsonObject


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


# As kubectl waits after an eviction that was refused, and between two looks at a pod that goes.
RETRY: Final = timedelta(seconds=5)
# An eviction that is refused for hours is requested less often: an answer comes hardly later by
# that.
_PATIENCE: Final = 720
POLL: Final = timedelta(seconds=1)
EVICTION: Final = "eviction"


@dataclass(slots=True, kw_only=True)
class Draining:
    """One drain: node by node, the pods of each at the same time."""

    sandbox: Sandbox
    what: str
    """As it was requested."""
    nodes: Sequence[str]
    actor: str
    retry: timedelta = RETRY
    _refusals: dict[str, str] = field(default_factory=dict)
    """What was said last of each pod that has not gone."""
    _is_done: bool = False

    async def run(self) -> None:
        """Evict the pods, again where it is refused, until none is left."""
        for node in self.nodes:
            async with asyncio.TaskGroup() as pods:
                for pod in self._list_on(node):
                    pods.create_task(self._leave(pod))
            if not self._refusals:
                self.sandbox.say(self.actor, f"{node} is drained")
        self._is_done = True

    def describe_rest(self) -> Iterator[str]:
        """Yield a sentence on what this drain has not done."""
        ended = "has ended without" if self._is_done else "goes on, without"
        for pod, why in self._refusals.items():
            yield f"{self.what} {ended} {pod}: {why}"

    def _list_on(self, node: str) -> list[JsonObject]:
        pods = self.sandbox.api.list(PODS, self.sandbox.namespace)
        return [pod for pod in pods if node_of(pod) == node]

    async def _leave(self, pod: JsonObject) -> None:
        """Have a pod go. As with kubectl, a pod of its name that has come instead goes, too."""
        name, since = name_of(pod), self.sandbox.elapsed()
        while True:
            answer = await evict(self.sandbox, name, self.actor)
            if answer.is_ok or answer.status == 404:
                break
            self._refusals[name] = answer.explanation
            if answer.status != 429:
                self.sandbox.say(self.actor, f"{self.what} gives up on {name}")
                return
            waited = self.sandbox.elapsed() - since
            await asyncio.sleep(max(self.retry, waited / _PATIENCE).total_seconds())
        self._refusals.pop(name, None)
        await self._wait_gone(name)

    async def _wait_gone(self, name: str) -> None:
        while True:
            pod = self.sandbox.api.get(PODS, self.sandbox.namespace, name)
            if pod is None or not is_terminating(pod):
                return
            await asyncio.sleep(POLL.total_seconds())


async def evict(sandbox: Sandbox, pod: str, actor: str) -> ApiAnswer:
    """Request the eviction of a pod, and return what the API server answers.

    The disruption controller has caught up by then: it is faster than pods are.
    """
    _count_budgets(sandbox)
    body: JsonObject = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": sandbox.namespace},
    }
    request = ApiRequest(
        verb="create",
        resource=PODS,
        namespace=sandbox.namespace,
        name=pod,
        subresource=EVICTION,
        body=body,
        user=actor,
    )
    return await sandbox.api.call(request)


def _count_budgets(sandbox: Sandbox) -> None:
    """Have the status of native budgets say how many pods may go."""
    api, namespace = sandbox.api, sandbox.namespace
    sets, pods = (api.list(kind, namespace) for kind in (STATEFULSETS, PODS))
    for budget in api.list(NATIVE_BUDGETS, namespace):
        status = next_budget_status(budget, sets, pods)
        if status != budget.get("status"):
            api.put({**budget, "status": status}, actor="disruption-controller")
