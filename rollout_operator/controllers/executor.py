"""Carry out a plan: the only code that deletes the pods of a rollout.

A delete is final, so a live read precedes it: the decision is taken again on that read and on what
the caches show by then. Only pods that both decisions delete are deleted, under preconditions on
the UID and the version that were read.

A pod under a budget needs a record, a read of all pods after that, and the delete. Pods are
reserved, which writes the record, before the live read: so one read serves the rollout and the
budget, and only the delete has to fit into the life of the read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Final, Protocol, assert_never

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.context import Context
from rollout_operator.controllers.observe import (
    LIVE_READ_LASTS,
    Observer,
    choose_most_live_reads,
    describe_slow,
)
from rollout_operator.guards.arbiter import Arbiter
from rollout_operator.guards.grants import DisruptionRequest, Reservation
from rollout_operator.guards.turns import group_lock
from rollout_operator.kube.api import (
    PODS,
    STATEFULSETS,
    JsonObject,
    LiveReader,
    Precondition,
    Writer,
)
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    DeadlinePassed,
    DecodeError,
    GroupName,
    NotFound,
    Refused,
    Throttled,
    Uid,
    UnknownOutcome,
)
from rollout_operator.model.objects import Deletion, Group, Pod, StatefulSet
from rollout_operator.model.outcome import (
    Action,
    Code,
    EqualPods,
    Plan,
    Reason,
    RecordRevision,
    Replacement,
    ReplacePods,
    Severity,
)
from rollout_operator.planning.budgets import Refusal
from rollout_operator.planning.readiness import choose_limit
from rollout_operator.planning.rollout import plan_group
from rollout_operator.telemetry.logs import log

# How long a pod whose delete was refused is tried last.
_REFUSAL_LASTS: Final = timedelta(minutes=10)


def _find_zone(plan: Plan, uid: Uid) -> ReplacePods | None:
    replacing = (action for action in plan.actions if isinstance(action, ReplacePods))
    return next((action for action in replacing if action.zone.uid == uid), None)


def _cut_to(cached: ReplacePods, live: ReplacePods) -> ReplacePods | None:
    """Return the deletes that both plans have, with the versions of `live`; None if none."""
    rooms = {pod.pod.uid: share.room for share in cached.shares for pod in share.pods}
    shares = tuple(share for each in live.shares if (share := _cut(each, rooms)).pods)
    return ReplacePods(zone=live.zone, shares=shares) if shares else None


def _cut(share: EqualPods, rooms: Mapping[Uid, int]) -> EqualPods:
    """Return the pods that have room in both plans, bounded by the narrower plan."""
    pods = tuple(pod for pod in share.pods if pod.pod.uid in rooms)
    most = max((rooms[pod.pod.uid] for pod in pods), default=0)
    return EqualPods(pods=pods, room=min(share.room, most))


def _build_request(replacement: Replacement, limit: int) -> DisruptionRequest:
    return DisruptionRequest(pod=replacement.pod, engine=DisruptionSource.ROLLOUT, limit=limit)


class _Candidates:
    """Pods of one zone, in the order in which they are to be tried.

    Budgets assess all of them at once, by the caches, and again whenever a pod has gone. The
    executor still requests each pod that it tries from the arbiter.
    """

    def __init__(
        self,
        arbiter: Arbiter,
        limit: int,
        pods: Sequence[Replacement],
        held: list[Refusal],
        reserved: Sequence[Replacement] = (),
    ) -> None:
        """Try all of `reserved`, then `pods`; refusals of pods not tried are added to `held`."""
        self._arbiter, self._limit = arbiter, limit
        self._reserved = deque(reserved)
        self._left = deque(pods)
        self._held = held
        self._answers: deque[Refusal | None] = deque()

    async def next(self) -> Replacement | None:
        if self._reserved:
            return self._reserved.popleft()
        if self._left and not self._answers:
            requests = [_build_request(candidate, self._limit) for candidate in self._left]
            self._answers.extend(await self._arbiter.assess_all(requests))
        while self._left:
            replacement, refusal = self._left.popleft(), self._answers.popleft()
            if refusal is None:
                return replacement
            self._held.append(refusal)
        return None

    def reassess(self) -> None:
        """Assess again: a pod that went may have taken all the room of the budget."""
        self._answers.clear()


class _Reservations:
    """The reserved pods of one zone, from before a live read until the last delete."""

    def __init__(self, arbiter: Arbiter, judge: Callable[[Group], Group]) -> None:
        self._arbiter, self._judge = arbiter, judge
        self._by_pod: dict[Uid, Reservation] = {}
        self.held: list[Refusal] = []
        """Why other pods were held when these were reserved."""
        self.is_cut_short = False
        """Whether there was no time for more: other pods wait for the next live read."""

    def __len__(self) -> int:
        return len(self._by_pod)

    def add(self, reserved: Reservation) -> None:
        self._by_pod[reserved.request.pod.uid] = reserved

    def take(self, pod: Uid) -> Reservation | None:
        return self._by_pod.pop(pod, None)

    def split(self, pods: Sequence[Replacement]) -> tuple[list[Replacement], list[Replacement]]:
        reserved = [pod for pod in pods if pod.pod.uid in self._by_pod]
        return reserved, [pod for pod in pods if pod.pod.uid not in self._by_pod]

    def hide(self, group: Group) -> Group:
        """Return the group without these reservations, as the plan decides on their use."""
        shown = {
            uid: how
            for uid, how in group.deletions.items()
            if uid not in self._by_pod or how is not Deletion.GRANTED
        }
        if len(shown) == len(group.deletions):
            return group
        return self._judge(replace(group, deletions=shown))

    async def release(self) -> None:
        while self._by_pod:
            reserved = next(iter(self._by_pod.values()))
            await self._arbiter.release(reserved)
            self._by_pod.pop(reserved.request.pod.uid, None)

    def abandon(self) -> None:
        left, self._by_pod = list(self._by_pod.values()), {}
        for reserved in left:
            self._arbiter.abandon(reserved)


class Report(msgspec.Struct, kw_only=True):
    deleted: int = 0
    reasons: list[Reason] = []
    """Why a planned step was not done."""
    held: list[Refusal] = []
    """Why budgets hold pods, in the order in which they were tried."""
    error: ApiError | None = None
    is_contradicted: bool = False
    """Whether the API server showed something other than the cache."""
    cut_short: str = ""
    """Why a live read was too old before all was done: there is more to do."""
    has_reserved: bool = False
    """Whether pods were reserved, or almost: to give them back wakes their group."""

    @property
    def is_cut_short(self) -> bool:
        return self.cut_short != ""

    @property
    def was_in_vain(self) -> bool:
        return self.has_reserved and not self.deleted


class _DeleteOutcome(Enum):
    WENT = auto()
    REFUSED = auto()
    SHARED = auto()
    """Refused for a reason that applies to the other pods as well."""
    CHANGED = auto()
    LATE = auto()


def _explain_changed(action: ReplacePods) -> Reason:
    zone = action.zone.name
    text = f"the API server does not confirm what the cache shows of {zone}; looking again"
    return Reason(code=Code.SNAPSHOT_CHANGED, text=text, zone=zone, severity=Severity.DEBUG)


def _cut_short_by(report: Report, why: str) -> _DeleteOutcome:
    report.cut_short = why
    return _DeleteOutcome.LATE


def _record_held(report: Report, answer: Refusal) -> _DeleteOutcome:
    """Record that a pod may not go. Raises the error that kept the arbiter from deciding."""
    match answer.error:
        case None:
            report.held.append(answer)
            return _DeleteOutcome.SHARED if answer.is_shared else _DeleteOutcome.REFUSED
        case NotFound() | Conflict():
            report.held.append(answer)
            report.is_contradicted = True  # the pod has changed: the live read is old
            return _DeleteOutcome.CHANGED
        case DeadlinePassed() | Throttled():
            return _cut_short_by(report, answer.reason.text)
        case error:
            raise error


def _explain_pod(
    code: Code, pod: Pod, error: ApiError, severity: Severity = Severity.DEBUG
) -> Reason:
    zone = pod.name.rpartition("-")[0]
    return Reason(
        code=code, text=f"{pod.name} was not deleted: {error}", zone=zone, severity=severity
    )


class LabelRule:
    """How an Executor reads and plans StatefulSets that move together as a `Group`.

    This is the rule of rollout groups by label; that of policies is derived from it.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def observe(self, name: GroupName) -> Group:
        return self._observer.observe(name)

    async def observe_live(self, cached: Group) -> Group:
        """Return them from a live read. Raises what `Reader.fetch_page` raises."""
        return await self._observer.observe_live(cached)

    def judge(self, group: Group) -> Group:
        """Return a group that was changed with what health checks say of it now."""
        return self._observer.judge(group)

    async def record(self, live: Group) -> None:
        """Record the plan by a live read, before any of it is done.

        The plan of a label follows from the StatefulSets alone: nothing is recorded.
        """

    def plan(self, group: Group) -> Plan:
        return plan_group(group)

    def choose_limit(self, name: GroupName, sts: StatefulSet) -> int:
        return choose_limit(sts)[0]

    def list_locks(self, group: Group) -> Sequence[str]:
        """Return the keys of the locks to hold from before the live read to the last delete."""
        return (group_lock(group.name),)

    def name_set(self, name: GroupName, sts: StatefulSet) -> Mapping[str, object]:
        return {"group": name, "zone": sts.name}


