"""Decide for a policy: which batch begins next, or what holds it.

First what stops everything, then the walk over its zones that label groups use as well, then what
holds the pods it chose: `spec.paused`, an open batch, a pause, another zone being scaled. Broken
outdated pods go first, use no budget and wait for no pause. A batch is recorded before its pods are
deleted; one that was recorded and not carried out goes on.

With a zone for each StatefulSet, in the order of their names, no pause and the budget of the
annotations, a policy chooses the pods that a label group chooses. On purpose it differs where label
groups have nothing like it: a zone that was begun is finished first (MAZ-46), another zone being
scaled holds everything (MAZ-35), and no other pod replaces one that a budget refuses, because only
recorded pods may go.

When a batch is complete, its pause over or its deadline passed follows from the recorded status and
the pods alone, so that a restarted process decides the same. Times are the API server's, except
those of pods' conditions, which kubelets write: where one lies in the future, the creation of the
pod counts. The server's clock is known with an error: `now` has passed, `latest` has not. A pause
begins at `latest` and ends by `now`, so that no error shortens it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.names import ON_DELETE, Uid
from rollout_operator.model.objects import GateState, Group, Pod, StatefulSet
from rollout_operator.model.outcome import (
    Code,
    EqualPods,
    Reason,
    RecordRevision,
    Replacement,
    ReplacePods,
    Severity,
    find_leading,
)
from rollout_operator.model.policy import (
    MOST_BATCHES,
    Batch,
    BatchPod,
    PodOrder,
    Policy,
    PolicyPlan,
    PolicySnapshot,
    ZoneFindingCode,
    ZonesCode,
)
from rollout_operator.model.units import format_duration, format_next_second
from rollout_operator.planning.policy_zones import (
    count_zone,
    is_scaling,
    list_readinesses,
    list_zones,
    rank_begun,
)
from rollout_operator.planning.readiness import (
    Readiness,
    count_pods,
    find_group_blocker,
    is_behind,
    is_passing,
    is_paused,
    list_times,
    measure_departed,
    measure_readiness,
    order_zones,
)
from rollout_operator.planning.rollout import (
    Hold,
    RolloutZone,
    Walk,
    choose_zone_pods,
    count_outdated,
    disturbs_nothing,
    explain_up_to_date,
    find_gate,
    find_soak,
    is_waiting,
    read_group_soak,
    render_short,
    walk_zones,
)
from rollout_operator.planning.wording import count, join_names, verb

# Only a person ends them, unless all that is down is on its way up.
_NEEDS_PERSON: Final = frozenset({Code.SEVERAL_ZONES_NOT_READY, Code.PAUSED_ZONE_NOT_READY})


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that nothing stops, and what is known of its batch."""

    snapshot: PolicySnapshot
    zones: tuple[RolloutZone, ...]
    batch: Batch | None
    """As it is to be recorded."""
    open: Batch | None
    pause_end: datetime | None
    departed: tuple[Readiness, ...] = ()

    @property
    def now(self) -> datetime:
        return self.snapshot.group.now

    @property
    def recorded(self) -> frozenset[Uid]:
        """Return the pods recorded in the open batch: nothing interrupts it (MAZ-46)."""
        return frozenset(pod.uid for pod in self.open.pods) if self.open else frozenset()

    def choose_limit(self, sts: StatefulSet) -> int:
        return self.snapshot.policy.max_unavailable.of(sts.replicas)


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    turn: Readiness | None = None
    pods: tuple[Replacement, ...] = ()
    records: tuple[RecordRevision, ...] = ()
    waits: tuple[Reason, ...] = ()
    held_until: datetime | None = None
    """When the next batch may begin, if only a pause holds it."""


def plan_policy(snapshot: PolicySnapshot) -> PolicyPlan:
    stops, requeue_after = _list_stops(snapshot)
    if stops:
        return PolicyPlan(batch=snapshot.batch, waits=stops, requeue_after=requeue_after)
    case = _open_case(snapshot)
    step = _choose_step(case)
    action = None
    if step.turn is not None and step.pods:
        # Only recorded pods are tried, so the share has no spare.
        share = EqualPods(pods=step.pods, room=len(step.pods))
        action = ReplacePods(zone=step.turn.sts, shares=(share,))
    plan = PolicyPlan(
        batch=_record_batch(case, step),
        action=action,
        records=step.records,
        waits=step.waits,
        target=step.turn.sts.name if step.turn else "",
        next_batch=step.held_until,
        zones=tuple(count_zone(zone, snapshot.initial) for zone in case.zones),
        progress=tuple(map(count_pods, list_readinesses(case.zones))),
    )
    return _with_deadlines(plan, case)


