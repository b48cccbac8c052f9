"""What is up in one zone, what is down and why, and what stops a whole group.

A zone is judged by its pods and by the status of its StatefulSet, and the more pessimistic of both
counts: a stale cache may show a pod that is gone, a lagging controller may still count it. Whether
a single container is ready is decided in `model.decode.objects`.

Ordinals that an upscale added hold no data until a pod of theirs becomes ready, and block neither a
rollout nor a downscale nor an eviction (D-67, D-26). The successor of a deleted pod looks the same:
that an ordinal was never used is known only from watching it for a settling time
(`guards.newcomers`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum, unique
from itertools import chain, islice
from typing import Final

import msgspec

from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    HEALTH_CHECK_BYPASS,
    MAX_UNAVAILABLE,
    ON_DELETE,
    PAUSED,
    ZONE_SOAK,
    InvalidInput,
    Revision,
    Uid,
)
from rollout_operator.model.objects import (
    Deletion,
    Group,
    Newcomers,
    OtherRollout,
    Pod,
    StatefulSet,
    Unreadable,
    Zone,
)
from rollout_operator.model.outcome import Code, Reason, Severity, ZoneProgress
from rollout_operator.model.units import (
    is_brake_on,
    is_odd_brake,
    parse_duration,
    parse_max_unavailable,
    parse_rfc3339,
    quote,
)
from rollout_operator.planning.wording import NAMES_SHOWN, count, join_names, join_some

# The settling time left is shown in steps: a message that changes every second is noise.
_STEP: Final = timedelta(seconds=10)
# A live watch proves itself every 45 s at the latest; a cache older than this is frozen.
SNAPSHOT_LIMIT: Final = timedelta(seconds=60)
# Without the age: a text that changes would be logged with each reconcile.
STALE_SNAPSHOT: Final = (
    "the newest proof that the cache is live is more than"
    f" {SNAPSHOT_LIMIT.total_seconds():.0f}s old"
)
# No event of the group tells that a frozen cache is live again.
STALE_RECHECK: Final = timedelta(seconds=5)
# Two pods deleted by another operator within this time are a rollout, which ends this long after
# the last delete (D-73). A slower one cannot be told from people deleting pods.
LEFT_ALONE: Final = timedelta(minutes=1)
# How long a departed zone counts is shown in these steps.
MINUTE: Final = timedelta(minutes=1)
# The smallest limit that still moves.
_DEFAULT_LIMIT: Final = 1


@unique
class DownCause(StrEnum):
    """Why a pod counts as down; the value is the text where the pod itself gives no reason."""

    TERMINATING = "terminating"
    DELETED = "delete accepted"
    UNANSWERED = "delete not answered"
    GRANTED = "allowed to go"
    UNREADY = "not ready"
    SETTLING = "not ready long enough"


_GOING: Final = {
    Deletion.ACCEPTED: DownCause.DELETED,
    Deletion.UNKNOWN: DownCause.UNANSWERED,
    Deletion.GRANTED: DownCause.GRANTED,
}


class Down(msgspec.Struct, frozen=True, kw_only=True):
    """A pod in one of the desired ordinals that does not count as up."""

    pod: Pod
    why: DownCause
    gaps_below: int
    """Number of desired ordinals below it that have no pod."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of one zone: its own, in the desired ordinals."""

    sts: StatefulSet
    used: int
    """How many of the lowest desired ordinals hold data: as many pods must be up."""
    newcomers: tuple[Pod, ...]
    """Pods of the other ordinals, never ready: nothing waits for them (D-67)."""
    standing: tuple[Pod, ...]
    """Ready pods without a delete, by ordinal; settling pods are in `down` as well."""
    down: tuple[Down, ...]
    """By ordinal."""
    unreadable: tuple[str, ...]
    """Names of pods that could not be decoded: they count as down."""
    missing: int
    """Number of desired ordinals without a pod."""
    first_missing: tuple[str, ...]
    seen_down: int
    """How many desired pods are not up by what the pods themselves show."""
    status_short: int
    """How many pods are not up by the StatefulSet's own status."""
    has_pods: bool
    """Whether any pod names this set as its controlling owner."""
    available_in: timedelta | None = None
    """Time until the next settling pod becomes available."""
    settles_in: timedelta | None = None
    """Time until the ordinals of an upscale count as never used."""
    counts_for: timedelta | None = None
    """How much longer a zone counts that has left the group; None for a member."""

    @property
    def unavailable(self) -> int:
        """Return the larger of what the pods and what the status show."""
        return max(self.seen_down, self.status_short)

    @property
    def is_whole(self) -> bool:
        return not (self.seen_down or self.status_short)


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """A pause between zones, as a StatefulSet requests it."""

    span: timedelta = timedelta(0)
    problem: str = ""
    """Why it cannot be read; then no further zone is begun."""


