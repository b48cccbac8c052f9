"""Drains as `kubectl drain NODE ...` makes them: node by node, the pods of each at once, by name.

Like kubectl, and unlike `tests/world/drains`, a pod is requested by its name alone: one that came
in its place meanwhile is evicted as well. What a drain has still to do, another can do from
any moment on; in those words it is given to `simulate`.
"""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.world.api import PODS, ApiError, Json
from tests.world.budgets import TRY_AGAIN, evict
from tests.world.sets import is_ready
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
    """Return the node of a pod, empty where it has none."""
    return str(pod["spec"].get("nodeName") or "")
