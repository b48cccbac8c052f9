"""In which zone each StatefulSet of a policy is, and which zone is updated first.

What a person wrote down counts before what pods and names say, and before what the status says of
pods: that makes no zone of two which have labels, whichever process wrote it. A StatefulSet of
which nothing says the zone is a zone of its own, which is safe: it waits for all others. Pods in
several zones are not safe, because one zone could then take down pods of another: nothing is
updated. Which StatefulSets there are is left to the caller, and what stands in `frozen` as well.

A walk takes several StatefulSets as one zone. What is up and down in each of them is settled in
`rollout.readiness`, as for a label group.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import TOPOLOGY_KEYS
from rollout_operator.model.placement import PlacedSet, ZoneSource
from rollout_operator.model.policy.label_syntax import check_label_value
from rollout_operator.model.policy.plan import PolicySnapshot, SetCounts, ZoneCounts
from rollout_operator.model.policy.policy import Policy
from rollout_operator.model.policy.status import PolicyStatus
from rollout_operator.model.policy.zones import (
    ResolvedSet,
    ResolvedZone,
    ZoneFinding,
    ZoneFindingCode,
    ZoneResolution,
    ZonesCode,
)
from rollout_operator.planning.placement import ZONE_LABEL, choose_label, choose_permitted_zone
from rollout_operator.planning.rollout.readiness import Readiness, count_pods, measure_readiness
from rollout_operator.planning.rollout.walk import RolloutZone, is_waiting
from rollout_operator.planning.rollout.zones import is_paused
from rollout_operator.planning.wording import join_names

NodeLabels = Mapping[str, Mapping[str, str]]
"""Labels of nodes by their names."""

_ZONE_LABELS: Final = (ZONE_LABEL, "availability-zone")
# `ingester-zone-a`; what follows the word is a word itself.
_SUFFIX: Final = re.compile(r"-(zone-[a-z0-9]+)\Z")


def resolve_zones(
    policy: Policy,
    sets: Iterable[PlacedSet],
    nodes: NodeLabels | None,
    frozen: Mapping[str, str],
) -> ZoneResolution:
    """Return the zones of StatefulSets in the order in which they are updated.

    `nodes` is None where they may not be read. `frozen` has the zones, by StatefulSet, that came
    from nodes when the rollout that is underway began: pods that move do not change them.
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
    return ZoneResolution(
        code=_choose_code(resolved, spans),
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
    """Return the StatefulSets whose zone only nodes know, before names do."""
    return [sts for sts in sets if not frozen.get(sts.name) and not any(_list_written(policy, sts))]


def map_frozen(status: PolicyStatus, key: str) -> Mapping[str, str]:
    """Return the zones that came from nodes, by StatefulSet, while a rollout is underway.

    Pods that move meanwhile change none of them (MAZ-20). Those that another label named are not
    zones any more, nor is what no node can have: any client that may write a status may have.
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
    """Return what a template says of zones by this key: the rest may have a megabyte."""
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


def _resolve(
    policy: Policy, sts: PlacedSet, nodes: NodeLabels | None, frozen: Mapping[str, str]
) -> ResolvedSet:
    zone, source = next(_list_answers(policy, sts, nodes, frozen))
    return ResolvedSet(name=sts.name, zone=zone, source=source)


def _list_answers(
    policy: Policy, sts: PlacedSet, nodes: NodeLabels | None, frozen: Mapping[str, str]
) -> Iterator[tuple[str, ZoneSource]]:
    """Yield what each source says, the first counts (MAZ-12)."""
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
    """Yield what the StatefulSet itself says of the topology."""
    keys = (policy.topology_key,)
    if zone := choose_label(keys, sts.labels, sts.pod_labels):
        yield zone, ZoneSource.LABEL
    if zone := choose_label(keys, sts.node_selector):
        yield zone, ZoneSource.NODE_SELECTOR
    if zone := _choose_affinity(sts, policy.topology_key):
        yield zone, ZoneSource.NODE_AFFINITY


def _choose_affinity(sts: PlacedSet, key: str) -> str:
    """Return the one zone that node affinity allows, if a node can have it: it may be any text."""
    zone = choose_permitted_zone(sts.node_terms, (key,))
    return zone if _is_of_node(zone) else ""


def _is_of_node(zone: str) -> bool:
    try:
        check_label_value(zone)
    except InvalidInput:
        return False
    return True


def _list_node_zones(policy: Policy, sts: PlacedSet, nodes: NodeLabels | None) -> Sequence[str]:
    """Return the zones that its pods run in, by name; nodes without a label say nothing."""
    is_default = policy.topology_key == TOPOLOGY_KEYS[0]
    keys = TOPOLOGY_KEYS if is_default else (policy.topology_key,)
    zones = {choose_label(keys, (nodes or {}).get(node, {})) for node in sts.pod_nodes}
    return sorted(zones - {""})


def _choose_suffix(policy: Policy, name: str) -> str:
    """Return the zone that a name ends with: one of the policy's, the longest first."""
    listed = [zone for zone in policy.zone_order if name.endswith(f"-{zone}")]
    if listed:
        return max(listed, key=len)
    match = _SUFFIX.search(name)
    return match[1] if match else ""


def _list_span(
    policy: Policy, sts: PlacedSet, nodes: NodeLabels | None, frozen: Mapping[str, str]
) -> Sequence[str]:
    """Return the zones that a StatefulSet spans, nothing where it is in one (MAZ-20)."""
    if frozen.get(sts.name) or any(_list_written(policy, sts)):
        return ()
    zones = _list_node_zones(policy, sts, nodes)
    return zones if len(zones) > 1 else ()


def _order_zones(policy: Policy, sets: Iterable[ResolvedSet]) -> tuple[ResolvedZone, ...]:
    """Return the listed zones in the order of their list, then the others by name (MAZ-21).

    A StatefulSet that is a zone of its own stays alone, even where another zone has its name.
    """
    members: dict[tuple[str, bool], list[ResolvedSet]] = {}
    for sts in sets:
        members.setdefault((sts.zone, sts.source is ZoneSource.SET_NAME), []).append(sts)
    places = {zone: place for place, zone in enumerate(policy.zone_order)}
    keys = sorted(members, key=lambda key: (places.get(key[0], len(places)), *key))
    return tuple(ResolvedZone(name=key[0], sets=tuple(members[key])) for key in keys)


def _choose_code(sets: Iterable[ResolvedSet], spans: Mapping[str, Sequence[str]]) -> ZonesCode:
    if spans:
        return ZonesCode.SPANS_ZONES
    has_unknown = any(sts.source is ZoneSource.SET_NAME for sts in sets)
    return ZonesCode.SOME_BY_FALLBACK if has_unknown else ZonesCode.ALL_RESOLVED


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
    """Yield that the operator would have read nodes, and may not."""
    if nodes is not None:
        return
    if names := [node.name for node in needs_nodes(policy, sets, frozen)]:
        text = f"nodes may not be read, and say nothing of the zone of {join_names(names)}"
        yield ZoneFinding(code=ZoneFindingCode.NODES_UNREADABLE, text=text)


def list_zones(snapshot: PolicySnapshot) -> tuple[RolloutZone, ...]:
    """Return the zones in the order of their updates. Each StatefulSet must be in one."""
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


def list_readinesses(zones: Iterable[RolloutZone]) -> tuple[Readiness, ...]:
    """Return all StatefulSets, zone by zone."""
    return tuple(readiness for zone in zones for readiness in zone.readinesses)


def is_scaling(zone: RolloutZone) -> bool:
    """Return whether pods of it come or go because of a new number of replicas (MAZ-35)."""
    return any(
        readiness.sts.replicas != readiness.sts.status_replicas for readiness in zone.readinesses
    )


def rank_begun(zone: RolloutZone, last: str, initial: Mapping[str, int]) -> tuple[bool, ...]:
    """Return what is smaller for a zone that was begun: it is finished first (MAZ-46).

    Pods that were added to a StatefulSet since its update revision came replaced none: `initial`.

    Where the template of one StatefulSet of several changed, each zone has pods at both revisions:
    so a zone with both inside of a StatefulSet counts before. Of several the `last` counts first.
    """
    is_begun = _is_begun(zone.readinesses, initial)
    is_begun_inside = any(
        _is_begun([readiness], initial) for readiness in zone.readinesses if is_waiting(readiness)
    )
    return (not is_begun_inside, not is_begun, zone.name != last and is_begun)


def _is_begun(readinesses: Sequence[Readiness], initial: Mapping[str, int]) -> bool:
    counts = [count_pods(readiness) for readiness in readinesses if not is_paused(readiness.sts)]
    has_replaced = any(
        pods.updated and pods.outdated < initial.get(pods.zone, pods.desired) for pods in counts
    )
    return has_replaced and any(pods.outdated for pods in counts)


def count_zone(zone: RolloutZone, initial: Mapping[str, int]) -> ZoneCounts:
    """Return a zone in numbers."""
    return ZoneCounts(
        name=zone.name,
        sets=tuple(_count_set(readiness, initial) for readiness in zone.readinesses),
    )


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
