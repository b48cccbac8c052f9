"""Which policy owns which StatefulSets, in which zone each of them is, and which zone goes first.

What a person wrote down wins over what nodes and names say, and over zones recorded in the status.
A StatefulSet whose zone is unknown is a zone of its own, which is safe: it waits for all others.
Pods of one set in several zones are not safe: nothing is updated.

No two policies own a StatefulSet, nor do they share a rollout group. The oldest policy in service
keeps what it selects; a policy that selects any of that is out of service as a whole. A rollout
group belongs to a policy entirely or not at all: then its label decides as before.
`model.decode.custom` refuses a policy for its own fields.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from rollout_operator.model.budget import NodeTerm, PlacedSet, ZoneSource
from rollout_operator.model.names import TOPOLOGY_KEYS, GroupName, InvalidInput, Uid
from rollout_operator.model.objects import LEFT_OUT, StatefulSet, Unreadable
from rollout_operator.model.policy import (
    Policy,
    PolicyHead,
    PolicyOwnership,
    PolicyRefusal,
    PolicyRefusalCode,
    PolicyScope,
    PolicySnapshot,
    PolicyStatus,
    RefusedPolicy,
    ResolvedSet,
    ResolvedZone,
    SetCounts,
    ZoneCounts,
    ZoneFinding,
    ZoneFindingCode,
    ZoneResolution,
    ZonesCode,
    check_label_value,
)
from rollout_operator.model.units import quote
from rollout_operator.planning.readiness import Readiness, count_pods, is_paused, measure_readiness
from rollout_operator.planning.rollout import RolloutZone, is_waiting
from rollout_operator.planning.wording import join_names

# A common label for the zone beside that of nodes.
ZONE_LABEL: Final = "zone"
# Labels by node name.
NodeLabels = Mapping[str, Mapping[str, str]]
_ZONE_LABELS: Final = (ZONE_LABEL, "availability-zone")
# As in `ingester-zone-a`.
_SUFFIX: Final = re.compile(r"-(zone-[a-z0-9]+)\Z")
_Set = StatefulSet | Unreadable
_FIELD: Final = "spec.statefulSetSelector"
# StatefulSets named in the message of a condition.
_SHOWN: Final = 10
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


class _Present(msgspec.Struct, frozen=True, kw_only=True):
    """StatefulSets indexed for policies: a tenant may create hundreds of both."""

    sets: Sequence[_Set]
    """By name."""
    by_label: Mapping[tuple[str, str], Sequence[_Set]]
    uncertain: Sequence[_Set]
    """Sets with labels left out: they may have any."""
    by_group: Mapping[GroupName, Sequence[_Set]]

    def select(self, policy: Policy) -> Sequence[_Set]:
        """Return what a policy selects or may select, by name."""
        selected = [
            sts
            for sts in self._list_candidates(policy)
            if sts.namespace == policy.head.namespace and policy.selector.may_take(sts.labels)
        ]
        return sorted(selected, key=_name)

    def _list_candidates(self, policy: Policy) -> Sequence[_Set]:
        """Return all sets with the rarest label of the selector."""
        labels = policy.selector.labels.items()
        if not labels:
            return self.sets
        rarest = min((self.by_label.get(label, ()) for label in labels), key=len)
        return (*rarest, *self.uncertain)


def share_sets(policies: Iterable[Policy | RefusedPolicy], sets: Iterable[_Set]) -> PolicyOwnership:
    """Return which policies are in service, and what each of them owns.

    A StatefulSet that could not be decoded counts by its labels.
    """
    present = _index_sets(
        sts for sts in sets if not (isinstance(sts, StatefulSet) and sts.is_terminating)
    )
    owners: dict[Uid, PolicyHead] = {}
    scopes: list[PolicyScope] = []
    refused: list[RefusedPolicy] = []
    for policy in sorted(
        policies,
        key=lambda each: (each.head.created or _LATEST, each.head.name, each.head.namespace),
    ):
        if policy.head.is_terminating:
            continue
        if isinstance(policy, RefusedPolicy):
            refused.append(policy)
            continue
        own = present.select(policy)
        if refusals := tuple(_list_refusals(policy, own, present, owners)):
            refused.append(RefusedPolicy(head=policy.head, refusals=refusals))
            continue
        owners.update((sts.uid, policy.head) for sts in own)
        scopes.append(PolicyScope(policy=policy, sets=tuple(own), groups=_collect_groups(own)))
    return PolicyOwnership(scopes=tuple(scopes), refused=tuple(refused))


def resolve_zones(
    policy: Policy,
    sets: Iterable[PlacedSet],
    nodes: NodeLabels | None,
    frozen: Mapping[str, str],
) -> ZoneResolution:
    """Return the zones of StatefulSets in update order.

    `nodes` is None where nodes may not be read. `frozen` has the zones that came from nodes when
    the rollout began, by StatefulSet.
    """
    ordered = sorted(sets, key=lambda sts: sts.name)
    spans = {
        placed.name: zones
        for placed in ordered
        if (zones := _list_span(policy, placed, nodes, frozen))
    }
    resolved = tuple(
        _resolve(policy, placed, nodes, frozen) for placed in ordered if placed.name not in spans
    )
    has_unknown = any(sts.source is ZoneSource.SET_NAME for sts in resolved)
    code = ZonesCode.SOME_BY_FALLBACK if has_unknown else ZonesCode.ALL_RESOLVED
    return ZoneResolution(
        code=ZonesCode.SPANS_ZONES if spans else code,
        key=policy.topology_key,
        zones=() if spans else _order_zones(policy, resolved),
        sets=resolved,
        unknown_zones=_list_unknown(policy, resolved, spans),
        findings=(
            *_list_spans(spans),
            *_list_guessed(resolved),
            *_list_unread(policy, ordered, nodes, frozen),
        ),
    )


def needs_nodes(
    policy: Policy, sets: Iterable[PlacedSet], frozen: Mapping[str, str]
) -> Sequence[PlacedSet]:
    """Return the StatefulSets whose zone comes from nodes, if at all."""
    return [sts for sts in sets if not frozen.get(sts.name) and not any(_list_written(policy, sts))]


def map_frozen(status: PolicyStatus, key: str) -> Mapping[str, str]:
    """Return the zones that came from nodes, by StatefulSet, while a rollout is underway (MAZ-20).

    Zones of another label do not count, nor names that no node can have: any client may have
    written the status.
    """
    if not status.is_underway or status.az_topology_key not in (key, ""):
        return {}
    return {
        sts.name: zone.name
        for zone in status.zones
        for sts in zone.stateful_sets
        if sts.source == ZoneSource.NODES and _is_of_node(zone.name)
    }


def keep_zones(template: PlacedSet, key: str) -> PlacedSet:
    """Reduce a template to what it says of zones: the rest may be a megabyte."""
    zone = _choose_affinity(template, key)
    keys = (key, *_ZONE_LABELS)
    return PlacedSet(
        name=template.name,
        pod_labels={
            label: template.pod_labels[label] for label in keys if label in template.pod_labels
        },
        node_selector={key: template.node_selector[key]} if key in template.node_selector else {},
        node_terms=({key: (zone,)},) if zone else (),
    )


def choose_key(policy: Policy, status: PolicyStatus) -> str:
    """Return the label that names zones now; a change counts once no batch is open (MAZ-20)."""
    return (status.has_open_batch and status.az_topology_key) or policy.topology_key


def list_zones(snapshot: PolicySnapshot) -> tuple[RolloutZone, ...]:
    """Return the zones in update order, with what is up and down in them."""
    group = snapshot.group
    readinesses = {
        zone.sts.name: measure_readiness(zone, group.deletions, group.now) for zone in group.zones
    }
    zones = (
        RolloutZone(
            name=zone.name,
            readinesses=tuple(
                readinesses[sts.name] for sts in zone.sets if sts.name in readinesses
            ),
        )
        for zone in snapshot.resolution.zones
    )
    return tuple(zone for zone in zones if zone.readinesses)


def choose_label(keys: Sequence[str], *labelled: Mapping[str, str]) -> str:
    """Return the first non-empty value, by carrier and then by key."""
    return next((labels[key] for labels in labelled for key in keys if labels.get(key)), "")


def choose_permitted_zone(terms: Iterable[NodeTerm], keys: Sequence[str]) -> str:
    """Return the one zone that a required node affinity allows, empty where it is not one.

    Any term suffices for a node: a term that names no zone allows every zone.
    """
    permitted: set[str] = set()
    for term in terms:
        values = [{*term[key]} for key in keys if key in term]
        if not values:
            return ""
        permitted |= set.intersection(*values)
    return permitted.pop() if len(permitted) == 1 else ""


def list_readinesses(zones: Iterable[RolloutZone]) -> tuple[Readiness, ...]:
    return tuple(readiness for zone in zones for readiness in zone.readinesses)


def is_scaling(zone: RolloutZone) -> bool:
    """Return whether pods come or go for a new number of replicas (MAZ-35)."""
    return any(
        readiness.sts.replicas != readiness.sts.status_replicas for readiness in zone.readinesses
    )


def rank_begun(zone: RolloutZone, last: str, initial: Mapping[str, int]) -> tuple[bool, ...]:
    """Rank a zone that was begun before the others: it is finished first (MAZ-46).

    Pods added since the update revision came replaced none: `initial` has the replicas before. If
    only one StatefulSet of several changed, each zone has pods at both revisions: so a zone with
    both inside one StatefulSet comes first. Of several, `last` does.
    """
    is_begun = _is_begun(zone.readinesses, initial)
    is_begun_inside = any(
        _is_begun([readiness], initial) for readiness in zone.readinesses if is_waiting(readiness)
    )
    return (not is_begun_inside, not is_begun, zone.name != last and is_begun)


def count_zone(zone: RolloutZone, initial: Mapping[str, int]) -> ZoneCounts:
    return ZoneCounts(
        name=zone.name,
        sets=tuple(_count_set(readiness, initial) for readiness in zone.readinesses),
    )


def _resolve(
    policy: Policy, sts: PlacedSet, nodes: NodeLabels | None, frozen: Mapping[str, str]
) -> ResolvedSet:
    zone, source = next(_list_answers(policy, sts, nodes, frozen))
    return ResolvedSet(name=sts.name, zone=zone, source=source)


def _list_answers(
    policy: Policy, sts: PlacedSet, nodes: NodeLabels | None, frozen: Mapping[str, str]
) -> Iterator[tuple[str, ZoneSource]]:
    """Yield what each source says; the first counts (MAZ-12)."""
    yield from _list_written(policy, sts)
    if zone := frozen.get(sts.name, ""):
        yield zone, ZoneSource.NODES
    if len(zones := _list_node_zones(policy, sts, nodes)) == 1:
        yield zones[0], ZoneSource.NODES
    if zone := choose_label(_ZONE_LABELS, sts.labels, sts.pod_labels):
        yield zone, ZoneSource.ZONE_LABEL
    if zone := _choose_suffix(policy, sts.name):
        yield zone, ZoneSource.NAME_SUFFIX
    yield sts.name, ZoneSource.SET_NAME


def _list_written(policy: Policy, sts: PlacedSet) -> Iterator[tuple[str, ZoneSource]]:
    """Yield what the StatefulSet itself says."""
    keys = (policy.topology_key,)
    if zone := choose_label(keys, sts.labels, sts.pod_labels):
        yield zone, ZoneSource.LABEL
    if zone := choose_label(keys, sts.node_selector):
        yield zone, ZoneSource.NODE_SELECTOR
    if zone := _choose_affinity(sts, policy.topology_key):
        yield zone, ZoneSource.NODE_AFFINITY


def _choose_affinity(sts: PlacedSet, key: str) -> str:
    """Return the one zone that node affinity allows, if a node can have such a label."""
    zone = choose_permitted_zone(sts.node_terms, (key,))
    return zone if _is_of_node(zone) else ""


def _is_of_node(zone: str) -> bool:
    try:
        check_label_value(zone)
    except InvalidInput:
        return False
    return True


def _list_node_zones(policy: Policy, sts: PlacedSet, nodes: NodeLabels | None) -> Sequence[str]:
    """Return the zones in which its pods run, sorted."""
    is_default = policy.topology_key == TOPOLOGY_KEYS[0]
    keys = TOPOLOGY_KEYS if is_default else (policy.topology_key,)
    zones = {choose_label(keys, (nodes or {}).get(node, {})) for node in sts.pod_nodes}
    return sorted(zones - {""})


def _choose_suffix(policy: Policy, name: str) -> str:
    """Return the zone that a name ends with: the longest of the policy's, or `zone-…`."""
    listed = [zone for zone in policy.zone_order if name.endswith(f"-{zone}")]
    if listed:
        return max(listed, key=len)
    match = _SUFFIX.search(name)
    return match[1] if match else ""


