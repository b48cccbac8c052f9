"""Carry out on the control plane what a change says, in the words that `simulate` takes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.prediction.drains import NodesDrain
from tests.world.api import STATEFULSETS, Json
from tests.world.sets import PAUSED
from tests.world.world import World

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
        """Return whether a drain has not ended."""
        return any(not each.is_done for each in self._drains)

    async def _drain(self, zone: str) -> None:
        sts = await self.world.api.get(STATEFULSETS, self.world.namespace, zone)
        nodes = [f"node-{zone}-{ordinal}" for ordinal in range(sts["spec"]["replicas"])]
        self.nodes.cordoned |= set(nodes)
        drain = NodesDrain(self.world, nodes)
        self._drains.append(drain)
        self.tasks.create_task(drain.run(), name=f"drain-{zone}")
