"""Carry out on the control plane what a change says, in the words that `simulate` takes."""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.world.api import PODS, STATEFULSETS, ApiError, Json
from tests.world.budgets import TRY_AGAIN, evict
from tests.world.sets import PAUSED, is_ready
from tests.world.world import World

# As kubectl waits after an eviction that was refused, and between two reads of a pod that goes.
RETRY: Final = 5.0
POLL: Final = 1.0
GONE: Final = (200, 201, 404)


@dataclass(slots=True)
class NodesDrain:
    """One drain."""

    world: World
    nodes: Sequence[str]
    is_done: bool = False
    _place: int = 0
    """Of the node which is being emptied."""
    _requested: dict[str, float] = field(default_factory=dict)
    """Pods of this node that have not gone, and when each is requested or read next."""
    _refused: set[str] = field(default_factory=set)
    """Those of them whose eviction was refused last."""

    async def run(self) -> None:
        """Evict the pods of each node, until all are gone."""
        for self._place, node in enumerate(self.nodes):  # noqa: B020 (others see how far it is)
            pods = await self.world.api.items(PODS, self.world.namespace)
            async with asyncio.TaskGroup() as tasks:
                for pod in pods:
                    if node_of(pod) == node:
                        name = str(pod["metadata"]["name"])
                        tasks.create_task(self._leave(name), name=f"drain-{name}")
        self.is_done = True

    def list_rest(self, pods: Sequence[Json]) -> Iterator[str]:
        """Yield what it has still to do as changes from now on, with pods as they stand."""
        now = time.monotonic()
        requested = {name: max(at - now, 0) for name, at in self._requested.items()}
        here = {node_of(pod) for pod in pods}
        yield from (f"cordon {node} at 0s" for node in self.nodes if node in here)
        yield from render_rest(self.nodes[self._place :], requested, self._refused, pods)

    async def _leave(self, name: str) -> None:
        """Have one pod go, or give up on it as kubectl does."""
        self._requested[name] = time.monotonic()
        while True:
            answer = await evict(self.world.api, self.world.namespace, name)
            if answer.status != TRY_AGAIN:
                break
            self._refused.add(name)
            await self._wait(name, RETRY)
        self._refused.discard(name)
        while answer.status in GONE and await self._is_going(name):
            await self._wait(name, POLL)
        del self._requested[name]

    async def _is_going(self, name: str) -> bool:
        try:
            pod = await self.world.api.get(PODS, self.world.namespace, name)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return "deletionTimestamp" in pod["metadata"]

    async def _wait(self, name: str, seconds: float) -> None:
        self._requested[name] = time.monotonic() + seconds
        await asyncio.sleep(seconds)


def render_rest(
    nodes: Sequence[str],
    requested: Mapping[str, float],
    refused: Collection[str],
    pods: Sequence[Json],
) -> Iterator[str]:
    """Yield the drain that does what another has still to do, unless that is nothing.

    `requested` are its pods under way, with the seconds until it requests or reads each again;
    those that were not `refused` last are done with, whatever came in their place.
    """
    here = {node_of(pod) for pod in pods}
    waiting = [pod for pod in pods if pod["metadata"]["name"] in refused]
    current = [node_of(pod) for pod in waiting if node_of(pod)]
    left = [node for node in nodes if node in here]
    if names := tuple(dict.fromkeys((*current, *left))):
        # The operator knows that an eviction waits: a drain that begins lets it know.
        wait = 0 if any(map(is_ready, waiting)) else min(requested.values(), default=0)
        yield f"drain {' '.join(names)} at {wait:.2f}s"


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


BAD: Final = "bad"


@dataclass(slots=True)
class Nodes:
    """One node for each pod; a pod of one that was cordoned comes back on another."""

    cordoned: set[str] = field(default_factory=set)

    async def place(self, pod: Json) -> str:
        node = f"node-{pod['metadata']['name']}"
        return f"spare-{node}" if node in self.cordoned else node


@dataclass(slots=True)
class Hands:
    """Those who change things in one world."""

    world: World
    zones: Sequence[str]
    tasks: asyncio.TaskGroup
    nodes: Nodes = field(default_factory=Nodes)
    is_bad: bool = False
    """Whether pods of the newest image crash."""
    _drains: list[NodesDrain] = field(default_factory=list)

    async def apply(self, change: str) -> None:
        """Let one change happen; what is refused is part of it."""
        match change.split():
            case ["image", image]:
                self.is_bad = False
                await self.world.set_image(self.zones, image)
            case ["bad", "template"]:
                self.is_bad = True
                await self.world.set_image(self.zones, BAD)
            case ["scale", zone, "to", replicas]:
                path = STATEFULSETS.path(self.world.namespace, zone, "scale")
                body = {"spec": {"replicas": int(replicas)}}
                merge = "application/merge-patch+json"
                await self.world.api.exchange("PATCH", path, body=body, content_type=merge)
            case ["pause", zone]:
                await self.world.annotate(zone, **{PAUSED: "true"})
            case ["resume", zone]:
                await self.world.annotate(zone, **{PAUSED: None})
            case ["pod", pod, "fails"]:
                await self.world.kubelet.crash(pod)
            case ["drain", "zone", zone]:
                await self._drain(zone)
            case _:
                raise ValueError(f"no such change: {change}")

    def list_left(self, pods: Sequence[Json]) -> list[str]:
        """Return what drains under way have still to do, as changes from now on."""
        return [
            change for each in self._drains if not each.is_done for change in each.list_rest(pods)
        ]

    @property
    def is_draining(self) -> bool:
        return any(not each.is_done for each in self._drains)

    async def _drain(self, zone: str) -> None:
        sts = await self.world.api.get(STATEFULSETS, self.world.namespace, zone)
        nodes = [f"node-{zone}-{ordinal}" for ordinal in range(sts["spec"]["replicas"])]
        self.nodes.cordoned |= set(nodes)
        drain = NodesDrain(self.world, nodes)
        self._drains.append(drain)
        self.tasks.create_task(drain.run(), name=f"drain-{zone}")
