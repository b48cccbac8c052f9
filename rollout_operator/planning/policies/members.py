"""The zones of a policy as a walk takes them, and which of them were begun.

What is up and down in a StatefulSet is settled in `rollout.readiness`, as for a label group; here
several of them are one zone.
"""

from collections.abc import Iterable, Sequence

from rollout_operator.model.policy.plan import PolicySnapshot, SetCounts, ZoneCounts
from rollout_operator.planning.rollout.progress import count_pods
from rollout_operator.planning.rollout.readiness import Readiness, assess_readiness
from rollout_operator.planning.rollout.walk import RolloutZone, is_waiting
from rollout_operator.planning.rollout.zones import is_paused


def list_zones(snapshot: PolicySnapshot) -> tuple[RolloutZone, ...]:
    """Return the zones in the order of their updates. Each StatefulSet must be in one."""
    group = snapshot.group
    readinesses = {
        zone.sts.name: assess_readiness(zone, group.deletions, group.now) for zone in group.zones
    }
    zones = (
        RolloutZone(
            name=zone.name,
            readinesses=tuple(
                readinesses[one.name] for one in zone.sets if one.name in readinesses
            ),
        )
        for zone in snapshot.resolution.zones
    )
    return tuple(zone for zone in zones if zone.readinesses)


def list_readinesses(zones: Iterable[RolloutZone]) -> tuple[Readiness, ...]:
    """Return all StatefulSets, zone by zone."""
    return tuple(readiness for zone in zones for readiness in zone.readinesses)


def is_scaling(zone: RolloutZone) -> bool:
    """Tell whether pods of it come or go because of a new number of replicas (MAZ-35)."""
    return any(one.sts.replicas != one.sts.status_replicas for one in zone.readinesses)


def rank_begun(zone: RolloutZone, last: str) -> tuple[bool, ...]:
    """Return what is smaller for a zone that was begun: it is finished first (MAZ-46).

    Where the template of one StatefulSet of several changed, each zone has pods at both revisions:
    so one with both inside of a StatefulSet counts before. Of several the `last` one counts first.
    """
    is_begun = _is_begun(zone.readinesses)
    is_begun_inside = any(_is_begun([one]) for one in zone.readinesses if is_waiting(one))
    return (not is_begun_inside, not is_begun, zone.name != last and is_begun)


def _is_begun(readinesses: Sequence[Readiness]) -> bool:
    counts = [count_pods(readiness) for readiness in readinesses if not is_paused(readiness.sts)]
    return any(one.updated for one in counts) and any(one.outdated for one in counts)


def count_zone(zone: RolloutZone) -> ZoneCounts:
    """Return a zone in numbers."""
    return ZoneCounts(name=zone.name, sets=tuple(map(_count_set, zone.readinesses)))


def _count_set(readiness: Readiness) -> SetCounts:
    counts = count_pods(readiness)
    return SetCounts(
        name=readiness.sts.name,
        replicas=readiness.sts.replicas,
        updated=counts.updated,
        outdated=counts.outdated,
        ready=counts.ready,
        unavailable=readiness.unavailable,
        revision=readiness.sts.update_revision,
        is_paused=is_paused(readiness.sts),
    )
