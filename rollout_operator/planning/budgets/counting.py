"""How many pods of a zone a disruption budget counts as down, or does not know of.

In zone mode all owned pods count, also those beyond the desired ordinals, but for newcomers (D-67);
in partition mode only the pods of one partition, and newcomers, too: what its other pods hold is
then nowhere else. Pods of different zones with the same partition hold the same data: their names
say which. What follows from the numbers is settled in `rule`; whether a single pod is up, in
`planning.rollout.readiness`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import Budget
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.group import Deletion, Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.pattern import LONGEST_NAME, compile_pattern
from rollout_operator.model.units import format_duration
from rollout_operator.planning.rollout.newcomers import count_used
from rollout_operator.planning.rollout.readiness import DownCause, find_why
from rollout_operator.planning.wording import NAMES_SHOWN, count

# `spec.replicas` may be two thousand million: names of more absent pods than this are not made.
_MOST_ABSENT: Final = 1_000
# A pod of another zone must have been ready for strictly more than the delay (ZPDB-92).
_MOMENT: Final = timedelta(microseconds=1)
_NONE: Final = timedelta(0)
# A decision counts every pod of the other zones, at 5 µs each; names hardly ever change.
_REMEMBERED: Final = 8192

T = TypeVar("T")


class CountingRule(msgspec.Struct, frozen=True, kw_only=True):
    """By what the pods of one snapshot are counted."""

    budget: Budget
    deletions: Mapping[Uid, Deletion]
    now: datetime


class CountedDown(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that does not count as up."""

    pod: Pod
    why: DownCause
    patience: timedelta
    """How long it must have been ready."""
    up_in: timedelta | None
    """When time alone makes it count as up, None where it does not."""


