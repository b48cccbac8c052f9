"""Decide for a policy: which batch begins next, or what holds it.

First what stops everything, then the walk over its zones, which is that of label groups, then what
holds the pods that it comes to: `spec.paused`, an open batch, a pause, another zone that is being
scaled. Broken outdated pods go first, cost no budget and wait for no pause. What a plan deletes is
in the batch that it records: a batch that was recorded, and not carried out, goes on.

A policy with a zone for each StatefulSet, in the order of their names, ascending, with a pause of 0
and the budget of the annotations chooses the pods that a label group chooses. On purpose it differs
where a label group has nothing like it: a zone that was begun is finished first, whatever the order
says by now (MAZ-46), another zone that is being scaled holds all (MAZ-35), and no other pod goes in
place of a pod that a budget refuses, because only what is recorded may go.

When a batch is complete, how long the pause after it lasts, and when it has stalled.

All of it follows from what the status of the policy records and from the pods as they are, so that
a process that starts anew comes to the same. Times are those of the API server's clock, but for the
times of pods' conditions, which kubelets write: where one of them lies in the future, when the pod
was created counts.

What is known of the server's clock may be early: `now` has passed, `latest` has not. A pause begins
at the latest time and ends by the earliest time, so that no error of a clock shortens it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.names import ON_DELETE, Uid
from rollout_operator.model.objects import Group, Pod, StatefulSet
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
    RolloutZone,
    Walk,
    choose_zone_pods,
    count_outdated,
    disturbs_nothing,
    explain_up_to_date,
    is_waiting,
    render_short,
    walk_zones,
)
from rollout_operator.planning.wording import count, join_names, verb


def find_open(batch: Batch | None, readinesses: Iterable[Readiness]) -> Batch | None:
    """Return the batch where it is open, None where it is complete or superseded.

    It is superseded where its StatefulSet is gone or wants another revision by now (MAZ-47).
    """
    if batch is None or batch.completion is not None:
        return None
    return batch if any(_is_for(batch, readiness) for readiness in readinesses) else None


def has_superseded(batch: Batch | None, readiness: Readiness) -> bool:
    """Return whether an unfinished batch of a StatefulSet was for another revision than its own.

    Its pods must bear that out: a batch that a person has written by hand saves no pause.
    """
    if batch is None or batch.completion is not None or batch.set_name != readiness.sts.name:
        return False
    is_for_another = batch.revision != readiness.sts.update_revision
    return is_for_another and any(_is_wanted_anew(pod, readiness) for pod in batch.pods)


def _is_wanted_anew(recorded: BatchPod, readiness: Readiness) -> bool:
    """Return whether a pod of a batch is down, or not at the update revision of now."""
    sts = readiness.sts
    pod = next((pod for pod in readiness.standing if pod.name == recorded.name), None)
    if pod is None:
        return sts.find_ordinal(recorded.name, sts.ordinals) is not None
    return pod.revision != sts.update_revision


def settle_batch(
    batch: Batch | None,
    readinesses: Sequence[Readiness],
    policy: Policy,
    now: datetime,
    latest: datetime,
    departed: Sequence[Readiness] = (),
) -> Batch | None:
    """Return the batch as it is to be recorded: stamped when it is complete, and open again.

    A pod that fails during the pause opens it again, so that the pause counts from the recovery
    (MAZ-40). After the pause nothing does.
    """
    if batch is None:
        return None
    if batch.completion is None:
        is_complete = _is_complete(batch, readinesses, departed)
        return replace(batch, completion=latest) if is_complete else batch
    completion = min(batch.completion, latest)
    if now - completion >= policy.interval or all(readiness.is_whole for readiness in readinesses):
        return replace(batch, completion=completion)
    # A batch for another revision would be superseded if it were open, and need no pause at all.
    is_current = any(_is_for(batch, readiness) for readiness in readinesses)
    return replace(batch, completion=None if is_current else latest)


def list_left(batch: Batch, readiness: Readiness) -> tuple[Pod, ...]:
    """Return the pods of a batch that were recorded and not deleted, and are to go still."""
    if is_paused(readiness.sts):
        return ()
    recorded = {pod.uid for pod in batch.pods}
    outdated = (pod for pod in readiness.standing if pod.revision != readiness.sts.update_revision)
    return tuple(pod for pod in outdated if pod.uid in recorded)


def find_pause_end(
    batch: Batch | None,
    readinesses: Sequence[Readiness],
    policy: Policy,
    now: datetime,
    latest: datetime,
) -> datetime | None:
    """Return when the next batch may begin, None where it may at once.

    It counts from the completion of the last batch or, where a pod recovered later, from that: this
    process may not have been there. Without a record, from what updated pods show (MAZ-43). Where
    the policy wants no pause there is none, however little is known of the server's clock.
    """
    if not policy.interval:
        return None
    is_recorded = batch is not None
    recoveries = _list_recoveries(readinesses, now, only_updated=not is_recorded)
    # Kubelets write whole seconds: the truth is later by as little as that of the server's clock.
    times = [time + (latest - now) for time in recoveries if time <= now]
    if batch is not None and batch.completion is not None:
        times.append(min(batch.completion, latest))
    end = max(times) + policy.interval if times else now
    return end if end > now else None


def compute_deadline(
    batch: Batch, readinesses: Iterable[Readiness], policy: Policy, now: datetime
) -> datetime:
    """Return when an open batch has stalled, unless it makes progress: a pod comes or is ready."""
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
    """Return the next batch."""
    last = 0 if batch is None else batch.number
    return Batch(
        number=last + 1 if last < MOST_BATCHES else 1,
        zone=zone,
        set_name=readiness.sts.name,
        revision=readiness.sts.update_revision,
        pods=tuple(BatchPod(name=pod.name, uid=pod.uid) for pod in pods),
        start=now,
    )


def _is_for(batch: Batch, readiness: Readiness) -> bool:
    return (batch.set_name, batch.revision) == (readiness.sts.name, readiness.sts.update_revision)


def _is_complete(
    batch: Batch, readinesses: Sequence[Readiness], departed: Sequence[Readiness]
) -> bool:
    """Return whether the pods of a batch are back, and nothing of the policy is unavailable.

    A pod that is back at another revision than the batch was for goes with a later batch. The batch
    of a StatefulSet that left the policy ends when that counts no more: a pause follows (MAZ-41).
    """
    if not all(readiness.is_whole for readiness in readinesses):
        return False
    if all(readiness.sts.name != batch.set_name for readiness in readinesses):
        return all(readiness.is_whole for readiness in departed)
    return any(
        _is_for(batch, readiness) and not list_left(batch, readiness) for readiness in readinesses
    )


def _list_recoveries(
    readinesses: Iterable[Readiness], now: datetime, *, only_updated: bool
) -> Iterator[datetime]:
    """Yield when pods that are up became available; when they came, by a clock that is ahead."""
    for readiness in readinesses:
        patience = timedelta(seconds=readiness.sts.min_ready_seconds)
        for pod in readiness.standing:
            is_updated = pod.revision == readiness.sts.update_revision
            if pod.ready_since is None or (only_updated and not is_updated):
                continue
            yield pod.ready_since + patience
            if pod.created is not None and pod.ready_since > now:
                yield pod.created + patience


# Only a person ends them, unless all that is down is on its way up.
_NEEDS_PERSON: Final = frozenset({Code.SEVERAL_ZONES_NOT_READY, Code.PAUSED_ZONE_NOT_READY})


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that nothing stops as a whole, and what is known of its batch."""

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
        """Return the pods that an open batch has recorded: nothing interrupts it (MAZ-46)."""
        return frozenset(pod.uid for pod in self.open.pods) if self.open else frozenset()

    def choose_limit(self, sts: StatefulSet) -> int:
        return self.snapshot.policy.max_unavailable.of(sts.replicas)


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """What the case comes to."""

    turn: Readiness | None = None
    pods: tuple[Replacement, ...] = ()
    records: tuple[RecordRevision, ...] = ()
    waits: tuple[Reason, ...] = ()


