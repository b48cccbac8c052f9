"""Carry out a plan: the only code that changes a group.

A delete cannot be undone, so it is preceded by a live look: the decision is taken again on what the
store holds now and on what the caches have heard by then, and only what both agree on is done,
under preconditions on UID and version of what was looked at.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum, auto
from typing import Final, Protocol, assert_never

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.candidates import Assessor, Candidates, ask_for
from rollout_operator.controllers.memory import OwnDeletes
from rollout_operator.controllers.reading import LOOK_LASTS, MOST_LOOKS, describe_slow
from rollout_operator.controllers.revisions import Revisions
from rollout_operator.guards.asking import Answer, Ask
from rollout_operator.guards.locks import Locks, group_lock
from rollout_operator.kube.api import PODS, LiveReader, Precondition, Writer
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    DeadlinePassed,
    NotFound,
    Refused,
    Throttled,
    UnknownOutcome,
)
from rollout_operator.model.group import Group
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import (
    Action,
    Code,
    Plan,
    Reason,
    RecordRevision,
    Replacement,
    ReplacePods,
    Severity,
    Share,
)
from rollout_operator.planning.disruption import Refusal
from rollout_operator.planning.group import plan_group
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# Pods that were refused come last for this long.
REFUSAL_LASTS: Final = timedelta(minutes=10)


class LiveObserver(Protocol):
    """Where the second look comes from, and what the caches show by now."""

    def observe(self, name: GroupName) -> Group: ...

    async def observe_live(self, cached: Group) -> Group: ...


class Gate(Assessor, Protocol):
    """Who must agree before a pod goes: the budgets."""

    async def ask(self, ask: Ask, until: timedelta) -> Answer:
        """Answer before `until`; what is permitted is reserved."""
        ...

    async def give_back(self, pod: Pod) -> None:
        """The pod was permitted to go, and will not."""
        ...


class Door(LiveReader, Writer, Protocol):
    """The part of the API that executing needs."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What carrying out one action came to."""

    deleted: int = 0
    notes: list[Reason] = field(default_factory=list)
    """Why something that was planned was not done."""
    held: list[Refusal] = field(default_factory=list)
    """What budgets do not let go, in the order in which it was tried."""
    error: ApiError | None = None
    is_contradicted: bool = False
    """The store holds something else than the cache shows."""
    cut_short: str = ""
    """Why a live read was too old before all was done, if it was: there is more to do."""

    @property
    def is_cut_short(self) -> bool:
        """Tell whether a live read was too old before all was done."""
        return self.cut_short != ""


class _Fate(Enum):
    """What became of one delete."""

    WENT = auto()
    REFUSED = auto()
    SHARED = auto()
    """Refused for what holds for the other pods as well."""
    CHANGED = auto()
    LATE = auto()