def list_switchable(group: Group) -> Sequence[StatefulSet]:
    """Return the StatefulSets to switch to OnDelete now, by name (MAZ-27).

    Under another strategy Kubernetes replaces pods itself: the switch waits until that is done, so
    that no zone stays between two revisions.
    """
    readinesses = [
        measure_readiness(zone, group.deletions, group.now)
        for zone in order_zones(group.zones)
        if zone.sts.strategy != ON_DELETE
    ]
    return [
        readiness.sts
        for readiness in readinesses
        if readiness.is_whole
        and not count_outdated(readiness)
        and readiness.sts.update_revision
        and not is_behind(readiness.sts)
        and not readiness.sts.is_terminating
    ]


def order_turns(snapshot: PolicySnapshot) -> Sequence[str]:
    """Return the StatefulSets in the order in which their zones have their turns now."""
    zones = _order_turns(_open_case(snapshot))
    return [name for zone in zones for name in sorted(each.sts.name for each in zone.readinesses)]


def settle_batch(
    batch: Batch | None,
    readinesses: Sequence[Readiness],
    policy: Policy,
    now: datetime,
    latest: datetime,
    departed: Sequence[Readiness] = (),
) -> Batch | None:
    """Return the batch to record: completed when its pods are back, or open again.

    A pod that fails during the pause opens it again, so that the pause counts from the recovery
    (MAZ-40).
    """
    if batch is None:
        return None
    if batch.completion is None:
        is_complete = _is_complete(batch, readinesses, departed)
        return replace(batch, completion=latest) if is_complete else batch
    completion = min(batch.completion, latest)
    is_whole = all(readiness.is_whole for readiness in (*readinesses, *departed))
    if is_whole or now - completion >= policy.interval:
        return replace(batch, completion=completion)
    # Opened again, a batch for another revision would be superseded and need no pause.
    is_current = any(_is_for(batch, readiness) for readiness in readinesses)
    return replace(batch, completion=None if is_current else latest)


def find_open(batch: Batch | None, readinesses: Iterable[Readiness]) -> Batch | None:
    """Return when an open batch stalls unless it makes progress: a pod comes or gets ready."""
    if batch is None or batch.completion is not None:
        return None
    return batch if any(_is_for(batch, readiness) for readiness in readinesses) else None


def has_superseded(batch: Batch | None, readiness: Readiness) -> bool:
    """Return whether an unfinished batch of this StatefulSet was for another revision.

    Its pods must confirm it: a batch written by hand skips no pause.
    """
    if batch is None or batch.completion is not None or batch.set_name != readiness.sts.name:
        return False
    is_for_another = batch.revision != readiness.sts.update_revision
    return is_for_another and any(_is_wanted_anew(pod, readiness) for pod in batch.pods)


def list_left(batch: Batch, readiness: Readiness) -> tuple[Pod, ...]:
    """Return the recorded pods of a batch that were not deleted yet."""
    if is_paused(readiness.sts):
        return ()
    recorded = {pod.uid for pod in batch.pods}
    outdated = (pod for pod in readiness.standing if pod.revision != readiness.sts.update_revision)
    return tuple(pod for pod in outdated if pod.uid in recorded)


def _is_untouched(batch: Batch, readinesses: Sequence[Readiness]) -> bool:
    """Return whether nothing of a batch has gone, and all is whole.

    A process that ended between the record and the delete leaves it so.
    """
    left = [pod for one in readinesses if _is_for(batch, one) for pod in list_left(batch, one)]
    return len(left) == len(batch.pods) and all(one.is_whole for one in readinesses)


def _has_recovered(batch: Batch, readinesses: Sequence[Readiness], now: datetime) -> bool:
    """Return whether a pod has recovered since the record of a batch.

    It waited for no pause as its pods were broken, say, and they are up again: what is whole by now
    has its pause (MAZ-40). Kubelets write whole seconds, so the truth may be later. The first batch
    waits for none, whatever came up just before it.
    """
    margin = timedelta(seconds=1 if batch.number > 1 else 0)
    since = batch.start - margin
    return any(time > since for time in _list_recoveries(readinesses, now, only_updated=False))


