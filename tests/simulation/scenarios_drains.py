"""S8 and S9: nodes are drained under a budget while a rollout runs.

Every zone has two nodes of its own. The evictions are reviewed by the operator as its manifests
register it; others disturb them: dry runs, clients that go away, a native budget that refuses last,
people who change, break, delete and create the budget anew.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Literal

import msgspec
from msgspec.structs import replace
from rollout_lab.model.fields import is_terminating, name_of, uid_of
from rollout_lab.model.request import ApiRefusal, ApiRequest
from rollout_lab.nodes.pods import node, node_of
from rollout_lab.schemas.kinds import BUDGETS, NODES
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import PODS, ZONE_BUDGETS, JsonObject
from rollout_operator.model.names import ABSENT_PEERS
from tests.simulation.scenarios import (
    DRY_RUN,
    GROUP,
    TRY_AGAIN,
    People,
    Route,
    Scenario,
    Size,
    list_zones,
    make,
)

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
        request = ApiRequest(verb="create", resource=PODS, name=pod, subresource="eviction")
        query = DRY_RUN if dry == "query" else {}
        await self.people.send(replace(request, query=query, body=body))

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


NAME: Final = "ingester"
SELECTOR: Final = {"rollout-group": GROUP}
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
NODES_OF_A_ZONE: Final = 2
PATTERN: Final = "ingester-zone-[a-z]-([0-9]+)"
DELAY: Final = 5  # seconds
NATIVE: Final = "of-another-owner"
# All drains begin within so long, in a share of the schedules in the same moment.
BEGIN: Final = 40.0  # seconds
TOGETHER: Final = 0.6
# Shares of the schedules in which each of these comes beside the drains.
MEDDLES: Final = 0.4
SCALES_DOWN: Final = 0.3
GUARDS: Final = 0.5
RAISED: Final = "raised"
# Specs that a budget may have for a while; the last cannot be obeyed.
CHANGES: Final[Mapping[str, JsonObject]] = {
    RAISED: {"maxUnavailable": 2},
    "share": {"maxUnavailable": None, "maxUnavailablePercentage": 40},
    "nothing": {"maxUnavailable": 0},
    "no such group": {"podNamePartitionRegex": PATTERN, "podNameRegexGroup": 2},
}
BY_ZONE: Final[JsonObject] = {"maxUnavailable": 1}
BY_PARTITION: Final[JsonObject] = {
    "maxUnavailable": 1,
    "podNamePartitionRegex": PATTERN,
    "crossZoneEvictionDelay": f"{DELAY}s",
}
_KEYS: Final = [key for spec in (BY_PARTITION, *CHANGES.values()) for key in spec]
_NONE: Final[JsonObject] = dict.fromkeys(_KEYS)


def drained(size: Size) -> Scenario:
    """S8: one node of each of the first two zones is drained while all zones get a new template."""
    return _Tale(size, BY_ZONE, drains=2).tell("s8")


def drained_by_two(size: Size) -> Scenario:
    """S8, and two processes of the operator answer the evictions.

    Both roll out, and neither knows of the other but by the budget: which is never raised above
    what the zones allow by themselves.
    """
    return replace(_Tale(size, BY_ZONE, drains=2, raises=False).tell("s8-two"), replicas=2)


def drained_in_turns(size: Size) -> Scenario:
    """S8: a node of the last zone is drained while all others are rolled out, and nothing else.

    Two pods of a zone may be down at a time, so that a zone is whole only when the rollout holds
    still for an eviction in another.
    """
    return _Tale(size, {"maxUnavailable": 2}, drains=1, is_disturbed=False).tell("s8-turns")


def drained_by_partition(size: Size) -> Scenario:
    """S9: one node of every zone is drained at once, under a budget that counts by partition."""
    return _Tale(size, BY_PARTITION, drains=size.zones).tell("s9")


def drained_by_partition_and_two(size: Size) -> Scenario:
    """S9, and two processes of the operator answer the evictions.

    Without a rollout: of two that roll out at once, each keeps to the limits of its zones alone.
    """
    tale = _Tale(size, BY_PARTITION, drains=size.zones, rolls=False)
    return replace(tale.tell("s9-two"), replicas=2)


async def set_up(people: People, zones: Sequence[ZoneSpec], budget: JsonObject) -> None:
    for zone in zones:
        for number in range(NODES_OF_A_ZONE):
            name = node_name(zone.name, number)
            await people.post(NODES, node(name, dict(zone.node_selector)))
    await create_budget(people, budget)


def node_name(zone: str, number: int) -> str:
    return f"node-{zone[-1]}-{number}"


@dataclass(slots=True)
class _Tale:
    """What people do in one run."""

    size: Size
    spec: JsonObject
    drains: int
    rolls: bool = True
    """Whether all zones get a new template."""
    raises: bool = True
    """Whether the budget may be raised for a while."""
    is_disturbed: bool = True
    """Whether other people do something beside the drains."""
    zones: Sequence[ZoneSpec] = field(init=False)
    """Their pods are selected by a budget, and each has nodes of its own."""

    def __post_init__(self) -> None:
        limit = None if self.is_disturbed else f"{self.spec['maxUnavailable']}"
        self.zones = [
            replace(
                zone,
                pod_labels=SELECTOR,
                node_selector={ZONE_LABEL: zone.name[-1]},
                max_unavailable=limit,
            )
            for zone in list_zones(self.size)
        ]

    def tell(self, name: str) -> Scenario:
        return Scenario(
            name,
            self.size,
            self.zones,
            self.play,
            has_webhooks=True,
            has_budgets=True,
            prepare=lambda people: set_up(people, self.zones, self.budget),
        )

    @property
    def budget(self) -> JsonObject:
        budget = zone_budget(NAME, SELECTOR, **self.spec)
        # A zone that is scaled down has handed its partition over: else nothing of it could go.
        return {**budget, "metadata": {"name": NAME, "annotations": {ABSENT_PEERS: "gone"}}}

    async def play(self, people: People) -> None:
        others = people.split("others")
        begin, is_together = others.rng.uniform(0, BEGIN), others.rng.random() < TOGETHER
        async with asyncio.TaskGroup() as tasks:
            # The rollout begins with the first zone, and would come to the last by itself.
            order = self.zones if self.is_disturbed else self.zones[::-1]
            for zone in order[: self.drains]:
                drainer = Drainer(people=people.split(f"drainer-{zone.name[-1]}"))
                after = drainer.people.rng.uniform(0, BEGIN)
                after = begin if is_together else after
                tasks.create_task(_drain(drainer, node_name(zone.name, 0), after))
            dave = people.split("dave")
            if self.rolls:
                tasks.create_task(self._renew(dave))
            if not self.is_disturbed:
                return
            tasks.create_task(_rehearse(Drainer(people=people.split("bob"))))
            for share, disturb in (
                (MEDDLES, self._meddle),
                (GUARDS, self._guard),
                (SCALES_DOWN, self._scale_down),
            ):
                # Drawn for every one of them, so that each means the same whatever else comes.
                person, comes = others.split("carol"), others.rng.random() < share
                if comes:
                    tasks.create_task(disturb(person))

    async def _renew(self, people: People) -> None:
        await people.wait(0, 30)
        for zone in self.zones:
            await people.insist(people.set_image, zone.name, "v2")

    async def _meddle(self, people: People) -> None:
        """Change the budget, or break it, or take it away; in the end it is as it was."""
        for _ in range(people.rng.choice((1, 2, 3))):
            await people.wait(0, 60)
            if people.rng.random() < 0.3:
                await delete_budget(people, NAME)
                await people.wait(0, 10)
                await create_budget(people, self.budget)
                continue
            name = people.rng.choice([one for one in CHANGES if self.raises or one != RAISED])
            await change_budget(people, NAME, {**_NONE, **CHANGES[name]})
            await people.wait(0, 40)
            await change_budget(people, NAME, {**_NONE, **self.spec})

    async def _guard(self, people: People) -> None:
        """Have a native budget refuse for a while what the operator has allowed."""
        await people.wait(0, 30)
        zone = people.rng.choice(self.zones)
        guarded = people.rng.choice(({"name": zone.name}, SELECTOR))
        await guard(people, NATIVE, guarded)
        await people.wait(5, 60)
        await unguard(people, NATIVE)

    async def _scale_down(self, people: People) -> None:
        """Take a pod from the last zone, too (FP-21)."""
        await people.wait(0, 60)
        zone, fewer = self.zones[-1], self.size.pods - 1
        await people.insist(people.scale, zone.name, fewer, Route.SCALE_MERGE)


async def _drain(drainer: Drainer, name: str, after: float) -> None:
    """Drain a node after some seconds, and return it into service."""
    await asyncio.sleep(after)
    await drainer.drain(name)
    await drainer.people.wait(0, 20)
    await drainer.cordon(name, is_on=False)


async def _rehearse(drainer: Drainer) -> None:
    """Rehearse drains, and now and then request a pod without waiting for the answer."""
    people, api = drainer.people, drainer.people.sandbox.api
    for _ in range(4):
        await people.wait(0, 40)
        name = people.rng.choice([name_of(one) for one in api.list(NODES, "")])
        await drainer.rehearse(name, people.rng.choice(("query", "body")))
        pods = api.list(PODS, people.sandbox.namespace)
        if pods and people.rng.random() < 0.5:
            pod = name_of(people.rng.choice(pods))
            people.say(f"requests the eviction of {pod}, and goes away")
            await drainer.leave(pod, people.rng.uniform(0.005, 0.5))
