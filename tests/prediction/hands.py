"""Carry out on the control plane what a change says, in the words that `simulate` takes."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tests.world.api import PODS, STATEFULSETS, Json
from tests.world.drains import Drain, Victim, list_victims
from tests.world.sets import PAUSED
from tests.world.world import World

# As kubectl waits between two tries of an eviction.
RETRY: Final = timedelta(seconds=5)
DRAIN_LIMIT: Final = timedelta(minutes=2)
BAD: Final = "bad"


@dataclass(slots=True)
class Nodes:
    """One node for each pod; a pod of one that was cordoned comes back on another."""

    cordoned: set[str] = field(default_factory=set)

    async def place(self, pod: Json) -> str:
        """Return the node of a new pod."""
        node = f"node-{pod['metadata']['name']}"
        return f"spare-{node}" if node in self.cordoned else node


@dataclass(slots=True)
class _Drained:
    """A drain, and the pods which it has still to evict."""

    task: asyncio.Task[None]
    victims: Sequence[Victim]
    begun: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Hands:
    """Those who change things in one world."""

    world: World
    zones: Sequence[str]
    tasks: asyncio.TaskGroup
    nodes: Nodes = field(default_factory=Nodes)
    _drains: list[_Drained] = field(default_factory=list)

    async def apply(self, change: str) -> None:
        """Let one change happen; what is refused is part of it."""
        match change.split():
            case ["image", image]:
                await self.world.set_image(self.zones, image)
            case ["bad", "template"]:
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

    async def list_left(self) -> list[str]:
        """Return what drains under way have still to ask, as changes from now on."""
        pods = await self.world.api.items(PODS, self.world.namespace)
        waiting = {
            str(pod["metadata"]["uid"])
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
        }
        return [change for each in self._drains for change in _list_tries(each, waiting)]

    @property
    def is_draining(self) -> bool:
        """Tell whether a drain has not ended."""
        return any(not each.task.done() for each in self._drains)

    async def _drain(self, zone: str) -> None:
        victims = await list_victims(self.world.api, self.world.namespace, [zone])
        self.nodes.cordoned |= {f"node-{each.name}" for each in victims}
        drain = Drain(self.world.api, self.world.namespace, retry=RETRY)
        run = drain.run(victims, DRAIN_LIMIT)
        self._drains.append(_Drained(self.tasks.create_task(run, name=f"drain-{zone}"), victims))


def _list_tries(drained: _Drained, waiting: set[str]) -> Iterator[str]:
    """Yield a drain of the node of each pod that is still to be evicted, at its next try."""
    retry = RETRY.total_seconds()
    left = retry - (time.monotonic() - drained.begun) % retry
    for each in drained.victims:
        if each.uid in waiting:
            yield f"drain node-{each.name} at {left:.2f}s"
