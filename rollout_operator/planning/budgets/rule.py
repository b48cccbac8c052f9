"""Whether one pod may be disrupted, as its budget has it: the one decision for every engine.

Evictions, rollouts and downscales call it. It decides from one snapshot and keeps nothing: which
other pods may go meanwhile is in `deletions`, and what is granted is remembered in
`guards.budgets.in_flight`. The numbers come from `counting`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import Budget, BudgetState, DisruptionSource
from rollout_operator.model.downscale import Underway
from rollout_operator.model.errors import ApiError
from rollout_operator.model.group import Deletion, Zone
from rollout_operator.model.labels import MOST_LABELS, is_certain
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.units import quote
from rollout_operator.planning.budgets.counting import (
    CountingRule,
    Survey,
    ZoneCount,
    find_partition,
    list_reasons_down,
    next_up,
)
from rollout_operator.planning.rollout.newcomers import count_used
from rollout_operator.planning.rollout.readiness import DownCause, find_why
from rollout_operator.planning.rollout.zones import (
    SNAPSHOT_LIMIT,
    STALE_RECHECK,
    STALE_SNAPSHOT,
    is_behind,
    order_zones,
    render_behind,
    render_left,
)
from rollout_operator.planning.wording import NAMES_SHOWN, count, join_names, join_some, verb

# Clients such as `kubectl drain` try again at 429 and give up at everything else (W-54).
_TRY_AGAIN: Final = 429
_MISCONFIGURED: Final = 400
_FORBIDDEN: Final = 403
_UNJUDGED: Final = 500
# With one zone there is no other zone that could stand in (ZPDB-62).
_MIN_ZONES: Final = 2


class BudgetSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the decision on one pod reads."""

    budget: Budget
    pod: Pod
    """That is to go. It never counts as down itself, by its UID."""
    owner: Uid
    """UID of its StatefulSet."""
    zones: tuple[Zone, ...]
    """Every StatefulSet that the budget selects, in any order, each with the pods it owns. The
    pod's own may be absent."""
    now: datetime
    """In the API server's time."""
    deletions: Mapping[Uid, Deletion]
    """Pods that go although they may still look untouched: own deletes, grants, records."""
    engine: DisruptionSource = DisruptionSource.EVICTION
    override: int = 0
    """Replaces an effective maximum of 0; for the rollout only (ROLL-36)."""
    downscale: Underway | None = None
    """Of a group with any of the zones."""
    snapshot_age: timedelta = timedelta(0)
    """Age of the oldest proof that the caches behind `zones` are live."""
    unreadable: tuple[Unreadable, ...] = ()
    """StatefulSets that the budget selects and that cannot be read: zones of unknown state."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod may not go."""

    reason: Reason
    """Its text begins as the messages of all releases do."""
    status: int
    """HTTP: 403 for a maximum of 0 and an invalid budget, 400 where a person must change something
    else, 500 where a zone cannot be judged, 429 for everything that passes by itself."""
    requeue_after: timedelta | None = None
    """When time alone may have changed it: no event announces that."""
    is_shared: bool = False
    """Whether it holds for every other pod of the StatefulSet under the same budget, too, unless
    that pod is down itself."""
    error: ApiError | None = None
    """What a call to the API server came to, where nothing else is why."""


def choose_budget(entries: Sequence[BudgetState], pod: Pod) -> Budget | Refusal | None:
    """Return the budget that rules over a pod, None where none does (ZPDB-35, 55, 56).

    `entries` are all that select it. A budget that cannot be obeyed is never taken for none (W-52).
    """
    if not entries:
        return None
    names = join_names(sorted(entry.name for entry in entries), shown=len(entries))
    # A budget that is not valid refuses the pod below, whether it selects it for certain or not.
    selectors = [entry.budget.selector for entry in entries if entry.budget is not None]
    if not all(is_certain(selector, pod.labels) for selector in selectors):
        text = (
            f"pod {pod.name} has more than {MOST_LABELS} labels, too many to keep: it may be under"
            f" each of these budgets: {names}; remove labels from it"
        )
        return _refuse(Code.BUDGETS_OVERLAP, _MISCONFIGURED, text, Severity.ERROR)
    if len(entries) > 1:
        text = f"multiple zoned pod disruption budgets found for pod {pod.name}: {names}"
        return _refuse(Code.BUDGETS_OVERLAP, _MISCONFIGURED, text, Severity.ERROR)
    (entry,) = entries
    if entry.budget is None:
        text = f"budget {entry.name} selects pod {pod.name} and is not valid: {entry.problem}"
        return _refuse(Code.BUDGET_INVALID, _FORBIDDEN, text, Severity.ERROR)
    return entry.budget


