"""People that empty nodes, guard pods with budgets, and evict in other ways.

Kubectl or an autoscaler would send each call. A client that is refused for now (429) tries
again after seconds, as `kubectl drain` does; at any other refusal it gives up, and a person begins
it anew some time later. What is refused raises ApiRefusal.
"""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Final, Literal

import msgspec
from rollout_lab.model.fields import is_terminating, name_of, uid_of
from rollout_lab.model.request import ApiRefusal, ApiRequest
from rollout_lab.nodes.pods import node_of
from rollout_lab.schemas.kinds import BUDGETS, NODES

from rollout_operator.kube.api import PODS, ZONE_BUDGETS, JsonObject
from tests.simulation.scenarios_people import DRY_RUN, TRY_AGAIN, People, make

# As kubectl waits, after a refusal and for the end of a pod.
RETRY: Final = 5.0  # seconds
POLL: Final = 1.0  # seconds
Dry = Literal["", "query", "body"]
"""By which of the two ways an eviction says that it is none in earnest, if it does."""


class Drainer(msgspec.Struct, frozen=True, kw_only=True):
    """A person who empties nodes."""

    people: People

    async def drain(self, node_name: str) -> None:
        """Cordon a node, and evict all its pods at once until none is left on it."""
        await self.cordon(node_name)
        self.people.say(f"drains {node_name}")
        async with asyncio.TaskGroup() as tasks:
            for pod in self._list_pods(node_name):
                tasks.create_task(self._remove(name_of(pod), uid_of(pod)))
        self.people.say(f"has drained {node_name}")

    async def rehearse(self, node_name: str, dry: Dry) -> None:
        """Drain a node in a dry run: each eviction is requested once, nothing is cordoned."""
        for pod in self._list_pods(node_name):
            await self.people.attempt(self.evict, name_of(pod), dry)

    async def cordon(self, node_name: str, *, is_on: bool = True) -> None:
        """Let a node take no new pods, or take them again."""
        self.people.say(f"{'cordons' if is_on else 'uncordons'} {node_name}")
        await self.people.patch(NODES, node_name, {"spec": {"unschedulable": is_on}})

    async def evict(self, pod: str, dry: Dry = "") -> None:
        body: JsonObject = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.people.sandbox.namespace},
        }
        if dry == "body":
            body["deleteOptions"] = {"dryRun": ["All"]}
        await self.people.send(
            ApiRequest(
                verb="create",
                resource=PODS,
                name=pod,
                subresource="eviction",
                query=DRY_RUN if dry == "query" else {},
                body=body,
            )
        )

    async def leave(self, pod: str, patience: float) -> None:
        """Request an eviction, and go away before the answer comes if that takes too long."""
        with suppress(TimeoutError, ApiRefusal):
            async with asyncio.timeout(patience):
                await self.evict(pod)

    async def _remove(self, pod: str, uid: str) -> None:
        """Evict one pod, and wait until it has gone."""
        while self._is_there(pod, uid, ends=False):
            try:
                await self.evict(pod)
            except ApiRefusal as refusal:
                self.people.tries.append(f"{refusal}")
                has_passed = refusal.status == HTTPStatus.TOO_MANY_REQUESTS
                await asyncio.sleep(RETRY if has_passed else TRY_AGAIN)
        while self._is_there(pod, uid, ends=True):  # noqa: ASYNC110 (a state, no event)
            await asyncio.sleep(POLL)

    def _is_there(self, pod: str, uid: str, *, ends: bool) -> bool:
        """Return whether a pod is there still; with `ends`, also one that is on its way out."""
        found = self.people.sandbox.api.get(PODS, self.people.sandbox.namespace, pod)
        return found is not None and uid_of(found) == uid and (ends or not is_terminating(found))

    def _list_pods(self, node_name: str) -> list[JsonObject]:
        pods = self.people.sandbox.api.list(PODS, self.people.sandbox.namespace)
        return [one for one in pods if node_of(one) == node_name]


def zone_budget(name: str, selector: dict[str, str], **spec: object) -> JsonObject:
    """Return a ZoneAwarePodDisruptionBudget; `spec` may hold any further fields."""
    return make(ZONE_BUDGETS, name, {"selector": {"matchLabels": selector}, **spec})


async def create_budget(people: People, budget: JsonObject) -> None:
    people.say(f"creates the budget {name_of(budget)}: {_reported(budget)}")
    await people.post(ZONE_BUDGETS, budget)


async def change_budget(people: People, name: str, spec: JsonObject) -> None:
    people.say(f"changes the budget {name}: {_reported({'spec': spec})}")
    await people.patch(ZONE_BUDGETS, name, {"spec": spec})


async def delete_budget(people: People, name: str) -> None:
    people.say(f"deletes the budget {name}")
    await people.remove(ZONE_BUDGETS, name)


async def guard(people: People, name: str, selector: dict[str, str]) -> None:
    """Create a native budget that allows nothing."""
    people.say(f"creates the native budget {name}, which allows nothing")
    spec: JsonObject = {"selector": {"matchLabels": selector}, "maxUnavailable": 0}
    await people.post(BUDGETS, make(BUDGETS, name, spec))
    counts = dict.fromkeys(("currentHealthy", "desiredHealthy", "expectedPods"), 3)
    status: JsonObject = {"observedGeneration": 1, "disruptionsAllowed": 0, **counts}
    await people.patch(BUDGETS, name, {"status": status}, subresource="status")


async def unguard(people: People, name: str) -> None:
    people.say(f"deletes the native budget {name}")
    await people.remove(BUDGETS, name)


def _reported(budget: JsonObject) -> str:
    spec = budget["spec"]
    assert isinstance(spec, dict)
    return ", ".join(f"{key}={value}" for key, value in spec.items() if key != "selector")
