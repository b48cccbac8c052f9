"""Decide whether a pod may be disrupted under its budget: one decision for evictions and rollouts.

It is made from one snapshot and keeps nothing: `guards.grants` remembers what was granted. In zone
mode all pods of a zone count, except newcomers (D-67). In partition mode only the pods of one
partition count, one in each zone, which hold the same data; newcomers count there too, because the
other pods of their zone hold other data.

`Turns` shares the places of a budget between evictions and a rollout. The rollout learns of a free
place at once, an eviction only when its client tries again: so a refused eviction gets the next
place, and after as many evictions as the budget allows at a time, the rollout gets as many. A turn
that is not used expires. `guards.turns` remembers who waits.

Reviews of evictions and budgets that need no count are answered here too; `decode_budget` checks
the fields of a budget before.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import Budget, BudgetState, DisruptionSource
from rollout_operator.model.decode.review import is_dry_run
from rollout_operator.model.names import ABSENT_PEERS, LONGEST_NAME, ApiError, InvalidInput, Uid
from rollout_operator.model.objects import (
    MOST_LABELS,
    Deletion,
    Pod,
    StatefulSet,
    Underway,
    Unreadable,
    Zone,
    is_certain,
)
from rollout_operator.model.outcome import Code, Reason, Severity, Verdict
from rollout_operator.model.scaling import Review
from rollout_operator.model.units import (
    compile_pattern,
    format_duration,
    has_open_alternation,
    quote,
)
from rollout_operator.planning.readiness import (
    SNAPSHOT_LIMIT,
    STALE_RECHECK,
    STALE_SNAPSHOT,
    DownCause,
    count_used,
    find_why,
    is_behind,
    order_zones,
    render_behind,
    render_left,
)
from rollout_operator.planning.requests import allow, refuse
from rollout_operator.planning.wording import NAMES_SHOWN, count, join_names, join_some, verb

# `spec.replicas` may be two billion: no more names of absent pods than this are made.
_MOST_ABSENT: Final = 1_000
# A pod of another zone must have been ready for strictly more than the delay (ZPDB-92).
_MOMENT: Final = timedelta(microseconds=1)
_NONE: Final = timedelta(0)
# A decision matches the names of all pods of the other zones, at 5 µs each.
_REMEMBERED: Final = 8192
# Clients such as `kubectl drain` try again at 429 and give up at everything else (W-54).
_TRY_AGAIN: Final = 429
_MISCONFIGURED: Final = 400
_FORBIDDEN: Final = 403
_UNJUDGED: Final = 500
# With one zone there is no other zone that could stand in (ZPDB-62).
_MIN_ZONES: Final = 2
# A place may only become free once several pods have restarted, which takes minutes. After a turn
# that ends without a free place the rollout goes on for as long, and the next turn may last twice
# as long.
PATIENCE: Final = timedelta(minutes=5)
MOST_PATIENCE: Final = timedelta(minutes=40)
# While all pods are up a rollout takes its place at once; one that does not has ended.
RESPONSE: Final = timedelta(seconds=10)
INVALID: Final = 400
# The API server evicts these without regard to budgets.
_NOT_RUNNING: Final = frozenset({"Succeeded", "Failed", "Pending"})
_ABSENT_PEERS_VALUES: Final = ("gone", "unknown")
# The API server cuts warnings at 256 characters.
_LONGEST_VALUE: Final = 40


T = TypeVar("T")


class CountingRule(msgspec.Struct, frozen=True, kw_only=True):
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
    """When it counts as up by time alone."""


class ZoneCount(msgspec.Struct, frozen=True, kw_only=True):
    """What is not proven up in one zone."""

    sts: StatefulSet
    down: tuple[CountedDown, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Names of pods that could not be decoded: they count as not ready."""
    missing: int = 0
    """Number of desired ordinals without a pod."""
    first_missing: tuple[str, ...] = ()
    nameless: int = 0
    """Number of pods that `status.replicas` counts and that are not found."""
    found: int = 0
    lacks_peer: bool = False
    """Whether the zone has and wants no pod of the partition: one unknown (ZPDB-91)."""
    counts_for: timedelta | None = None
    """How much longer a zone counts that has left; None for a member."""

    @property
    def not_ready(self) -> int:
        return len(self.down) + len(self.unreadable)

    @property
    def unknown(self) -> int:
        """Return how many pods should exist and are not found."""
        return self.missing + self.nameless + self.lacks_peer

    @property
    def total(self) -> int:
        return self.not_ready + self.unknown

    @property
    def reasons_down(self) -> int:
        """Return how many entries `list_reasons_down` would have without its limit."""
        return self.not_ready + self.missing + (self.nameless > 0) + self.lacks_peer


