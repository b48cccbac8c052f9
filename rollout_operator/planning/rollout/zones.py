"""The zones of a group in order, and what is wrong with the group as a whole.

A blocker stops every zone, because deciding for one needs to know all others. A warning changes no
decision. What single pods are like is settled in `readiness`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.group import Group, OtherRollout, Zone
from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    MAX_UNAVAILABLE,
    ON_DELETE,
    PAUSED,
)
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.units import is_brake_on, is_odd_brake, parse_max_unavailable
from rollout_operator.planning.rollout.readiness import (
    Readiness,
    measure_readiness,
    render_readiness,
)
from rollout_operator.planning.wording import count, join_names

# A live watch proves itself every 45 s at the latest; a cache older than this is frozen.
SNAPSHOT_LIMIT: Final = timedelta(seconds=60)
# Without the age itself: a text that changes with each reconcile would be logged with each.
STALE_SNAPSHOT: Final = (
    "the newest proof that the cache is live is more than"
    f" {SNAPSHOT_LIMIT.total_seconds():.0f}s old"
)
# That a frozen cache has come alive again is announced by no event of the group.
STALE_RECHECK: Final = timedelta(seconds=5)

# Two pods that another operator deletes within this time are a rollout, which ends as long after
# the last delete (D-73). Where each of its pods takes longer, it is not distinguished from people.
LEFT_ALONE: Final = timedelta(minutes=1)

# In such steps it is said how long a zone counts that has left.
MINUTE: Final = timedelta(minutes=1)

# The smallest limit that still moves.
_DEFAULT_LIMIT: Final = 1


class GroupBlocker(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing at all may be decided for a group."""

    reasons: tuple[Reason, ...]
    is_failure: bool = False
    """Whether only a person can remove it."""
    requeue_after: timedelta | None = None


def order_zones(zones: Iterable[Zone]) -> tuple[Zone, ...]:
    """Return the zones by name in byte order (SORT-01)."""
    # Code points order as their UTF-8 bytes do.
    return tuple(sorted(zones, key=lambda zone: (zone.sts.name, zone.sts.namespace, zone.sts.uid)))


def is_paused(sts: StatefulSet) -> bool:
    """Return whether deletes in a zone are switched off."""
    return is_brake_on(sts.annotations.get(PAUSED))


def is_behind(sts: StatefulSet) -> bool:
    """Return whether the status says nothing of what the spec wants now."""
    return sts.observed_generation < sts.generation


def render_behind(sts: StatefulSet, kind: str = "") -> str:
    """Return how far the status is behind; `kind`, with its blank, is put before the name."""
    return (
        f"the status of {kind}{sts.name} is of generation {sts.observed_generation}, "
        f"its spec of generation {sts.generation}"
    )


def choose_limit(sts: StatefulSet) -> tuple[int, Reason | None]:
    """Return how many pods may be unavailable, and what is wrong with the annotation.

    At least 1; it may exceed the replicas (ROLL-50..53).
    """
    limit, problem = _read_limit(sts)
    return limit, _warn(sts, Code.BAD_MAX_UNAVAILABLE, problem) if problem else None


def _read_limit(sts: StatefulSet) -> tuple[int, str]:
    text = sts.annotations.get(MAX_UNAVAILABLE)
    if text is None:
        return _DEFAULT_LIMIT, ""
    try:
        return parse_max_unavailable(text).of(sts.replicas), ""
    except InvalidInput as error:
        return _DEFAULT_LIMIT, f"annotation {MAX_UNAVAILABLE}: {error}; {_DEFAULT_LIMIT} is used"


def find_group_blocker(group: Group) -> GroupBlocker | None:
    """Return the first thing that stops the whole group, None where nothing does (SI-08)."""
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
        # Last: what a person has to mend holds that operator as well, and is worth more to know.
        return GroupBlocker(
            reasons=(_explain_other(group.other_rollout),), requeue_after=group.other_rollout.left
        )
    return None


def _explain_driver(driver: str) -> Reason:
    """Return why the label alone replaces no pod (MAZ-25)."""
    if driver:
        return Reason(Code.DRIVEN_BY_POLICY, f"MultiAZRollout {driver} replaces the pods")
    text = "whether a MultiAZRollout replaces the pods is not known yet"
    return Reason(Code.POLICIES_NOT_READ, text, Severity.WARN)


