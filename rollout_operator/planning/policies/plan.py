"""Decide for a policy: which batch begins next, or what holds it.

First what stops everything, then which zone and StatefulSet has its turn, then which of its pods.
The pods are chosen by `rollout.pods`, as for a label group: broken outdated ones go first, cost no
budget and wait for no pause. Healthy ones go while no batch is open and no pause runs. What a plan
deletes is in the batch that it records: one that was recorded, and not carried out, goes on.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import (
    Code,
    EqualPods,
    Reason,
    RecordRevision,
    Replacement,
    ReplacePods,
    Severity,
)
from rollout_operator.model.policy.plan import (
    Batch,
    PolicyPlan,
    PolicySnapshot,
)
from rollout_operator.model.policy.policy import PodOrder
from rollout_operator.model.policy.zones import ZoneFindingCode, ZonesCode
from rollout_operator.model.units import format_duration, format_rfc3339
from rollout_operator.planning.policies.batches import (
    compute_deadline,
    find_open,
    find_pause_end,
    has_superseded,
    list_left,
    open_batch,
    settle_batch,
)
from rollout_operator.planning.policies.members import (
    PolicyZone,
    choose_zone,
    count_zone,
    list_readinesses,
    list_zones,
)
from rollout_operator.planning.rollout.plan import plan_group
from rollout_operator.planning.rollout.pods import choose_pods, count_outdated
from rollout_operator.planning.rollout.readiness import Readiness, render_readiness
from rollout_operator.planning.rollout.zones import (
    find_group_blocker,
    is_paused,
    list_warnings,
    order_zones,
)
from rollout_operator.planning.wording import count, join_names, verb


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A snapshot that nothing stops as a whole, and what is known of its batch."""

    snapshot: PolicySnapshot
    zones: tuple[PolicyZone, ...]
    batch: Batch | None
    """As it is to be recorded."""
    open: Batch | None
    pause_end: datetime | None

    @property
    def now(self) -> datetime:
        return self.snapshot.group.now


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What the case comes to."""

    readiness: Readiness | None = None
    zone: PolicyZone | None = None
    pods: tuple[Replacement, ...] = ()
    wait: Reason | None = None


def plan_policy(snapshot: PolicySnapshot) -> PolicyPlan:
    """Return all that one snapshot of a policy leads to; equal snapshots give equal plans."""
    problems = list_warnings(order_zones(snapshot.group.zones))
    stops, requeue_after = _list_stops(snapshot)
    if stops:
        return PolicyPlan(
            batch=snapshot.batch, waits=stops, requeue_after=requeue_after, problems=problems
        )
    case = _open_case(snapshot)
    step = _choose_step(case)
    plan = PolicyPlan(
        batch=_record_batch(case, step),
        action=_replace_pods(step),
        records=_list_records(case),
        waits=(step.wait,) if step.wait else (),
        target=step.readiness.sts.name if step.readiness else "",
        next_batch=case.pause_end if _is_pause(step.wait) else None,
        zones=tuple(map(count_zone, case.zones)),
        problems=problems,
    )
    return _with_deadlines(plan, case)


def _list_stops(snapshot: PolicySnapshot) -> tuple[tuple[Reason, ...], timedelta | None]:
    """Return what stops everything, and when to look again."""
    group, resolution = snapshot.group, snapshot.resolution
    if not group.zones and not group.unreadable:
        text = "the policy selects no StatefulSet"
        return (Reason(Code.NO_STATEFUL_SETS, text),), None
    if resolution.code is ZonesCode.SPANS_ZONES:
        findings = (one for one in resolution.findings if one.code is ZoneFindingCode.SPANS_ZONES)
        text = "; ".join(one.text for one in findings)
        return (Reason(Code.STATEFUL_SET_SPANS_ZONES, text, Severity.ERROR),), None
    if blocker := find_group_blocker(group):
        return blocker.reasons, blocker.requeue_after
    placed = {one.name for zone in resolution.zones for one in zone.sets}
    if lost := sorted({zone.sts.name for zone in group.zones} - placed):
        text = f"{join_names(lost)} {verb(len(lost), 'is', 'are')} in no zone yet"
        return (Reason(Code.ZONE_NOT_FOUND, text, Severity.DEBUG),), None
    return (), None


def _open_case(snapshot: PolicySnapshot) -> _Case:
    zones, policy = list_zones(snapshot), snapshot.policy
    now, latest = snapshot.group.now, snapshot.latest
    readinesses = list_readinesses(zones)
    batch = settle_batch(snapshot.batch, readinesses, policy, now, latest)
    return _Case(
        snapshot=snapshot,
        zones=zones,
        batch=batch,
        open=find_open(batch, readinesses),
        pause_end=find_pause_end(batch, readinesses, policy, now, latest),
    )


def _choose_step(case: _Case) -> _Step:
    short = [zone for zone in case.zones if not zone.is_whole]
    if len(short) > 1:
        text = "; ".join(map(_render_short, short))
        return _Step(wait=Reason(Code.SEVERAL_ZONES_NOT_READY, text, Severity.WARN))
    zone = short[0] if short else _find_unfinished(case) or choose_zone(case.zones, case.batch)
    if zone is None:
        return _Step(wait=_explain_rest(case.zones))
    if not zone.waiting:
        return _Step(wait=_explain_short(case, zone))
    scaling = [f"zone {one.name}" for one in case.zones if one.is_scaling and one is not zone]
    if scaling:
        names = f"{join_names(scaling)} {verb(len(scaling), 'is', 'are')}"
        text = f"{names} being scaled, zone {zone.name} waits"
        return _Step(wait=Reason(Code.ZONE_SCALING, text))
    return _plan_zone(case, zone)


def _find_unfinished(case: _Case) -> PolicyZone | None:
    """Return the zone with pods that an open batch has recorded, and that were not deleted."""
    batch = case.open
    if batch is None:
        return None
    return next((zone for zone in case.zones if any(_list_left(case, zone))), None)


def _list_left(case: _Case, zone: PolicyZone) -> Iterator[Readiness]:
    return (
        readiness for readiness in zone.readinesses if case.open and list_left(case.open, readiness)
    )


def _plan_zone(case: _Case, zone: PolicyZone) -> _Step:
    """Return the pods of one StatefulSet that go now, and else why none does.

    Broken ones of any StatefulSet go first. Then an unfinished batch goes on, then the first one by
    name has its turn.
    """
    shares = [(readiness, _share_pods(case, zone, readiness)) for readiness in zone.waiting]
    for readiness, (broken, _) in shares:
        if pods := broken if not case.snapshot.policy.is_paused else _keep_recorded(case, broken):
            return _Step(zone=zone, readiness=readiness, pods=pods)
    begun = next(_list_left(case, zone), zone.waiting[0])
    readiness, (_, healthy) = next(one for one in shares if one[0] is begun)
    held = _find_hold(case, readiness)
    if pods := healthy if held is None else _keep_recorded(case, healthy):
        return _Step(zone=zone, readiness=readiness, pods=pods)
    return _Step(zone=zone, readiness=readiness, wait=held or _explain_short(case, zone))


def _share_pods(
    case: _Case, zone: PolicyZone, readiness: Readiness
) -> tuple[tuple[Replacement, ...], tuple[Replacement, ...]]:
    """Return the broken pods, and the healthy ones for which the budget of the zone has room.

    That is less than `choose_pods` has for a StatefulSet alone: of 10 pods and 25 %, with one
    unavailable in another StatefulSet of the zone, one may go.
    """
    policy = case.snapshot.policy
    limit = policy.max_unavailable.of(readiness.sts.replicas)
    action, _ = choose_pods(readiness, limit)
    shares = () if action is None else action.shares
    broken = [one for share in shares if not _is_healthy(share) for one in share.pods[: share.room]]
    healthy = [one for share in shares if _is_healthy(share) for one in share.pods]
    if policy.pod_order is PodOrder.DESCENDING:
        healthy.reverse()
    recorded = _list_recorded(case)
    healthy.sort(key=lambda one: one.pod.uid not in recorded)
    return tuple(broken), tuple(healthy[: max(limit - zone.unavailable, 0)])


def _is_healthy(share: EqualPods) -> bool:
    return share.pods[0].reason.code is Code.POD_OUTDATED


def _list_recorded(case: _Case) -> frozenset[Uid]:
    return frozenset(one.uid for one in case.open.pods) if case.open else frozenset()


def _keep_recorded(case: _Case, pods: Iterable[Replacement]) -> tuple[Replacement, ...]:
    """Return the pods that an open batch has recorded: nothing interrupts it (MAZ-46)."""
    recorded = _list_recorded(case)
    return tuple(one for one in pods if one.pod.uid in recorded)


def _find_hold(case: _Case, readiness: Readiness) -> Reason | None:
    """Return what holds the healthy pods of a StatefulSet that has its turn."""
    policy, name = case.snapshot.policy, readiness.sts.name
    if policy.is_paused:
        outdated = count_outdated(readiness)
        pods = f"{count(outdated, 'outdated pod')} of {name} {verb(outdated, 'waits', 'wait')}"
        return Reason(Code.POLICY_PAUSED, f"the policy is paused: {pods}", zone=name)
    # Without a pause the next pod goes as soon as one is back (MAZ-42), of one StatefulSet.
    if case.open and (policy.interval or case.open.set_name != name):
        return _explain_open(case, case.open)
    if case.pause_end and not has_superseded(case.batch, readiness):
        end, pause = format_rfc3339(case.pause_end), format_duration(policy.interval)
        text = f"{name} waits for the end of a pause of {pause}, at {end}"
        return Reason(Code.INTERVAL_WAIT, text, zone=name)
    return None


def _explain_short(case: _Case, zone: PolicyZone) -> Reason:
    if case.open and case.open.zone == zone.name:
        return _explain_open(case, case.open)
    return Reason(Code.ZONE_NOT_READY, _render_short(zone))


def _explain_open(case: _Case, batch: Batch) -> Reason:
    short = [_render_short(zone) for zone in case.zones if not zone.is_whole]
    text = f"batch {batch.number} of {batch.set_name} is open: {'; '.join(short)}"
    return Reason(Code.BATCH_OPEN, text, zone=batch.set_name)


def _render_short(zone: PolicyZone) -> str:
    readinesses = [
        render_readiness(readiness) for readiness in zone.readinesses if not readiness.is_whole
    ]
    return f"zone {zone.name}: {', '.join(readinesses)}"


def _explain_rest(zones: Iterable[PolicyZone]) -> Reason:
    """Return why nothing goes although nothing holds it: all is updated, or paused by itself."""
    readinesses = list_readinesses(zones)
    if paused := [
        readiness.sts.name
        for readiness in readinesses
        if is_paused(readiness.sts) and count_outdated(readiness)
    ]:
        text = f"{join_names(paused)} {verb(len(paused), 'is', 'are')} paused with outdated pods"
        return Reason(Code.PAUSED, text)
    pods = sum(readiness.used for readiness in readinesses)
    sets = count(len(readinesses), "StatefulSet")
    text = f"{count(pods, 'pod')} of {sets}: all at the update revision"
    return Reason(Code.UP_TO_DATE, text)


def _record_batch(case: _Case, step: _Step) -> Batch | None:
    """Return what is to be recorded before anything is deleted (step 12)."""
    pods = [one.pod for one in step.pods]
    recorded = _list_recorded(case)
    if step.readiness is None or step.zone is None or all(pod.uid in recorded for pod in pods):
        return case.batch
    return open_batch(case.batch, step.readiness, zone=step.zone.name, pods=pods, now=case.now)


def _replace_pods(step: _Step) -> ReplacePods | None:
    """Return the pods of a step; what is not recorded is not tried instead of one of them."""
    if step.readiness is None or not step.pods:
        return None
    share = EqualPods(pods=step.pods, room=len(step.pods))
    return ReplacePods(zone=step.readiness.sts, shares=(share,))


def _list_records(case: _Case) -> tuple[RecordRevision, ...]:
    """Return the StatefulSets that are rolled out, as a label group of each of them alone would."""
    group = case.snapshot.group
    whole = {
        readiness.sts.uid
        for readiness in list_readinesses(case.zones)
        if readiness.is_whole and not count_outdated(readiness)
    }
    plans = [
        plan_group(replace(group, zones=(zone,)))
        for zone in order_zones(group.zones)
        if zone.sts.uid in whole and zone.sts.current_revision != zone.sts.update_revision
    ]
    actions = [action for plan in plans for action in plan.actions]
    return tuple(one for one in actions if isinstance(one, RecordRevision))


def _is_pause(wait: Reason | None) -> bool:
    return wait is not None and wait.code is Code.INTERVAL_WAIT


def _with_deadlines(plan: PolicyPlan, case: _Case) -> PolicyPlan:
    """Return the plan with when to look again, and whether its batch has stalled (MAZ-44)."""
    readinesses, now = list_readinesses(case.zones), case.now
    open_one = find_open(plan.batch, readinesses)
    times = [
        wait
        for readiness in readinesses
        for wait in (readiness.available_in, readiness.settles_in)
        if wait
    ]
    left = None
    if open_one is not None:
        left = compute_deadline(open_one, readinesses, case.snapshot.policy, now) - now
        times.append(left)
    if plan.next_batch is not None:
        times.append(plan.next_batch - now)
    return replace(
        plan,
        is_open=open_one is not None,
        is_stalled=left is not None and left <= timedelta(0),
        requeue_after=min((time for time in times if time > timedelta(0)), default=None),
    )