class Survey:
    """One zone as a budget counts it: each pod is judged once, for any number of decisions.

    A decision on a pod counts the others of its partition, or of the zone where `partition` is None
    (ZPDB-74..76, 90..92).
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
        self._budget, self._names = budget, names
        self._all = ZoneCount(
            sts=sts,
            missing=untried,
            # Desired pods that are not there are absent by name already.
            nameless=max(sts.status_replicas - found - len(absent) - untried, 0),
            found=found,
            counts_for=zone.counts_for,
        )

    def has_down(self, pod: Uid) -> bool:
        return pod in self._down_uids

    def zone_count(self, partition: str | None, pod: Pod | None = None) -> ZoneCount:
        """Return what is not proven up, leaving out `pod`, of this zone or of another."""
        down = self._down.list_of(partition)
        if pod is not None and pod.uid in self._down_uids:
            down = [down_pod for down_pod in down if down_pod.pod.uid != pod.uid]
        # An absent pod without a partition may belong to any; an existing one belongs to none.
        absent = self._absent.list_of(partition, with_unknown=True)
        zone_count = replace(
            self._all,
            down=tuple(down),
            unreadable=tuple(self._lost.list_of(partition)),
            missing=self._all.missing + len(absent),
            first_missing=tuple(absent[:NAMES_SHOWN]),
        )
        if partition is None or zone_count.total or self._budget.forgives_absent_peers:
            return zone_count
        lacks_peer = partition not in self._partitions
        return replace(zone_count, lacks_peer=True) if lacks_peer else zone_count

    @cached_property
    def _partitions(self) -> Set[str | None]:
        return {find_partition(self._budget, name) for name in self._names}


class _ByPartition(Generic[T]):
    """Items of a zone in their order, by the partition of their names."""

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


class BudgetSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    budget: Budget
    pod: Pod
    """The pod to disrupt. It never counts as down itself, by its UID."""
    owner: Uid
    """UID of its StatefulSet."""
    zones: tuple[Zone, ...]
    """Every StatefulSet that the budget selects, with its own pods, in any order. The set of `pod`
    may be absent."""
    now: datetime
    """On the API server's clock."""
    deletions: Mapping[Uid, Deletion]
    """Pods on their way out that may still look untouched: own deletes, grants, records."""
    engine: DisruptionSource = DisruptionSource.EVICTION
    override: int = 0
    """Replaces a maximum of 0, for the rollout only (ROLL-36)."""
    downscale: Underway | None = None
    """In a group of any of the zones."""
    snapshot_age: timedelta = timedelta(0)
    """Age of the oldest proof that the caches behind `zones` are live."""
    unreadable: tuple[Unreadable, ...] = ()
    """Selected StatefulSets that could not be decoded."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod may not be disrupted."""

    reason: Reason
    """Its text begins as in all releases."""
    status: int
    """HTTP: 403 for a maximum of 0 and an invalid budget, 400 where a person must change something
    else, 500 where a zone cannot be judged, 429 for everything temporary."""
    requeue_after: timedelta | None = None
    """When time alone may have changed it."""
    is_shared: bool = False
    """Whether it holds for the other pods of the StatefulSet too, unless they are down already."""
    error: ApiError | None = None
    """The failed API call, where that is the only reason."""