class _RolloutClient(LiveReader, Writer, Protocol): ...


class _Revisions:
    """Records the revisions of zones that are rolled out, unless Kubernetes has done so."""

    def __init__(self, client: _RolloutClient, rule: LabelRule, clock: Clock) -> None:
        self._client, self._rule, self._clock = client, rule, clock

    async def record(self, group: GroupName, action: RecordRevision, report: Report) -> bool:
        """Record it, unless the caches or the API server show that the zone has changed.

        Returns whether it is recorded; the report has why it is not.
        """
        zone = action.zone
        await self._client.wait_turn(STATEFULSETS, zone.namespace)
        if not _is_planned(self._rule.plan(self._rule.observe(group)), action):
            report.reasons.append(_explain_moved(action))  # while it waited for its turn
            return False
        sent_at = self._clock.elapsed()
        body = await self._client.fetch(STATEFULSETS, zone.namespace, zone.name, has_turn=True)
        if self._clock.elapsed() - sent_at > LIVE_READ_LASTS:
            # A pod may have been evicted since the pods were read, unknown to the status.
            report.cut_short = describe_slow(zone.name)
            return False
        try:
            live = decode_statefulset(body)
        except DecodeError as error:
            raise Conflict(str(error), call=f"read statefulset {zone.name}") from error
        if not _is_rolled_out(live, action):
            report.reasons.append(_explain_moved(action))
            return False
        keys = {
            **self._rule.name_set(group, zone),
            "revision": action.revision,
            "reason": action.reason.code,
            "why": action.reason.text,
        }
        if live.current_revision == live.update_revision:
            # By an earlier attempt, or by the StatefulSet controller: the cache will show it.
            log.info("Revision is recorded already", **keys)
            return True
        log.info("Recording revision", **keys)
        whole = msgspec.json.decode(body, type=JsonObject)
        status = msgspec.convert(whole["status"], type=JsonObject)
        whole["status"] = {**status, "currentRevision": action.revision}
        await self._client.replace_status(STATEFULSETS, zone.namespace, zone.name, whole)
        return True


