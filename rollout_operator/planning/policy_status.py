"""Render the decision for a policy as `status`, read it back, and choose Events from its changes.

The status holds what must outlive the process: the last batch, since when its pause counts, when
the rollout began. The rest is for people. Where everything stops before the zones are counted, the
numbers stay.

Events come from what the status says now and did not say before, so that a restarted process
repeats none. Events of pods and StatefulSets are left to `events`, as in label groups.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rollout_operator.model.budget import ZoneSource
from rollout_operator.model.names import LONGEST_NAME, MAX_UNAVAILABLE, InvalidInput, Revision, Uid
from rollout_operator.model.objects import Group
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.model.policy import (
    Batch,
    BatchPod,
    Policy,
    PolicyEvent,
    PolicyPhase,
    PolicyPlan,
    PolicyRefusalCode,
    PolicySetStatus,
    PolicySnapshot,
    PolicyStatus,
    PolicyZoneState,
    PolicyZoneStatus,
    RecordedBatch,
    RecordedPod,
    RefusedPolicy,
    ResolvedSet,
    ResolvedZone,
    SetCounts,
    ZoneCounts,
    ZoneFinding,
    ZoneFindingCode,
    ZoneResolution,
    ZonesCode,
)
from rollout_operator.model.units import (
    format_next_second,
    format_rfc3339,
    parse_max_unavailable,
    quote,
)
from rollout_operator.planning.conditions import (
    ACCEPTED,
    DEADLINE_EXCEEDED,
    NOT_ON_DELETE,
    PROGRESSING,
    READY,
    SEVERAL_ZONES,
    SPANS_ZONES,
    ZONES_RESOLVED,
    has_outdated,
    parse_time,
    render_conditions,
    render_refusal,
)
from rollout_operator.planning.policy_zones import count_zone, list_zones
from rollout_operator.planning.wording import count, join_names, one_line

# All other codes mean waiting.
_PHASES: Final[Mapping[Code, PolicyPhase]] = {
    Code.UP_TO_DATE: PolicyPhase.IDLE,
    Code.NO_STATEFUL_SETS: PolicyPhase.IDLE,
    Code.STATEFUL_SET_SPANS_ZONES: PolicyPhase.BLOCKED,
    Code.WRONG_STRATEGY: PolicyPhase.BLOCKED,
    Code.SEVERAL_ZONES_NOT_READY: PolicyPhase.BLOCKED,
    Code.BATCH_OPEN: PolicyPhase.PROGRESSING,
    Code.PAUSED: PolicyPhase.PAUSED,
    Code.POLICY_PAUSED: PolicyPhase.PAUSED,
}
_SPLIT: Final = (PolicyRefusalCode.CONFLICT, PolicyRefusalCode.ROLLOUT_GROUP_SPLIT)
# Reasons of `Ready` that an Event reports, and the reason of the Event.
_STOPS: Final[Mapping[str, str]] = {
    NOT_ON_DELETE: NOT_ON_DELETE,
    SPANS_ZONES: SPANS_ZONES,
    SEVERAL_ZONES: "RolloutBlocked",
}


def render_policy_status(
    snapshot: PolicySnapshot, plan: PolicyPlan, *, before: PolicyStatus
) -> PolicyStatus:
    """`before` is the status that it replaces."""
    now, generation = snapshot.group.now, snapshot.policy.head.generation
    phase = PolicyPhase.PROGRESSING
    if plan.leading is not None:
        phase = _PHASES.get(plan.leading.code, PolicyPhase.WAITING)
    status = replace(
        _count(snapshot, plan, before),
        observed_generation=generation,
        phase=phase,
        next_batch_time=UNSET if plan.next_batch is None else format_next_second(plan.next_batch),
        unknown_zones=snapshot.resolution.unknown_zones,
        last_batch=render_batch(plan.batch),
        conditions=render_conditions(
            plan, snapshot.resolution, before=before, generation=generation, now=now
        ),
    )
    return _with_times(status, plan, now)


def render_refused_status(
    refused: RefusedPolicy, *, before: PolicyStatus, now: datetime
) -> PolicyStatus:
    """The last batch stays recorded."""
    return PolicyStatus(
        observed_generation=refused.head.generation,
        phase=PolicyPhase.INVALID,
        start_time=before.start_time,
        completion_time=before.completion_time,
        last_batch=before.last_batch,
        conditions=render_refusal(refused, before=before, now=now),
    )


def choose_policy_events(before: PolicyStatus, after: PolicyStatus) -> tuple[PolicyEvent, ...]:
    """Return the Events for a change of status, in order."""
    return (
        *_report_refusal(before, after),
        *_report_ends(before, after),
        *_report_unknown(before, after),
        *_report_begins(before, after),
        *_report_stops(before, after),
    )


def is_urgent(before: PolicyStatus, after: PolicyStatus) -> bool:
    """Return whether more than numbers and messages changes."""
    return _drop_numbers(before) != _drop_numbers(after)


def render_batch(batch: Batch | None) -> RecordedBatch | UnsetType:
    if batch is None:
        return UNSET
    end = batch.completion
    return RecordedBatch(
        number=batch.number,
        zone=batch.zone,
        stateful_set=batch.set_name,
        update_revision=batch.revision,
        pods=tuple(RecordedPod(name=pod.name, uid=pod.uid) for pod in batch.pods),
        start_time=format_rfc3339(batch.start),
        completion_time=UNSET if end is None else format_rfc3339(end),
    )


def list_dropped(status: PolicyStatus, stored: PolicyStatus) -> list[str]:
    """Return the fields of a status of which nothing was stored, as under an older definition."""
    empty = PolicyStatus()

    def is_set(one: PolicyStatus, name: str) -> bool:
        return bool(getattr(one, name) != getattr(empty, name))

    return [
        f"status.{field.encode_name}"
        for field in msgspec.structs.fields(PolicyStatus)
        if is_set(status, field.name) and not is_set(stored, field.name)
    ]


def find_batch(status: PolicyStatus) -> Batch | None:
    """Return the last batch, None if there is none or its times cannot be parsed.

    Then it counts as lost: the pause follows from what the pods show.
    """
    last = status.last_batch
    if isinstance(last, UnsetType):
        return None
    start, completion = parse_time(last.start_time), parse_time(last.completion_time)
    if start is None or (completion is None and not isinstance(last.completion_time, UnsetType)):
        return None
    return Batch(
        number=last.number,
        zone=last.zone,
        set_name=last.stateful_set,
        revision=Revision(last.update_revision),
        pods=tuple(BatchPod(name=pod.name, uid=Uid(pod.uid)) for pod in last.pods),
        start=start,
        completion=completion,
    )


def find_initial(status: PolicyStatus, group: Group) -> Mapping[str, int]:
    """Return the fewest replicas since the update revision came, by StatefulSet.

    A pod added since then has the update revision from the start: it replaced none.
    """
    entries = {sts.name: sts for zone in status.zones for sts in zone.stateful_sets}
    initial: dict[str, int] = {}
    for sts in (zone.sts for zone in group.zones):
        entry = entries.get(sts.name)
        if entry is None:
            continue
        is_same = entry.update_revision == sts.update_revision
        known = entry.initial_replicas if is_same else entry.replicas
        if known > 0:
            initial[sts.name] = min(known, sts.replicas)
    return initial


def read_resolution(status: PolicyStatus) -> ZoneResolution:
    """Read the zones from a status.

    They may come from nodes, which a person with a kubeconfig may not read. What the status does
    not name is in no zone yet.
    """
    zones = tuple(
        ResolvedZone(name=zone.name, sets=tuple(_read_sets(zone.name, zone.stateful_sets)))
        for zone in sorted(status.zones, key=lambda zone: zone.order)
        if zone.stateful_sets
    )
    condition = status.find_condition(ZONES_RESOLVED)
    code = ZonesCode.ALL_RESOLVED
    findings: tuple[ZoneFinding, ...] = ()
    if condition is not None:
        with suppress(ValueError):
            code = ZonesCode(condition.reason)
        if code is ZonesCode.SPANS_ZONES:
            findings = (ZoneFinding(code=ZoneFindingCode.SPANS_ZONES, text=condition.message),)
    sets = sorted((each for zone in zones for each in zone.sets), key=lambda each: each.name)
    return ZoneResolution(
        code=code,
        zones=zones,
        sets=tuple(sets),
        unknown_zones=status.unknown_zones,
        findings=findings,
    )


def find_begun(before: PolicyStatus, after: PolicyStatus) -> RecordedBatch | None:
    """Return the newly recorded batch."""
    old, new = before.last_batch, after.last_batch
    if isinstance(new, UnsetType):
        return None
    is_known = not isinstance(old, UnsetType) and old.number == new.number
    return None if is_known else new


def find_ended(before: PolicyStatus, after: PolicyStatus) -> RecordedBatch | None:
    """Return the batch that became complete."""
    old, new = before.last_batch, after.last_batch
    if isinstance(old, UnsetType) or isinstance(new, UnsetType):
        return None
    was_open = isinstance(old.completion_time, UnsetType)
    has_ended = was_open and not isinstance(new.completion_time, UnsetType)
    return new if has_ended and old.number == new.number else None


def list_overridden(policy: Policy, group: Group) -> tuple[PolicyEvent, ...]:
    """Return which annotations have no effect because of the policy (MAZ-26)."""
    texts = {zone.sts.name: zone.sts.annotations.get(MAX_UNAVAILABLE) for zone in group.zones}
    return tuple(
        _inform(
            "MaxUnavailableOverridden",
            f"StatefulSet {name}: annotation {MAX_UNAVAILABLE}: {quote(text)} does not count; "
            f"spec.rollingUpdate.maxUnavailable is {policy.max_unavailable}",
            Severity.WARN,
        )
        for name, text in sorted(texts.items())
        if text is not None and not _is_equal(policy, text)
    )


def _drop_numbers(status: PolicyStatus) -> PolicyStatus:
    zones = (
        replace(
            zone,
            state="",
            stateful_sets=tuple(
                PolicySetStatus(name=sts.name, source=sts.source) for sts in zone.stateful_sets
            ),
        )
        for zone in status.zones
    )
    return replace(
        status,
        updated_pods=UNSET,
        total_pods=UNSET,
        ready_pods=UNSET,
        zones=tuple(zones),
        conditions=tuple(replace(condition, message="") for condition in status.conditions),
    )


def _count(snapshot: PolicySnapshot, plan: PolicyPlan, before: PolicyStatus) -> PolicyStatus:
    """Fill in the numbers of all zones, and the current one."""
    zones = plan.zones or _count_stopped(snapshot, plan)
    if not zones and snapshot.group.zones:
        present = {zone.sts.name for zone in snapshot.group.zones}
        return replace(before, zones=tuple(_list_kept(before.zones, present)))
    sets = [sts for zone in zones for sts in zone.sets]
    current = plan.target
    if not current and plan.is_open and plan.batch is not None:
        current = plan.batch.set_name
    homes = {sts.name: zone.name for zone in zones for sts in zone.sets}
    current_zone = homes.get(current, "")
    sources = {sts.name: str(sts.source) for sts in snapshot.resolution.sets}
    return replace(
        before,
        current_zone=current_zone,
        current_stateful_set=current,
        updated_pods=sum(sts.updated for sts in sets),
        total_pods=sum(sts.replicas for sts in sets),
        ready_pods=sum(sts.ready for sts in sets),
        az_topology_key=snapshot.resolution.key,
        zones=tuple(
            PolicyZoneStatus(
                name=zone.name,
                order=place,
                state=_choose_state(zone, is_current=zone.name == current_zone),
                stateful_sets=tuple(_render_set(sts, sources) for sts in zone.sets),
            )
            for place, zone in enumerate(zones, start=1)
        ),
    )


def _count_stopped(snapshot: PolicySnapshot, plan: PolicyPlan) -> tuple[ZoneCounts, ...]:
    """Count a policy that may wait long for a person to set the strategy."""
    if plan.leading is None or plan.leading.code is not Code.WRONG_STRATEGY:
        return ()
    return tuple(count_zone(zone, snapshot.initial) for zone in list_zones(snapshot))


def _list_kept(
    zones: Iterable[PolicyZoneStatus], present: Collection[str]
) -> Iterator[PolicyZoneStatus]:
    """Keep existing StatefulSets only: a status written by hand may have any number."""
    for zone in zones:
        sets = tuple(sts for sts in zone.stateful_sets if sts.name in present)
        if sets and len(zone.name) <= LONGEST_NAME:
            yield replace(zone, stateful_sets=sets)


def _choose_state(zone: ZoneCounts, *, is_current: bool) -> PolicyZoneState:
    if is_current:
        return PolicyZoneState.UPDATING
    if zone.unavailable:
        return PolicyZoneState.BLOCKED
    has_old = any(sts.outdated for sts in zone.sets)
    return PolicyZoneState.PENDING if has_old else PolicyZoneState.UPDATED


def _render_set(set_counts: SetCounts, sources: Mapping[str, str]) -> PolicySetStatus:
    return PolicySetStatus(
        name=set_counts.name,
        source=sources.get(set_counts.name, ""),
        replicas=set_counts.replicas,
        updated_pods=set_counts.updated,
        outdated_pods=set_counts.outdated,
        unavailable_pods=set_counts.replicas - set_counts.ready,
        update_revision=set_counts.revision,
        initial_replicas=set_counts.initial,
    )


def _with_times(status: PolicyStatus, plan: PolicyPlan, now: datetime) -> PolicyStatus:
    """Set when the current rollout began and was complete."""
    has_begun = not isinstance(status.start_time, UnsetType)
    has_ended = not isinstance(status.completion_time, UnsetType)
    shown = format_rfc3339(now)
    if has_outdated(plan) and (has_ended or not has_begun):
        return replace(status, start_time=shown, completion_time=UNSET)
    is_done = plan.leading is not None and plan.leading.code is Code.UP_TO_DATE
    if is_done and has_begun and not has_ended:
        return replace(status, completion_time=shown)
    return status


def _read_sets(zone: str, sets: Iterable[PolicySetStatus]) -> Iterable[ResolvedSet]:
    for each in sets:
        source = ZoneSource.NONE
        with suppress(ValueError):
            source = ZoneSource(each.source)
        yield ResolvedSet(name=each.name, zone=zone, source=source)


def _is_equal(policy: Policy, text: str) -> bool:
    try:
        return parse_max_unavailable(text) == policy.max_unavailable
    except InvalidInput:
        return False


def _report_refusal(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    condition = after.find_condition(ACCEPTED)
    if condition is None or condition.status == "True":
        return
    if condition.reason != before.get_reason(ACCEPTED):
        reason = condition.reason if condition.reason in _SPLIT else PolicyRefusalCode.INVALID_SPEC
        yield _inform(reason, condition.message, Severity.WARN)


def _report_ends(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    last = find_ended(before, after)
    if last is not None:
        note = f"batch {last.number} of {last.stateful_set} in zone {last.zone} is complete"
        yield _inform_of_many("BatchCompleted", note)
    states = {zone.name: zone.state for zone in before.zones}
    old = before.last_batch
    for zone in after.zones:
        is_done = zone.state == PolicyZoneState.UPDATED != states.get(zone.name, zone.state)
        # Other zones only recovered.
        if is_done and not isinstance(old, UnsetType) and zone.name == old.zone:
            pods = count(sum(sts.replicas for sts in zone.stateful_sets), "pod")
            yield _inform_of_many("ZoneCompleted", f"zone {zone.name} is updated: {pods}")
    is_running = isinstance(before.completion_time, UnsetType)
    if is_running and not isinstance(after.completion_time, UnsetType):
        pods = count(after.total_pods or 0, "pod")
        yield _inform("RolloutCompleted", f"{pods}: all are updated")


def _report_begins(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    has_begun = after.start_time != before.start_time
    if has_begun and not isinstance(after.start_time, UnsetType):
        outdated = sum(sts.outdated_pods for zone in after.zones for sts in zone.stateful_sets)
        zones = count(len(after.zones), "zone")
        yield _inform("RolloutStarted", f"{count(outdated, 'outdated pod')} in {zones}")
    old, new = before.last_batch, find_begun(before, after)
    if new is None:
        return
    if isinstance(old, UnsetType) or old.zone != new.zone or has_begun:
        yield _inform_of_many("ZoneStarted", f"zone {new.zone} has started")
    pods = join_names([pod.name for pod in new.pods])
    yield _inform_of_many("BatchStarted", f"batch {new.number} of {new.stateful_set}: {pods}")


def _report_unknown(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    reported = {*_list_unknown(before)}
    for name in _list_unknown(after):
        if name not in reported:
            note = f"nothing says the zone of StatefulSet {name}; it is a zone of its own"
            yield _inform("ZoneUnknown", note, Severity.WARN)


def _list_unknown(status: PolicyStatus) -> Iterator[str]:
    for zone in status.zones:
        for sts in zone.stateful_sets:
            if sts.source == ZoneSource.SET_NAME:
                yield sts.name


def _report_stops(before: PolicyStatus, after: PolicyStatus) -> Iterator[PolicyEvent]:
    ready, progress = after.find_condition(READY), after.find_condition(PROGRESSING)
    if ready is not None and ready.reason != before.get_reason(READY) and ready.reason in _STOPS:
        yield _inform(_STOPS[ready.reason], ready.message, Severity.WARN)
    is_stalled = progress is not None and progress.reason == DEADLINE_EXCEEDED
    if progress is not None and is_stalled and before.get_reason(PROGRESSING) != DEADLINE_EXCEEDED:
        yield _inform("RolloutStalled", progress.message, Severity.WARN)


def _inform(reason: str, note: str, severity: Severity = Severity.INFO) -> PolicyEvent:
    return PolicyEvent(reason=reason, note=one_line(note), severity=severity)


def _inform_of_many(reason: str, note: str) -> PolicyEvent:
    return replace(_inform(reason, note), is_routine=True)
