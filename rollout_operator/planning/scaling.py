"""Decide the replicas of a whole group: what each zone should have, then what holds it back.

A zone follows another (`replicas`) or mirrors an object with a `scale` subresource, decided here
(MIRR-01..11); `kube` finds and reads that object. One value is published there for all zones that
mirror it (W-19), of the zone furthest from what is wanted.

An upscale waits for nothing but the zone that it follows. Downscales go one at a time, with the
consent of their pods (`delays`) and their group: zones with the label of prepare-downscale are
judged as a review judges them (D-22, D-25), for others only the time between zones and rollouts
count. A problem of one zone affects no other (W-42).
"""

import re
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    FORCE_REPLICAS,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    MIRROR_WRITE_BACK,
    PREPARE_DOWNSCALE,
    SCALING_ANNOTATIONS,
    InvalidInput,
    Uid,
)
from rollout_operator.model.objects import (
    Decrease,
    Endpoint,
    Group,
    StatefulSet,
    Underway,
    Unreadable,
    Zone,
)
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import (
    CallPods,
    NoScale,
    PublishReplicas,
    Reference,
    Scale,
    ScaleZone,
    ScalingPlan,
    ScalingSnapshot,
)
from rollout_operator.model.units import format_duration, parse_go_bool
from rollout_operator.planning.delays import (
    StayingPods,
    WantedDownscale,
    choose_staying,
    evaluate_answers,
    find_half_delay,
    read_delay,
)
from rollout_operator.planning.downscales import (
    BadTime,
    Recent,
    find_blocker,
    format_left,
    format_moment,
    hint_future,
    knows_downscale,
    list_recent,
    takes_idle_only,
    takes_newcomers_only,
)
from rollout_operator.planning.readiness import (
    SNAPSHOT_LIMIT,
    STALE_RECHECK,
    STALE_SNAPSHOT,
    DownCause,
    count_used,
    explain_left,
    find_settling,
    measure_departed,
    measure_readiness,
    order_zones,
    render_readiness,
)
from rollout_operator.planning.replicas import (
    DesiredReplicas,
    choose_following,
    complain,
    count_replicas,
    follows,
    is_unseen,
    keeps_time,
    map_leads,
    read_force,
)
from rollout_operator.planning.requests import is_labelled, show
from rollout_operator.planning.rollout import count_outdated_used
from rollout_operator.planning.wording import count, verb

# Names become part of a URL path.
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class ScaleDownBlocker(msgspec.Struct, frozen=True, kw_only=True):
    reason: Reason
    is_failure: bool = False
    """Whether only a person can change it."""
    requeue_after: timedelta | None = None
    next_downscale: timedelta | None = None
    """Time until the downscale, where time alone brings it."""


class _Downscale(msgspec.Struct, frozen=True, kw_only=True):
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


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """The calls for the pods of one zone."""

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
    """Plan the replicas of a group from one snapshot, whatever the order of zones and pods.

    A group in which every count is as it should be gives an empty plan.
    """
    zones = order_zones(scaling.group.zones)
    leads = map_leads(zones)
    draft = _Draft()
    for zone in zones:
        draft.record_time(find_settling(zone))
        if follows(zone.sts):
            desired = choose_following(zone.sts, leads, scaling)
        else:
            desired = choose_mirrored(zone.sts, leads.followed, scaling)
        _plan_zone(zone, desired, scaling, draft)
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


def assess_scale_down(
    sts: StatefulSet, replicas: int, desired: DesiredReplicas, scaling: ScalingSnapshot
) -> ScaleDownBlocker | None:
    case = _Downscale(sts=sts, replicas=replicas, desired=desired, scaling=scaling)
    return (
        _find_unknown(case)
        or _find_underway(case)
        or _find_recent(case)
        or (_find_refusal(case) if case.is_guarded else _find_rollout(case))
    )


def choose_mirrored(
    sts: StatefulSet, followed: Collection[str], scaling: ScalingSnapshot
) -> DesiredReplicas:
    """Return what the replicas of a set that follows no zone should become.

    `followed` has the names of zones that others follow: they keep the time between zones.
    """
    reference = find_reference(sts)
    if reference is None:
        return DesiredReplicas(problems=_list_idle_annotations(sts))
    force = read_force(sts)
    problems = tuple(
        problem for problem in (force, read_write_back(sts)) if isinstance(problem, Reason)
    )
    if isinstance(reference, Reason):
        return DesiredReplicas(problems=(reference, *problems), is_failure=True)
    desired = replace(
        _read_count(sts, reference, scaling),
        what=f"{sts.name} mirrors {reference}",
        keeps_apart=sts.name in followed,
    )
    if isinstance(force, int):
        suffix = f", forced by {FORCE_REPLICAS}"
        desired = replace(
            desired, replicas=force, suffix=suffix, is_forced=True, waits=(), is_failure=False
        )
    return _add_delay(sts, replace(desired, problems=(*desired.problems, *problems)))


