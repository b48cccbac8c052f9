"""The zones of policies, their StatefulSets, and their rule for the executor.

Caches hold no templates: each is read once for each generation, and the nodes of pods only where
neither template nor label has the zone. Several StatefulSets are read in one list, as a process
that starts reads them for each policy. `planning.policy_zones` decides zones and ownership. The
latter costs a pass over every policy, in which no other namespace is served: if policies change
many times a second, it is decided once a second.

A batch that begins is recorded by the live read that its deletes rely on, under their locks. Only
pods of the recorded batch are deleted.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import CLOCK_ERROR, Clock
from rollout_operator.controllers.executor import LabelRule
from rollout_operator.controllers.observe import Observer, choose_selectors
from rollout_operator.guards.turns import group_lock, policy_lock
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS, STATEFULSETS, Reader, list_items
from rollout_operator.kube.nodes import FollowedNodes
from rollout_operator.kube.store import PodStore, PolicyStore, StatefulSetStore
from rollout_operator.model.budget import PlacedSet
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.objects import decode_pod_node
from rollout_operator.model.names import DecodeError, GroupName, NotFound, Uid
from rollout_operator.model.objects import AnySet, Group, Pod, StatefulSet, Unreadable
from rollout_operator.model.outcome import Action, EqualPods, Plan, ReplacePods
from rollout_operator.model.policy import (
    Batch,
    Policy,
    PolicyHead,
    PolicyOwnership,
    PolicyPlan,
    PolicyScope,
    PolicySnapshot,
    RefusedPolicy,
    WatchedPolicy,
    ZoneResolution,
)
from rollout_operator.planning.policies import order_turns, plan_policy
from rollout_operator.planning.policy_status import find_batch
from rollout_operator.planning.policy_zones import (
    NodeLabels,
    choose_key,
    keep_zones,
    map_frozen,
    needs_nodes,
    resolve_zones,
    share_sets,
)


class _Template(msgspec.Struct, frozen=True):
    uid: Uid
    generation: int
    key: str
    """The label that names its zone, all that is kept of the template."""
    placed: PlacedSet


class Placements:
    """Finds the zones of policies, and remembers the reads for that."""

    def __init__(
        self, reader: Reader, namespace: str, pods: PodStore, nodes: FollowedNodes
    ) -> None:
        self._reader, self._namespace, self._pods, self._nodes = reader, namespace, pods, nodes
        self._templates: dict[str, _Template] = {}
        self._pod_nodes: dict[str, dict[Uid, str]] = {}

    async def resolve(self, watched: WatchedPolicy, policy: Policy, group: Group) -> ZoneResolution:
        """Return the zones of a policy's StatefulSets, without those that are changing.

        Raises what `Reader` raises, Unreachable while nodes are needed and unknown, and
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
        self._templates.pop(name, None)
        self._pod_nodes.pop(name, None)

    def _is_read(self, sts: StatefulSet, key: str) -> bool:
        template = self._templates.get(sts.name)
        wanted = (sts.uid, sts.generation, key)
        return template is not None and (template.uid, template.generation, template.key) == wanted

    async def _read_templates(self, policy: Policy, sets: Sequence[StatefulSet]) -> None:
        """Read the unknown templates.

        A list may have other sets as well, which need not be readable.
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
        if len(names) > 1:
            selector = policy.selector.render()
            return await list_items(self._reader, STATEFULSETS, self._namespace, selector=selector)
        try:
            return [await self._reader.fetch(STATEFULSETS, self._namespace, name) for name in names]
        except NotFound:
            return []

    def _place(self, sts: StatefulSet) -> PlacedSet:
        placed = self._templates[sts.name].placed
        # Labels change without a new generation.
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
        unread = [sts for sts in sets if not self._is_scheduled(sts)]
        node_names: dict[Uid, str] = {}
        for selector in choose_selectors(unread):
            pods = await list_items(self._reader, PODS, self._namespace, selector=selector)
            node_names.update(map(decode_pod_node, pods))
        for sts in unread:
            nodes = {pod.uid: node_names.get(pod.uid, "") for pod in self._list_pods(sts)}
            self._pod_nodes[sts.name] = nodes

    def _is_scheduled(self, sts: StatefulSet) -> bool:
        """Return whether the node of each pod that has one is known."""
        read = self._pod_nodes.get(sts.name, {})
        # A pod with an address runs somewhere.
        return all(
            read.get(pod.uid) or (pod.uid in read and not pod.ip) for pod in self._list_pods(sts)
        )

    def _list_pods(self, sts: StatefulSet) -> Sequence[Pod]:
        return [pod for pod in self._pods.list_by_owner(sts.uid) if isinstance(pod, Pod)]


# So often ownership is decided at once, and after that once for each pause.
BURST: Final = 30
PAUSE: Final = timedelta(seconds=1)
# A wait in floating point may end too early by so much, and nothing would wake the key again.
_ROUNDING: Final = 1e-6

_AnyPolicy = WatchedPolicy | Unreadable


class Owners:
    """The StatefulSets that the policies of one namespace own."""

    def __init__(self, policies: PolicyStore, sets: StatefulSetStore, clock: Clock) -> None:
        self._policies, self._sets, self._clock = policies, sets, clock
        self._ownership: PolicyOwnership | None = None
        self._is_behind = False
        """Whether policies or StatefulSets have changed since."""
        self._left = float(BURST)
        """How often ownership may be decided at once."""
        self._filled_at = timedelta(0)
        self._by_name: dict[str, PolicyScope | RefusedPolicy] = {}
        self._drivers: Mapping[GroupName, str] = {}
        self._names: Mapping[Uid, str] = {}
        self._on_change: list[Callable[[timedelta], None]] = []

    def on_change(self, callback: Callable[[timedelta], None]) -> None:
        """Call back when ownership may have changed, with the time until it is decided."""
        self._on_change.append(callback)

    def find(self, name: str) -> PolicyScope | RefusedPolicy | None:
        """Return the scope of a policy, or why it is out of service; None if it is gone."""
        self._share()
        scope = self._by_name.get(name)
        return None if scope is None or self._get_newest(scope) is None else scope

    def is_behind(self, scope: PolicyScope | RefusedPolicy) -> bool:
        """Return whether a policy has a newer spec: nothing may be done for it."""
        newest = self._get_newest(scope)
        return newest is None or newest.head != _get_head(scope)

    def find_driver(self, group: GroupName) -> str | None:
        """Return the policy, by namespace and name, that replaces the pods of a group."""
        self._share()
        return self._drivers.get(group)

    def find_name(self, set_uid: Uid) -> str | None:
        self._share()
        return self._names.get(set_uid)

    def list_scopes(self) -> Iterator[PolicyScope]:
        """Yield the policies that are in service, the oldest first."""
        yield from self._share().scopes

    def on_policy(self, old: _AnyPolicy | None, new: _AnyPolicy | None) -> None:
        """Take over a policy; ownership does not depend on its status."""
        if _get_policy(old) != _get_policy(new):
            self._begin_anew()

    def on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        if old is None or new is None or _selected_by(old) != _selected_by(new):
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._is_behind = True
        wait = max((1 - self._count_left()) * PAUSE, timedelta(0))
        for callback in self._on_change:
            callback(wait)

    def _count_left(self) -> float:
        now = self._clock.elapsed()
        self._left = min(self._left + (now - self._filled_at) / PAUSE, BURST)
        self._filled_at = now
        return self._left

    def _get_newest(self, scope: PolicyScope | RefusedPolicy) -> Policy | RefusedPolicy | None:
        head = _get_head(scope)
        return _get_policy(self._policies.get(head.namespace, head.name))

    def _share(self) -> PolicyOwnership:
        if self._ownership is not None and (
            not self._is_behind or self._count_left() < 1 - _ROUNDING
        ):
            return self._ownership
        self._left -= 1
        self._is_behind = False
        policies = [
            policy for policy in map(_get_policy, self._policies.list_all()) if policy is not None
        ]
        # Without a policy, thousands of StatefulSets need not be searched.
        ownership = share_sets(policies, self._sets.list_all() if policies else ())
        self._ownership = ownership
        scopes, refused = ownership.scopes, ownership.refused
        self._by_name = {scope.policy.head.name: scope for scope in scopes}
        self._by_name.update((refusal.head.name, refusal) for refusal in refused)
        self._drivers = {group: scope.policy.head.key for scope in scopes for group in scope.groups}
        self._names = {sts.uid: scope.policy.head.name for scope in scopes for sts in scope.sets}
        return ownership


def _get_policy(any_policy: _AnyPolicy | None) -> Policy | RefusedPolicy | None:
    return any_policy.policy if isinstance(any_policy, WatchedPolicy) else None


def name_of_policy(group: Group) -> Group:
    """Return the group of a policy under a name that no label has."""
    return replace(group, name=GroupName(f"{MULTI_AZ_ROLLOUTS.kind}/{group.name}"))


def _get_head(scope: PolicyScope | RefusedPolicy) -> PolicyHead:
    return scope.policy.head if isinstance(scope, PolicyScope) else scope.head


def _selected_by(sts: AnySet) -> tuple[object, ...]:
    is_terminating = isinstance(sts, StatefulSet) and sts.is_terminating
    return (type(sts), sts.uid, sts.labels, is_terminating)


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True):
    resolution: ZoneResolution
    batch: Batch | None
    """As the status has it by now."""
    initial: Mapping[str, int]
    """By StatefulSet, the fewest replicas since its update revision came."""


class PolicyRule(LabelRule):
    """Plans for the policies of one namespace, by their names."""

    def __init__(
        self,
        namespace: str,
        observer: Observer,
        owners: Owners,
        read_live: Callable[[str], Awaitable[WatchedPolicy | None]],
    ) -> None:
        super().__init__(observer)
        self._namespace, self._owners, self._read_live = namespace, owners, read_live
        self._records: dict[GroupName, PolicyRecord] = {}
        self._beginnings: dict[GroupName, Callable[[Group], Awaitable[None]]] = {}

    @contextmanager
    def beginning(
        self, name: GroupName, before: PolicyRecord, record: Callable[[Group], Awaitable[None]]
    ) -> Iterator[None]:
        """Let an unrecorded batch begin: `record` is called with the live read."""
        self._records[name], self._beginnings[name] = before, record
        try:
            yield
        finally:
            self._beginnings.pop(name, None)

    def note(self, name: GroupName, record: PolicyRecord) -> bool:
        """Return whether its zones are others than before, or in another order."""
        before, self._records[name] = self._records.get(name), record
        return before is None or before.resolution.zones != record.resolution.zones

    def forget(self, name: GroupName) -> None:
        self._records.pop(name, None)

    def observe(self, name: GroupName) -> Group:
        """Return the cached group of a policy, empty if it is out of service."""
        scope = self._find_scope(name)
        uids = [] if scope is None else [sts.uid for sts in scope.sets]
        sets = map(self._observer.sets.get_by_uid, uids)
        members = [sts for sts in sets if sts is not None]
        return self._observer.observe_members(name, members)

    def observe_in_order(self, name: GroupName) -> Group | None:
        """Return what `observe` does in update order, None until that is recorded of all zones.

        One that was left out may be under way: a StatefulSet that can be read again.
        """
        scope, record = self._find_scope(name), self._records.get(name)
        if scope is None or record is None:
            return None
        group = self.observe(name)
        order = order_turns(self.snapshot(scope, group, record))
        if not all(zone.sts.name in order for zone in group.zones):
            return None
        found = sorted(group.zones, key=lambda zone: order.index(zone.sts.name))
        return replace(group, zones=tuple(found))

    async def observe_live(self, cached: Group) -> Group:
        scope = self._find_scope(cached.name)
        if scope is None or not await self._is_current(scope.policy):
            return replace(cached, zones=(), unreadable=())
        return await self._observer.observe_selected(cached, scope.policy.selector.render())

    async def _is_current(self, policy: Policy) -> bool:
        """Return whether a live read shows what the plan rests on: spec and recorded batch.

        Anything else may change each second, and no pod waits for that.
        """
        name = GroupName(policy.head.name)
        if name in self._beginnings:
            return True  # the record of the batch is refused if the policy has changed
        record, live = self._records.get(name), await self._read_live(name)
        if record is None or live is None:
            return False
        return live.policy == policy and find_batch(live.status) == record.batch

    def snapshot(self, scope: PolicyScope, group: Group, record: PolicyRecord) -> PolicySnapshot:
        return PolicySnapshot(
            policy=scope.policy,
            resolution=record.resolution,
            group=group,
            batch=record.batch,
            initial=record.initial,
            clock_error=CLOCK_ERROR,
        )

    async def record(self, live: Group) -> None:
        """Record the batch that begins: from now on only its pods may be deleted."""
        record = self._beginnings.pop(live.name, None)
        if record is not None:
            await record(live)

    def plan(self, group: Group) -> Plan:
        """Return the plan for the batch that is recorded, or is about to be."""
        scope, record = self._find_scope(group.name), self._records.get(group.name)
        if scope is None or record is None:
            return Plan(group=group.name)
        plan = plan_policy(self.snapshot(scope, group, record))
        batch = plan.batch if group.name in self._beginnings else record.batch
        return Plan(group=group.name, actions=tuple(_list_actions(plan, batch)))

    def choose_limit(self, name: GroupName, sts: StatefulSet) -> int:
        # Annotations do not count (MAZ-26).
        scope = self._find_scope(name)
        return 1 if scope is None else scope.policy.max_unavailable.of(sts.replicas)

    def list_locks(self, group: Group) -> Sequence[str]:
        members = [*(zone.sts.group for zone in group.zones)]
        members += [broken.group for broken in group.unreadable]
        groups = [group_lock(member) for member in members if member is not None]
        return (policy_lock(self._namespace, group.name), *groups)

    def name_keys(self, name: GroupName) -> Mapping[str, object]:
        return {"policy": f"{self._namespace}/{name}"}

    def name_set(self, name: GroupName, sts: StatefulSet) -> Mapping[str, object]:
        record = self._records.get(name)
        sets = () if record is None else record.resolution.sets
        zone = next((placed.zone for placed in sets if placed.name == sts.name), "")
        return {**self.name_keys(name), "zone": zone, "statefulset": sts.name}

    def _find_scope(self, name: GroupName) -> PolicyScope | None:
        scope = self._owners.find(name)
        if not isinstance(scope, PolicyScope) or self._owners.is_behind(scope):
            return None
        return scope


def _list_actions(plan: PolicyPlan, batch: Batch | None) -> Iterable[Action]:
    """Yield the actions of a plan, without pods that are not recorded."""
    if plan.action is not None and batch is not None:
        recorded = {pod.uid for pod in batch.pods}
        pods = tuple(entry for entry in plan.action.listed if entry.pod.uid in recorded)
        if pods:
            share = EqualPods(pods=pods, room=len(pods))
            yield ReplacePods(zone=plan.action.zone, shares=(share,))
    yield from plan.records
