"""Decide what is worth a Kubernetes Event, and what it says.

Where a Reason says why, its code in CamelCase is the reason of the Event, and its text begins the
note: `kubectl describe` shows the words of log, metric and page (D-40). `kube.events` limits how
often.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import (
    Budget,
    EventAction,
    EventKind,
    EventRecord,
    FlawedBudget,
    Regarding,
)
from rollout_operator.model.names import Revision, Uid
from rollout_operator.model.objects import Group, Pod, StatefulSet, Unreadable, Zone
from rollout_operator.model.outcome import (
    Code,
    Plan,
    Reason,
    RecordRevision,
    Replacement,
    Severity,
    Verdict,
    ZoneProgress,
    find_leading,
)
from rollout_operator.model.scaling import ScaleZone
from rollout_operator.model.units import format_duration
from rollout_operator.planning.wording import camel_case, count, verb

ROLLOUT_BEGUN: Final = "RolloutBegun"
ZONE_ROLLED_OUT: Final = "ZoneRolledOut"
ROLLOUT_FINISHED: Final = "RolloutFinished"
# As in grafana/rollout-operator#469, but the last.
BLOCKED_BY_HEALTH_CHECK: Final = "RolloutBlockedByHealthCheck"
HEALTH_CHECK_MISCONFIGURED: Final = "RolloutHealthCheckMisconfigured"
HEALTH_CHECK_WARN: Final = "RolloutHealthCheckWarn"
HEALTH_CHECK_BYPASSED: Final = "RolloutHealthCheckBypassed"
# Reasons that are no code.
NAMED_REASONS: Final = frozenset(
    {
        ROLLOUT_BEGUN,
        ZONE_ROLLED_OUT,
        ROLLOUT_FINISHED,
        BLOCKED_BY_HEALTH_CHECK,
        HEALTH_CHECK_MISCONFIGURED,
        HEALTH_CHECK_WARN,
        HEALTH_CHECK_BYPASSED,
    }
)
# Shorter waits are no news.
WAIT_STAYS: Final = timedelta(seconds=10)
# Each replaced pod starts for a while.
START_STAYS: Final = timedelta(minutes=1)
# The code while the last pod of a zone starts is ZONE_NOT_READY.
_WHILE_STARTING: Final = frozenset({Code.PODS_STARTING, Code.ZONE_NOT_READY})
# A reason about all zones of a group is reported at so many of them.
MOST_ZONES: Final = 10
# About the process that was called, not the object.
_OF_THE_PROCESS: Final = frozenset({Code.NOT_ELECTED, Code.STOPPING})
_Wait = tuple[Code, str]


class ReportedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What Events have said of one group."""

    begun: Mapping[Uid, Revision] = {}
    """By zone, the update revision whose rollout has begun."""
    rolled_out: Mapping[Uid, Revision] = {}
    """By zone, the revision that was rolled out."""
    rolling: tuple[Regarding, ...] = ()
    """Zones of which this process has replaced pods since the last rollout ended."""
    since: timedelta | None = None
    """When the first of these pods went; None if others may have gone before."""
    was_rolled_out: bool = False
    """Whether this process has seen the group rolled out, and deleted nothing since."""
    wait: _Wait | None = None
    """Code and zone of the leading wait, once reported."""


# With the Events to send.
Choice = tuple[ReportedGroup, tuple[EventRecord, ...]]


def choose_delete_events(
    reported: ReportedGroup, group: Group, replacement: Replacement, now: timedelta
) -> Choice:
    """Return the Events for a deleted pod; `group` is as before the delete."""
    pod = replacement.pod
    regarding = Regarding(EventKind.POD, pod.namespace, pod.name, pod.uid)
    deleted = _render(regarding, EventAction.DELETE, replacement.reason)
    zone = next((zone for zone in group.zones if zone.sts.name == replacement.reason.zone), None)
    if zone is None:
        return reported, (deleted,)
    reported, begun = _begin_zone(reported, zone, now)
    return reported, (*begun, deleted)


