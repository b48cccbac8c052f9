"""May this zone be scaled down now, as far as its group is concerned.

One answer for zones that follow and zones that mirror, made of the parts that answer reviews (D-22,
D-25): what would be refused is not tried. Zones with the label of prepare-downscale are judged as
reviews judge them; for others only the time between zones counts, where it is kept, and that
nothing else takes pods of the group away at this moment.
"""

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from rollout_operator.model.downscale import Decrease, Underway
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import MIN_TIME_BETWEEN_DOWNSCALES, PREPARE_DOWNSCALE
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import ScalingSnapshot
from rollout_operator.model.units import format_duration
from rollout_operator.planning.downscales.request import is_labelled
from rollout_operator.planning.downscales.rule import (
    find_blocker,
    takes_idle_only,
    takes_newcomers_only,
)
from rollout_operator.planning.downscales.spacing import (
    BadTime,
    Recent,
    format_left,
    format_moment,
    hint_future,
    knows_downscale,
    list_recent,
)
from rollout_operator.planning.rollout.pods import count_outdated_used
from rollout_operator.planning.rollout.readiness import measure_readiness, render_readiness
from rollout_operator.planning.rollout.zones import (
    SNAPSHOT_LIMIT,
    STALE_RECHECK,
    STALE_SNAPSHOT,
    explain_left,
    measure_departed,
    order_zones,
)
from rollout_operator.planning.scaling.desired import (
    DesiredReplicas,
    complain,
    count_replicas,
    is_unseen,
)


class ScaleDownBlocker(msgspec.Struct, frozen=True, kw_only=True):
    """Why a zone may not be scaled down."""

    reason: Reason
    is_failure: bool = False
    """Whether only a person can change it."""
    requeue_after: timedelta | None = None
    next_downscale: timedelta | None = None
    """Time until it may, where time alone changes it."""


class _Downscale(msgspec.Struct, frozen=True, kw_only=True):
    """One downscale that is wanted."""

    sts: StatefulSet
    replicas: int
    desired: DesiredReplicas
    scaling: ScalingSnapshot

    @property
    def group(self) -> Group:
        return self.scaling.group

    @property
    def others(self) -> tuple[Zone, ...]:
        zones = order_zones(self.group.zones)
        return tuple(zone for zone in zones if zone.sts.uid != self.sts.uid)

    @property
    def is_guarded(self) -> bool:
        """Return whether a review will judge it."""
        return is_labelled(self.sts.labels, PREPARE_DOWNSCALE)

    @property
    def decrease(self) -> Decrease:
        sts = self.sts
        return Decrease(
            resource="statefulsets",
            namespace=sts.namespace,
            name=sts.name,
            replicas_from=sts.replicas,
            replicas_to=self.replicas,
        )

    @property
    def change(self) -> str:
        return self.desired.render(self.sts.replicas, self.replicas)

    def wait(self, code: Code, why: str, severity: Severity = Severity.INFO) -> ScaleDownBlocker:
        text = f"{self.change} waits: {why}"
        return ScaleDownBlocker(reason=Reason(code, text, severity, self.sts.name))


def assess_scale_down(
    sts: StatefulSet, replicas: int, desired: DesiredReplicas, scaling: ScalingSnapshot
) -> ScaleDownBlocker | None:
    """Return why a zone may not be scaled down to `replicas` now, None where it may."""
    case = _Downscale(sts=sts, replicas=replicas, desired=desired, scaling=scaling)
    return (
        _find_unknown(case)
        or _find_underway(case)
        or _find_recent(case)
        or (_find_refusal(case) if case.is_guarded else _find_rollout(case))
    )


def _find_unknown(case: _Downscale) -> ScaleDownBlocker | None:
    """Return what is not known of the group."""
    if case.group.snapshot_age > SNAPSHOT_LIMIT:
        blocker = case.wait(Code.SNAPSHOT_STALE, STALE_SNAPSHOT, Severity.WARN)
        return replace(blocker, requeue_after=STALE_RECHECK)
    if case.group.unreadable:
        first = min(
            case.group.unreadable, key=lambda broken: (broken.kind, broken.name, broken.uid)
        )
        why = f"{first.kind} {first.name} cannot be read: {first.error}"
        return case.wait(Code.OBJECT_UNREADABLE, why, Severity.WARN)
    if case.scaling.times_problem:
        return case.wait(Code.BAD_DOWNSCALE_TIME, case.scaling.times_problem, Severity.WARN)
    return None


