"""Decide the replica counts of a whole group: the one way into scaling, and the order of concerns.

First what each zone should count (`following`, `mirroring`), then what holds it back. An upscale is
held by nothing but the zone that it follows. A downscale needs the consent of its pods
(`pod_answers`) and of its group (`permission`), and there is one at a time. What goes wrong with
one zone stays with it (W-42).
"""

from collections.abc import Iterable
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.group import Zone
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import (
    CallPods,
    Reference,
    ScaleZone,
    ScalingPlan,
    ScalingSnapshot,
)
from rollout_operator.planning.rollout.newcomers import count_used, find_settling
from rollout_operator.planning.rollout.zones import order_zones
from rollout_operator.planning.scaling.delays import StayingPods, choose_staying
from rollout_operator.planning.scaling.desired import DesiredReplicas, count_replicas, is_unseen
from rollout_operator.planning.scaling.following import (
    Leads,
    choose_following,
    follows,
    keeps_time,
    map_leads,
)
from rollout_operator.planning.scaling.mirroring import (
    choose_mirrored,
    choose_published,
    group_mirrors,
)
from rollout_operator.planning.scaling.permission import assess_scale_down
from rollout_operator.planning.scaling.pod_answers import WantedDownscale, evaluate_answers
from rollout_operator.planning.wording import count, verb


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods of one zone should be sent."""

    zone: StatefulSet
    stays: StayingPods
    post: tuple[Endpoint, ...] = ()
    has_new: bool = False


class _Draft(msgspec.Struct):
    """The plan so far."""

    scale: list[ScaleZone] = []
    messages: list[_Message] = []
    waits: list[Reason] = []
    problems: list[Reason] = []
    failed: set[str] = set()
    times: list[timedelta] = []
    next_downscales: list[timedelta] = []

    @property
    def downscale(self) -> ScaleZone | None:
        return next((change for change in self.scale if change.is_downscale), None)

    def record_time(self, time: timedelta | None) -> None:
        if time is not None:
            self.times.append(time)


def plan_scaling(scaling: ScalingSnapshot) -> ScalingPlan:
    """Return all that one snapshot of the replicas of a group leads to.

    The same snapshot gives an equal plan, in whatever order its zones and pods come. A group in
    which every count is what it should be gives an empty plan.
    """
    zones = order_zones(scaling.group.zones)
    leads = map_leads(zones)
    draft = _Draft()
    for zone in zones:
        draft.record_time(find_settling(zone))
    for zone in zones:
        _plan_zone(zone, _choose_desired(zone.sts, leads, scaling), scaling, draft)
    scaled = {change.zone.uid for change in draft.scale}
    return ScalingPlan(
        group=scaling.group.name,
        scale=tuple(draft.scale),
        publish=choose_published([zone.sts for zone in zones], scaled, scaling),
        pod_calls=_choose_calls(draft),
        waits=tuple(draft.waits),
        problems=tuple(draft.problems),
        failed=frozenset(draft.failed),
        requeue_after=min(draft.times, default=None),
        next_downscale=min(draft.next_downscales, default=None),
    )


def list_references(sets: Iterable[StatefulSet]) -> tuple[Reference, ...]:
    """Return what these sets mirror, each once and in order."""
    return tuple(group_mirrors(sets))


def _choose_desired(sts: StatefulSet, leads: Leads, scaling: ScalingSnapshot) -> DesiredReplicas:
    if follows(sts):
        return choose_following(sts, leads, scaling)
    return choose_mirrored(sts, leads.followed, scaling)


def _plan_zone(
    zone: Zone, desired: DesiredReplicas, scaling: ScalingSnapshot, draft: _Draft
) -> None:
    """Add what becomes of one zone."""
    draft.waits += desired.waits
    draft.problems += desired.problems
    sts, now, wanted = zone.sts, count_replicas(zone.sts, scaling), desired.replicas
    if desired.is_failure:
        draft.failed.add(sts.name)
    if wanted is None:
        return
    if wanted < now:
        _plan_downscale(zone, wanted, desired, scaling, draft)
        return
    if desired.delay is not None:
        stays = choose_staying(zone, now, desired.delay, scaling)
        draft.record_time(stays.requeue_after)
        draft.messages.append(_Message(zone=sts, stays=stays))
    if wanted > now and _may_move(sts, desired.render(now, wanted), scaling, draft):
        draft.scale.append(_scale(sts, wanted, desired, Code.SCALE_UP, scaling))


def _plan_downscale(
    zone: Zone, wanted: int, desired: DesiredReplicas, scaling: ScalingSnapshot, draft: _Draft
) -> None:
    if not desired.may_shrink:
        draft.failed.add(zone.sts.name)
    elif desired.delay is not None:
        _plan_delayed(zone, wanted, desired, scaling, draft)
    elif _is_permitted(zone.sts, wanted, desired, scaling, draft):
        draft.scale.append(_scale(zone.sts, wanted, desired, Code.SCALE_DOWN, scaling))


def _plan_delayed(
    zone: Zone, wanted: int, desired: DesiredReplicas, scaling: ScalingSnapshot, draft: _Draft
) -> None:
    """Add what becomes of a zone whose pods have a say."""
    assert desired.delay is not None, "checked by the caller"
    sts, now = zone.sts, count_replicas(zone.sts, scaling)
    change = desired.render(now, wanted)
    downscale = WantedDownscale(
        zone=zone, replicas_from=now, replicas_to=wanted, change=change, is_forced=desired.is_forced
    )
    answers = evaluate_answers(downscale, desired.delay, scaling)
    stays = choose_staying(zone, wanted, desired.delay, scaling)
    post = answers.post
    if answers.replicas > wanted:
        desired = replace(desired, suffix=f"{desired.suffix}, on the way to {wanted}")
    if answers.wait is not None:
        draft.waits.append(answers.wait)
    elif _is_permitted(sts, answers.replicas, desired, scaling, draft):
        if answers.confirm:
            post = answers.confirm
            draft.waits.append(_render_confirmation(sts, change, len(post)))
        else:
            draft.scale.append(_scale(sts, answers.replicas, desired, Code.SCALE_DOWN, scaling))
    draft.messages.append(_Message(zone=sts, stays=stays, post=post, has_new=answers.has_new))
    draft.record_time(answers.requeue_after)
    draft.record_time(stays.requeue_after)


def _is_permitted(
    sts: StatefulSet,
    replicas: int,
    desired: DesiredReplicas,
    scaling: ScalingSnapshot,
    draft: _Draft,
) -> bool:
    """Return whether a zone may be scaled down now; add why not."""
    change = desired.render(count_replicas(sts, scaling), replicas)
    if sts.uid in scaling.held or not _may_move(sts, change, scaling, draft):
        return False
    blocker = assess_scale_down(sts, replicas, desired, scaling)
    if blocker is None and draft.downscale is None:
        return True
    if blocker is None:
        assert draft.downscale is not None, "else it would be granted"
        text = f"{change} waits: {draft.downscale.zone.name} is scaled down first"
        draft.waits.append(Reason(Code.DOWNSCALE_UNDERWAY, text, zone=sts.name))
        return False
    if blocker.is_failure:
        draft.failed.add(sts.name)
        draft.problems.append(blocker.reason)
    else:
        draft.waits.append(blocker.reason)
    draft.record_time(blocker.requeue_after)
    if blocker.next_downscale is not None:
        draft.next_downscales.append(blocker.next_downscale)
    return False


def _may_move(sts: StatefulSet, change: str, scaling: ScalingSnapshot, draft: _Draft) -> bool:
    """Return whether the count of a set may be changed at all; add why not."""
    if sts.is_terminating:
        text = f"{change} waits: {sts.name} is being deleted"
        draft.waits.append(Reason(Code.SET_TERMINATING, text, zone=sts.name))
        return False
    if is_unseen(sts, scaling):
        written = count_replicas(sts, scaling)
        text = f"{change} waits: the cache does not show yet that {sts.name} was set to {written}"
        draft.waits.append(Reason(Code.SNAPSHOT_CHANGED, text, Severity.DEBUG, sts.name))
        return False
    return True


def _scale(
    sts: StatefulSet, replicas: int, desired: DesiredReplicas, code: Code, scaling: ScalingSnapshot
) -> ScaleZone:
    reason = Reason(code, desired.render(sts.replicas, replicas), zone=sts.name)
    is_kept = code is Code.SCALE_DOWN and keeps_time(
        sts, [zone.sts for zone in scaling.group.zones]
    )
    is_exact = code is Code.SCALE_DOWN and _goes_by_state(sts, desired, scaling)
    return ScaleZone(
        zone=sts, replicas=replicas, reason=reason, keeps_time=is_kept, is_exact=is_exact
    )


def _goes_by_state(sts: StatefulSet, desired: DesiredReplicas, scaling: ScalingSnapshot) -> bool:
    """Return whether pods go only because they were not up when their zone was observed."""
    own = next(zone for zone in scaling.group.zones if zone.sts.uid == sts.uid)
    return desired.is_forced or count_used(own) < sts.replicas


def _render_confirmation(sts: StatefulSet, change: str, pods: int) -> Reason:
    text = f"{change} waits: {count(pods, 'pod')} {verb(pods, 'is', 'are')} called once more"
    return Reason(Code.DELAYED_BY_PODS, text, Severity.DEBUG, sts.name)


def _choose_calls(draft: _Draft) -> tuple[CallPods, ...]:
    """Return which pods to call now.

    Where a zone moves, or is about to, no other pod is un-prepared as a matter of routine
    (T-05 row 14): that is for the next reconcile.
    """
    scaled = {change.zone.uid for change in draft.scale}
    is_busy = bool(scaled) or any(message.has_new for message in draft.messages)
    pod_calls: list[CallPods] = []
    for message in draft.messages:
        is_part = bool(message.post) or message.zone.uid in scaled
        routine = message.stays.routine if is_part or not is_busy else ()
        cancel = (*message.stays.due, *routine)
        if cancel or message.post:
            pod_calls.append(CallPods(zone=message.zone, cancel=cancel, post=message.post))
    return tuple(pod_calls)
