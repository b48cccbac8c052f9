"""Nodes as far as they name zones: followed once they are asked for, where the role shows them.

Most policies are written so that no node is asked for; for them this costs no request. Of a node
only the labels are kept that are asked for. A key that is asked for later is in no view yet: nodes
are listed anew, and until then nothing is known by it. Which zone follows is left to
`planning.policies.zones`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NoReturn

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import NODES, Reader
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.optional import OptionalInformer
from rollout_operator.kube.cache.store import NodeStore
from rollout_operator.model.decode.objects import decode_node
from rollout_operator.model.errors import Unreachable
from rollout_operator.model.names import TOPOLOGY_KEYS
from rollout_operator.model.objects import Node, Unreadable

MakeInformer = Callable[[Collection[Node | Unreadable]], Informer[Node | Unreadable]]


class FollowedNodes:
    """Labels of nodes, by the keys that were asked for."""

    def __init__(self, client: Reader, make_informer: MakeInformer) -> None:
        self._keys = frozenset(TOPOLOGY_KEYS)
        self._store = NodeStore()
        self._informer = make_informer(
            Collection(resource=NODES, namespace="", decode=self._decode, store=self._store)
        )
        self._follow: OptionalInformer[Node | Unreadable] = OptionalInformer(
            self._informer, client, NODES, ""
        )
        self._requested = asyncio.Event()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back after each change of a node that may change a zone."""
        self._informer.on_change(lambda old, new: callback())

    def find_labels(self, key: str) -> Mapping[str, Mapping[str, str]] | None:
        """Return the labels of all nodes by their names; None where they may not be read.

        Of each its label `key` is there, and those by which Kubernetes itself names zones. Raises
        Unreachable while they are not known.
        """
        self._requested.set()
        is_new = key not in self._keys
        self._keys |= {key}
        if self._follow.is_forbidden:
            return None
        if lack := self._follow.lack:
            raise Unreachable(f"nodes: {lack}")
        nodes = self._store.list_all()
        if is_new or any(isinstance(node, Node) and key not in node.keys for node in nodes):
            self._informer.refresh(f"label {key} of nodes")
            raise Unreachable(f"nodes: not listed yet with label {key}")
        return {node.name: node.labels for node in nodes}

    async def run(self, clock: Clock) -> NoReturn:
        """Wait until nodes are asked for, then follow them until cancelled."""
        await self._requested.wait()
        await self._follow.run(clock)

    def _decode(self, raw: bytes | msgspec.Raw) -> Node:
        return decode_node(raw, self._keys)