def find_pause_end(
    batch: Batch | None,
    readinesses: Sequence[Readiness],
    policy: Policy,
    now: datetime,
    latest: datetime,
) -> datetime | None:
    """Return when the next batch may begin, None where it may at once.

    The pause counts from the completion of the last batch or a later recovery of a pod, or without
    a record from what updated pods show (MAZ-43). A policy without a pause never waits.
    """
    if not policy.interval:
        return None
    is_recorded = batch is not None
    recoveries = _list_recoveries(readinesses, now, only_updated=not is_recorded)
    # Kubelets write whole seconds, so the truth may be later, as with the server's clock.
    times = [time + (latest - now) for time in recoveries if time <= now]
    if batch is not None and batch.completion is not None:
        times.append(min(batch.completion, latest))
    end = max(times) + policy.interval if times else now
    return end if end > now else None


def compute_deadline(
    batch: Batch, readinesses: Iterable[Readiness], policy: Policy, now: datetime
) -> datetime:
    """Return when an open batch stalls, unless it makes progress: a pod comes or gets ready."""
    names = {pod.name for pod in batch.pods}
    pods = (
        pod
        for readiness in readinesses
        for pod in (*readiness.standing, *(down.pod for down in readiness.down))
        if pod.name in names
    )
    times = (time for pod in pods for time in (pod.created, pod.ready_since))
    seen = [time for time in times if time is not None and time <= now]
    return max([min(batch.start, now), *seen]) + policy.progress_deadline


def open_batch(
    batch: Batch | None, readiness: Readiness, *, zone: str, pods: Iterable[Pod], now: datetime
) -> Batch:
    last = 0 if batch is None else batch.number
    return Batch(
        number=last + 1 if last < MOST_BATCHES else 1,
        zone=zone,
        set_name=readiness.sts.name,
        revision=readiness.sts.update_revision,
        pods=tuple(BatchPod(name=pod.name, uid=pod.uid) for pod in pods),
        start=now,
    )


def _is_wanted_anew(recorded: BatchPod, readiness: Readiness) -> bool:
    """Return whether a pod of a batch is down, or not at the current update revision."""
    sts = readiness.sts
    pod = next((pod for pod in readiness.standing if pod.name == recorded.name), None)
    if pod is None:
        return sts.find_ordinal(recorded.name, sts.ordinals) is not None
    return pod.revision != sts.update_revision


def _is_for(batch: Batch, readiness: Readiness) -> bool:
    return (batch.set_name, batch.revision) == (readiness.sts.name, readiness.sts.update_revision)


def _is_complete(
    batch: Batch, readinesses: Sequence[Readiness], departed: Sequence[Readiness]
) -> bool:
    """Return whether the pods of a batch are back and no pod of the policy is unavailable.

    Zones that left the policy while they were short count as long as others wait for them
    (MAZ-41). A pod that is back at another revision goes with a later batch.
    """
    if not all(readiness.is_whole for readiness in (*readinesses, *departed)):
        return False
    if all(readiness.sts.name != batch.set_name for readiness in readinesses):
        return True
    if not any(map(count_outdated, readinesses)):
        return True  # also one for another revision: no other batch ends it
    return any(
        _is_for(batch, readiness) and not list_left(batch, readiness) for readiness in readinesses
    )


def _list_recoveries(
    readinesses: Iterable[Readiness], now: datetime, *, only_updated: bool
) -> Iterator[datetime]:
    """Yield when pods became available; when they were created, if a clock is ahead."""
    for readiness in readinesses:
        patience = timedelta(seconds=readiness.sts.min_ready_seconds)
        for pod in readiness.standing:
            is_updated = pod.revision == readiness.sts.update_revision
            if pod.ready_since is None or (only_updated and not is_updated):
                continue
            # Times that lie far ahead may not fit into a datetime.
            yield min(pod.ready_since, now + timedelta(seconds=1)) + patience
            if pod.created is not None and pod.ready_since > now:
                yield pod.created + patience