def choose_revision_events(reported: ReportedGroup, action: RecordRevision) -> Choice:
    """Return the Event for a recorded revision; recording may be retried."""
    sts = action.zone
    if reported.rolled_out.get(sts.uid) == action.revision:
        return reported, ()
    rolled_out = {**reported.rolled_out, sts.uid: action.revision}
    regarding = regard(EventKind.STATEFULSET, sts)
    event = _render(regarding, EventAction.ROLL_OUT, action.reason)
    return replace(reported, rolled_out=rolled_out), (replace(event, reason=ZONE_ROLLED_OUT),)


def choose_zone_events(reported: ReportedGroup, progress: Iterable[ZoneProgress]) -> Choice:
    """Return the Events for zones whose revision others have recorded.

    The StatefulSet controller does so since Kubernetes 1.37.
    """
    zones = {zone.uid: zone for zone in progress}
    rolled_out = dict(reported.rolled_out)
    events: list[EventRecord] = []
    for regarding in reported.rolling:
        zone, begun = zones.get(regarding.uid), reported.begun.get(regarding.uid)
        if zone is None or zone.rolled_out != begun or rolled_out.get(regarding.uid) == begun:
            continue
        rolled_out[regarding.uid] = begun
        note = (
            f"{zone.zone} has {zone.ready} of {zone.desired} pods ready at revision {begun}, "
            f"which is its current revision"
        )
        events.append(
            EventRecord(
                regarding=regarding, action=EventAction.ROLL_OUT, reason=ZONE_ROLLED_OUT, note=note
            )
        )
    return replace(reported, rolled_out=rolled_out), tuple(events)


def choose_finish_events(reported: ReportedGroup, plan: Plan, now: timedelta) -> Choice:
    leading = find_leading(plan.waits)
    if leading is None or leading.code is not Code.UP_TO_DATE:
        return reported, ()
    note = leading.text
    if reported.since is not None:
        whole = timedelta(seconds=round((now - reported.since).total_seconds()))
        note = f"{note}; the rollout took {format_duration(whole)}"
    # A zone that was deleted meanwhile may have been made anew under its name.
    there = None if plan.progress is None else {zone.uid for zone in plan.progress}
    events = tuple(
        EventRecord(
            regarding=regarding, action=EventAction.ROLL_OUT, reason=ROLLOUT_FINISHED, note=note
        )
        for regarding in reported.rolling
        if there is None or regarding.uid in there
    )
    # Forget zones that are gone.
    uids = {regarding.uid for regarding in reported.rolling}
    begun = {uid: revision for uid, revision in reported.begun.items() if uid in uids}
    rolled_out = {uid: revision for uid, revision in reported.rolled_out.items() if uid in uids}
    at_rest = ReportedGroup(begun=begun, rolled_out=rolled_out, was_rolled_out=True)
    return replace(at_rest, wait=reported.wait), events


def record_waits(reported: ReportedGroup, plan: Plan) -> ReportedGroup:
    """Forget a reported wait that no longer leads, so that it is news when it comes back."""
    leading = find_leading(plan.waits)
    if leading is None or _name_wait(leading) != reported.wait:
        return replace(reported, wait=None)
    return reported


def next_wait_report(reported: ReportedGroup, plan: Plan, stood_for: timedelta) -> timedelta | None:
    """Return when the leading wait, which has stood so long, is worth an Event.

    Zero is now; None if it is reported already, or no person needs to know.
    """
    leading = find_leading(plan.waits)
    if leading is None:
        return None
    if leading.severity is Severity.DEBUG and leading.code is not Code.PODS_STARTING:
        return None
    if reported.wait == _name_wait(leading):
        return None
    stays = START_STAYS if leading.code in _WHILE_STARTING else WAIT_STAYS
    return max(stays - stood_for, timedelta(0))