def _is_rolled_out(live: StatefulSet, action: RecordRevision) -> bool:
    """Return whether the API server still shows the zone as it was decided on (ROLL-39).

    Otherwise it is not known whether new pods are ready, whether all still are, and at which
    revision they are after a rollback.
    """
    zone = action.zone
    return (
        live.uid == zone.uid
        and live.update_revision == action.revision
        and live.replicas == zone.replicas
        and min(live.ready_replicas, live.updated_replicas) >= live.replicas
        and live.observed_generation >= live.generation
    )


def _is_planned(plan: Plan, action: RecordRevision) -> bool:
    return any(
        isinstance(other, RecordRevision)
        and (other.zone.uid, other.revision) == (action.zone.uid, action.revision)
        for other in plan.actions
    )


def _explain_moved(action: RecordRevision) -> Reason:
    zone = action.zone.name
    text = f"{zone} is no longer as it was, rolled out to {action.revision}; looking again"
    return Reason(code=Code.SNAPSHOT_CHANGED, text=text, zone=zone, severity=Severity.DEBUG)


# No other pod is tried after these: the live read is too old, or the refusal applies to all.
_END_THE_ROUND: Final = (_DeleteOutcome.LATE, _DeleteOutcome.CHANGED, _DeleteOutcome.SHARED)


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    live: Group
    expires_at: timedelta
    reservations: _Reservations