def _list_stops(snapshot: PolicySnapshot) -> tuple[tuple[Reason, ...], timedelta | None]:
    """Return what stops everything, and when to reconcile again."""
    group, resolution = snapshot.group, snapshot.resolution
    if not group.zones and not group.unreadable:
        text = "the policy selects no StatefulSet"
        return (Reason(Code.NO_STATEFUL_SETS, text),), None
    if resolution.code is ZonesCode.SPANS_ZONES:
        findings = (
            finding
            for finding in resolution.findings
            if finding.code is ZoneFindingCode.SPANS_ZONES
        )
        text = "; ".join(finding.text for finding in findings)
        return (Reason(Code.STATEFUL_SET_SPANS_ZONES, text, Severity.ERROR),), None
    if blocker := find_group_blocker(group):
        return _add_way_out(snapshot, blocker.reasons), blocker.requeue_after
    placed = {sts.name for zone in resolution.zones for sts in zone.sets}
    if lost := sorted({zone.sts.name for zone in group.zones} - placed):
        text = f"{join_names(lost)} {verb(len(lost), 'is', 'are')} in no zone yet"
        return (Reason(Code.ZONE_NOT_FOUND, text, Severity.DEBUG),), None
    return (), None


def _add_way_out(snapshot: PolicySnapshot, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """Add what a person can do about a wrong strategy: it is the headline."""
    last = reasons[-1]
    if last.code is not Code.WRONG_STRATEGY:
        return reasons
    text = "set spec.updateStrategy.type to OnDelete, or spec.manageUpdateStrategy of the policy"
    if snapshot.policy.may_switch_strategy:
        text = "the operator sets it once all pods are ready and none is outdated"
    return (*reasons[:-1], replace(last, text=f"{last.text}; {text}"))


def _open_case(snapshot: PolicySnapshot) -> _Case:
    zones, policy = list_zones(snapshot), snapshot.policy
    now, latest = snapshot.group.now, snapshot.latest
    readinesses = list_readinesses(zones)
    departed = measure_departed(snapshot.group)
    batch = settle_batch(snapshot.batch, readinesses, policy, now, latest, departed)
    pause_end = find_pause_end(batch, readinesses, policy, now, latest)
    opened = find_open(batch, readinesses)
    if opened and _is_untouched(opened, readinesses):
        zone = next(one for one in zones if any(_is_for(opened, each) for each in one.readinesses))
        gate = find_gate(zone, snapshot.group.gates)
        is_held = gate is not None and gate.room < len(opened.pods)
        if not is_held and _has_recovered(opened, readinesses, now):
            is_held = pause_end is not None or bool(_find_soak(snapshot, zones, zone))
        opened = None if is_held else opened
    return _Case(
        snapshot=snapshot,
        zones=zones,
        batch=batch,
        open=opened,
        pause_end=pause_end,
        departed=departed,
    )


def _choose_step(case: _Case) -> _Step:
    """Walk the zones, and drop the pods that are held."""
    walk = walk_zones(_order_turns(case), case.choose_limit, case.departed)
    records = tuple(action for action in walk.actions if isinstance(action, RecordRevision))
    scaling = _find_scaling(case, walk.turn)
    hold = _find_hold(case, walk.turn) if walk.turn else None
    going = [
        replacement
        for action in walk.actions
        # A batch has pods of one StatefulSet only.
        if isinstance(action, ReplacePods) and walk.turn and action.zone.uid == walk.turn.sts.uid
        for replacement in action.going
        if scaling is None or disturbs_nothing(replacement.pod)
    ]
    room = len(going) if hold is None else hold.room
    pods = _keep_free(case, going, 0 if scaling else room)
    if scaling is not None and not pods:
        return _Step(records=records, waits=(scaling,))
    waits = () if pods else _list_waits(case, walk, hold.reason if hold else None)
    until = hold.until if hold is not None and hold.reason in waits else None
    return _Step(turn=walk.turn, pods=pods, records=records, waits=waits, held_until=until)


def _order_turns(case: _Case) -> Sequence[RolloutZone]:
    """Order zones: done ones, then one with recorded pods left, then begun ones.

    Of these, one that a health check has let begin goes before one that lost a pod, which it may
    hold for long. Their StatefulSets and pods are ordered too.
    """
    last = "" if case.batch is None else case.batch.zone
    gates, initial = case.snapshot.group.gates, case.snapshot.initial
    let = {uid for uid, gate in gates.items() if gate.state is GateState.BEGUN}

    def rank(zone: RolloutZone) -> tuple[bool, ...]:
        is_unfinished = any(_has_left(case, readiness) for readiness in zone.readinesses)
        is_done = not any(map(is_waiting, zone.readinesses))
        is_let = any(readiness.sts.uid in let for readiness in zone.readinesses)
        return (not is_done, not is_unfinished, not is_let, *rank_begun(zone, last, initial))

    return sorted((_order_sets(case, zone) for zone in case.zones), key=rank)


def _order_sets(case: _Case, zone: RolloutZone) -> RolloutZone:
    """Order StatefulSets by name, but first those with pods that wait for nothing (MAZ-38)."""
    ordered = replace(
        zone, readinesses=tuple(_order_pods(case, readiness) for readiness in zone.readinesses)
    )
    if len(zone.readinesses) == 1:
        return ordered

    def rank(readiness: Readiness) -> tuple[bool, bool]:
        action, _ = choose_zone_pods(ordered, readiness, case.choose_limit)
        going = action.going if action and is_waiting(readiness) else ()
        has_broken = any(
            _is_broken(replacement) and _is_free(case, replacement) for replacement in going
        )
        return (not has_broken, not _has_left(case, readiness))

    return replace(ordered, readinesses=tuple(sorted(ordered.readinesses, key=rank)))


def _order_pods(case: _Case, readiness: Readiness) -> Readiness:
    is_descending = case.snapshot.policy.pod_order is PodOrder.DESCENDING
    pods = reversed(readiness.standing) if is_descending else readiness.standing
    recorded = case.recorded
    return replace(readiness, standing=tuple(sorted(pods, key=lambda pod: pod.uid not in recorded)))


def _has_left(case: _Case, readiness: Readiness) -> bool:
    return case.open is not None and bool(list_left(case.open, readiness))


def _is_broken(replacement: Replacement) -> bool:
    # A delete without an answer may have spared its pod.
    is_down = replacement.reason.code is Code.POD_BROKEN_AND_OUTDATED
    return is_down and not replacement.pod.is_ready


def _is_free(case: _Case, replacement: Replacement) -> bool:
    """Return whether a pod goes whatever holds the others."""
    is_paused = case.snapshot.policy.is_paused
    return replacement.pod.uid in case.recorded or (_is_broken(replacement) and not is_paused)


def _keep_free(case: _Case, going: Sequence[Replacement], room: int) -> tuple[Replacement, ...]:
    """Return the pods that go though something holds the zone, and others.

    With those that are recorded, these are `room` at most.
    """
    recorded = sum(replacement.pod.uid in case.recorded for replacement in going)
    others = [replacement for replacement in going if not _is_free(case, replacement)]
    held = others[max(room - recorded, 0) :]
    return tuple(replacement for replacement in going if replacement not in held)


def _find_scaling(case: _Case, turn: Readiness | None) -> Reason | None:
    """Return that zones other than the current one are being scaled (MAZ-35)."""
    if turn is None:
        return None
    name = _get_zone(case, turn).name
    scaling = [f"zone {zone.name}" for zone in case.zones if zone.name != name and is_scaling(zone)]
    if not scaling:
        return None
    names = f"{join_names(scaling)} {verb(len(scaling), 'is', 'are')}"
    return Reason(Code.ZONE_SCALING, f"{names} being scaled, zone {name} waits")


def _get_zone(case: _Case, turn: Readiness) -> RolloutZone:
    return next(
        zone
        for zone in case.zones
        if any(readiness.sts.uid == turn.sts.uid for readiness in zone.readinesses)
    )


def _find_hold(case: _Case, readiness: Readiness) -> Hold | None:
    """Return what holds the healthy pods of the current StatefulSet."""
    policy, name, zone = case.snapshot.policy, readiness.sts.name, _get_zone(case, readiness)
    waiting = [member for member in zone.readinesses if is_waiting(member)]
    first = min(waiting, key=lambda member: not _has_left(case, member)).sts.name
    if first != name:  # it is first for its broken pods only (MAZ-22)
        return Hold(reason=Reason(Code.ANOTHER_ZONE_FIRST, f"{name} waits for {first}", zone=name))
    if policy.is_paused:
        outdated = count_outdated(readiness)
        pods = f"{count(outdated, 'outdated pod')} of {name} {verb(outdated, 'waits', 'wait')}"
        text = f"the policy is paused: {pods}"
        return Hold(reason=Reason(Code.POLICY_PAUSED, text, zone=name))
    # Without a pause the next pod of the same StatefulSet goes when one is back (MAZ-42).
    if case.open and (policy.interval or case.open.set_name != name):
        return Hold(reason=_explain_open(case, case.open))
    if hold := _find_soak(case.snapshot, case.zones, zone):
        return hold
    gate = find_gate(zone, case.snapshot.group.gates)
    if gate is not None and not gate.room:
        return gate
    # Pods for which a gate has room wait for the end of the pause all the same.
    if case.pause_end and not has_superseded(case.batch, readiness):
        end, pause = format_next_second(case.pause_end), format_duration(policy.interval)
        text = f"{name} waits for the end of a pause of {pause}, at {end}"
        reason = Reason(Code.INTERVAL_WAIT, text, zone=name)
        return Hold(reason=reason, until=case.pause_end)
    return gate


def _find_soak(
    snapshot: PolicySnapshot, zones: Sequence[RolloutZone], zone: RolloutZone
) -> Hold | None:
    """Return that the other zones have not been whole for long enough (SI-27)."""
    soak = read_group_soak(snapshot.group)
    soak = replace(soak, span=max(soak.span, snapshot.policy.zone_interval))
    others = [other for other in zones if other is not zone]
    return find_soak(zone, others, soak, snapshot.group.now)


def _list_waits(case: _Case, walk: Walk, hold: Reason | None) -> tuple[Reason, ...]:
    """Return why no pod goes, beginning with what holds the policy."""
    if any(wait.code is Code.SEVERAL_ZONES_NOT_READY for wait in walk.waits):
        return tuple(walk.waits)
    if hold is not None and hold.code is Code.POLICY_PAUSED and case.open:
        # The pause does not end what failed in the batch.
        return (hold, _explain_open(case, case.open))
    if hold is not None:
        return (hold,)
    short = [zone.name for zone in case.zones if not zone.is_whole]
    if case.open and short == [case.open.zone]:
        return (_explain_open(case, case.open),)
    leading = find_leading(walk.waits)
    if leading is None:
        return (explain_up_to_date(case.zones),)
    return (leading, *(wait for wait in walk.waits if wait is not leading))


def _explain_open(case: _Case, batch: Batch) -> Reason:
    short = [render_short(zone) for zone in case.zones if not zone.is_whole]
    text = f"batch {batch.number} of {batch.set_name} is open: {'; '.join(short)}"
    return Reason(Code.BATCH_OPEN, text, zone=batch.set_name)


def _record_batch(case: _Case, step: _Step) -> Batch | None:
    """Return the batch to record before anything is deleted (step 12)."""
    pods = [pod.pod for pod in step.pods]
    if step.turn is None or all(pod.uid in case.recorded for pod in pods):
        return case.batch
    zone = _get_zone(case, step.turn).name
    # What is seen is as old as the read: a pod may have recovered since then.
    seen_at = case.now - case.snapshot.group.snapshot_age
    return open_batch(case.batch, step.turn, zone=zone, pods=pods, now=seen_at)


def _with_deadlines(plan: PolicyPlan, case: _Case) -> PolicyPlan:
    """Add when to reconcile again, and whether the batch has stalled (MAZ-44)."""
    readinesses, now = list_readinesses(case.zones), case.now
    underway = case.open if plan.batch is case.batch else find_open(plan.batch, readinesses)
    times = [*list_times((*readinesses, *case.departed))]
    left = None
    if underway is not None:
        left = compute_deadline(underway, readinesses, case.snapshot.policy, now) - now
        times.append(left)
    if plan.next_batch is not None:
        times.append(plan.next_batch - now)
    return replace(
        plan,
        is_open=underway is not None,
        needs_person=plan.leading is not None
        and plan.leading.code in _NEEDS_PERSON
        and not all(map(is_passing, readinesses)),
        is_stalled=left is not None and left <= timedelta(0),
        requeue_after=min((time for time in times if time > timedelta(0)), default=None),
    )