class Decisions:
    """Decides on any number of pods of the StatefulSet of a snapshot.

    Each gets the same answer as alone; what does not depend on the pod is decided once.
    """

    def __init__(self, snapshot: BudgetSnapshot, surveys: dict[Uid, Survey] | None = None) -> None:
        """`surveys` are reused where other decisions have the same zones."""
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
        return self._maximum

    def assess_any(self) -> Refusal | None:
        """Return why no pod of any zone may go, before anything is counted."""
        return self._shared or self._movement

    def survey(self, zone: Zone) -> Survey:
        cached = self._surveys.get(zone.sts.uid)
        if cached is None:
            snapshot = self._snapshot
            by = CountingRule(
                budget=snapshot.budget, deletions=snapshot.deletions, now=snapshot.now
            )
            cached = self._surveys[zone.sts.uid] = Survey(zone, by)
        return cached

    def assess(self, pod: Pod) -> Refusal | None:
        if self._shared is not None:
            return self._shared
        snapshot = self.snapshot_of(pod)
        partition = (
            find_partition(snapshot.budget, pod.name) if snapshot.budget.by_partition else None
        )
        blocker = _find_mismatch(snapshot, partition) or self._movement
        # A pod that is already down may go: its crash loop must not block its fix (D-14, LI-10).
        if blocker is not None or (
            snapshot.engine is DisruptionSource.ROLLOUT and is_down(snapshot)
        ):
            return blocker
        if partition is not None:
            return self._count_partition(snapshot, partition)
        if not self.is_like_others(pod):
            return self._count_zones(snapshot)
        if not self._is_counted:
            self._counted, self._is_counted = _share(self._count_zones(snapshot)), True
        return self._counted

    def snapshot_of(self, pod: Pod) -> BudgetSnapshot:
        return self._snapshot if pod is self._snapshot.pod else replace(self._snapshot, pod=pod)

    def is_like_others(self, pod: Pod) -> bool:
        """Return whether a pod of a zone counts as the others do: none of them is down."""
        if self._snapshot.budget.by_partition:
            return False
        own = next(zone for zone in self._zones if zone.sts.uid == self._snapshot.owner)
        return not self.survey(own).has_down(pod.uid)

    def _count_zones(self, snapshot: BudgetSnapshot) -> Refusal | None:
        """Refuse for the first zone with too many pods down: in another zone, any at all."""
        for zone in self._zones:
            limit = self._maximum if zone.sts.uid == snapshot.owner else 1
            zone_count = self.survey(zone).zone_count(None, snapshot.pod)
            if zone_count.total >= limit:
                place = f"in {zone.sts.name}"
                return _refuse_used(snapshot, [zone_count], place, limit)
        return None

    def _count_partition(self, snapshot: BudgetSnapshot, partition: str) -> Refusal | None:
        """Count the partition over all other zones together."""
        maximum = self._maximum
        others = [zone for zone in self._zones if zone.sts.uid != snapshot.owner]
        zone_counts = [self.survey(zone).zone_count(partition, snapshot.pod) for zone in others]
        if sum(zone_count.total for zone_count in zone_counts) < maximum:
            return None
        return _refuse_used(snapshot, zone_counts, f"in partition {partition}", maximum)


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """Whose turn it is under one budget, or in one partition. Times are of one steady clock."""

    side: DisruptionSource = DisruptionSource.EVICTION
    """The rollout gets its turn only after it has waited."""
    used: int = 0
    """How many places were taken in this turn."""
    held_since: timedelta | None = None
    """When the other side was first held back in this turn."""
    whole_since: timedelta | None = None
    """Likewise, with all pods up."""
    patience: timedelta = PATIENCE
    """How long this turn may last unused."""
    free_until: timedelta | None = None
    """Until when neither side is held back, after a turn that was not used."""

    def at(self, now: timedelta) -> "Turns":
        """Apply what time alone has changed."""
        if self.free_until is not None:
            is_over = now >= self.free_until
            return Turns(patience=self.patience) if is_over else self
        if self.held_since is None:
            return self
        if self.side is DisruptionSource.ROLLOUT:
            is_gone = self.whole_since is not None and now - self.whole_since >= RESPONSE
            is_over = is_gone or now - self.held_since >= self.patience
            return Turns(patience=self.patience) if is_over else self
        if now - self.held_since < self.patience:
            return self
        longer = min(2 * self.patience, MOST_PATIENCE)
        return Turns(free_until=now + self.patience, patience=longer)

    def holds(self, engine: DisruptionSource) -> bool:
        """Return whether `engine` must let the other side go first, if that waits."""
        return self.free_until is None and engine is not self.side

    def hold(self, now: timedelta, *, is_whole: bool) -> "Turns":
        """Note that the other side was held back."""
        since = now if self.held_since is None else self.held_since
        if not is_whole:
            return replace(self, held_since=since, whole_since=None)
        whole = now if self.whole_since is None else self.whole_since
        return replace(self, held_since=since, whole_since=whole)

    def grant(self, engine: DisruptionSource, most: int) -> "Turns":
        """Note that a pod was allowed to go; a turn has `most` places."""
        if engine is not self.side or self.free_until is not None:
            return self
        if engine is DisruptionSource.EVICTION and self.held_since is None:
            return self  # no rollout waits
        if self.used + 1 < most:
            patience = PATIENCE if engine is DisruptionSource.EVICTION else self.patience
            return replace(self, used=self.used + 1, patience=patience)
        is_rollout = engine is DisruptionSource.ROLLOUT
        return Turns(side=DisruptionSource.EVICTION if is_rollout else DisruptionSource.ROLLOUT)


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that the budget under review and another budget both select."""

    pod: str
    other: str


class BudgetUnderReview(msgspec.Struct, frozen=True, kw_only=True):
    budget: Budget
    absent_peers: str | None = None
    """The annotation as written."""
    pods: tuple[Pod, ...] = ()
    overlap: Overlap | None = None


def assess_disruption(snapshot: BudgetSnapshot) -> Refusal | None:
    """Return why the pod may not be disrupted, None where it may (ZPDB-61..65, 73..95)."""
    return Decisions(snapshot).assess(snapshot.pod)


def choose_budget(entries: Sequence[BudgetState], pod: Pod) -> Budget | Refusal | None:
    """Return the budget of a pod, None where there is none (ZPDB-35, 55, 56).

    `entries` are all that select the pod. An invalid budget never counts as none (W-52).
    """
    if not entries:
        return None
    names = join_names(sorted(entry.name for entry in entries), shown=len(entries))
    # An invalid budget refuses the pod below in any case.
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


def compute_maximum(snapshot: BudgetSnapshot) -> int:
    """Return how many pods may be down, this pod included (ZPDB-80..82).

    A percentage is of the smaller of wanted and existing replicas, rounded down, and at least 1
    while there are pods: 1 % of 3 allows one disruption (W-56).
    """
    maximum = snapshot.budget.max_unavailable
    if snapshot.budget.percentage is not None:
        maximum = _compute_share(snapshot, snapshot.budget.percentage)
    return maximum or snapshot.override


def is_down(snapshot: BudgetSnapshot) -> bool:
    """Return whether the pod is down by itself, not only because of a grant."""
    return find_why(snapshot.pod, timedelta(0), {}, snapshot.now) is DownCause.UNREADY


def find_partition(budget: Budget, pod_name: str) -> str | None:
    """Return the partition of a pod under a budget that counts by partition.

    None where the pattern does not match the whole name, or captures nothing: such a pod may be of
    any partition.
    """
    if len(pod_name) > LONGEST_NAME:
        return None
    return _match_partition(budget.pattern, budget.pattern_group, pod_name)


def list_reasons_down(zone_count: ZoneCount) -> Iterator[str]:
    """Yield what is not up and why, such as `zone-c-2: CrashLoopBackOff`."""
    yield from (f"{down_pod.pod.name}: {_render_why(down_pod)}" for down_pod in zone_count.down)
    yield from (f"{name}: unreadable" for name in zone_count.unreadable)
    yield from (f"{name}: no pod" for name in zone_count.first_missing)
    if zone_count.nameless:
        counted = count(zone_count.sts.status_replicas, "pod")
        yield f"{zone_count.sts.name} counts {counted}, {zone_count.found} found"
    if zone_count.lacks_peer:
        yield f"{zone_count.sts.name}: no peer"


def next_up(zone_counts: Sequence[ZoneCount], limit: int) -> timedelta | None:
    """Return when time alone brings a pod up, None where the others reach the limit anyway."""
    waits = [
        down_pod.up_in
        for zone_count in zone_counts
        for down_pod in zone_count.down
        if down_pod.up_in is not None
    ]
    lasting = sum(zone_count.total for zone_count in zone_counts) - len(waits)
    return min(waits) if waits and lasting < limit else None


def refuse_stale_cache() -> Refusal:
    refusal = _refuse(Code.SNAPSHOT_STALE, _TRY_AGAIN, STALE_SNAPSHOT, Severity.WARN)
    return replace(refusal, requeue_after=STALE_RECHECK)


def assess_request(review: Review, namespace: str) -> Verdict | None:
    """Return why a review is no eviction in our namespace, None where it is (ZPDB-50..52)."""
    if review.operation != "CREATE":
        text = f"request operation is not create, got: {review.operation}"
    elif review.subresource != "eviction":
        text = f"request SubResource is not eviction, got: {review.subresource}"
    elif not review.namespace or not review.name:
        text = "request did not include both a namespace and a name"
    elif review.namespace != namespace:
        text = f"namespace {review.namespace} is not looked after by this operator"
        return refuse(Code.OTHER_NAMESPACE, text, status=INVALID)
    else:
        return None
    return refuse(Code.NOT_AN_EVICTION, text, status=INVALID)


def wants_dry_run(review: Review) -> bool:
    return review.dry_run or is_dry_run(review.body)


def is_running(pod: Pod) -> bool:
    """Return whether there is something to disrupt (ZPDB-54)."""
    return not pod.is_terminating and pod.phase not in _NOT_RUNNING


def allow_not_running() -> Verdict:
    return allow(Code.POD_NOT_RUNNING, warning="pod is not ready")


def allow_not_found(name: str) -> Verdict:
    """Allow a pod that does not exist: the API server answers 404 (W-53)."""
    return allow(Code.POD_NOT_FOUND, f'pods "{name}" not found')


def assess_budget(draft: BudgetUnderReview) -> Verdict:
    """Judge a budget whose fields are valid (W-28, W-41, W-56)."""
    if not draft.budget.selector:
        return refuse(
            Code.BUDGET_INVALID,
            "invalid value: selector is empty: spec.selector.matchLabels selects every pod of the"
            " namespace; name at least one label",
            status=INVALID,
        )
    overlap = draft.overlap
    if overlap is not None:
        return refuse(
            Code.BUDGETS_OVERLAP,
            f"budget {quote(draft.budget.name)} selects pod {overlap.pod}, which budget"
            f" {quote(overlap.other)} selects as well: a pod may be under one budget only",
            status=INVALID,
        )
    verdict = allow(Code.BUDGET_VALID)
    found = (_judge_pattern(draft.budget), _judge_share(draft), _judge_absent_peers(draft))
    warnings = tuple(text for text in found if text)
    if not warnings:
        return verdict
    reason = replace(verdict.reason, severity=Severity.WARN)
    return replace(verdict, reason=reason, warnings=warnings)


@lru_cache(maxsize=_REMEMBERED)
def _match_partition(pattern: str, group: int, pod_name: str) -> str | None:
    try:
        compiled = compile_pattern(pattern)
    except InvalidInput:
        return None  # no budget is read with such a pattern
    return (compiled.capture(pod_name, group) or None) if 1 <= group <= compiled.groups else None


def _list_down(sts: StatefulSet, pods: Sequence[Pod], by: CountingRule) -> tuple[CountedDown, ...]:
    patience = timedelta(seconds=sts.min_ready_seconds)
    delay = by.budget.delay if by.budget.by_partition else _NONE
    deletions, now = by.deletions, by.now
    down: list[CountedDown] = []
    for pod in pods:
        why = find_why(pod, patience, deletions, now)
        if why is None and delay and (pod.ready_since is None or now - pod.ready_since <= delay):
            why = DownCause.SETTLING
        if why is not None:
            up_in = _next_up(pod, patience, delay, now) if why is DownCause.SETTLING else None
            down.append(CountedDown(pod=pod, why=why, patience=max(patience, delay), up_in=up_in))
    if len(down) > 1:
        down.sort(key=lambda each: (len(each.pod.name), each.pod.name, each.pod.uid))
    return tuple(down)


def _next_up(pod: Pod, patience: timedelta, delay: timedelta, now: datetime) -> timedelta | None:
    if pod.ready_since is None:
        return None
    return max(patience, delay + _MOMENT if delay else delay) - (now - pod.ready_since)


def _list_absent(sts: StatefulSet, names: set[str], ordinals: range) -> tuple[list[str], int]:
    """Return the names of absent desired pods, and the number of those not looked at.

    Those count as absent too: there are some only where a thousand others are.
    """
    prefix, tried = f"{sts.name}-", ordinals[: len(names) + _MOST_ABSENT]
    wanted = [f"{prefix}{ordinal}" for ordinal in tried]
    return [name for name in wanted if name not in names], len(ordinals) - len(tried)


def _render_why(counted_down: CountedDown) -> str:
    if counted_down.why is DownCause.SETTLING:
        return f"ready for less than {format_duration(counted_down.patience)}"
    is_unready = counted_down.why is DownCause.UNREADY
    return (is_unready and counted_down.pod.why_not_ready) or counted_down.why


def _compute_share(snapshot: BudgetSnapshot, percentage: int) -> int:
    if not percentage:
        return 0
    for zone in snapshot.zones:
        if zone.sts.uid == snapshot.owner:
            # Newcomers do not raise the maximum, except in partitions, where they count.
            used = zone.sts.replicas if snapshot.budget.by_partition else count_used(zone)
            replicas = min(used, zone.sts.status_replicas)
            return max(percentage * replicas // 100, 1) if replicas > 0 else 0
    # The pod is refused anyway, as its zone is absent.
    return 1


def _find_shared(snapshot: BudgetSnapshot, maximum: int) -> Refusal | None:
    """Return what blocks every pod of the StatefulSet."""
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
    """Return the zones surely selected: the others can only hold pods back."""
    selector = snapshot.budget.selector
    return [zone for zone in snapshot.zones if is_certain(selector, zone.sts.labels)]


def _find_mismatch(snapshot: BudgetSnapshot, partition: str | None) -> Refusal | None:
    """Return why budget and pod do not fit together: a person must fix it."""
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
    """Return what is changing a zone right now, so that its pods cannot be counted on."""
    if snapshot.downscale is not None:
        text = f"{snapshot.downscale.text}; no pod may go until that has happened or failed"
        text += snapshot.downscale.way_out
        zone = snapshot.downscale.zone
        return _refuse(Code.DOWNSCALE_UNDERWAY, _TRY_AGAIN, f"{text}{_budget(snapshot)}", zone=zone)
    for sts in [zone.sts for zone in order_zones(snapshot.zones)]:
        if is_behind(sts):
            text = f"{render_behind(sts)}{_budget(snapshot)}"
            return _refuse(Code.STATUS_BEHIND, _TRY_AGAIN, text, zone=sts.name)
    return None


def _refuse_used(
    snapshot: BudgetSnapshot, zone_counts: Sequence[ZoneCount], place: str, limit: int
) -> Refusal:
    """Refuse with the numbers first, then what is down (ZPDB-95)."""
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
    """Word the refusal for zones that left while they were short (D-82)."""
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


def _refuse(
    code: Code, status: int, text: str, severity: Severity = Severity.INFO, *, zone: str = ""
) -> Refusal:
    return Refusal(reason=Reason(code, text, severity, zone), status=status)


def _budget(snapshot: BudgetSnapshot) -> str:
    return f"; budget {snapshot.budget.name}"


def _selector(budget: Budget) -> str:
    labels = ",".join(f"{key}={value}" for key, value in sorted(budget.selector.items()))
    return labels or "{} (any)"


def _judge_pattern(budget: Budget) -> str:
    if not has_open_alternation(budget.pattern):
        return ""
    return (
        "spec.podNamePartitionRegex: matched as ^(?:...)$, so that each alternative must match the"
        " whole name; earlier releases match it as ^...$"
    )


def _judge_share(draft: BudgetUnderReview) -> str:
    """Warn where a share of a zone is less than one pod, and one pod may go all the same."""
    share = draft.budget.percentage
    sizes = Counter(pod.owner_uid for pod in draft.pods if pod.owner_uid is not None)
    smallest = min(sizes.values(), default=0)
    if not share or share * smallest >= 100 or not smallest:
        return ""
    return (
        f"spec.maxUnavailablePercentage: {share}% of {count(smallest, 'pod')} is less than one, and"
        " one may be gone all the same"
    )


def _judge_absent_peers(draft: BudgetUnderReview) -> str:
    value = draft.absent_peers
    if value is None or value in _ABSENT_PEERS_VALUES:
        return ""
    values = " nor ".join(_ABSENT_PEERS_VALUES)
    shown = quote(value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}...")
    return f"annotation {ABSENT_PEERS}: {shown} is neither {values}: taken for unknown"