def plan_policy(snapshot: PolicySnapshot) -> PolicyPlan:
    """Return all that one snapshot of a policy leads to; equal snapshots give equal plans."""
    stops, requeue_after = _list_stops(snapshot)
    if stops:
        return PolicyPlan(batch=snapshot.batch, waits=stops, requeue_after=requeue_after)
    case = _open_case(snapshot)
    step = _choose_step(case)
    is_pause = any(wait.code is Code.INTERVAL_WAIT for wait in step.waits)
    plan = PolicyPlan(
        batch=_record_batch(case, step),
        action=_replace_pods(step),
        records=step.records,
        waits=step.waits,
        target=step.turn.sts.name if step.turn else "",
        next_batch=case.pause_end if is_pause else None,
        zones=tuple(count_zone(zone, snapshot.initial) for zone in case.zones),
        progress=tuple(map(count_pods, list_readinesses(case.zones))),
    )
    return _with_deadlines(plan, case)


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
    """Return reasons with what ends them: the first of them is all that many people ever see."""
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
    return _Case(
        snapshot=snapshot,
        zones=zones,
        batch=batch,
        open=find_open(batch, readinesses),
        pause_end=find_pause_end(batch, readinesses, policy, now, latest),
        departed=departed,
    )


def _choose_step(case: _Case) -> _Step:
    """Return what the walk comes to, without the pods that are held."""
    walk = walk_zones(_order_turns(case), case.choose_limit, case.departed)
    records = tuple(action for action in walk.actions if isinstance(action, RecordRevision))
    scaling = _find_scaling(case, walk.turn)
    hold = _find_hold(case, walk.turn) if walk.turn else None
    going = [
        replacement
        for action in walk.actions
        # Of zones that are short one StatefulSet after the other: a batch is of one.
        if isinstance(action, ReplacePods) and walk.turn and action.zone.uid == walk.turn.sts.uid
        for replacement in action.going
        if scaling is None or disturbs_nothing(replacement.pod)
    ]
    is_held = hold is not None or scaling is not None
    pods = tuple(replacement for replacement in going if not is_held or _is_free(case, replacement))
    if scaling is not None and not pods:
        return _Step(records=records, waits=(scaling,))
    waits = () if pods else _list_waits(case, walk, hold)
    return _Step(turn=walk.turn, pods=pods, records=records, waits=waits)


