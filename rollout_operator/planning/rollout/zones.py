"""The zones of a group in order, and what is wrong with the group as a whole.

An obstacle stops every zone, because deciding for one needs to know all others. An oddity changes
no decision and is only told. What single pods are like is settled in `readiness`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, ON_DELETE, PAUSED
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.planning.rollout.limits import choose_limit
from rollout_operator.planning.rollout.readiness import Readiness
from rollout_operator.planning.wording import join_names

# A live watch proves itself every 45 s at the latest; a view older than this one is frozen.
VIEW_LIMIT: Final = timedelta(seconds=60)
# That a frozen view has come alive again is announced by no event of the group.
STALE_RECHECK: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why nothing at all may be decided for a group."""

    reasons: tuple[Reason, ...]
    is_failure: bool = False
    """Whether only a person can remove it."""
    look_again: timedelta | None = None


def order_zones(zones: Iterable[Zone]) -> tuple[Zone, ...]:
    """Return the zones by name in byte order (SORT-01)."""
    # Code points order as their UTF-8 bytes do.
    return tuple(sorted(zones, key=lambda zone: (zone.sts.name, zone.sts.namespace, zone.sts.uid)))


def is_paused(sts: StatefulSet) -> bool:
    """Tell whether deletes in a zone are switched off: the annotation is exactly `true`."""
    return sts.annotations.get(PAUSED) == "true"


def find_obstacle(group: Group) -> Obstacle | None:
    """Return the first thing that stops the whole group, None where nothing does (SI-08)."""
    sets = tuple(zone.sts for zone in order_zones(group.zones))
    return (
        _find_stale_view(group)
        or _find_unreadable(group)
        or _find_downscale(group)
        or _find_wrong_strategy(sets)
        or _find_unsettled(sets)
        or _find_empty_revision(sets)
    )


def find_oddities(zones: Sequence[Zone]) -> tuple[Reason, ...]:
    """Return what is odd with the zones, in their order."""
    sets = [zone.sts for zone in zones]
    found = [odd for zone in zones for odd in _find_oddities_of(zone)]
    return (*found, *_find_shared_labels(sets))


def find_podless(looks: Iterable[Readiness]) -> tuple[Reason, ...]:
    """Return the zones that want pods and own none (SEED-104, SEED-112)."""
    return tuple(
        Reason(
            code=Code.PODS_MISSING,
            text=_podless_text(look.sts),
            # The controller counts pods that do not name the set: they are not found, ever.
            severity=Severity.WARN if look.sts.status_replicas else Severity.INFO,
            zone=look.sts.name,
        )
        for look in looks
        if look.desired and not look.has_pods
    )


def _podless_text(sts: StatefulSet) -> str:
    return (
        f"{sts.name} has 0 of {sts.replicas} pods: no pod names it (uid {sts.uid}) as controlling "
        f"owner, while its status counts {sts.status_replicas}"
    )


def _find_stale_view(group: Group) -> Obstacle | None:
    if group.view_age <= VIEW_LIMIT:
        return None
    # Without the age itself: a text that changes with each look would be logged with each look.
    limit = VIEW_LIMIT.total_seconds()
    text = f"the newest proof that the view is live is more than {limit:.0f}s old"
    reason = Reason(code=Code.VIEW_STALE, text=text, severity=Severity.WARN)
    return Obstacle(reasons=(reason,), look_again=STALE_RECHECK)


def _find_unreadable(group: Group) -> Obstacle | None:
    reasons = tuple(
        Reason(
            code=Code.OBJECT_UNREADABLE,
            text=f"{one.kind} {one.name} cannot be read: {one.error}",
            severity=Severity.ERROR,
            zone=one.name,
        )
        for one in sorted(group.unreadable, key=lambda one: (one.kind, one.name, one.uid))
    )
    return Obstacle(reasons=reasons, is_failure=True) if reasons else None


def _find_downscale(group: Group) -> Obstacle | None:
    """Return the downscale that may still persist: a rollout and it exclude each other (D-25)."""
    if group.downscale is None:
        return None
    one = group.downscale
    text = (
        f"{one.zone} is being scaled down from {one.replicas_from} to {one.replicas_to} replicas; "
        "no pod is replaced until that has happened or failed"
    )
    reason = Reason(code=Code.DOWNSCALE_UNDERWAY, text=text, zone=one.zone)
    return Obstacle(reasons=(reason,))