def choose_published(
    sets: Iterable[StatefulSet], scaled: Collection[Uid], scaling: ScalingSnapshot
) -> tuple[PublishReplicas, ...]:
    """Return what to publish, in the order of references.

    Zones of other groups count too, so that no two groups publish against each other. While one of
    the zones is in `scaled`, nothing is published: it would be written twice.
    """
    published: list[PublishReplicas] = []
    others = group_mirrors(scaling.elsewhere)
    for reference, mirrors in group_mirrors(sets).items():
        scale = scaling.scales.get(reference)
        publishing = [sts for sts in mirrors if read_write_back(sts) is True]
        if not isinstance(scale, Scale) or not publishing:
            continue
        if any(sts.uid in scaled for sts in publishing):
            continue
        publishing += [sts for sts in others.get(reference, ()) if read_write_back(sts) is True]
        replicas, last = _choose_furthest(publishing, scale.replicas, scaling)
        if replicas != scale.status_replicas:
            text = (
                f"{reference}: status.replicas {scale.status_replicas} → {replicas},"
                f" as {last.name} has; {scale.replicas} wanted"
            )
            reason = Reason(Code.SCALE_PUBLISHED, text, zone=last.name)
            published.append(PublishReplicas(reference=reference, replicas=replicas, reason=reason))
    return tuple(published)


def find_reference(sts: StatefulSet) -> Reference | Reason | None:
    """Return the object that a set mirrors, or what is wrong with its annotations (MIRR-02, 03).

    Only the group of the `api-version` matters.
    """
    name = sts.annotations.get(MIRROR_NAME, "")
    kind = sts.annotations.get(MIRROR_KIND, "")
    if not name or not kind:
        return None
    written = sts.annotations.get(MIRROR_API_VERSION, "")
    group = written.rpartition("/")[0]
    if group and not _NAME.fullmatch(group):
        why = f"{show(written)} is neither group/version nor version"
        return complain(sts, Code.BAD_REFERENCE, MIRROR_API_VERSION, why)
    if not _KIND.fullmatch(kind):
        return complain(sts, Code.BAD_REFERENCE, MIRROR_KIND, f"{show(kind)} is no kind")
    if not _NAME.fullmatch(name) or ".." in name:
        why = f"{show(name)} is no name of an object"
        return complain(sts, Code.BAD_REFERENCE, MIRROR_NAME, why)
    return Reference(group, kind, name)


def group_mirrors(sets: Iterable[StatefulSet]) -> dict[Reference, list[StatefulSet]]:
    """Group sets by what they mirror, in the order of references."""
    mirrors: dict[Reference, list[StatefulSet]] = {}
    for sts in sets:
        reference = None if follows(sts) else find_reference(sts)
        if isinstance(reference, Reference):
            mirrors.setdefault(reference, []).append(sts)
    return dict(sorted(mirrors.items()))


def is_scaled(members: Iterable[StatefulSet | Unreadable]) -> bool:
    return any(
        isinstance(member, StatefulSet) and not SCALING_ANNOTATIONS.isdisjoint(member.annotations)
        for member in members
    )


def list_references(sets: Iterable[StatefulSet]) -> tuple[Reference, ...]:
    return tuple(group_mirrors(sets))


def read_write_back(sts: StatefulSet) -> bool | Reason:
    """Return whether the replicas are published, or what is wrong with the annotation."""
    try:
        return parse_go_bool(sts.annotations.get(MIRROR_WRITE_BACK, "true"))
    except InvalidInput as error:
        why = f"{error}; nothing is published of {sts.name}"
        return complain(sts, Code.BAD_SCALING_SWITCH, MIRROR_WRITE_BACK, why)


def _find_unknown(case: _Downscale) -> ScaleDownBlocker | None:
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
    underway = case.group.downscale
    if underway is None or underway.zone == case.sts.name:
        underway = _find_unseen(case)
    if underway is None:
        return None
    return case.wait(Code.DOWNSCALE_UNDERWAY, underway.text)


def _find_unseen(case: _Downscale) -> Underway | None:
    """Return a downscale that we wrote and the cache does not show yet."""
    for zone in case.others:
        sts, replicas = zone.sts, count_replicas(zone.sts, case.scaling)
        if is_unseen(sts, case.scaling) and replicas < sts.replicas:
            return Underway(zone=sts.name, replicas_from=sts.replicas, replicas_to=replicas)
    return None


def _find_recent(case: _Downscale) -> ScaleDownBlocker | None:
    """Return a too recent downscale of another zone (D-22)."""
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
    text = f"{case.change} in {format_left(recent.left)}, {earlier}"
    stable_text = f"{case.change}, {earlier}"
    reason = Reason(Code.ZONE_DOWNSCALED_LATELY, text, zone=case.sts.name, stable_text=stable_text)
    return ScaleDownBlocker(reason=reason, requeue_after=recent.left, next_downscale=recent.left)


