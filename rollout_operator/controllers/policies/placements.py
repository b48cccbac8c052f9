"""The zones of StatefulSets, by what they, their templates and their pods say.

The caches hold no templates: each is read once for each generation, and the nodes of pods only
where no template or label says the zone. Several StatefulSets are read in one list: a process that
starts reads it for each policy. Which zone follows is decided in `planning.policies.zones`.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from rollout_operator.controllers.live_reads import choose_selectors
from rollout_operator.kube.api import PODS, STATEFULSETS, Reader, Resource
from rollout_operator.kube.cache.nodes import FollowedNodes
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.objects import decode_pod_node
from rollout_operator.model.errors import DecodeError, NotFound
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
    keep_zones,
    map_frozen,
    needs_nodes,
    resolve_zones,
)


class _Template(msgspec.Struct, frozen=True):
    uid: Uid
    generation: int
    key: str
    """The label that names its zone; nothing else of the template is kept."""
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

    async def resolve(self, watched: WatchedPolicy, policy: Policy, group: Group) -> ZoneResolution:
        """Return the zones of a policy's StatefulSets; without those that change at this moment.

        Raises what `Reader` raises, Unreachable while nodes are needed and not known, and
        DecodeError.
        """
        sets = [zone.sts for zone in group.zones]
        key = choose_key(policy, watched.status)
        policy = replace(policy, topology_key=key)
        await self._read_templates(policy, sets)
        frozen = map_frozen(watched.status, key)
        placed = [self._place(sts) for sts in sets if self._is_read(sts, key)]
        unplaced_names = {node.name for node in needs_nodes(policy, placed, frozen)}
        nodes: NodeLabels | None = {}
        if unplaced_names:
            unplaced = {sts.name: sts for sts in sets if sts.name in unplaced_names}
            await self._read_pods([*unplaced.values()])
            placed = [
                self._add_nodes(member, sts) if (sts := unplaced.get(member.name)) else member
                for member in placed
            ]
            nodes = self._nodes.find_labels(key, self._namespace)
        return resolve_zones(policy, placed, nodes, frozen)

    def forget_set(self, name: str) -> None:
        """Forget a StatefulSet that is gone."""
        self._templates.pop(name, None)
        self._pod_nodes.pop(name, None)

    def _is_read(self, sts: StatefulSet, key: str) -> bool:
        template = self._templates.get(sts.name)
        wanted = (sts.uid, sts.generation, key)
        return template is not None and (template.uid, template.generation, template.key) == wanted

    async def _read_templates(self, policy: Policy, sets: Sequence[StatefulSet]) -> None:
        """Read the templates that are not known yet.

        A list holds other sets as well: a set that cannot be read counts where it is of the policy.
        """
        key = policy.topology_key
        unread = {sts.name: sts for sts in sets if not self._is_read(sts, key)}
        broken: DecodeError | None = None
        for body in await self._fetch_sets(policy, [*unread]):
            try:
                adoptable = decode_adoptable(body)
            except DecodeError as error:
                broken = error
            else:
                if sts := unread.pop(adoptable.name, None):
                    placed, generation = keep_zones(adoptable, key), adoptable.generation
                    self._templates[sts.name] = _Template(sts.uid, generation, key, placed)
        if broken is not None and unread:
            raise broken

    async def _fetch_sets(
        self, policy: Policy, names: Sequence[str]
    ) -> Sequence[bytes | msgspec.Raw]:
        """Return these StatefulSets of a policy, without those that are gone by now."""
        if len(names) > 1:
            return await self._list(STATEFULSETS, policy.selector.render())
        try:
            return [await self._reader.fetch(STATEFULSETS, self._namespace, name) for name in names]
        except NotFound:
            return []

    def _place(self, sts: StatefulSet) -> PlacedSet:
        placed = self._templates[sts.name].placed
        # Labels change without a generation.
        return PlacedSet(
            name=sts.name,
            labels=sts.labels,
            pod_labels=placed.pod_labels,
            node_selector=placed.node_selector,
            node_terms=placed.node_terms,
        )

    def _add_nodes(self, placed: PlacedSet, sts: StatefulSet) -> PlacedSet:
        read = self._pod_nodes.get(sts.name, {})
        nodes = {read.get(pod.uid, "") for pod in self._list_pods(sts)}
        return replace(placed, pod_nodes=tuple(sorted(nodes - {""})))

    async def _read_pods(self, sets: Sequence[StatefulSet]) -> None:
        """Read the nodes of pods that were not known to be scheduled."""
        unread = [sts for sts in sets if not self._is_scheduled(sts)]
        node_names: dict[Uid, str] = {}
        for selector in choose_selectors(unread):
            node_names.update(map(decode_pod_node, await self._list(PODS, selector)))
        for sts in unread:
            nodes = {pod.uid: node_names.get(pod.uid, "") for pod in self._list_pods(sts)}
            self._pod_nodes[sts.name] = nodes

    def _is_scheduled(self, sts: StatefulSet) -> bool:
        """Return whether the node of each pod is known that has one."""
        read = self._pod_nodes.get(sts.name, {})
        # A pod with an address runs somewhere.
        return all(
            read.get(pod.uid) or (pod.uid in read and not pod.ip) for pod in self._list_pods(sts)
        )

    def _list_pods(self, sts: StatefulSet) -> Sequence[Pod]:
        return [pod for pod in self._pods.list_by_owner(sts.uid) if isinstance(pod, Pod)]

    async def _list(self, resource: Resource, selector: str) -> Sequence[msgspec.Raw]:
        items: list[msgspec.Raw] = []
        token = ""
        while True:
            page = await self._reader.fetch_page(
                resource, self._namespace, selector=selector, token=token
            )
            items += page.items
            token = page.next_token
            if not token:
                return items