def assess_disruption(snapshot: BudgetSnapshot) -> Refusal | None:
    """Return why the pod may not go, None where it may (ZPDB-61..65, 73..95)."""
    return Decisions(snapshot).assess(snapshot.pod)


class Decisions:
    """Decides on any number of pods of the StatefulSet that a snapshot is about.

    Each gets the answer that it would get alone; what does not depend on the pod is decided once.
    """

    def __init__(self, snapshot: BudgetSnapshot, surveys: dict[Uid, Survey] | None = None) -> None:
        """Decide by a snapshot; `surveys` are those of the same zones, where others have them."""
        self._snapshot = snapshot
        self._maximum = compute_maximum(snapshot)
        self._shared = _share(_find_shared(snapshot, self._maximum))
        self._movement = _share(_find_movement(snapshot))
        self._zones = order_zones(snapshot.zones)
        self._surveys: dict[Uid, Survey] = {} if surveys is None else surveys
        self._counted: Refusal | None = None
        self._is_counted = False

    @property
    def maximum(self) -> int:
        """Return how many pods may be down at a time, as far as the StatefulSet decides it."""
        return self._maximum

    def assess_any(self) -> Refusal | None:
        """Return why no pod of any zone may go, whatever is counted."""
        return self._shared or self._movement

    def survey(self, zone: Zone) -> Survey:
        """Return a zone as the budget counts it."""
        cached = self._surveys.get(zone.sts.uid)
        if cached is None:
            snapshot = self._snapshot
            by = CountingRule(
                budget=snapshot.budget, deletions=snapshot.deletions, now=snapshot.now
            )
            cached = self._surveys[zone.sts.uid] = Survey(zone, by)
        return cached

    def assess(self, pod: Pod) -> Refusal | None:
        """Return why a pod may not go, None where it may."""
        if self._shared is not None:
            return self._shared
        snapshot = self.snapshot_of(pod)
        partition = (
            find_partition(snapshot.budget, pod.name) if snapshot.budget.by_partition else None
        )
        blocker = _find_mismatch(snapshot, partition) or self._movement
        # A pod that is down already is as much down without its deletion: its crash loop must not
        # keep its own fix away (D-14, LI-10).
        if blocker is not None or (
            snapshot.engine is DisruptionSource.ROLLOUT and is_down(snapshot)
        ):
            return blocker
        if partition is not None:
            return self._count_partition(snapshot, partition)
        if self._is_itself_down(snapshot):
            return self._count_zones(snapshot)
        if not self._is_counted:
            self._counted, self._is_counted = _share(self._count_zones(snapshot)), True
        return self._counted

    def snapshot_of(self, pod: Pod) -> BudgetSnapshot:
        """Return the same snapshot with another pod of the StatefulSet."""
        return self._snapshot if pod is self._snapshot.pod else replace(self._snapshot, pod=pod)

    def _is_itself_down(self, snapshot: BudgetSnapshot) -> bool:
        own = next(zone for zone in self._zones if zone.sts.uid == snapshot.owner)
        return self.survey(own).has_down(snapshot.pod.uid)

    def _count_zones(self, snapshot: BudgetSnapshot) -> Refusal | None:
        """Return the first zone that has too many pods down: any at all, where it is another."""
        for zone in self._zones:
            limit = self._maximum if zone.sts.uid == snapshot.owner else 1
            zone_count = self.survey(zone).zone_count(None, snapshot.pod)
            if zone_count.total >= limit:
                place = f"in {zone.sts.name}"
                return _refuse_used(snapshot, [zone_count], place, limit)
        return None

    def _count_partition(self, snapshot: BudgetSnapshot, partition: str) -> Refusal | None:
        """Return why the other zones have too little left of a partition, all of them together."""
        maximum = self._maximum
        others = [zone for zone in self._zones if zone.sts.uid != snapshot.owner]
        zone_counts = [self.survey(zone).zone_count(partition, snapshot.pod) for zone in others]
        if sum(zone_count.total for zone_count in zone_counts) < maximum:
            return None
        return _refuse_used(snapshot, zone_counts, f"in partition {partition}", maximum)


