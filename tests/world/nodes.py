"""Node objects for pods that are to be drained, and the choice of a node for each new pod.

Nothing runs on them: the test kubelet plays their pods, wherever these are bound.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final, Self

from tests.world.api import Api, ApiError, Json, Resource
from tests.world.kubelet import NODE

NODES: Final = Resource("v1", "nodes", is_namespaced=False)
ZONE: Final = "topology.kubernetes.io/zone"
# Until a pod that finds no node tries again.
RETRY: Final = timedelta(milliseconds=200)


class Nodes:
    """The nodes of zones, two for each. Use with `async with`."""

    def __init__(self, api: Api, zones: Iterable[str]) -> None:
        self._api = api
        self._zones = {f"node-{zone}-{number}": zone for zone in zones for number in (1, 2)}

    async def __aenter__(self) -> Self:
        for name, zone in self._zones.items():
            await self._api.create(NODES, "", _node(name, zone))
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
            patch = {"status": {"conditions": [ready]}}
            await self._api.patch(NODES, "", name, patch, subresource="status")
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in self._zones:
            with suppress(ApiError):
                await self._api.delete(NODES, "", name)

    async def place(self, pod: Json) -> str:
        """Return the node of a pod, once there is one in its zone that takes pods.

        Pods take turns, so that each node has every second one. A zone without nodes has `NODE`.
        """
        zone, _, ordinal = str(pod["metadata"]["name"]).rpartition("-")
        if zone not in self._zones.values():
            return NODE
        nodes = [name for name, of in self._zones.items() if of == zone]
        wanted = nodes[int(ordinal) % len(nodes) :] + nodes
        while True:
            closed = {
                one["metadata"]["name"]
                for one in await self._api.items(NODES)
                if one["spec"].get("unschedulable")
            }
            if found := next((name for name in wanted if name not in closed), ""):
                return found
            await asyncio.sleep(RETRY.total_seconds())


def _node(name: str, zone: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {ZONE: zone, "kubernetes.io/hostname": name}},
    }