class _SeenMeta(msgspec.Struct):
    uid: str = ""
    deletionTimestamp: str | None = None


class _SeenPod(msgspec.Struct):
    metadata: _SeenMeta


class Executor:
    """Carries out the actions of plans, under budgets, locks and preconditions."""

    def __init__(
        self,
        context: Context,
        rule: LabelRule,
        arbiter: Arbiter,
        *,
        client: _RolloutClient,
        recording: _RolloutClient,
        on_step: Callable[[Group, Replacement | RecordRevision], None],
    ) -> None:
        """Call `on_step` with each pod that was deleted, and each revision that is recorded.

        Revisions are recorded by a client of their own: no delete waits for them.
        """
        self._context, self._rule, self._arbiter = context, rule, arbiter
        self._client, self._on_step = client, on_step
        self._clock, self._deletes = context.clock, context.deletes
        self._revisions = _Revisions(recording, rule, self._clock)
        self._live_reads = asyncio.Semaphore(choose_most_live_reads(context.settings.client_qps))
        self._refused_at: dict[Uid, timedelta] = {}

    async def carry_out(self, group: Group, action: Action) -> Report:
        """Carry out an action of the group's plan; an error is in the report."""
        report = Report()
        try:
            match action:
                case ReplacePods():
                    await self._replace(group, action, report)
                case RecordRevision():
                    if await self._revisions.record(group.name, action, report):
                        self._on_step(group, action)
                case _:
                    assert_never(action)
        except ApiError as error:
            report.error = error
        return report

    async def read_back(self, owners: Collection[Uid]) -> None:
        """Find out what became of deletes without an answer, before anything else is decided.

        Raises what `Reader.fetch` raises, other than NotFound.
        """
        for own in self._deletes.list_unknown(owners):
            pod = own.pod
            try:
                body = await self._client.fetch(PODS, pod.namespace, pod.name)
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
        # Pods that budgets hold by the caches are not worth a live read.
        limit = self._rule.choose_limit(group.name, action.zone)
        requests = [_build_request(entry, limit) for entry in action.listed]
        held = await self._arbiter.assess_all(requests)
        if None not in held:
            report.held.extend(refusal for refusal in held if refusal is not None)
            return
        # In this order, so that a group that waits for a live read does not hold up a downscale.
        async with self._live_reads, self._context.locks.hold_all(self._rule.list_locks(group)):
            reservations = _Reservations(self._arbiter, self._rule.judge)
            try:
                if await self._reserve(group.name, action, reservations, report):
                    await self._replace_reserved(group, action, reservations, report)
                    if report.deleted and not report.held:  # else it was found again
                        report.held.extend(reservations.held)
                await reservations.release()
            except (ApiError, asyncio.CancelledError):
                await reservations.release()
                raise
            finally:
                reservations.abandon()  # those left if even that was interrupted

    async def _reserve(
        self,
        group: GroupName,
        action: ReplacePods,
        reservations: _Reservations,
        report: Report,
    ) -> bool:
        """Reserve as many pods as there is room for; return whether a live read is of use."""
        if not any(self._arbiter.may_cover(entry.pod) for entry in action.listed):
            return True
        planned = _find_zone(self._rule.plan(self._rule.observe(group)), action.zone.uid)
        if planned is None:
            report.is_contradicted = True
            report.reasons.append(_explain_changed(action))
            return False
        held_back, is_free = Report(), False
        # Deletes take as long, and have no more time; the first record must still count then.
        until = self._clock.elapsed() + LIVE_READ_LASTS
        limit = self._rule.choose_limit(group, planned.zone)
        for share in planned.shares:
            room, pods = share.room, sorted(share.pods, key=self._last_refusal)
            room = 0 if reservations.is_cut_short else room
            candidates = _Candidates(self._arbiter, limit, pods, held_back.held)
            while self._may_go_on(room) and (replacement := await candidates.next()):
                answer = await self._arbiter.reserve(_build_request(replacement, limit), until)
                if isinstance(answer, Reservation) or (answer and answer.error):
                    report.has_reserved = True
                if isinstance(answer, Refusal):
                    if _record_held(held_back, answer) is _DeleteOutcome.REFUSED:
                        continue
                    break
                if answer is None:
                    is_free = True
                else:
                    reservations.add(answer)
                    reservations.is_cut_short = self._clock.elapsed() >= until
                room = 0 if reservations.is_cut_short else room - 1
                candidates.reassess()
        if is_free or len(reservations):
            reservations.held = held_back.held
            return True
        report.held.extend(held_back.held)
        report.is_contradicted, report.cut_short = held_back.is_contradicted, held_back.cut_short
        return False

    async def _replace_reserved(
        self, group: Group, action: ReplacePods, reservations: _Reservations, report: Report
    ) -> None:
        live = await self._rule.observe_live(group)
        expires_at = self._clock.elapsed() + LIVE_READ_LASTS - live.snapshot_age
        await self._rule.record(reservations.hide(live))
        agreed = None
        if group.owners == live.owners:
            agreed = self._agree(action, live, reservations)
        if agreed is None:
            report.is_contradicted = True
            report.reasons.append(_explain_changed(action))
            return
        read = _Read(live=live, expires_at=expires_at, reservations=reservations)
        for share in agreed.shares:
            outcome = await self._replace_share(share, agreed.zone, report, read)
            if outcome is _DeleteOutcome.LATE or outcome is _DeleteOutcome.CHANGED:
                return

    def _agree(
        self, action: ReplacePods, live: Group, reservations: _Reservations
    ) -> ReplacePods | None:
        """Return the deletes that the plans by the caches now and by the live read both have.

        A live read may have waited long for a token. Pods that came back meanwhile make room
        without another live read; a pod that the caches saw go stops the deletes.
        """
        cached = reservations.hide(self._rule.observe(live.name))
        planned = _find_zone(self._rule.plan(cached), action.zone.uid)
        seen = _find_zone(self._rule.plan(reservations.hide(live)), action.zone.uid)
        return None if planned is None or seen is None else _cut_to(planned, seen)

    async def _replace_share(
        self, share: EqualPods, zone: StatefulSet, report: Report, read: _Read
    ) -> _DeleteOutcome | None:
        """Delete as many pods as there is room for; return the outcome of the last delete."""
        room, outcome = share.room, None
        reserved, others = read.reservations.split(sorted(share.pods, key=self._last_refusal))
        others = [] if read.reservations.is_cut_short else others
        limit = self._rule.choose_limit(read.live.name, zone)
        candidates = _Candidates(self._arbiter, limit, others, report.held, reserved)
        while self._may_go_on(room) and (replacement := await candidates.next()):
            outcome = await self._try(replacement, zone, report, read)
            if outcome in _END_THE_ROUND:
                break
            if outcome is _DeleteOutcome.WENT:
                room -= 1
                candidates.reassess()
        return outcome

    def _may_go_on(self, room: int) -> bool:
        return room > 0 and not self._context.is_stopping

    def _last_refusal(self, replacement: Replacement) -> timedelta:
        """Order pods so that those that were refused lately come last (D-15)."""
        return self._refused_at.get(replacement.pod.uid, timedelta.min)

    async def _try(
        self, replacement: Replacement, zone: StatefulSet, report: Report, read: _Read
    ) -> _DeleteOutcome:
        """Delete one pod if its budget agrees. Raises ApiError where others need not be tried."""
        reserved = read.reservations.take(replacement.pod.uid)
        if reserved is None:
            limit = self._rule.choose_limit(read.live.name, zone)
            answer = await self._arbiter.request(
                _build_request(replacement, limit), read.expires_at
            )
        else:
            answer = await self._arbiter.confirm(reserved, read.live, read.expires_at)
        if isinstance(answer, Refusal):
            return _record_held(report, answer)
        try:
            outcome = await self._delete(replace(replacement, pod=answer.pod), zone, report, read)
        except (ApiError, asyncio.CancelledError):
            # Also without an answer: once the record is removed, the pod no longer has the version
            # that the delete names.
            if answer.budget:
                await self._arbiter.release_pod(answer.pod)
            raise
        if answer.budget and outcome is not _DeleteOutcome.WENT:
            await self._arbiter.release_pod(answer.pod)
        return outcome

    async def _delete(
        self, replacement: Replacement, sts: StatefulSet, report: Report, read: _Read
    ) -> _DeleteOutcome:
        """Delete one pod. Raises ApiError where other pods need not be tried."""
        group, pod, zone = sts.group, replacement.pod, replacement.reason.zone
        left = read.expires_at - self._clock.elapsed()
        if left <= timedelta(0):
            return _cut_short_by(report, describe_slow(zone))
        log.info(
            "Terminating pod",
            **self._rule.name_set(read.live.name, sts),
            pod=pod.name, reason=replacement.reason.code, why=replacement.reason.text,
        )  # fmt: skip
        precondition = Precondition(uid=pod.uid, resource_version=pod.resource_version)
        self._deletes.begin(pod)
        try:
            await self._client.delete(
                PODS, pod.namespace, pod.name, precondition=precondition, sent_within=left
            )
        except UnknownOutcome:
            self._count(group, "unknown")
            raise
        except (NotFound, Conflict) as error:
            return self._record_changed(group, pod, report, error)
        except Refused as error:
            return self._record_refused(group, pod, report, error)
        except Throttled as error:
            self._deletes.refuse(pod)
            return _cut_short_by(report, str(error))
        except ApiError:
            self._deletes.refuse(pod)  # turned away at once
            raise
        self._count(group, "accepted")
        self._deletes.accept(pod)
        self._refused_at.pop(pod.uid, None)
        report.deleted += 1
        self._on_step(read.live, replacement)
        return _DeleteOutcome.WENT

    def _record_changed(
        self, group: GroupName | None, pod: Pod, report: Report, error: NotFound | Conflict
    ) -> _DeleteOutcome:
        # Another client changed the pod: we know an old state of its zone (SI-04). An earlier
        # request names an older version, and fails as well.
        is_gone = isinstance(error, NotFound)
        self._count(group, "gone" if is_gone else "conflict")
        if is_gone:
            self._deletes.accept(pod)
        else:
            self._deletes.drop(pod)
        report.is_contradicted = True
        report.reasons.append(_explain_pod(Code.SNAPSHOT_CHANGED, pod, error))
        return _DeleteOutcome.CHANGED

    def _record_refused(
        self, group: GroupName | None, pod: Pod, report: Report, error: Refused
    ) -> _DeleteOutcome:
        self._count(group, "refused")
        self._deletes.refuse(pod)
        now = self._clock.elapsed()
        for uid, at in list(self._refused_at.items()):
            if now - at > _REFUSAL_LASTS:
                del self._refused_at[uid]
        self._refused_at[pod.uid] = now
        report.reasons.append(_explain_pod(Code.DELETE_REFUSED, pod, error, Severity.WARN))
        return _DeleteOutcome.REFUSED

    def _count(self, group: GroupName | None, outcome: str) -> None:
        # By the label of the StatefulSet: without one it counts for no group.
        if group is not None:
            self._context.metrics.pods_deleted.labels(group, outcome).inc()
