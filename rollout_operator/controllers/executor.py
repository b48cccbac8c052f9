"""Carry out a plan: the only code that changes a group.

A delete cannot be undone, so it is preceded by a live look: the same decision is taken again on
what the store holds now, and only what both decisions agree on is done, under preconditions on UID
and version of what was looked at.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.memory import OwnDeletes
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Precondition, Reader, Writer
from rollout_operator.model.decode import decode_statefulset
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    DecodeError,
    NotFound,
    Refused,
    UnknownOutcome,
)
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import (
    Code,
    Plan,
    Reason,
    RecordRevision,
    Replacement,
    ReplacePods,
    Severity,
)
from rollout_operator.planning.group import plan_group
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# SI-09: the live look must not be older than this when a delete is sent.
LOOK_LASTS: Final = timedelta(seconds=5)


class LiveObserver(Protocol):
    """Where the second look comes from."""

    async def observe_live(self, cached: Group) -> Group: ...


class Door(Reader, Writer, Protocol):
    """The part of the API that executing needs."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What carrying out a plan came to."""

    deleted: int = 0
    notes: list[Reason] = field(default_factory=list)
    """Why something that was planned was not done."""
    errors: list[ApiError] = field(default_factory=list)
    """Failures, each of one action; the others were still carried out."""