def _find_underway(case: _Downscale) -> ScaleDownBlocker | None:
    """Return another downscale of the group that has not come to its end yet."""
    underway = case.group.downscale
    if underway is None or underway.zone == case.sts.name:
        underway = _find_unseen(case)
    if underway is None:
        return None
    return case.wait(Code.DOWNSCALE_UNDERWAY, underway.text)


def _find_unseen(case: _Downscale) -> Underway | None:
    """Return a downscale that we wrote and that the cache does not show."""
    for zone in case.others:
        sts, replicas = zone.sts, count_replicas(zone.sts, case.scaling)
        if is_unseen(sts, case.scaling) and replicas < sts.replicas:
            return Underway(zone=sts.name, replicas_from=sts.replicas, replicas_to=replicas)
    return None


def _find_recent(case: _Downscale) -> ScaleDownBlocker | None:
    """Return the downscale of another zone after which this must still wait (D-22)."""
    if not case.desired.keeps_apart and not case.is_guarded:
        return None
    sts, scaling = case.sts, case.scaling
    others = [zone.sts for zone in case.others]
    recent = list_recent(sts, others, scaling.times, case.group.now, scaling.source)
    if isinstance(recent, BadTime):
        text = f"StatefulSet {recent.sts.name}: {recent.why}; {sts.name} is not scaled down"
        reason = Reason(Code.BAD_DOWNSCALE_TIME, text, Severity.WARN, sts.name)
        return ScaleDownBlocker(reason=reason, is_failure=True)
    key = MIN_TIME_BETWEEN_DOWNSCALES
    has_own = key in sts.annotations or key in sts.labels
    is_needed = case.desired.must_name_time and knows_downscale(
        others, scaling.times, scaling.source
    )
    if is_needed and not has_own:
        why = f"not set, nor as label, and another zone was scaled down before: {case.change}"
        return ScaleDownBlocker(
            reason=complain(sts, Code.WAIT_TIME_MISSING, key, why), is_failure=True
        )
    return _wait_for(case, max(recent, key=lambda downscale: downscale.left)) if recent else None


def _wait_for(case: _Downscale, recent: Recent) -> ScaleDownBlocker:
    earlier = (
        f"last downscale {recent.sts.name} {format_moment(recent.last)},"
        f" wait {format_duration(recent.wait)}"
        f"{hint_future(recent, case.group.now, case.scaling.source)}"
    )
    text, stable_text = (
        f"{case.change} in {format_left(recent.left)}, {earlier}",
        f"{case.change}, {earlier}",
    )
    reason = Reason(Code.ZONE_DOWNSCALED_LATELY, text, zone=case.sts.name, stable_text=stable_text)
    return ScaleDownBlocker(reason=reason, requeue_after=recent.left, next_downscale=recent.left)


def _find_refusal(case: _Downscale) -> ScaleDownBlocker | None:
    """Return what a review would refuse the downscale for, beyond what was found before."""
    sts, decrease = case.sts, case.decrease
    # What is underway in the zone itself does not block it: then it is the same downscale, or
    # its review says what is wrong.
    group = replace(case.group, downscale=None)
    blocker = find_blocker(decrease, sts, group, case.scaling.times, case.scaling.source)
    if blocker is None:
        return None
    left = [zone.counts_for for zone in group.departed if zone.counts_for is not None]
    return replace(case.wait(blocker.code, blocker.why), requeue_after=min(left, default=None))


def _find_rollout(case: _Downscale) -> ScaleDownBlocker | None:
    """Return the rollout of another zone that has pods down (D-25, SEED-110).

    A zone that is short for other reasons blocks nothing (T-03 row 6). No zone holds newcomers back
    (D-67), or by a person's word pods that do not run.
    """
    group = case.group
    takes = takes_idle_only if case.desired.is_forced else takes_newcomers_only
    if takes(case.sts, case.decrease, group):
        return None
    for readiness in measure_departed(group):
        if not readiness.is_whole:
            left = explain_left(readiness)
            return replace(
                case.wait(left.code, left.text, left.severity), requeue_after=readiness.counts_for
            )
    for zone in case.others:
        readiness = measure_readiness(zone, group.deletions, group.now)
        is_moving = (
            count_outdated_used(readiness) > 0
            or zone.sts.current_revision != zone.sts.update_revision
            or any(pod.uid in group.deletions for pod in zone.pods)
        )
        if readiness.unavailable and is_moving:
            why = f"{zone.sts.name} is being rolled out: {render_readiness(readiness)}"
            return case.wait(Code.ROLLOUT_UNDERWAY, why)
    return None