def _explain_other(other: OtherRollout) -> Reason:
    """Return why a group is left alone; it is logged once, whichever pods go."""
    stable_text = "another operator rolls this group out"
    text = (
        f"{stable_text}: {join_names(other.pods)} were outdated and ready, and were deleted within "
        f"{LEFT_ALONE.total_seconds():.0f}s without this process, which goes on "
        f"{LEFT_ALONE.total_seconds():.0f}s after the last such delete"
    )
    return Reason(Code.OTHER_OPERATOR, text, Severity.WARN, stable_text=stable_text)


def list_warnings(zones: Sequence[Zone]) -> tuple[Reason, ...]:
    """Return what is odd with the zones, in their order."""
    warnings = [warning for zone in zones for warning in _list_warnings_of(zone)]
    return (*warnings, *_list_shared_labels([zone.sts for zone in zones]))


def measure_departed(group: Group) -> tuple[Readiness, ...]:
    """Return what is up and down in the zones that left while they were short."""
    zones = order_zones(group.departed)
    return tuple(measure_readiness(zone, group.deletions, group.now) for zone in zones)


def list_times(readinesses: Iterable[Readiness]) -> Iterator[timedelta]:
    """Yield after what times zones change by time alone."""
    for readiness in readinesses:
        yield from (time for time in (readiness.available_in, readiness.settles_in) if time)
        if readiness.counts_for:
            yield readiness.counts_for % MINUTE or MINUTE  # then the reason says less


def explain_left(readiness: Readiness) -> Reason:
    """Return that a zone is missed which left while it was short (D-82)."""
    assert readiness.counts_for is not None, "it has left"
    name, stable_text = readiness.sts.name, render_readiness(readiness)
    text = f"{stable_text}; {render_left(name, readiness.counts_for)}"
    return Reason(Code.ZONE_LEFT_SHORT, text, Severity.WARN, name, stable_text)


def render_left(zone: str, left: timedelta) -> str:
    """Return that a zone counts still which was deleted or left, until when, and what ends it."""
    minutes = count(-(-left // MINUTE), "minute")
    return (
        f"{zone} was deleted or left while it was short, and counts until its StatefulSet is back"
        f" and whole, for another {minutes} at most"
    )


def list_podless(zones: Iterable[Readiness]) -> Iterator[Reason]:
    """Yield the zones that want pods and own none (SEED-104, SEED-112)."""
    for sts in [zone.sts for zone in zones if zone.used and not zone.has_pods]:
        text = (
            f"{sts.name} has 0 of {sts.replicas} pods: no pod names it (uid {sts.uid}) as "
            f"controlling owner, while its status counts {sts.status_replicas}"
        )
        # The controller counts pods that do not name the set: they are not found, ever.
        severity = Severity.WARN if sts.status_replicas else Severity.INFO
        yield Reason(Code.PODS_MISSING, text, severity, sts.name)


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
        # Nothing is recorded for a paused set; its update revision decides what is outdated.
        fields = {"currentRevision": sts.current_revision or is_paused(sts)}
        fields["updateRevision"] = sts.update_revision
        for field, has_value in fields.items():
            if not has_value:
                text = f"StatefulSet {sts.name}: status.{field} is empty"
                yield Reason(Code.REVISION_EMPTY, text, Severity.ERROR, sts.name)


def list_odd_values(sts: StatefulSet) -> Iterator[tuple[Code, str]]:
    """Yield which of its labels and annotations cannot be used, and what counts in their place."""
    _, problem = _read_limit(sts)
    if problem:
        yield Code.BAD_MAX_UNAVAILABLE, problem
    paused = sts.annotations.get(PAUSED)
    if is_odd_brake(paused):
        text = f'annotation {PAUSED}: "{paused}" is neither "true" nor "false"'
        yield Code.BAD_PAUSED, f"{text}; the zone is paused"
    short, long = sts.labels.get(GROUP_LABEL), sts.labels.get(GROUP_LABEL_LONG)
    if short is not None and long is not None and short != long:
        text = f'labels {GROUP_LABEL}: "{short}" and {GROUP_LABEL_LONG}: "{long}" differ'
        yield Code.GROUP_LABELS_DIFFER, f"{text}; the first is used"


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
