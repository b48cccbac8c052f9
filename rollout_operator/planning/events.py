"""Which doings are worth a Kubernetes Event, and what it says.

Decides from what Events have said of a group and what happens now. Where a Reason says why, its
code in CamelCase is the reason of the Event and its sentence begins the note, so that `kubectl
describe` has the words of log, metric and page (D-40). How often an object may have an Event is
decided in `kube.events`.
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
NAMED_REASONS: Final = frozenset({ROLLOUT_BEGUN, ZONE_ROLLED_OUT, ROLLOUT_FINISHED})
"""Reasons that are no code."""

# What a group waits for in passing is no news.
WAIT_STAYS: Final = timedelta(seconds=10)
# Each replaced pod starts for a while.
START_STAYS: Final = timedelta(minutes=1)
# Of the last pod of a zone the zone is not ready, of the others they are starting.
_WHILE_STARTING: Final = frozenset({Code.PODS_STARTING, Code.ZONE_NOT_READY})
# A reason that is about all zones of a group stands at so many of them.
MOST_ZONES: Final = 10
# They say which process was called, and nothing of the object.
_OF_THE_PROCESS: Final = frozenset({Code.NOT_ELECTED, Code.STOPPING})

_Wait = tuple[Code, str]


class ReportedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What Events have said of one group."""

    begun: Mapping[Uid, Revision] = {}
    """By zone, the update revision whose rollout has begun."""
    rolled_out: Mapping[Uid, Revision] = {}
    """By zone, the revision that it was rolled out to."""
    rolling: tuple[Regarding, ...] = ()
    """Zones of which this process has replaced pods since the group was rolled out."""
    since: timedelta | None = None
    """When the first of these pods went; None where others may have gone before it."""
    was_rolled_out: bool = False
    """Whether this process has seen the group rolled out, and has deleted nothing since."""
    wait: _Wait | None = None
    """Code and zone of the leading wait, once it is reported."""


Choice = tuple[ReportedGroup, tuple[EventRecord, ...]]
"""What Events have said of a group, with those that are to say so."""


def choose_delete_events(
    reported: ReportedGroup, group: Group, replacement: Replacement, now: timedelta
) -> Choice:
    """Return what to report of a pod that was deleted, as `group` was before."""
    pod = replacement.pod
    regarding = Regarding(EventKind.POD, pod.namespace, pod.name, pod.uid)
    deleted = _render(regarding, EventAction.DELETE, replacement.reason)
    zone = next((zone for zone in group.zones if zone.sts.name == replacement.reason.zone), None)
    if zone is None:
        return reported, (deleted,)
    reported, begun = _begin_zone(reported, zone, now)
    return reported, (*begun, deleted)


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


def choose_revision_events(reported: ReportedGroup, action: RecordRevision) -> Choice:
    """Return what to report of a zone whose revision is recorded, which may be tried again."""
    sts = action.zone
    if reported.rolled_out.get(sts.uid) == action.revision:
        return reported, ()
    rolled_out = {**reported.rolled_out, sts.uid: action.revision}
    regarding = regard(EventKind.STATEFULSET, sts)
    event = _render(regarding, EventAction.ROLL_OUT, action.reason)
    return replace(reported, rolled_out=rolled_out), (replace(event, reason=ZONE_ROLLED_OUT),)


def choose_zone_events(reported: ReportedGroup, progress: Iterable[ZoneProgress]) -> Choice:
    """Return what to report of zones whose revision is recorded, though not by this process.

    The StatefulSet controller does so itself since Kubernetes 1.37.
    """
    zones = {zone.zone: zone for zone in progress}
    rolled_out = dict(reported.rolled_out)
    events: list[EventRecord] = []
    for regarding in reported.rolling:
        zone, begun = zones.get(regarding.name), reported.begun.get(regarding.uid)
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
    """Return what to report where a rollout's plan says that nothing is left to do."""
    leading = find_leading(plan.waits)
    if leading is None or leading.code is not Code.UP_TO_DATE:
        return reported, ()
    note = leading.text
    if reported.since is not None:
        whole = timedelta(seconds=round((now - reported.since).total_seconds()))
        note = f"{note}; the rollout took {format_duration(whole)}"
    events = tuple(
        EventRecord(
            regarding=regarding, action=EventAction.ROLL_OUT, reason=ROLLOUT_FINISHED, note=note
        )
        for regarding in reported.rolling
    )
    # Of zones that are gone nothing is kept.
    uids = {regarding.uid for regarding in reported.rolling}
    begun = {uid: revision for uid, revision in reported.begun.items() if uid in uids}
    rolled_out = {uid: revision for uid, revision in reported.rolled_out.items() if uid in uids}
    at_rest = ReportedGroup(begun=begun, rolled_out=rolled_out, was_rolled_out=True)
    return replace(at_rest, wait=reported.wait), events


def record_waits(reported: ReportedGroup, plan: Plan) -> ReportedGroup:
    """Return that a wait that leads no longer is news when it comes back."""
    leading = find_leading(plan.waits)
    if leading is None or _name_wait(leading) != reported.wait:
        return replace(reported, wait=None)
    return reported


def next_wait_report(reported: ReportedGroup, plan: Plan, stood_for: timedelta) -> timedelta | None:
    """Return after how long the leading wait, which has stood so long, is worth an Event.

    Zero: now. None: it is reported, or a person need not know of it.
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
    """Return the Events of the leading wait: at its zone, else at all members."""
    leading = find_leading(plan.waits)
    if leading is None:
        return reported, ()
    # A zone that has left is no member: then it concerns those that it holds.
    zones = [member for member in members if leading.zone == member.name] or [*members]
    zones.sort(key=lambda zone: zone.name)
    events = tuple(
        _render(regard(EventKind.STATEFULSET, zone), EventAction.WAIT, leading)
        for zone in zones[:MOST_ZONES]
    )
    return replace(reported, wait=_name_wait(leading)), events


def render_scaled(action: ScaleZone) -> EventRecord:
    """Return that a count was written."""
    return _render(regard(EventKind.STATEFULSET, action.zone), EventAction.SCALE, action.reason)


def is_reported(verdict: Verdict) -> bool:
    """Return whether a refusal says anything of the object that the review is about."""
    return verdict.reason.code not in _OF_THE_PROCESS


def render_refused_downscale(sts: StatefulSet, verdict: Verdict, user: str) -> EventRecord:
    """Return that a downscale was refused, and whose it was."""
    regarding = regard(EventKind.STATEFULSET, sts)
    event = _render(regarding, EventAction.REFUSE_DOWNSCALE, verdict.reason)
    sender = f"; requested by {user}" if user else ""
    return replace(event, note=f"{event.note}{sender}")


def render_held(pod: Pod, verdict: Verdict) -> EventRecord:
    """Return that a pod may not be evicted, which holds it and is nothing to be warned of."""
    return _render(regard(EventKind.POD, pod), EventAction.REFUSE_EVICTION, verdict.reason)


def choose_budget_event(
    old: Budget | FlawedBudget | Unreadable | None, new: Budget | FlawedBudget | Unreadable | None
) -> EventRecord | None:
    """Return that a budget cannot be obeyed, or can be again; None where that is no news."""
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
    """Return an object as an Event names it."""
    return Regarding(kind, obj.namespace, obj.name, obj.uid)


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