def compute_maximum(snapshot: BudgetSnapshot) -> int:
    """Return how many pods may be down, the pod that goes included (ZPDB-80..82).

    A percentage is of the smaller of wanted and existing replicas, rounded down, and at least
    one pod where there is any: 1 % of 3 allows one disruption (W-56).
    """
    maximum = snapshot.budget.max_unavailable
    if snapshot.budget.percentage is not None:
        maximum = _compute_share(snapshot, snapshot.budget.percentage)
    return maximum or snapshot.override


def _compute_share(snapshot: BudgetSnapshot, percentage: int) -> int:
    if not percentage:
        return 0
    for zone in snapshot.zones:
        if zone.sts.uid == snapshot.owner:
            # Newcomers lend no room; see `counting` for why they are like others in partitions.
            used = zone.sts.replicas if snapshot.budget.by_partition else count_used(zone)
            replicas = min(used, zone.sts.status_replicas)
            return max(percentage * replicas // 100, 1) if replicas > 0 else 0
    # The pod is refused for the absence of its zone; what the share would be is not known.
    return 1


def _find_shared(snapshot: BudgetSnapshot, maximum: int) -> Refusal | None:
    """Return what stands in the way of every pod of the StatefulSet."""
    if snapshot.snapshot_age > SNAPSHOT_LIMIT:
        return refuse_stale_cache()
    if maximum == 0:
        return _refuse(Code.BUDGET_ZERO, _FORBIDDEN, f"max unavailable = 0{_budget(snapshot)}")
    budget, sets = snapshot.budget, len(_list_certain(snapshot))
    for broken in sorted(snapshot.unreadable, key=lambda broken: (broken.name, broken.uid)):
        text = (
            "unable to determine pod status in related StatefulSet "
            f"{broken.name}: it cannot be read: {broken.error}{_budget(snapshot)}"
        )
        return _refuse(Code.OBJECT_UNREADABLE, _UNJUDGED, text, Severity.ERROR, zone=broken.name)
    if sets < _MIN_ZONES:
        text = (
            f"minimum number of StatefulSets not found: {count(sets, 'StatefulSet')} "
            f"{verb(sets, 'has', 'have')} the labels {_selector(budget)}, "
            f"{_MIN_ZONES} are needed{_budget(snapshot)}"
        )
        return _refuse(Code.TOO_FEW_ZONES, _MISCONFIGURED, text, Severity.ERROR)
    return None


def _list_certain(snapshot: BudgetSnapshot) -> list[Zone]:
    """Return the zones that the budget selects for certain: others may hold pods back only."""
    selector = snapshot.budget.selector
    return [zone for zone in snapshot.zones if is_certain(selector, zone.sts.labels)]


def _find_mismatch(snapshot: BudgetSnapshot, partition: str | None) -> Refusal | None:
    """Return what only a person can put right: budget and pod do not fit together."""
    budget, pod, certain = snapshot.budget, snapshot.pod.name, _list_certain(snapshot)
    if not budget.by_partition and all(zone.sts.uid != snapshot.owner for zone in certain):
        text = (
            f"pod {pod} belongs to none of the {len(certain)} StatefulSets with the labels "
            f"{_selector(budget)}{_budget(snapshot)}"
        )
        return _refuse(Code.OWNER_NOT_STATEFULSET, _MISCONFIGURED, text, Severity.ERROR)
    if budget.by_partition and not partition:
        text = (
            "failed to extract partition from pod Name regular expression: "
            f"group {budget.pattern_group} of {quote(budget.pattern)} finds nothing in {pod}"
            f"{_budget(snapshot)}"
        )
        return _refuse(Code.PARTITION_UNKNOWN, _MISCONFIGURED, text, Severity.ERROR)
    return None


def _find_movement(snapshot: BudgetSnapshot) -> Refusal | None:
    """Return what changes a zone at this moment, so that counting its pods says too little."""
    if snapshot.downscale is not None:
        text = f"{snapshot.downscale.text}; no pod may go until that has happened or failed"
        zone = snapshot.downscale.zone
        return _refuse(Code.DOWNSCALE_UNDERWAY, _TRY_AGAIN, f"{text}{_budget(snapshot)}", zone=zone)
    for sts in [zone.sts for zone in order_zones(snapshot.zones)]:
        if is_behind(sts):
            text = f"{render_behind(sts)}{_budget(snapshot)}"
            return _refuse(Code.STATUS_BEHIND, _TRY_AGAIN, text, zone=sts.name)
    return None


def is_down(snapshot: BudgetSnapshot) -> bool:
    """Return whether the pod is down by itself, and not only because a grant lets it go."""
    return find_why(snapshot.pod, timedelta(0), {}, snapshot.now) is DownCause.UNREADY


def _refuse_used(
    snapshot: BudgetSnapshot, zone_counts: Sequence[ZoneCount], place: str, limit: int
) -> Refusal:
    """Return the refusal with the numbers first and what is down after them (ZPDB-95)."""
    not_ready = sum(zone_count.not_ready for zone_count in zone_counts)
    unknown = sum(zone_count.unknown for zone_count in zone_counts)
    counts = ((not_ready, "not ready"), (unknown, "unknown"))
    numbers = ", ".join(f"{count(many, 'pod')} {word}" for many, word in counts if many)
    shown = islice(chain.from_iterable(map(list_reasons_down, zone_counts)), NAMES_SHOWN)
    listed = sum(zone_count.reasons_down for zone_count in zone_counts)
    reasons_down = join_some(tuple(shown), total=listed)
    maximum = compute_maximum(snapshot)
    text = f"{numbers} {place} ({reasons_down}){_budget(snapshot)}: max unavailable {maximum}"
    # Of a partition, no single zone is short.
    zone = zone_counts[0].sts.name if len(zone_counts) == 1 else ""
    refusal = _refuse(Code.DISRUPTION_BUDGET_USED, _TRY_AGAIN, text, zone=zone)
    refusal = replace(refusal, requeue_after=next_up(zone_counts, limit))
    present = sum(zone_count.total for zone_count in zone_counts if zone_count.counts_for is None)
    return refusal if present >= limit else _explain_left(refusal, zone_counts)


def _explain_left(refusal: Refusal, zone_counts: Sequence[ZoneCount]) -> Refusal:
    """Return the refusal for what is down in zones that left while they were short (D-82)."""
    left = {
        zone_count.sts.name: zone_count.counts_for
        for zone_count in zone_counts
        if zone_count.counts_for is not None and zone_count.total
    }
    text = "; ".join([refusal.reason.text, *(render_left(*each) for each in left.items())])
    reason = replace(
        refusal.reason,
        code=Code.ZONE_LEFT_SHORT,
        text=text,
        severity=Severity.WARN,
        zone=next(iter(left)),
        stable_text=refusal.reason.text,
    )
    return replace(
        refusal,
        reason=reason,
        requeue_after=min(
            time for time in (*left.values(), refusal.requeue_after) if time is not None
        ),
    )


def _share(refusal: Refusal | None) -> Refusal | None:
    return None if refusal is None else replace(refusal, is_shared=True)


def refuse_stale_cache() -> Refusal:
    """Return the refusal of whatever rests on caches that are too old."""
    refusal = _refuse(Code.SNAPSHOT_STALE, _TRY_AGAIN, STALE_SNAPSHOT, Severity.WARN)
    return replace(refusal, requeue_after=STALE_RECHECK)


def _refuse(
    code: Code, status: int, text: str, severity: Severity = Severity.INFO, *, zone: str = ""
) -> Refusal:
    return Refusal(reason=Reason(code, text, severity, zone), status=status)


def _budget(snapshot: BudgetSnapshot) -> str:
    return f"; budget {snapshot.budget.name}"


def _selector(budget: Budget) -> str:
    labels = ",".join(f"{key}={value}" for key, value in sorted(budget.selector.items()))
    return labels or "{} (any)"
