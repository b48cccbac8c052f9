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
    readinesses: tuple[Readiness, ...]

    @property
    def unavailable(self) -> int:
        """Return how many desired pods are not proven available; those not there count."""
        return sum(readiness.unavailable for readiness in self.readinesses)

    @property
    def is_whole(self) -> bool:
        """Tell whether nothing is missing."""
        return all(readiness.is_whole for readiness in self.readinesses)

    @property
    def is_scaling(self) -> bool:
        """Tell whether pods of it come or go because of a new number of replicas (MAZ-35)."""
        return any(
            readiness.sts.replicas != readiness.sts.status_replicas
            for readiness in self.readinesses
        )

    @property
    def waiting(self) -> tuple[Readiness, ...]:
        """Return the StatefulSets that have outdated pods and may be updated."""
        return tuple(
            readiness
            for readiness in self.readinesses
            if not is_paused(readiness.sts) and count_outdated(readiness)
        )


def list_zones(snapshot: PolicySnapshot) -> tuple[PolicyZone, ...]:
    """Return the zones in the order of their updates. Each StatefulSet must be in one."""
    group = snapshot.group
    readinesses = {
        zone.sts.name: assess_readiness(zone, group.deletions, group.now) for zone in group.zones
    }
    zones = (
        PolicyZone(
            name=zone.name,
            readinesses=tuple(
                readinesses[one.name] for one in zone.sets if one.name in readinesses
            ),
        )
        for zone in snapshot.resolution.zones
    )
    return tuple(zone for zone in zones if zone.readinesses)


def list_readinesses(zones: Iterable[PolicyZone]) -> tuple[Readiness, ...]:
    """Return all StatefulSets, zone by zone."""
    return tuple(readiness for zone in zones for readiness in zone.readinesses)


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
            not any(_is_begun([readiness]) for readiness in zone.waiting),
            not _is_begun(zone.readinesses),
            zone.name != last and _is_begun(zone.readinesses),
        ),
        default=None,
    )


def _is_begun(readinesses: Sequence[Readiness]) -> bool:
    counts = [count_pods(readiness) for readiness in readinesses if not is_paused(readiness.sts)]
    return any(one.updated for one in counts) and any(one.outdated for one in counts)


def count_zone(zone: PolicyZone) -> ZoneCounts:
    """Return a zone in numbers."""
    return ZoneCounts(name=zone.name, sets=tuple(map(_count_set, zone.readinesses)))


def _count_set(readiness: Readiness) -> SetCounts:
    counts = count_pods(readiness)
    return SetCounts(
        name=readiness.sts.name,
        replicas=readiness.sts.replicas,
        updated=counts.updated,
        outdated=counts.outdated,
        unavailable=readiness.unavailable,
        revision=readiness.sts.update_revision,
        is_paused=is_paused(readiness.sts),
    )
