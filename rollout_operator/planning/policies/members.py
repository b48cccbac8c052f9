"""The zones of a policy as a plan looks at them, and which zone and StatefulSet has its turn.

What is up and down in a StatefulSet is settled in `rollout.readiness`, as for a label group; here
several of them are one zone. A StatefulSet that is paused counts as done, its pods that are down
still count as down.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rollout_operator.model.policy.plan import (
    Batch,
    PolicySnapshot,
    SetCounts,
    ZoneCounts,
)
from rollout_operator.planning.rollout.pods import count_outdated
from rollout_operator.planning.rollout.progress import count_pods
from rollout_operator.planning.rollout.readiness import Readiness, assess_readiness
from rollout_operator.planning.rollout.zones import is_paused


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyZone:
    """One zone: its StatefulSets by name, at least one."""

    name: str
    looks: tuple[Readiness, ...]

    @property
    def unavailable(self) -> int:
        """Return how many desired pods are not proven available; those not there count."""
        return sum(look.unavailable for look in self.looks)

    @property
    def is_whole(self) -> bool:
        """Tell whether nothing is missing."""
        return all(look.is_whole for look in self.looks)

    @property
    def is_scaling(self) -> bool:
        """Tell whether pods of it come or go because of a new number of replicas (MAZ-35)."""
        return any(look.sts.replicas != look.sts.status_replicas for look in self.looks)

    @property
    def waiting(self) -> tuple[Readiness, ...]:
        """Return the StatefulSets that have outdated pods and may be updated."""
        return tuple(
            look for look in self.looks if not is_paused(look.sts) and count_outdated(look)
        )


def list_zones(snapshot: PolicySnapshot) -> tuple[PolicyZone, ...]:
    """Return the zones in the order of their updates. Each StatefulSet must be in one."""
    group = snapshot.group
    looks = {
        zone.sts.name: assess_readiness(zone, group.deletions, group.now) for zone in group.zones
    }
    zones = (
        PolicyZone(
            name=zone.name, looks=tuple(looks[one.name] for one in zone.sets if one.name in looks)
        )
        for zone in snapshot.resolution.zones
    )
    return tuple(zone for zone in zones if zone.looks)


def list_looks(zones: Iterable[PolicyZone]) -> tuple[Readiness, ...]:
    """Return all StatefulSets, zone by zone."""
    return tuple(look for zone in zones for look in zone.looks)


def choose_zone(zones: Sequence[PolicyZone], batch: Batch | None) -> PolicyZone | None:
    """Return the zone whose turn it is while no other one is short; None where all are done.

    One that was begun is finished first, whatever the order says by now (MAZ-46). Where the
    template of one StatefulSet of several changed, each zone has pods at both revisions: so one
    with both inside of a StatefulSet counts before.
    """
    waiting = [zone for zone in zones if zone.waiting]
    last = "" if batch is None else batch.zone
    return min(
        waiting,
        key=lambda zone: (
            not any(_is_begun([look]) for look in zone.waiting),
            not _is_begun(zone.looks),
            zone.name != last and _is_begun(zone.looks),
        ),
        default=None,
    )


def _is_begun(looks: Sequence[Readiness]) -> bool:
    counts = [count_pods(look) for look in looks if not is_paused(look.sts)]
    return any(one.updated for one in counts) and any(one.outdated for one in counts)


def count_zone(zone: PolicyZone) -> ZoneCounts:
    """Return a zone in numbers."""
    return ZoneCounts(name=zone.name, sets=tuple(map(_count_set, zone.looks)))


def _count_set(look: Readiness) -> SetCounts:
    counts = count_pods(look)
    return SetCounts(
        name=look.sts.name,
        replicas=look.sts.replicas,
        updated=counts.updated,
        outdated=counts.outdated,
        unavailable=look.unavailable,
        revision=look.sts.update_revision,
        is_paused=is_paused(look.sts),
    )