class Executor:
    """Turns actions into calls."""

    def __init__(
        self,
        door: Door,
        observer: LiveObserver,
        deletes: OwnDeletes,
        *,
        clock: Clock,
        metrics: Metrics,
        gate: Gate,
        locks: Locks | None = None,
        most_looks: int = MOST_LOOKS,
        recording: Door | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._door = door
        self._observer = observer
        self._deletes = deletes
        self._clock = clock
        self._metrics = metrics
        self._gate = gate
        self._locks = locks or Locks()
        self._is_stopping = is_stopping
        self._revisions = Revisions(recording or door, observer, clock)
        self._looks = asyncio.Semaphore(most_looks)
        self._refused_at: dict[Uid, timedelta] = {}

    async def carry_out(self, group: Group, action: Action) -> Report:
        """Do what an action of the group's plan says. Errors are in the report."""
        report = Report()
        try:
            match action:
                case ReplacePods():
                    await self._replace(group, action, report)
                case RecordRevision():
                    recording = await self._revisions.record(group.name, action)
                    report.notes.extend(recording.notes)
                    report.cut_short = recording.cut_short
                case _:
                    assert_never(action)
        except ApiError as error:
            report.error = error
        return report

    async def read_back(self, owners: Collection[Uid]) -> None:
        """Find out what became of deletes that got no answer, before anything else is decided.

        Raises what `Reader.fetch` raises, other than NotFound.
        """
        for own in self._deletes.list_unknown(owners):
            pod = own.pod
            try:
                body = await self._door.fetch(PODS, pod.namespace, pod.name)
                seen = msgspec.json.decode(body, type=_SeenPod).metadata
            except NotFound:
                seen = _SeenMeta()
            if seen.uid != pod.uid or seen.deletionTimestamp is not None:
                log.info("Delete without an answer was carried out", pod=pod.name)
                self._deletes.accept(pod)
            elif not self._deletes.may_still_commit(own):
                log.info("Delete without an answer was not carried out", pod=pod.name)
                self._deletes.drop(pod)

    async def _replace(self, group: Group, action: ReplacePods, report: Report) -> None:
        # What the caches know to be held by budgets is not worth a look.
        asks = [ask_for(one, action.zone) for one in action.listed]
        held = await self._gate.assess_all(asks)
        if None not in held:
            report.held.extend(refusal for refusal in held if refusal is not None)
            return
        # In this order: a group that waits for its look keeps no downscale waiting.
        async with self._looks, self._locks.hold(group_lock(group.name)):
            await self._replace_locked(group, action, report)

    async def _replace_locked(self, group: Group, action: ReplacePods, report: Report) -> None:
        live = await self._observer.observe_live(group)
        expires_at = self._clock.elapsed() + LOOK_LASTS - live.view_age
        agreed = self._agree(action, live) if group.owners == live.owners else None
        if agreed is None:
            report.is_contradicted = True
            report.notes.append(_view_changed(action))
            return
        for share in agreed.shares:
            fate = await self._replace_share(group.name, share, agreed.zone, report, expires_at)
            if fate is _Fate.LATE or fate is _Fate.CHANGED:
                return

    def _agree(self, action: ReplacePods, live: Group) -> ReplacePods | None:
        """Return what a plan of the caches as they are by now and one of the look would delete.

        A look may have waited long for a token. Pods that came back meanwhile make room that needs
        no look of its own; what the caches saw go stops it.
        """
        cached = self._observer.observe(live.name)
        planned = _find_zone(plan_group(cached), action.zone.uid)
        seen = _find_zone(plan_group(live), action.zone.uid)
        return None if planned is None or seen is None else _cut_to(planned, seen)

    async def _replace_share(
        self,
        group: GroupName,
        share: Share,
        zone: StatefulSet,
        report: Report,
        expires_at: timedelta,
    ) -> _Fate | None:
        """Delete as many pods as there is room for; return what became of the last delete."""
        pods, room, fate = sorted(share.pods, key=self._last_refusal), share.room, None
        candidates = Candidates(self._gate, zone, pods, report.held)
        while room > 0 and not self._is_stopping() and (one := await candidates.next()):
            fate = await self._try(group, one, zone, report, expires_at)
            if fate is _Fate.LATE or fate is _Fate.CHANGED or fate is _Fate.SHARED:
                break
            if fate is _Fate.WENT:
                room -= 1
                candidates.reassess()
        return fate

    def _last_refusal(self, one: Replacement) -> timedelta:
        """Order pods so that those that were refused lately come last (D-15)."""
        return self._refused_at.get(one.pod.uid, timedelta.min)

    async def _try(
        self,
        group: GroupName,
        one: Replacement,
        zone: StatefulSet,
        report: Report,
        expires_at: timedelta,
    ) -> _Fate:
        """Delete one pod if its budget agrees. Raises ApiError where trying others is no use."""
        answer = await self._gate.ask(ask_for(one, zone), expires_at)
        if isinstance(answer, Refusal):
            return _note_held(report, answer)
        fate = None
        try:
            fate = await self._delete(group, replace(one, pod=answer.pod), report, expires_at)
        finally:
            # Also where there was no answer: a pod whose record goes is no longer what the delete
            # asks for.
            if answer.budget and fate is not _Fate.WENT:
                await self._gate.give_back(answer.pod)
        return fate

    async def _delete(
        self, group: GroupName, one: Replacement, report: Report, expires_at: timedelta
    ) -> _Fate:
        """Delete one pod. Raises ApiError where trying others is no use."""
        pod, zone = one.pod, one.reason.zone
        left = expires_at - self._clock.elapsed()
        if left <= timedelta(0):
            return _cut_short(report, describe_slow(zone))
        log.info(
            "Terminating pod",
            group=group, zone=zone, pod=pod.name, reason=one.reason.code, why=one.reason.text,
        )  # fmt: skip
        precondition = Precondition(uid=pod.uid, resource_version=pod.resource_version)
        self._deletes.begin(pod)
        try:
            await self._door.delete(
                PODS, pod.namespace, pod.name, precondition=precondition, sent_within=left
            )
        except UnknownOutcome:
            self._count(group, "unknown")
            raise
        except (NotFound, Conflict) as error:
            return self._note_changed(group, pod, report, error)
        except Refused as error:
            return self._note_refused(group, pod, report, error)
        except Throttled as error:
            self._deletes.withdraw(pod)
            return _cut_short(report, f"{error}")
        except ApiError:
            self._deletes.withdraw(pod)  # turned away at the door
            raise
        self._count(group, "accepted")
        self._deletes.accept(pod)
        self._refused_at.pop(pod.uid, None)
        report.deleted += 1
        return _Fate.WENT

    def _note_changed(
        self, group: GroupName, pod: Pod, report: Report, error: NotFound | Conflict
    ) -> _Fate:
        """Someone else changed or deleted the pod: what we know of its zone is old (SI-04).

        A request for an older version, sent earlier, fails as well: none is under way any more.
        """
        is_gone = isinstance(error, NotFound)
        self._count(group, "gone" if is_gone else "conflict")
        if is_gone:
            self._deletes.accept(pod)
        else:
            self._deletes.drop(pod)
        report.is_contradicted = True
        report.notes.append(_note(Code.VIEW_CHANGED, pod, error))
        return _Fate.CHANGED

    def _note_refused(self, group: GroupName, pod: Pod, report: Report, error: Refused) -> _Fate:
        self._count(group, "refused")
        self._deletes.withdraw(pod)
        now = self._clock.elapsed()
        for uid, at in list(self._refused_at.items()):
            if now - at > REFUSAL_LASTS:
                del self._refused_at[uid]
        self._refused_at[pod.uid] = now
        report.notes.append(_note(Code.DELETE_REFUSED, pod, error, Severity.WARN))
        return _Fate.REFUSED

    def _count(self, group: GroupName, outcome: str) -> None:
        self._metrics.pods_deleted.labels(group, outcome).inc()


class _SeenMeta(msgspec.Struct):
    uid: str = ""
    deletionTimestamp: str | None = None


class _SeenPod(msgspec.Struct):
    metadata: _SeenMeta


def _find_zone(plan: Plan, uid: Uid) -> ReplacePods | None:
    """Return what a plan deletes of one zone."""
    for action in plan.actions:
        if isinstance(action, ReplacePods) and action.zone.uid == uid:
            return action
    return None


def _cut_to(cached: ReplacePods, live: ReplacePods) -> ReplacePods | None:
    """Return what both would delete, with the versions of the live one; None for nothing."""
    rooms = {one.pod.uid: share.room for share in cached.shares for one in share.pods}
    shares = tuple(share for each in live.shares if (share := _cut(each, rooms)).pods)
    return ReplacePods(zone=live.zone, shares=shares) if shares else None


def _cut(share: Share, rooms: Mapping[Uid, int]) -> Share:
    """Return the pods that have room in both looks, bounded by the narrower one."""
    pods = tuple(one for one in share.pods if one.pod.uid in rooms)
    most = max((rooms[one.pod.uid] for one in pods), default=0)
    return Share(pods=pods, room=min(share.room, most))


def _view_changed(action: ReplacePods) -> Reason:
    zone = action.zone.name
    text = f"the API server does not confirm what the cache shows of {zone}; looking again"
    return Reason(code=Code.VIEW_CHANGED, text=text, zone=zone, severity=Severity.DEBUG)


def _cut_short(report: Report, why: str) -> _Fate:
    report.cut_short = why
    return _Fate.LATE


def _note_held(report: Report, answer: Refusal) -> _Fate:
    """The gate did not let a pod go. Raises the error because of which it could not tell."""
    match answer.error:
        case None:
            report.held.append(answer)
            return _Fate.SHARED if answer.is_shared else _Fate.REFUSED
        case NotFound() | Conflict():
            report.held.append(answer)
            report.is_contradicted = True  # the pod has changed: the look is old
            return _Fate.CHANGED
        case DeadlinePassed() | Throttled():
            return _cut_short(report, answer.reason.text)
        case error:
            raise error


def _note(code: Code, pod: Pod, error: ApiError, severity: Severity = Severity.DEBUG) -> Reason:
    zone = pod.name.rpartition("-")[0]
    return Reason(
        code=code, text=f"{pod.name} was not deleted: {error}", zone=zone, severity=severity
    )
