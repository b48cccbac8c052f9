"""What of StatefulSets, of their templates and pods says in which zone they are.

The caches hold none of it: a template is read once for each generation, and the nodes of pods only
where nothing that is written says the zone. Which zone follows is decided in
`planning.policies.zones`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from rollout_operator.controllers.live_reads import join_labels
from rollout_operator.kube.api import PODS, STATEFULSETS, Reader
from rollout_operator.kube.cache.nodes import FollowedNodes
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.pod_node import decode_pod_node
from rollout_operator.model.errors import NotFound
from rollout_operator.model.group import Group
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.placement import PlacedSet
from rollout_operator.model.policy.policy import Policy
from rollout_operator.model.policy.watched import WatchedPolicy
from rollout_operator.model.policy.zones import ZoneResolution
from rollout_operator.planning.policies.zones import (
    NodeLabels,
    choose_key,
    list_frozen,
    needs_nodes,
    resolve_zones,
)


@dataclass(frozen=True, slots=True)
class _Template:
    uid: Uid
    generation: int
    placed: PlacedSet


class Placements:
    """Finds the zones of policies, and remembers what was read for that."""

    def __init__(
        self, reader: Reader, namespace: str, pods: PodStore, nodes: FollowedNodes
    ) -> None:
        self._reader = reader
        self._namespace = namespace
        self._pods = pods
        self._nodes = nodes
        self._templates: dict[str, _Template] = {}
        self._pod_nodes: dict[str, dict[Uid, str]] = {}

    async def resolve(self, known: WatchedPolicy, policy: Policy, group: Group) -> ZoneResolution:
        """Return the zones of a policy's StatefulSets; without those that change at this moment.

        Raises what `Reader` raises, Unreachable while nodes are asked for and not known, and
        DecodeError.
        """
        sets = [zone.sts for zone in group.zones]
        await self._read_templates(sets)
        policy = replace(policy, topology_key=choose_key(policy, known.status))
        frozen = list_frozen(known.status, policy.topology_key)
        placed = [self._place(sts) for sts in sets if self._is_read(sts)]
        asking = {node.name for node in needs_nodes(policy, placed, frozen)}
        nodes: NodeLabels | None = {}
        if asking:
            await self._read_pods([sts for sts in sets if sts.name in asking])
            placed = [self._add_nodes(one) if one.name in asking else one for one in placed]
            nodes = self._nodes.find_labels(policy.topology_key)
        return resolve_zones(policy, placed, nodes, frozen)

    def forget_set(self, name: str) -> None:
        """Forget a StatefulSet that is gone."""
        self._templates.pop(name, None)
        self._pod_nodes.pop(name, None)

    def _is_read(self, sts: StatefulSet) -> bool:
        found = self._templates.get(sts.name)
        return found is not None and (found.uid, found.generation) == (sts.uid, sts.generation)

    async def _read_templates(self, sets: Sequence[StatefulSet]) -> None:
        for sts in sets:
            if self._is_read(sts):
                continue
            try:
                body = await self._reader.fetch(STATEFULSETS, self._namespace, sts.name)
            except NotFound:
                continue  # the cache will show it
            found = decode_adoptable(body)
            self._templates[sts.name] = _Template(sts.uid, found.generation, found)

    def _place(self, sts: StatefulSet) -> PlacedSet:
        found = self._templates[sts.name].placed
        # Labels change without a generation.
        return PlacedSet(
            name=sts.name,
            labels=sts.labels,
            pod_labels=found.pod_labels,
            node_selector=found.node_selector,
            node_terms=found.node_terms,
        )

    def _add_nodes(self, sts: PlacedSet) -> PlacedSet:
        nodes = self._pod_nodes.get(sts.name, {}).values()
        return replace(sts, pod_nodes=tuple(sorted({node for node in nodes if node})))

    async def _read_pods(self, sets: Sequence[StatefulSet]) -> None:
        """Read on which nodes pods run that were not known to be scheduled."""
        for sts in sets:
            read = self._pod_nodes.setdefault(sts.name, {})
            pods = [pod for pod in self._pods.list_by_owner(sts.uid) if isinstance(pod, Pod)]
            uids = {pod.uid for pod in pods}
            for uid in [uid for uid in read if uid not in uids]:
                del read[uid]
            # One with an address runs somewhere.
            if all(read.get(pod.uid) or (pod.uid in read and not pod.ip) for pod in pods):
                continue
            found = await self._list_pod_nodes(sts)
            read.update((uid, found.get(uid, "")) for uid in uids)

    async def _list_pod_nodes(self, sts: StatefulSet) -> Mapping[Uid, str]:
        found: dict[Uid, str] = {}
        token = ""
        while True:
            page = await self._reader.fetch_page(
                PODS, self._namespace, selector=join_labels(sts.selector), token=token
            )
            found.update(decode_pod_node(raw) for raw in page.items)
            token = page.next_token
            if not token:
                return found