def _find_refusal(case: _Downscale) -> ScaleDownBlocker | None:
    """Return for what a review would refuse the downscale."""
    sts, decrease = case.sts, case.decrease
    # A downscale of the zone itself does not block it: it is the same, or its review says why not.
    group = replace(case.group, downscale=None)
    blocker = find_blocker(decrease, sts, group, case.scaling.times, case.scaling.source)
    if blocker is None:
        return None
    left = [zone.counts_for for zone in group.departed if zone.counts_for is not None]
    return replace(case.wait(blocker.code, blocker.why), requeue_after=min(left, default=None))


def _find_rollout(case: _Downscale) -> ScaleDownBlocker | None:
    """Return the rollout of another zone that has pods down (D-25, SEED-110).

    Zones short for other reasons do not block (T-03 row 6). Newcomers always go (D-67), and with a
    forced count pods that do not run.
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
            # Since Kubernetes 1.37 the revision is recorded before pods are ready long enough.
            or any(down.why is DownCause.SETTLING for down in readiness.down)
            or any(pod.uid in group.deletions for pod in zone.pods)
        )
        if readiness.unavailable and is_moving:
            why = f"{zone.sts.name} is being rolled out: {render_readiness(readiness)}"
            return case.wait(Code.ROLLOUT_UNDERWAY, why)
    return None


def _choose_furthest(
    sets: Iterable[StatefulSet], wanted: int, scaling: ScalingSnapshot
) -> tuple[int, StatefulSet]:
    """Return the replicas furthest from what is wanted, and the first set that has them."""
    replicas = [(count_replicas(sts, scaling), sts) for sts in sets]
    return min(replicas, key=lambda pair: (-abs(pair[0] - wanted), pair[0]))


def _read_count(
    sts: StatefulSet, reference: Reference, scaling: ScalingSnapshot
) -> DesiredReplicas:
    reading = scaling.scales.get(reference)
    match reading:
        case Scale(replicas=replicas):
            return DesiredReplicas(replicas=replicas)
        case NoScale(why=why, is_lasting=True):
            problem = complain(sts, Code.BAD_REFERENCE, MIRROR_NAME, why)
            return DesiredReplicas(problems=(problem,), is_failure=True)
        case NoScale(why=why):
            text, severity = f"{sts.name} mirrors {reference}: {why}", Severity.INFO
        case None:
            text = f"{sts.name} mirrors {reference}, which has not been read yet"
            severity = Severity.DEBUG
    return DesiredReplicas(waits=(Reason(Code.REFERENCE_NOT_READ, text, severity, sts.name),))


def _add_delay(sts: StatefulSet, desired: DesiredReplicas) -> DesiredReplicas:
    delay = read_delay(sts)
    if isinstance(delay, Reason):
        return replace(desired, problems=(*desired.problems, delay), may_shrink=False)
    half = find_half_delay(sts)
    problems = desired.problems if half is None else (*desired.problems, half)
    return replace(desired, delay=delay, problems=problems)


def _list_idle_annotations(sts: StatefulSet) -> tuple[Reason, ...]:
    """Return the annotations that have no effect on a zone scaled by people."""
    reasons: list[Reason] = []
    for there, missing in ((MIRROR_NAME, MIRROR_KIND), (MIRROR_KIND, MIRROR_NAME)):
        if sts.annotations.get(there):
            why = f"annotation {missing} is not set or empty: nothing is mirrored"
            reasons.append(complain(sts, Code.BAD_REFERENCE, there, why))
    if FORCE_REPLICAS in sts.annotations:
        why = f"{sts.name} follows and mirrors nothing: it is ignored"
        reasons.append(complain(sts, Code.BAD_FORCE_REPLICAS, FORCE_REPLICAS, why))
    if sts.annotations.get(DOWNSCALE_DELAY):
        why = f"{sts.name} mirrors nothing: downscales are not delayed"
        reasons.append(complain(sts, Code.BAD_DELAY, DOWNSCALE_DELAY, why))
    return tuple(reasons)


def _plan_zone(
    zone: Zone, desired: DesiredReplicas, scaling: ScalingSnapshot, draft: _Draft
) -> None:
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
    """Plan the downscale of a zone whose pods must agree."""
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
            called = f"{count(len(post), 'pod')} {verb(len(post), 'is', 'are')} called once more"
            text = f"{change} waits: {called}"
            draft.waits.append(Reason(Code.DELAYED_BY_PODS, text, Severity.DEBUG, sts.name))
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
    """Return whether a zone may be scaled down now, and note why not."""
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
    """Return whether the replicas of a set may be changed at all, and note why not."""
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
    """Return whether pods go only because they were not up when observed."""
    own = next(zone for zone in scaling.group.zones if zone.sts.uid == sts.uid)
    return desired.is_forced or count_used(own) < sts.replicas


def _choose_calls(draft: _Draft) -> tuple[CallPods, ...]:
    """Return which pods to call now.

    While a zone moves, or is about to, no other pod is un-prepared as a routine (T-05 row 14).
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