def choose_wait_events(
    reported: ReportedGroup, plan: Plan, members: Sequence[StatefulSet | Unreadable]
) -> Choice:
    """Return the Events for the leading wait, at its zone or else at all members."""
    leading = find_leading(plan.waits)
    if leading is None:
        return reported, ()
    # A departed zone is no member: report at the zones that it holds.
    zones = [member for member in members if leading.zone == member.name] or [*members]
    zones.sort(key=lambda zone: zone.name)
    events = tuple(
        _render(regard(EventKind.STATEFULSET, zone), EventAction.WAIT, leading)
        for zone in zones[:MOST_ZONES]
    )
    return replace(reported, wait=_name_wait(leading)), events


def render_scaled(action: ScaleZone) -> EventRecord:
    return _render(regard(EventKind.STATEFULSET, action.zone), EventAction.SCALE, action.reason)


def is_reported(verdict: Verdict) -> bool:
    """Return whether a refusal says something about the object under review."""
    return verdict.reason.code not in _OF_THE_PROCESS


def render_refused_downscale(sts: StatefulSet, verdict: Verdict, user: str) -> EventRecord:
    regarding = regard(EventKind.STATEFULSET, sts)
    event = _render(regarding, EventAction.REFUSE_DOWNSCALE, verdict.reason)
    sender = f"; requested by {user}" if user else ""
    return replace(event, note=f"{event.note}{sender}")


def render_held(pod: Pod, verdict: Verdict) -> EventRecord:
    return _render(regard(EventKind.POD, pod), EventAction.REFUSE_EVICTION, verdict.reason)


def choose_budget_event(
    old: Budget | FlawedBudget | Unreadable | None, new: Budget | FlawedBudget | Unreadable | None
) -> EventRecord | None:
    """Return that a budget became invalid, or valid again."""
    if new is None or not new.name:
        return None
    before = None if old is None or old.uid != new.uid else _get_problem(old)
    problem = _get_problem(new)
    if (before or "") == problem:
        return None
    code, severity, note = Code.BUDGET_INVALID, Severity.ERROR, problem
    if not problem:
        code, severity, note = Code.BUDGET_VALID, Severity.INFO, f"{new.name} is obeyed again"
    reason = Reason(code, note, severity)
    return _render(regard(EventKind.BUDGET, new), EventAction.VALIDATE, reason)


def regard(
    kind: EventKind, obj: StatefulSet | Pod | Budget | FlawedBudget | Unreadable
) -> Regarding:
    return Regarding(kind, obj.namespace, obj.name, obj.uid)


def _begin_zone(reported: ReportedGroup, zone: Zone, now: timedelta) -> Choice:
    sts, regarding = zone.sts, regard(EventKind.STATEFULSET, zone.sts)
    if not reported.rolling:
        since = now if reported.was_rolled_out else None
        reported = replace(reported, since=since, was_rolled_out=False)
    if regarding not in reported.rolling:
        reported = replace(reported, rolling=(*reported.rolling, regarding))
    before = reported.begun.get(sts.uid)
    if before == sts.update_revision:
        return reported, ()
    begun = {**reported.begun, sts.uid: sts.update_revision}
    reported = replace(reported, begun=begun)
    pods = zone.own_pods
    outdated = sum(pod.revision != sts.update_revision for pod in pods)
    if before is None and outdated < len(pods):
        return reported, ()  # an earlier process has begun it
    text = f"{sts.name} is rolled out to {sts.update_revision}: {count(outdated, 'pod')}"
    note = f"{text} {verb(outdated, 'is', 'are')} outdated"
    event = EventRecord(
        regarding=regarding, action=EventAction.ROLL_OUT, reason=ROLLOUT_BEGUN, note=note
    )
    return reported, (event,)


def _get_problem(obj: Budget | FlawedBudget | Unreadable) -> str:
    match obj:
        case Budget():
            return ""
        case FlawedBudget(problem=problem):
            return problem
        case Unreadable(error=error):
            return error


def _name_wait(reason: Reason) -> _Wait:
    return (reason.code, reason.zone)


def _render(regarding: Regarding, action: EventAction, reason: Reason) -> EventRecord:
    return EventRecord(
        regarding=regarding,
        action=action,
        reason=camel_case(reason.code),
        note=reason.text,
        severity=reason.severity,
    )