class Bypass(msgspec.Struct, frozen=True, kw_only=True):
    until: datetime | None = None
    problem: str = ""
    """Why it cannot be read; then nothing is bypassed."""


class GroupBlocker(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing may be decided for a group."""

    reasons: tuple[Reason, ...]
    is_failure: bool = False
    """Whether only a person can remove it."""
    requeue_after: timedelta | None = None


def measure_readiness(zone: Zone, deletions: Mapping[Uid, Deletion], now: datetime) -> Readiness:
    """Judge a zone; pods of other owners and beyond the desired ordinals are ignored."""
    sts = zone.sts
    patience = timedelta(seconds=sts.min_ready_seconds)
    used = count_used(zone)
    held = zone.by_ordinal(sts.ordinals[:used])
    standing: list[Pod] = []
    down: list[Down] = []
    unreadable: list[str] = []
    for place, ordinal in enumerate(sorted(held)):
        pod = held[ordinal]
        if isinstance(pod, Unreadable):
            unreadable.append(pod.name)
            continue
        why = find_why(pod, patience, deletions, now)
        if why is None or why is DownCause.SETTLING:
            standing.append(pod)
        if why is not None:
            gaps = ordinal - sts.first_ordinal - place
            down.append(Down(pod=pod, why=why, gaps_below=gaps))
    missing = used - len(held)
    return Readiness(
        sts=sts,
        used=used,
        newcomers=tuple(pod for _, pod in zone.list_pods(sts.ordinals[used:])),
        standing=tuple(standing),
        down=tuple(down),
        unreadable=tuple(unreadable),
        missing=missing,
        first_missing=_first_missing(sts, used, held) if missing else (),
        seen_down=len(down) + len(unreadable) + missing,
        status_short=max(used - _counted_up(sts), 0),
        has_pods=bool(held or zone.own_pods or zone.own_unreadable),
        available_in=_next_available(down, patience, now) if patience else None,
        settles_in=find_settling(zone),
        counts_for=zone.counts_for,
    )


def find_group_blocker(group: Group) -> GroupBlocker | None:
    """Return the first thing that stops the whole group (SI-08)."""
    sets = tuple(zone.sts for zone in order_zones(group.zones))
    if group.driver is not None:
        wait = None if group.driver else STALE_RECHECK
        return GroupBlocker(reasons=(_explain_driver(group.driver),), requeue_after=wait)
    if group.snapshot_age > SNAPSHOT_LIMIT:
        stale = Reason(Code.SNAPSHOT_STALE, STALE_SNAPSHOT, Severity.WARN)
        return GroupBlocker(reasons=(stale,), requeue_after=STALE_RECHECK)
    if group.unreadable:
        return GroupBlocker(reasons=_list_unreadable(group), is_failure=True)
    if group.downscale is not None:
        # A rollout and a downscale that may still persist exclude each other (D-25).
        text = f"{group.downscale.text}; no pod is replaced until that has happened or failed"
        text += group.downscale.way_out
        return GroupBlocker(
            reasons=(Reason(Code.DOWNSCALE_UNDERWAY, text, zone=group.downscale.zone),),
            requeue_after=group.downscale.left,
        )
    if wrong := tuple(_list_wrong_strategies(sets)):
        return GroupBlocker(reasons=wrong, is_failure=True)
    if unsettled := tuple(_list_unsettled(sets)):
        return GroupBlocker(reasons=unsettled)
    if empty := tuple(_list_empty_revisions(sets)):
        return GroupBlocker(reasons=empty, is_failure=True)
    if group.other_rollout is not None:
        # Last: what a person must fix blocks the other operator as well.
        return GroupBlocker(
            reasons=(_explain_other(group.other_rollout),), requeue_after=group.other_rollout.left
        )
    return None


def find_why(
    pod: Pod, patience: timedelta, deletions: Mapping[Uid, Deletion], now: datetime
) -> DownCause | None:
    """Return why a pod counts as down; `patience` is the `minReadySeconds` of its set."""
    if pod.is_terminating:
        return DownCause.TERMINATING
    if pod.uid in deletions:
        return _GOING[deletions[pod.uid]]
    if not pod.is_ready:
        return DownCause.UNREADY
    since = pod.ready_since
    is_settled = not patience or (since is not None and now - since >= patience)
    return None if is_settled else DownCause.SETTLING


def count_used(zone: Zone) -> int:
    """Return how many replicas hold data, or may: no ordinal above was ever ready.

    In doubt an ordinal counts as used.
    """
    sts, seen = zone.sts, zone.newcomers
    if seen is None or seen.used >= sts.replicas or seen.settles_in or _is_doubtful(zone):
        return sts.replicas
    first = sts.first_ordinal
    held = [ordinal for ordinal, pod in zone.list_pods(sts.ordinals) if not _is_new(seen, pod)]
    used = max([seen.used, *(ordinal - first + 1 for ordinal in held)])
    # The status may count a ready pod that the cache does not show yet.
    return sts.replicas if sts.ready_replicas > used else used


def count_pods(readiness: Readiness) -> ZoneProgress:
    """Count the pods of a zone; unreadable pods are neither updated nor outdated."""
    sts = readiness.sts
    # Settling pods are among the standing pods as well.
    down = (down_pod.pod for down_pod in readiness.down if down_pod.why is not DownCause.SETTLING)
    revisions = [pod.revision for pod in chain(readiness.standing, down, readiness.newcomers)]
    # Without an update revision nothing is known to be outdated.
    updated = revisions.count(sts.update_revision) if sts.update_revision else 0
    ready = readiness.used - readiness.unavailable
    is_through = ready == updated == len(revisions) == sts.replicas
    is_recorded = sts.current_revision == sts.update_revision
    return ZoneProgress(
        zone=sts.name,
        uid=sts.uid,
        desired=sts.replicas,
        ready=ready,
        updated=updated,
        outdated=len(revisions) - updated if sts.update_revision else 0,
        rolled_out=sts.update_revision if is_through and is_recorded else Revision(""),
    )


def measure_departed(group: Group) -> tuple[Readiness, ...]:
    """Measure the zones that left while they were short."""
    zones = order_zones(group.departed)
    return tuple(measure_readiness(zone, group.deletions, group.now) for zone in zones)


def order_zones(zones: Iterable[Zone]) -> tuple[Zone, ...]:
    """Order zones by name in byte order (SORT-01)."""
    # Code points order as their UTF-8 bytes do.
    return tuple(sorted(zones, key=lambda zone: (zone.sts.name, zone.sts.namespace, zone.sts.uid)))


def choose_limit(sts: StatefulSet) -> tuple[int, Reason | None]:
    """Return the limit of unavailable pods, and what is wrong with its annotation (ROLL-50..53)."""
    limit, problem = _read_limit(sts)
    return limit, _warn(sts, Code.BAD_MAX_UNAVAILABLE, problem) if problem else None


def find_settling(zone: Zone) -> timedelta | None:
    """Return how soon new ordinals of a zone count as never used, None where none will."""
    sts, seen = zone.sts, zone.newcomers
    if seen is None or not seen.settles_in or seen.used >= sts.replicas:
        return None
    return seen.settles_in


def render_settling(*zones: Zone) -> str:
    waits = {zone.sts.name: left for zone in zones if (left := find_settling(zone))}
    if not waits:
        return ""
    seconds = -(-max(waits.values()) // _STEP) * int(_STEP.total_seconds())
    return f"new replicas of {join_names(sorted(waits))} count as never used in about {seconds}s"


def is_passing(readiness: Readiness) -> bool:
    """Return whether everything that is down is on its way up, as in any rollout."""
    return not readiness.unreadable and all(
        down_pod.why is not DownCause.UNREADY or down_pod.pod.is_starting
        for down_pod in readiness.down
    )


def render_readiness(readiness: Readiness) -> str:
    """Return a text such as `zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff)`."""
    up, word = readiness.used - readiness.unavailable, _render_state(readiness.sts)
    replicas, why = readiness.sts.replicas, render_not_ready(readiness)
    return f"{readiness.sts.name} has {up} of {replicas} pods {word}{why}"


def render_not_ready(readiness: Readiness) -> str:
    """Return what is down and why, in brackets after a blank; empty if nothing is."""
    seen = _join_down(readiness, "{}: {}")
    if readiness.seen_down < readiness.unavailable:
        counted = f"status counts {_counted_up(readiness.sts)} {_render_state(readiness.sts)}"
        seen = f"{counted}; {seen}" if seen else counted
    return f" ({seen})" if seen else ""


def render_awaited(readiness: Readiness) -> str:
    """Return what a zone waits for, such as `zone-b-1 (CrashLoopBackOff)`; empty for nothing."""
    awaited = _join_down(readiness, "{} ({})")
    if readiness.seen_down < readiness.unavailable:
        counted = f"its status ({_counted_up(readiness.sts)} {_render_state(readiness.sts)})"
        awaited = f"{counted}, {awaited}" if awaited else counted
    return awaited


def render_why(readiness: Readiness, down: Down) -> str:
    if down.why is DownCause.SETTLING:
        return f"ready for less than {readiness.sts.min_ready_seconds}s"
    return (down.pod.why_not_ready or down.why) if down.why is DownCause.UNREADY else down.why


def is_paused(sts: StatefulSet) -> bool:
    return is_brake_on(sts.annotations.get(PAUSED))


def is_behind(sts: StatefulSet) -> bool:
    return sts.observed_generation < sts.generation


def render_behind(sts: StatefulSet, kind: str = "") -> str:
    """`kind` precedes the name, with its blank."""
    return (
        f"the status of {kind}{sts.name} is of generation {sts.observed_generation}, "
        f"its spec of generation {sts.generation}"
    )


def list_warnings(zones: Sequence[Zone]) -> tuple[Reason, ...]:
    warnings = [warning for zone in zones for warning in _list_warnings_of(zone)]
    return (*warnings, *_list_shared_labels([zone.sts for zone in zones]))


def list_times(readinesses: Iterable[Readiness]) -> Iterator[timedelta]:
    """Yield how soon zones change by time alone."""
    for readiness in readinesses:
        yield from (time for time in (readiness.available_in, readiness.settles_in) if time)
        if readiness.counts_for:
            yield readiness.counts_for % MINUTE or MINUTE  # then the reason says less


def explain_left(readiness: Readiness) -> Reason:
    """Say that a zone which left while it was short still counts (D-82)."""
    assert readiness.counts_for is not None, "it has left"
    name, stable_text = readiness.sts.name, render_readiness(readiness)
    text = f"{stable_text}; {render_left(name, readiness.counts_for)}"
    return Reason(Code.ZONE_LEFT_SHORT, text, Severity.WARN, name, stable_text)


def render_left(zone: str, left: timedelta) -> str:
    minutes = count(-(-left // MINUTE), "minute")
    return (
        f"{zone} was deleted or left while it was short, and counts until its StatefulSet is back"
        f" and whole, for another {minutes} at most"
    )


def list_podless(zones: Iterable[Readiness]) -> Iterator[Reason]:
    """Yield a reason for each zone that wants pods and owns none (SEED-104, SEED-112)."""
    for sts in [zone.sts for zone in zones if zone.used and not zone.has_pods]:
        text = (
            f"{sts.name} has 0 of {sts.replicas} pods: no pod names it (uid {sts.uid}) as "
            f"controlling owner, while its status counts {sts.status_replicas}"
        )
        # Pods that the controller counts but that do not name the set are never found.
        severity = Severity.WARN if sts.status_replicas else Severity.INFO
        yield Reason(Code.PODS_MISSING, text, severity, sts.name)


def list_odd_values(sts: StatefulSet) -> Iterator[tuple[Code, str]]:
    """Yield labels and annotations that cannot be used, and what is used instead."""
    _, problem = _read_limit(sts)
    if problem:
        yield Code.BAD_MAX_UNAVAILABLE, problem
    paused = sts.annotations.get(PAUSED)
    if is_odd_brake(paused):
        text = f'annotation {PAUSED}: "{paused}" is neither "true" nor "false"'
        yield Code.BAD_PAUSED, f"{text}; the zone is paused"
    if (soak := read_soak(sts)).problem:
        yield Code.BAD_ZONE_SOAK, f"{soak.problem}; no further zone is begun"
    if (bypass := read_bypass(sts)).problem:
        yield Code.BAD_HEALTH_CHECK_BYPASS, f"{bypass.problem}; nothing is bypassed"
    short, long = sts.labels.get(GROUP_LABEL), sts.labels.get(GROUP_LABEL_LONG)
    if short is not None and long is not None and short != long:
        text = f'labels {GROUP_LABEL}: "{short}" and {GROUP_LABEL_LONG}: "{long}" differ'
        yield Code.GROUP_LABELS_DIFFER, f"{text}; the first is used"


def read_soak(sts: StatefulSet) -> Soak:
    """Return how long the other zones must have been whole before a zone is begun."""
    text = sts.annotations.get(ZONE_SOAK)
    if text is None:
        return Soak()
    try:
        span = parse_duration(text)
    except InvalidInput as error:
        return Soak(problem=f"annotation {ZONE_SOAK}: {error}")
    if span < timedelta(0):
        return Soak(problem=f"annotation {ZONE_SOAK}: {quote(text)} is negative")
    return Soak(span=span)


def read_bypass(sts: StatefulSet) -> Bypass:
    """Return until when a StatefulSet needs no health check to be begun."""
    text = sts.annotations.get(HEALTH_CHECK_BYPASS)
    if text is None:
        return Bypass()
    try:
        return Bypass(until=parse_rfc3339(text))
    except InvalidInput as error:
        return Bypass(problem=f"annotation {HEALTH_CHECK_BYPASS}: {error}")


def _is_doubtful(zone: Zone) -> bool:
    seen = zone.newcomers
    assert seen is not None, "checked by the caller"
    return (
        seen.generation != zone.sts.generation
        or bool(zone.own_unreadable)
        # A pod is gone whose end was not seen: it may have been ready.
        or not seen.pods <= {pod.uid for pod in zone.pods}
    )


def _is_new(seen: Newcomers, pod: Pod) -> bool:
    is_new = pod.uid in seen.pods
    return is_new and not (pod.is_ready or pod.was_ready or pod.is_terminating)


def _next_available(down: Iterable[Down], patience: timedelta, now: datetime) -> timedelta | None:
    waits = (
        patience - (now - down_pod.pod.ready_since)
        for down_pod in down
        if down_pod.why is DownCause.SETTLING and down_pod.pod.ready_since is not None
    )
    return min(waits, default=None)


def _counted_up(sts: StatefulSet) -> int:
    return sts.available_replicas if sts.min_ready_seconds > 0 else sts.ready_replicas


def _render_state(sts: StatefulSet) -> str:
    return "available" if sts.min_ready_seconds > 0 else "ready"


def _join_down(readiness: Readiness, form: str) -> str:
    """Return the pods that are down, each in a form with places for its name and why."""
    first = [form.format(*down) for down in islice(_list_down(readiness), NAMES_SHOWN)]
    return join_some(first, total=readiness.seen_down + readiness.sts.replicas - readiness.used)


def _list_down(readiness: Readiness) -> Iterator[tuple[str, str]]:
    yield from ((down_pod.pod.name, render_why(readiness, down_pod)) for down_pod in readiness.down)
    yield from ((name, "unreadable") for name in readiness.unreadable)
    yield from ((name, "no pod") for name in readiness.first_missing)
    yield from ((pod.name, pod.why_not_ready or DownCause.UNREADY) for pod in readiness.newcomers)


def _first_missing(
    sts: StatefulSet, used: int, held: Mapping[int, Pod | Unreadable]
) -> tuple[str, ...]:
    gaps = (ordinal for ordinal in sts.ordinals[:used] if ordinal not in held)
    shown = min(used - len(held), NAMES_SHOWN)
    return tuple(f"{sts.name}-{ordinal}" for ordinal in islice(gaps, shown))


def _read_limit(sts: StatefulSet) -> tuple[int, str]:
    text = sts.annotations.get(MAX_UNAVAILABLE)
    if text is None:
        return _DEFAULT_LIMIT, ""
    try:
        return parse_max_unavailable(text).of(sts.replicas), ""
    except InvalidInput as error:
        return _DEFAULT_LIMIT, f"annotation {MAX_UNAVAILABLE}: {error}; {_DEFAULT_LIMIT} is used"


def _explain_driver(driver: str) -> Reason:
    if driver:
        return Reason(Code.DRIVEN_BY_POLICY, f"MultiAZRollout {driver} replaces the pods")
    text = "whether a MultiAZRollout replaces the pods is not known yet"
    return Reason(Code.POLICIES_NOT_READ, text, Severity.WARN)


def _explain_other(other: OtherRollout) -> Reason:
    stable_text = "another operator, or somebody, deletes pods of this group"
    text = (
        f"{stable_text}: {join_names(other.pods)} were outdated and ready, and were deleted within "
        f"{LEFT_ALONE.total_seconds():.0f}s without this process, which goes on "
        f"{LEFT_ALONE.total_seconds():.0f}s after the last such delete"
    )
    return Reason(Code.OTHER_OPERATOR, text, Severity.WARN, stable_text=stable_text)


def _list_unreadable(group: Group) -> tuple[Reason, ...]:
    return tuple(
        Reason(
            Code.OBJECT_UNREADABLE,
            f"{lost.kind} {lost.name} cannot be read: {lost.error}",
            Severity.ERROR,
            lost.name,
        )
        for lost in sorted(group.unreadable, key=lambda lost: (lost.kind, lost.name, lost.uid))
    )


def _list_wrong_strategies(sets: Iterable[StatefulSet]) -> Iterator[Reason]:
    for sts in sets:
        if sts.strategy != ON_DELETE:
            text = (
                f"StatefulSet {sts.name} has {sts.strategy} update strategy while OnDelete is "
                "expected, skipping reconcile"
            )
            yield Reason(Code.WRONG_STRATEGY, text, Severity.ERROR, sts.name)


def _list_unsettled(sets: Iterable[StatefulSet]) -> Iterator[Reason]:
    for sts in sets:
        if sts.is_terminating:
            # Its controller creates no pods any more: a deleted pod would not come back.
            text = f"{sts.name} is being deleted"
            yield Reason(Code.SET_TERMINATING, text, Severity.WARN, sts.name)
        if is_behind(sts):
            yield Reason(Code.STATUS_BEHIND, render_behind(sts), Severity.DEBUG, sts.name)


def _list_empty_revisions(sets: Iterable[StatefulSet]) -> Iterator[Reason]:
    for sts in sets:
        # A paused set needs only its update revision: nothing is recorded for it.
        fields = {"currentRevision": sts.current_revision or is_paused(sts)}
        fields["updateRevision"] = sts.update_revision
        for field, has_value in fields.items():
            if not has_value:
                text = f"StatefulSet {sts.name}: status.{field} is empty"
                yield Reason(Code.REVISION_EMPTY, text, Severity.ERROR, sts.name)


def _warn(sts: StatefulSet, code: Code, problem: str) -> Reason:
    return Reason(code, f"StatefulSet {sts.name}: {problem}", Severity.WARN, sts.name)


def _list_warnings_of(zone: Zone) -> Iterator[Reason]:
    sts = zone.sts
    for code, problem in list_odd_values(sts):
        yield _warn(sts, code, problem)
    for lost in sorted(zone.unreadable_pods, key=lambda lost: (lost.name, lost.uid)):
        text = f"Pod {lost.name} cannot be read and counts as down: {lost.error}"
        yield Reason(Code.OBJECT_UNREADABLE, text, Severity.WARN, sts.name)


def _list_shared_labels(sets: Iterable[StatefulSet]) -> Iterator[Reason]:
    by_selector: dict[frozenset[tuple[str, str]], list[StatefulSet]] = {}
    for sts in sets:
        if sts.selector:
            by_selector.setdefault(frozenset(sts.selector.items()), []).append(sts)
    for selector, sharing in by_selector.items():
        if len(sharing) > 1:
            labels = ",".join(f"{key}={value}" for key, value in sorted(selector))
            names = join_names([sts.name for sts in sharing], shown=len(sharing))
            text = f"{names} all select pods with {labels}; pods are distinguished by owner only"
            yield Reason(Code.PODS_SHARE_LABELS, text, Severity.WARN, sharing[0].name)