class Executor:
    """Turns the actions of plans into calls, one group at a time."""

    def __init__(
        self,
        door: Door,
        observer: LiveObserver,
        deletes: OwnDeletes,
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._door = door
        self._observer = observer
        self._deletes = deletes
        self._clock = clock
        self._metrics = metrics

    async def carry_out(self, group: Group, plan: Plan) -> Report:
        """Do what the plan says. Errors of one action are reported and do not stop the others."""
        report = Report()
        for action in plan.actions:
            try:
                match action:
                    case ReplacePods():
                        await self._replace(group, action, report)
                    case RecordRevision():
                        await self._record(action, report)
            except ApiError as error:
                report.errors.append(error)
        return report

    async def read_back(self, name: GroupName) -> None:
        """Find out what became of deletes that got no answer, before anything else is decided.

        Raises what `Reader.fetch` raises, other than NotFound.
        """
        for own in self._deletes.list_unknown(name):
            pod = own.pod
            try:
                body = await self._door.fetch(PODS, pod.namespace, pod.name)
                seen = msgspec.json.decode(body, type=_SeenPod).metadata
            except NotFound:
                seen = _SeenMeta()
            if seen.uid != pod.uid or seen.deletionTimestamp is not None:
                log.info("Delete without an answer was carried out", group=name, pod=pod.name)
                self._deletes.accept(pod)
            elif not self._deletes.may_still_commit(own):
                log.info("Delete without an answer was not carried out", group=name, pod=pod.name)
                self._deletes.drop(pod)

    async def _replace(self, group: Group, action: ReplacePods, report: Report) -> None:
        live = await self._observer.observe_live(group)
        looked_at = self._clock.elapsed()
        agreed = _agree(action, plan_group(live))
        if agreed is None:
            report.notes.append(_view_changed(action))
            return
        room = agreed.room
        for one, is_free in [(one, True) for one in agreed.free] + [
            (one, False) for one in agreed.candidates
        ]:
            if not is_free and room == 0:
                break
            if self._clock.elapsed() - looked_at > LOOK_LASTS:
                report.notes.append(_look_expired(action))
                break
            if await self._delete(group.name, action, one, report) and not is_free:
                room -= 1

    async def _delete(
        self, group: GroupName, action: ReplacePods, one: Replacement, report: Report
    ) -> bool:
        """Delete one pod; tell whether it went. Raises ApiError where trying others is no use."""
        pod, zone = one.pod, action.zone.name
        log.info(
            "Terminating pod",
            group=group, zone=zone, pod=pod.name, reason=one.reason.code, why=one.reason.text,
        )  # fmt: skip
        precondition = Precondition(uid=pod.uid, resource_version=pod.resource_version)
        self._deletes.begin(group, pod)
        try:
            await self._door.delete(PODS, pod.namespace, pod.name, precondition=precondition)
        except UnknownOutcome:
            self._count(group, "unknown")
            raise
        except NotFound:
            self._count(group, "gone")
            self._deletes.accept(pod)
            return True
        except Conflict as error:
            self._count(group, "conflict")
            # The pod has a newer version: an earlier request for an older one fails as well.
            self._deletes.drop(pod)
            report.notes.append(_note(Code.VIEW_CHANGED, zone, pod.name, error))
            return False
        except Refused as error:
            self._count(group, "refused")
            self._deletes.withdraw(pod)
            report.notes.append(_note(Code.DELETE_REFUSED, zone, pod.name, error, Severity.WARN))
            return False
        except ApiError:
            self._deletes.withdraw(pod)  # it was not sent, or turned away at the door
            raise
        self._count(group, "accepted")
        self._deletes.accept(pod)
        report.deleted += 1
        return True

    async def _record(self, action: RecordRevision, report: Report) -> None:
        zone = action.zone
        body = await self._door.fetch(STATEFULSETS, zone.namespace, zone.name)
        try:
            live = decode_statefulset(body)
        except DecodeError as error:
            raise Conflict(str(error), call=f"read statefulset {zone.name}") from error
        is_same = live.uid == zone.uid and live.update_revision == action.revision
        if not is_same or live.observed_generation < live.generation:
            report.notes.append(_revision_moved(action))
            return
        if live.current_revision == live.update_revision:
            return  # recorded by an earlier attempt; the cache will show it
        log.info(
            "Recording revision",
            zone=zone.name, revision=action.revision, reason=action.reason.code,
        )  # fmt: skip
        whole = msgspec.json.decode(body, type=JsonObject)
        status = msgspec.convert(whole["status"], type=JsonObject)
        whole["status"] = {**status, "currentRevision": action.revision}
        await self._door.replace_status(STATEFULSETS, zone.namespace, zone.name, whole)

    def _count(self, group: GroupName, outcome: str) -> None:
        self._metrics.pods_deleted.labels(group, outcome).inc()


class _SeenMeta(msgspec.Struct):
    uid: str = ""
    deletionTimestamp: str | None = None


class _SeenPod(msgspec.Struct):
    metadata: _SeenMeta


def _agree(cached: ReplacePods, live: Plan) -> ReplacePods | None:
    """Return what both plans would delete, with the versions of the live one; None for nothing."""
    for action in live.actions:
        if isinstance(action, ReplacePods) and action.zone.uid == cached.zone.uid:
            meant = {one.pod.uid for one in (*cached.free, *cached.candidates)}
            free = tuple(one for one in action.free if one.pod.uid in meant)
            candidates = tuple(one for one in action.candidates if one.pod.uid in meant)
            room = min(action.room, cached.room)
            if free or (candidates and room):
                return ReplacePods(zone=action.zone, free=free, candidates=candidates, room=room)
    return None


def _view_changed(action: ReplacePods) -> Reason:
    zone = action.zone.name
    text = f"the API server does not confirm what the cache shows of {zone}; looking again"
    return Reason(code=Code.VIEW_CHANGED, text=text, zone=zone, severity=Severity.DEBUG)


def _look_expired(action: ReplacePods) -> Reason:
    zone = action.zone.name
    text = f"the live look at {zone} is older than {LOOK_LASTS.total_seconds():g} s; looking again"
    return Reason(code=Code.VIEW_CHANGED, text=text, zone=zone, severity=Severity.DEBUG)


def _revision_moved(action: RecordRevision) -> Reason:
    zone = action.zone.name
    text = f"{zone} is no longer at revision {action.revision}; looking again"
    return Reason(code=Code.VIEW_CHANGED, text=text, zone=zone, severity=Severity.DEBUG)


def _note(
    code: Code, zone: str, pod: str, error: ApiError, severity: Severity = Severity.DEBUG
) -> Reason:
    return Reason(code=code, text=f"{pod} was not deleted: {error}", zone=zone, severity=severity)