def _order_turns(case: _Case) -> Sequence[RolloutZone]:
    """Return the zones in the order of their turns, and in each its StatefulSets and pods.

    Those that are done come first, then the zone with pods that an open batch has recorded, and
    that were not deleted, then those that were begun.
    """
    last = "" if case.batch is None else case.batch.zone

    def rank(zone: RolloutZone) -> tuple[bool, ...]:
        is_unfinished = any(_has_left(case, readiness) for readiness in zone.readinesses)
        is_done = not any(map(is_waiting, zone.readinesses))
        return (not is_done, not is_unfinished, *rank_begun(zone, last, case.snapshot.initial))

    return sorted((_order_sets(case, zone) for zone in case.zones), key=rank)


def _order_sets(case: _Case, zone: RolloutZone) -> RolloutZone:
    """Return a zone with its StatefulSets by name, but first what waits for nothing (MAZ-38)."""
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
    return replacement.reason.code is Code.POD_BROKEN_AND_OUTDATED


def _is_free(case: _Case, replacement: Replacement) -> bool:
    """Return whether a pod goes whatever holds the others."""
    is_paused = case.snapshot.policy.is_paused
    return replacement.pod.uid in case.recorded or (_is_broken(replacement) and not is_paused)


def _find_scaling(case: _Case, turn: Readiness | None) -> Reason | None:
    """Return that zones are being scaled other than the zone that has its turn (MAZ-35)."""
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


def _find_hold(case: _Case, readiness: Readiness) -> Reason | None:
    """Return what holds the healthy pods of a StatefulSet that has its turn."""
    policy, name = case.snapshot.policy, readiness.sts.name
    waiting = [member for member in _get_zone(case, readiness).readinesses if is_waiting(member)]
    first = min(waiting, key=lambda member: not _has_left(case, member)).sts.name
    if first != name:  # it is ahead for its broken pods alone (MAZ-22)
        return Reason(Code.ANOTHER_ZONE_FIRST, f"{name} waits for {first}", zone=name)
    if policy.is_paused:
        outdated = count_outdated(readiness)
        pods = f"{count(outdated, 'outdated pod')} of {name} {verb(outdated, 'waits', 'wait')}"
        return Reason(Code.POLICY_PAUSED, f"the policy is paused: {pods}", zone=name)
    # Without a pause the next pod goes as soon as a pod is back (MAZ-42), of one StatefulSet.
    if case.open and (policy.interval or case.open.set_name != name):
        return _explain_open(case, case.open)
    if case.pause_end and not has_superseded(case.batch, readiness):
        end, pause = format_next_second(case.pause_end), format_duration(policy.interval)
        text = f"{name} waits for the end of a pause of {pause}, at {end}"
        return Reason(Code.INTERVAL_WAIT, text, zone=name)
    return None


def _list_waits(case: _Case, walk: Walk, hold: Reason | None) -> tuple[Reason, ...]:
    """Return why no pod goes; first what holds the policy."""
    if any(wait.code is Code.SEVERAL_ZONES_NOT_READY for wait in walk.waits):
        return tuple(walk.waits)
    if hold is not None and hold.code is Code.POLICY_PAUSED and case.open:
        # What has failed in it is not ended by the pause, and stays worth to know.
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
    """Return what is to be recorded before anything is deleted (step 12)."""
    pods = [pod.pod for pod in step.pods]
    if step.turn is None or all(pod.uid in case.recorded for pod in pods):
        return case.batch
    zone = _get_zone(case, step.turn).name
    return open_batch(case.batch, step.turn, zone=zone, pods=pods, now=case.now)


def _replace_pods(step: _Step) -> ReplacePods | None:
    """Return the pods of a step; what is not recorded is not tried instead of one of them."""
    if step.turn is None or not step.pods:
        return None
    share = EqualPods(pods=step.pods, room=len(step.pods))
    return ReplacePods(zone=step.turn.sts, shares=(share,))


def _with_deadlines(plan: PolicyPlan, case: _Case) -> PolicyPlan:
    """Return the plan with when to reconcile again, and whether its batch has stalled (MAZ-44)."""
    readinesses, now = list_readinesses(case.zones), case.now
    underway = find_open(plan.batch, readinesses)
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


def list_switchable(group: Group) -> Sequence[StatefulSet]:
    """Return the StatefulSets that are to be switched to OnDelete now, by name (MAZ-27).

    Under any other strategy Kubernetes replaces pods by itself. It is switched off only where that
    has come to its end, so that no zone is left between two revisions by the switch.
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
