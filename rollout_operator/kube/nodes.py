"""Labels of nodes, for zones: nodes are followed once a policy needs them.

Only the labels that a policy needs are kept. A key that is needed later is in no cached node, so
nodes are listed again. Whoever may write policies chooses keys, so a namespace gets few of them at
a time. Which zone follows from a label is left to `planning.policy_zones`.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, NoReturn

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import NODES
from rollout_operator.kube.informer import Collection, Informer, ObjectSource
from rollout_operator.kube.kinds import FollowedKind
from rollout_operator.kube.store import NodeStore
from rollout_operator.model.decode.objects import decode_node
from rollout_operator.model.names import TOPOLOGY_KEYS, Unreachable
from rollout_operator.model.objects import Node, Unreadable

# Of a namespace. Almost all policies take the key of Kubernetes, and the others a key of their own.
MOST_KEYS: Final = 8
# A policy in service requests its key every minute: a key that none requests makes room.
KEY_LASTS: Final = timedelta(minutes=10)

_MakeInformer = Callable[[ObjectSource, Collection[Node | Unreadable]], Informer[Node | Unreadable]]


class FollowedNodes:
    """Labels of nodes, by the keys that were requested."""

    def __init__(self, client: ObjectSource, make_informer: _MakeInformer, clock: Clock) -> None:
        self._clock = clock
        self._keys = frozenset(TOPOLOGY_KEYS)
        self._requested_keys: dict[str, dict[str, timedelta]] = {}
        """By namespace, when each key was requested last."""
        self._on_change: list[Callable[[], None]] = []
        self._is_reported = True
        self._store = NodeStore()
        collection: Collection[Node | Unreadable] = Collection(
            resource=NODES,
            namespace="",
            decode=lambda raw: decode_node(raw, self._keys),
            store=self._store,
        )
        self._follow = FollowedKind(client, collection, make_informer)
        self._follow.on_change(lambda old, new: self._report_soon())
        self._requested = asyncio.Event()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back after changes of nodes that may change a zone, once for many of them."""
        self._on_change.append(callback)

    def find_labels(self, key: str, namespace: str) -> Mapping[str, Mapping[str, str]] | None:
        """Return the labels of all nodes by their names; None where they may not be read.

        Each has its label `key`, and those by which Kubernetes itself names zones. Raises
        Unreachable while they are not known, and where a namespace requests too many keys.
        """
        self._requested.set()
        is_new = key not in self._keys
        self._keep(key, namespace)
        if self._follow.is_forbidden:
            return None
        if lack := self._follow.lack:
            raise Unreachable(f"nodes: {lack}")
        nodes = self._store.list_all()
        if is_new or any(isinstance(node, Node) and key not in node.keys for node in nodes):
            self._follow.refresh(f"label {key} of nodes")
            raise Unreachable(f"nodes: not listed yet with label {key}")
        return {node.name: node.labels for node in nodes}

    async def run(self) -> NoReturn:
        await self._requested.wait()
        await self._follow.run(self._clock)

    def _keep(self, key: str, namespace: str) -> None:
        if key in TOPOLOGY_KEYS:
            return
        now, requested = self._clock.elapsed(), self._requested_keys.setdefault(namespace, {})
        if key not in requested:
            for old in [node for node, at in requested.items() if now - at > KEY_LASTS]:
                del requested[old]
            if len(requested) >= MOST_KEYS:
                most = f"policies of {namespace} name zones by {MOST_KEYS} other labels"
                raise Unreachable(f"nodes: not read for label {key}: {most}")
            requested[key] = now
            self._keys = frozenset(TOPOLOGY_KEYS).union(*self._requested_keys.values())
        requested[key] = now

    def _report_soon(self) -> None:
        """Call back in the next turn of the loop: a list brings thousands of nodes at once."""
        if self._is_reported:
            self._is_reported = False
            asyncio.get_running_loop().call_soon(self._report)

    def _report(self) -> None:
        self._is_reported = True
        for callback in self._on_change:
            callback()