class ZoneCount(msgspec.Struct, frozen=True, kw_only=True):
    """What is not proven up in one zone. Nothing of it is ever negative."""

    sts: StatefulSet
    down: tuple[CountedDown, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Names of pods of which nothing more is known: they count as not ready."""
    missing: int = 0
    """Number of desired ordinals without a pod, as far as they count."""
    first_missing: tuple[str, ...] = ()
    nameless: int = 0
    """Number of pods that exist as far as `status.replicas` counts them, and are not found."""
    found: int = 0
    """Number of pods of any kind that the zone owns."""
    lacks_peer: bool = False
    """Whether the zone has no pod of the partition and wants none: one unknown (ZPDB-91)."""
    counts_for: timedelta | None = None
    """How long a zone counts that has left; None for a zone that belongs there."""

    @property
    def not_ready(self) -> int:
        """Return how many pods exist and are not up."""
        return len(self.down) + len(self.unreadable)

    @property
    def unknown(self) -> int:
        """Return how many pods should exist and are not found."""
        return self.missing + self.nameless + self.lacks_peer

    @property
    def total(self) -> int:
        """Return how many pods are not proven up."""
        return self.not_ready + self.unknown

    @property
    def reasons_down(self) -> int:
        """Return the number of things that `list_reasons_down` would name, had it no limit."""
        return self.not_ready + self.missing + (self.nameless > 0) + self.lacks_peer


class Survey:
    """One zone as a budget counts it: each pod is judged once, for any number of decisions.

    A decision on one pod counts the pods of its partition, or all of them where `partition` is
    None, without the pod itself (ZPDB-74..76, 90..92).
    """

    def __init__(self, zone: Zone, by: CountingRule) -> None:
        sts, budget, pods = zone.sts, by.budget, zone.own_pods
        lost = [pod.name for pod in zone.own_unreadable]
        names = {pod.name for pod in pods}.union(lost)
        used = sts.replicas if budget.by_partition else count_used(zone)
        absent, untried = _list_absent(sts, names, sts.ordinals[:used])
        found = len(pods) + len(lost)
        unused = {pod.uid for _, pod in zone.list_pods(sts.ordinals[used:])}
        down = _list_down(sts, [pod for pod in pods if pod.uid not in unused], by)
        self._down_uids = frozenset(down_pod.pod.uid for down_pod in down)
        self._down = _ByPartition(budget, down, lambda down_pod: down_pod.pod.name)
        self._lost = _ByPartition(budget, sorted(lost), str)
        self._absent = _ByPartition(budget, absent, str)
        self._peers = None if budget.forgives_absent_peers else _Partitions(budget, names)
        self._all = ZoneCount(
            sts=sts,
            missing=untried,
            # What the spec wants and is not there is absent by name already.
            nameless=max(sts.status_replicas - found - len(absent) - untried, 0),
            found=found,
            counts_for=zone.counts_for,
        )

    def has_down(self, pod: Uid) -> bool:
        """Return whether a pod of this zone does not count as up for others."""
        return pod in self._down_uids

    def zone_count(self, partition: str | None, pod: Pod | None = None) -> ZoneCount:
        """Return what is not proven up for the decision on a pod, of this zone or of another.

        Without a pod that is all there is.
        """
        down = self._down.list_of(partition)
        if pod is not None and pod.uid in self._down_uids:
            down = [down_pod for down_pod in down if down_pod.pod.uid != pod.uid]
        # A name without a partition may be of any: but a pod that exists is of none then.
        absent = self._absent.list_of(partition, with_unknown=True)
        zone_count = replace(
            self._all,
            down=tuple(down),
            unreadable=tuple(self._lost.list_of(partition)),
            missing=self._all.missing + len(absent),
            first_missing=tuple(absent[:NAMES_SHOWN]),
        )
        if partition is None or zone_count.total or self._peers is None:
            return zone_count
        return zone_count if partition in self._peers else replace(zone_count, lacks_peer=True)


class _ByPartition(Generic[T]):
    """Things of a zone in their order, by the partition that their name is of."""

    def __init__(self, budget: Budget, things: Sequence[T], name_of: Callable[[T], str]) -> None:
        self._things = things
        self._places: dict[str | None, list[int]] = {}
        if budget.by_partition:
            for place, thing in enumerate(things):
                found = find_partition(budget, name_of(thing))
                self._places.setdefault(found, []).append(place)

    def list_of(self, partition: str | None, *, with_unknown: bool = False) -> Sequence[T]:
        if partition is None:
            return self._things
        places = self._places.get(partition, [])
        if with_unknown:
            places = sorted([*places, *self._places.get(None, ())])
        return [self._things[place] for place in places]


class _Partitions:
    """The partitions of some names: each is matched once, and not before it is needed."""

    def __init__(self, budget: Budget, names: Iterable[str]) -> None:
        self._left = (find_partition(budget, name) for name in names)
        self._found: set[str | None] = set()

    def __contains__(self, partition: str) -> bool:
        if partition in self._found:
            return True
        for name in self._left:
            self._found.add(name)
            if name == partition:
                return True
        return False


def find_partition(budget: Budget, pod_name: str) -> str | None:
    """Return the partition of a pod under a budget that counts by partition.

    None where the pattern does not match the whole name, or captures nothing: such a pod cannot be
    distinguished from others, and what cannot be known is never taken for harmless.
    """
    if len(pod_name) > LONGEST_NAME:
        return None
    return _match_partition(budget.pattern, budget.pattern_group, pod_name)


@lru_cache(maxsize=_REMEMBERED)
def _match_partition(pattern: str, group: int, pod_name: str) -> str | None:
    try:
        compiled = compile_pattern(pattern)
    except InvalidInput:
        return None  # no budget is read with such a pattern
    return (compiled.capture(pod_name, group) or None) if 1 <= group <= compiled.groups else None


def list_reasons_down(zone_count: ZoneCount) -> Iterator[str]:
    """Yield each thing that is not up, with the reason, such as `zone-c-2: CrashLoopBackOff`."""
    yield from (f"{down_pod.pod.name}: {_render_why(down_pod)}" for down_pod in zone_count.down)
    yield from (f"{name}: unreadable" for name in zone_count.unreadable)
    yield from (f"{name}: no pod" for name in zone_count.first_missing)
    if zone_count.nameless:
        counted = count(zone_count.sts.status_replicas, "pod")
        yield f"{zone_count.sts.name} counts {counted}, {zone_count.found} found"
    if zone_count.lacks_peer:
        yield f"{zone_count.sts.name}: no peer"


def next_up(zone_counts: Sequence[ZoneCount], limit: int) -> timedelta | None:
    """Return when the first pod that only lacks time is up.

    None where there is no such pod, or where the others reach the limit without them.
    """
    waits = [
        down_pod.up_in
        for zone_count in zone_counts
        for down_pod in zone_count.down
        if down_pod.up_in is not None
    ]
    lasting = sum(zone_count.total for zone_count in zone_counts) - len(waits)
    return min(waits) if waits and lasting < limit else None


def _list_down(sts: StatefulSet, pods: Sequence[Pod], by: CountingRule) -> tuple[CountedDown, ...]:
    patience = timedelta(seconds=sts.min_ready_seconds)
    delay = by.budget.delay if by.budget.by_partition else _NONE
    deletions, now = by.deletions, by.now
    down: list[CountedDown] = []
    for pod in pods:
        why = find_why(pod, patience, deletions, now)
        if why is None and delay and not _is_past(pod, delay, now):
            why = DownCause.SETTLING
        if why is not None:
            up_in = _next_up(pod, patience, delay, now) if why is DownCause.SETTLING else None
            down.append(CountedDown(pod=pod, why=why, patience=max(patience, delay), up_in=up_in))
    if len(down) > 1:
        down.sort(
            key=lambda down_pod: (len(down_pod.pod.name), down_pod.pod.name, down_pod.pod.uid)
        )
    return tuple(down)


def _is_past(pod: Pod, delay: timedelta, now: datetime) -> bool:
    return pod.ready_since is not None and now - pod.ready_since > delay


def _next_up(pod: Pod, patience: timedelta, delay: timedelta, now: datetime) -> timedelta | None:
    if pod.ready_since is None:
        return None
    return max(patience, delay + _MOMENT if delay else delay) - (now - pod.ready_since)


def _list_absent(sts: StatefulSet, names: set[str], ordinals: range) -> tuple[list[str], int]:
    """Return the names of desired pods that are not there, and the number of those not looked at.

    Those count as absent, too: there are some only where a thousand others are.
    """
    prefix, tried = f"{sts.name}-", ordinals[: len(names) + _MOST_ABSENT]
    wanted = [f"{prefix}{ordinal}" for ordinal in tried]
    return [name for name in wanted if name not in names], len(ordinals) - len(tried)


def _render_why(counted_down: CountedDown) -> str:
    if counted_down.why is DownCause.SETTLING:
        return f"ready for less than {format_duration(counted_down.patience)}"
    return (
        (counted_down.pod.why_not_ready or counted_down.why)
        if counted_down.why is DownCause.UNREADY
        else counted_down.why
    )