def _list_span(
    policy: Policy, sts: PlacedSet, nodes: NodeLabels | None, frozen: Mapping[str, str]
) -> Sequence[str]:
    """Return the zones that a StatefulSet spans, empty where it is in one (MAZ-20)."""
    if frozen.get(sts.name) or any(_list_written(policy, sts)):
        return ()
    zones = _list_node_zones(policy, sts, nodes)
    return zones if len(zones) > 1 else ()


def _order_zones(policy: Policy, sets: Iterable[ResolvedSet]) -> tuple[ResolvedZone, ...]:
    """Order the zones by the policy's list, then by name (MAZ-21).

    A StatefulSet that is a zone of its own stays alone even if another zone has its name.
    """
    members: dict[tuple[str, bool], list[ResolvedSet]] = {}
    for sts in sets:
        members.setdefault((sts.zone, sts.source is ZoneSource.SET_NAME), []).append(sts)
    places = {zone: place for place, zone in enumerate(policy.zone_order)}
    keys = sorted(members, key=lambda key: (places.get(key[0], len(places)), *key))
    return tuple(ResolvedZone(name=key[0], sets=tuple(members[key])) for key in keys)


def _list_unknown(
    policy: Policy, sets: Iterable[ResolvedSet], spans: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    zones = {sts.zone for sts in sets}.union(*spans.values())
    return tuple(zone for zone in policy.zone_order if zone not in zones)


def _list_spans(spans: Mapping[str, Sequence[str]]) -> Iterator[ZoneFinding]:
    for name, zones in spans.items():
        text = (
            f"StatefulSet {name} has pods in {join_names(zones)}, and says itself in which zone it"
            " belongs neither by label nor by nodeSelector or node affinity; nothing is updated"
        )
        yield ZoneFinding(code=ZoneFindingCode.SPANS_ZONES, text=text)


def _list_guessed(sets: Iterable[ResolvedSet]) -> Iterator[ZoneFinding]:
    for sts in sets:
        if sts.source is ZoneSource.SET_NAME:
            text = f"nothing says the zone of StatefulSet {sts.name}; it is a zone of its own"
            yield ZoneFinding(code=ZoneFindingCode.ZONE_UNKNOWN, text=text)


def _list_unread(
    policy: Policy,
    sets: Iterable[PlacedSet],
    nodes: NodeLabels | None,
    frozen: Mapping[str, str],
) -> Iterator[ZoneFinding]:
    if nodes is not None:
        return
    if names := [node.name for node in needs_nodes(policy, sets, frozen)]:
        text = f"nodes may not be read, and say nothing of the zone of {join_names(names)}"
        yield ZoneFinding(code=ZoneFindingCode.NODES_UNREADABLE, text=text)


def _is_begun(readinesses: Sequence[Readiness], initial: Mapping[str, int]) -> bool:
    counts = [count_pods(readiness) for readiness in readinesses if not is_paused(readiness.sts)]
    has_replaced = any(
        pods.updated and pods.outdated < initial.get(pods.zone, pods.desired) for pods in counts
    )
    return has_replaced and any(pods.outdated for pods in counts)


def _count_set(readiness: Readiness, initial: Mapping[str, int]) -> SetCounts:
    counts = count_pods(readiness)
    return SetCounts(
        name=readiness.sts.name,
        replicas=readiness.sts.replicas,
        updated=counts.updated,
        outdated=counts.outdated,
        ready=counts.ready,
        unavailable=readiness.unavailable,
        revision=readiness.sts.update_revision,
        initial=initial.get(readiness.sts.name, 0),
        is_paused=is_paused(readiness.sts),
    )


def _index_sets(sets: Iterable[_Set]) -> _Present:
    ordered = sorted(sets, key=_name)
    by_label: dict[tuple[str, str], list[_Set]] = {}
    by_group: dict[GroupName, list[_Set]] = {}
    uncertain: list[_Set] = []
    for sts in ordered:
        if sts.group is not None:
            by_group.setdefault(sts.group, []).append(sts)
        if LEFT_OUT in sts.labels:
            uncertain.append(sts)
            continue
        for label in sts.labels.items():
            by_label.setdefault(label, []).append(sts)
    return _Present(sets=ordered, by_label=by_label, uncertain=uncertain, by_group=by_group)


def _name(sts: _Set) -> str:
    return sts.name


def _collect_groups(sets: Iterable[_Set]) -> frozenset[GroupName]:
    return frozenset(sts.group for sts in sets if sts.group is not None)


def _list_refusals(
    policy: Policy, own: Sequence[_Set], present: _Present, owners: Mapping[Uid, PolicyHead]
) -> Iterator[PolicyRefusal]:
    yield from _refuse_conflicts(policy, own, owners)
    yield from _refuse_splits(policy, own, present)
    unknown = [sts for sts in own if not policy.selector.is_certain(sts.labels)]
    if unknown:
        text = f"{_join(unknown)}: too many labels to know whether the policy selects it"
        yield _refuse(policy, PolicyRefusalCode.SELECTION_UNKNOWN, text)


def _refuse_conflicts(
    policy: Policy, own: Sequence[_Set], owners: Mapping[Uid, PolicyHead]
) -> Iterator[PolicyRefusal]:
    """Yield a refusal for each older policy that owns some of the StatefulSets (MAZ-24)."""
    taken: dict[str, list[_Set]] = {}
    for sts in own:
        if sts.uid in owners:
            taken.setdefault(owners[sts.uid].key, []).append(sts)
    for key, shared in taken.items():
        text = f"StatefulSets of the older MultiAZRollout {key} are selected: {_join(shared)}"
        yield _refuse(policy, PolicyRefusalCode.CONFLICT, text)


def _refuse_splits(
    policy: Policy, own: Sequence[_Set], present: _Present
) -> Iterator[PolicyRefusal]:
    """Yield a refusal for each rollout group selected only in part (MAZ-25)."""
    selected = {sts.uid for sts in own}
    for group in sorted(_collect_groups(own)):
        members = [sts for sts in present.by_group[group] if sts.namespace == policy.head.namespace]
        others = [member for member in members if member.uid not in selected]
        if others:
            inside = [member for member in members if member.uid in selected]
            text = (
                f"of the rollout group {quote(group)}, {_join(inside)} would be selected, and"
                f" {_join(others)} would not; the group goes on by its label"
            )
            yield _refuse(policy, PolicyRefusalCode.ROLLOUT_GROUP_SPLIT, text)


def _join(sets: Sequence[_Set]) -> str:
    return join_names([sts.name for sts in sets], shown=_SHOWN)


def _refuse(policy: Policy, code: PolicyRefusalCode, problem: str) -> PolicyRefusal:
    text = f"MultiAZRollout {policy.head.key}: {_FIELD}: {problem}"
    return PolicyRefusal(code=code, field=_FIELD, text=text)