def _find_wrong_strategy(sets: Iterable[StatefulSet]) -> Obstacle | None:
    reasons = tuple(
        Reason(
            code=Code.WRONG_STRATEGY,
            text=f"StatefulSet {sts.name} has {sts.strategy} update strategy while OnDelete is "
            "expected, skipping reconcile",
            severity=Severity.ERROR,
            zone=sts.name,
        )
        for sts in sets
        if sts.strategy != ON_DELETE
    )
    return Obstacle(reasons=reasons, is_failure=True) if reasons else None


def _find_unsettled(sets: Iterable[StatefulSet]) -> Obstacle | None:
    """Return the sets whose status says nothing of what their spec wants now, and those that go."""
    reasons: list[Reason] = []
    for sts in sets:
        if sts.is_terminating:
            # Its controller creates no pods any more: a deleted one would not come back.
            text = f"{sts.name} is being deleted"
            reasons.append(_wait(sts, Code.SET_TERMINATING, text, Severity.WARN))
        if sts.observed_generation < sts.generation:
            text = (
                f"the status of {sts.name} is of generation {sts.observed_generation}, "
                f"its spec of generation {sts.generation}"
            )
            reasons.append(_wait(sts, Code.STATUS_BEHIND, text, Severity.DEBUG))
    return Obstacle(reasons=tuple(reasons)) if reasons else None


def _find_empty_revision(sets: Iterable[StatefulSet]) -> Obstacle | None:
    reasons: list[Reason] = []
    for sts in sets:
        # Nothing is recorded for a paused set; its update revision decides what is outdated.
        if not sts.current_revision and not is_paused(sts):
            reasons.append(_empty_revision(sts, "currentRevision"))
        if not sts.update_revision:
            reasons.append(_empty_revision(sts, "updateRevision"))
    return Obstacle(reasons=tuple(reasons), is_failure=True) if reasons else None


def _empty_revision(sts: StatefulSet, field: str) -> Reason:
    text = f"StatefulSet {sts.name}: status.{field} is empty"
    return _wait(sts, Code.REVISION_EMPTY, text, Severity.ERROR)


def _find_oddities_of(zone: Zone) -> Iterator[Reason]:
    sts = zone.sts
    if problem := choose_limit(sts).problem:
        yield problem
    paused = sts.annotations.get(PAUSED, "false")
    if paused not in {"true", "false"}:
        text = (
            f'StatefulSet {sts.name}: annotation {PAUSED}: "{paused}" is neither "true" nor '
            '"false"; the zone is not paused'
        )
        yield _wait(sts, Code.BAD_PAUSED, text, Severity.WARN)
    short, long = sts.labels.get(GROUP_LABEL), sts.labels.get(GROUP_LABEL_LONG)
    if short is not None and long is not None and short != long:
        text = (
            f'StatefulSet {sts.name}: labels {GROUP_LABEL}: "{short}" and {GROUP_LABEL_LONG}: '
            f'"{long}" differ; the first is used'
        )
        yield _wait(sts, Code.GROUP_LABELS_DIFFER, text, Severity.WARN)
    for one in sorted(zone.unreadable_pods, key=lambda one: (one.name, one.uid)):
        text = f"Pod {one.name} cannot be read and counts as down: {one.error}"
        yield _wait(sts, Code.OBJECT_UNREADABLE, text, Severity.WARN)


def _find_shared_labels(sets: Iterable[StatefulSet]) -> Iterator[Reason]:
    by_selector: dict[frozenset[tuple[str, str]], list[StatefulSet]] = {}
    for sts in sets:
        if sts.selector:
            by_selector.setdefault(frozenset(sts.selector.items()), []).append(sts)
    for selector, sharing in by_selector.items():
        if len(sharing) > 1:
            labels = ",".join(f"{key}={value}" for key, value in sorted(selector))
            names = join_names([sts.name for sts in sharing], shown=len(sharing))
            text = f"{names} all select pods with {labels}; pods are told apart by owner only"
            yield _wait(sharing[0], Code.PODS_SHARE_LABELS, text, Severity.WARN)


def _wait(sts: StatefulSet, code: Code, text: str, severity: Severity) -> Reason:
    return Reason(code=code, text=text, severity=severity, zone=sts.name)
