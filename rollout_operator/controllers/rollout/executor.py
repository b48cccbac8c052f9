"""Carry out a plan: the only code that changes a group.

A delete is final, so it is preceded by a live read: the decision is taken again on what the
store holds now and on what the caches show by then, and only what both agree on is done, under
preconditions on UID and version of what was read.
"""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.live_reads import LIVE_READ_LASTS, MOST_LIVE_READS, describe_slow
from rollout_operator.controllers.rollout.candidates import (
    Candidates,
    Reservations,
    build_request,
    cut_to,
    find_zone,
)
from rollout_operator.controllers.rollout.reports import (
    DeleteOutcome,
    Report,
    cut_short_by,
    explain_changed,
    explain_pod,
    record_held,
)
from rollout_operator.controllers.rollout.revisions import Revisions, RolloutClient
from rollout_operator.controllers.rollout.rule import RolloutRule
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.budgets.own_deletes import OwnDeletes
from rollout_operator.guards.locks import Locks
from rollout_operator.kube.api import PODS, Precondition
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
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
    EqualPods,
    RecordRevision,
    Replacement,
    ReplacePods,
    Severity,
)
from rollout_operator.planning.budgets.rule import Refusal
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# Pods that were refused come last for this long.
REFUSAL_LASTS: Final = timedelta(minutes=10)
# After these no other pod is tried: the live read is too old, or the refusal holds for all.
_END_THE_ROUND: Final = (DeleteOutcome.LATE, DeleteOutcome.CHANGED, DeleteOutcome.SHARED)


class Executor:
    """Turns actions into calls."""

    def __init__(
        self,
        client: RolloutClient,
        rule: RolloutRule,
        deletes: OwnDeletes,
        *,
        clock: Clock,
        metrics: Metrics,
        arbiter: Arbiter,
        locks: Locks | None = None,
        most_live_reads: int = MOST_LIVE_READS,
        recording: RolloutClient | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
        on_step: Callable[[Group, Replacement | RecordRevision], None] = lambda group, step: None,
    ) -> None:
        """Call `on_step` with each pod that was deleted, and each revision that is recorded."""
        self._client = client
        self._rule = rule
        self._deletes = deletes
        self._clock = clock
        self._metrics = metrics
        self._arbiter = arbiter
        self._locks = locks or Locks()
        self._is_stopping = is_stopping
        self._on_step = on_step
        self._revisions = Revisions(recording or client, rule, clock)
        self._live_reads = asyncio.Semaphore(most_live_reads)
        self._refused_at: dict[Uid, timedelta] = {}

    async def carry_out(self, group: Group, action: Action) -> Report:
        """Carry out an action of the group's plan. Errors are in the report."""
        report = Report()
        try:
            match action:
                case ReplacePods():
                    await self._replace(group, action, report)
                case RecordRevision():
                    recording = await self._revisions.record(group.name, action)
                    report.reasons.extend(recording.reasons)
                    report.cut_short = recording.cut_short
                    if not (recording.reasons or recording.cut_short):
                        self._on_step(group, action)
                case _:
                    assert_never(action)
        except ApiError as error:
            report.error = error
        return report

    async def read_back(self, owners: Collection[Uid]) -> None:
        """Find out the outcome of deletes that got no answer, before anything else is decided.

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
        requests = [build_request(entry, limit) for entry in action.listed]
        held = await self._arbiter.assess_all(requests)
        if None not in held:
            report.held.extend(refusal for refusal in held if refusal is not None)
            return
        # In this order: a group that waits for its reconcile keeps no downscale waiting.
        async with self._live_reads, self._locks.hold_all(self._rule.list_locks(group)):
            reservations = Reservations(self._arbiter)
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
                reservations.abandon()  # those left where even that did not come to an end

    async def _reserve(
        self,
        group: GroupName,
        action: ReplacePods,
        reservations: Reservations,
        report: Report,
    ) -> bool:
        """Reserve as many pods as there is room for; return whether a live read is of any use."""
        if not any(self._arbiter.may_cover(entry.pod) for entry in action.listed):
            return True
        planned = find_zone(self._rule.plan(self._rule.observe(group)), action.zone.uid)
        if planned is None:
            report.is_contradicted = True
            report.reasons.append(explain_changed(action))
            return False
        held_back, is_free = Report(), False
        limit = self._rule.choose_limit(group, planned.zone)
        for share in planned.shares:
            room, pods = share.room, sorted(share.pods, key=self._last_refusal)
            candidates = Candidates(self._arbiter, limit, pods, held_back.held)
            while room > 0 and not self._is_stopping() and (replacement := await candidates.next()):
                until = self._clock.elapsed() + LIVE_READ_LASTS
                answer = await self._arbiter.reserve(build_request(replacement, limit), until)
                if isinstance(answer, Refusal):
                    if record_held(held_back, answer) is DeleteOutcome.REFUSED:
                        continue
                    break
                if answer is None:
                    is_free = True
                else:
                    reservations.add(answer)
                room -= 1
                candidates.reassess()
        if is_free or len(reservations):
            reservations.held = held_back.held
            return True
        report.held.extend(held_back.held)
        report.is_contradicted, report.cut_short = held_back.is_contradicted, held_back.cut_short
        return False

    async def _replace_reserved(
        self, group: Group, action: ReplacePods, reservations: Reservations, report: Report
    ) -> None:
        live = await self._rule.observe_live(group)
        expires_at = self._clock.elapsed() + LIVE_READ_LASTS - live.snapshot_age
        await self._rule.record(reservations.hide(live))
        agreed = None
        if group.owners == live.owners:
            agreed = self._agree(action, live, reservations)
        if agreed is None:
            report.is_contradicted = True
            report.reasons.append(explain_changed(action))
            return
        read = _Read(live=live, expires_at=expires_at, reservations=reservations)
        for share in agreed.shares:
            outcome = await self._replace_share(share, agreed.zone, report, read)
            if outcome is DeleteOutcome.LATE or outcome is DeleteOutcome.CHANGED:
                return

    def _agree(
        self, action: ReplacePods, live: Group, reservations: Reservations
    ) -> ReplacePods | None:
        """Return the deletes that the plans by the caches now and by the live read both have.

        A live read may have waited long for a token. Pods that came back meanwhile make room that
        needs no live read of its own; what the caches saw go stops it.
        """
        cached = reservations.hide(self._rule.observe(live.name))
        planned = find_zone(self._rule.plan(cached), action.zone.uid)
        seen = find_zone(self._rule.plan(reservations.hide(live)), action.zone.uid)
        return None if planned is None or seen is None else cut_to(planned, seen)

    async def _replace_share(
        self, share: EqualPods, zone: StatefulSet, report: Report, read: "_Read"
    ) -> DeleteOutcome | None:
        """Delete as many pods as there is room for; return the outcome of the last delete."""
        room, outcome = share.room, None
        reserved, others = read.reservations.split(sorted(share.pods, key=self._last_refusal))
        limit = self._rule.choose_limit(read.live.name, zone)
        candidates = Candidates(self._arbiter, limit, others, report.held, reserved)
        while room > 0 and not self._is_stopping() and (replacement := await candidates.next()):
            outcome = await self._try(replacement, zone, report, read)
            if outcome in _END_THE_ROUND:
                break
            if outcome is DeleteOutcome.WENT:
                room -= 1
                candidates.reassess()
        return outcome

    def _last_refusal(self, replacement: Replacement) -> timedelta:
        """Order pods so that those that were refused lately come last (D-15)."""
        return self._refused_at.get(replacement.pod.uid, timedelta.min)

    async def _try(
        self, replacement: Replacement, zone: StatefulSet, report: Report, read: "_Read"
    ) -> DeleteOutcome:
        """Delete one pod if its budget agrees. Raises ApiError where others need not be tried."""
        reserved = read.reservations.take(replacement.pod.uid)
        if reserved is None:
            limit = self._rule.choose_limit(read.live.name, zone)
            answer = await self._arbiter.request(build_request(replacement, limit), read.expires_at)
        else:
            answer = await self._arbiter.confirm(reserved, read.live, read.expires_at)
        if isinstance(answer, Refusal):
            return record_held(report, answer)
        try:
            outcome = await self._delete(replace(replacement, pod=answer.pod), zone, report, read)
        except (ApiError, asyncio.CancelledError):
            # Also where there was no answer: a pod without its record no longer has the version
            # that the delete names.
            if answer.budget:
                await self._arbiter.release_pod(answer.pod)
            raise
        if answer.budget and outcome is not DeleteOutcome.WENT:
            await self._arbiter.release_pod(answer.pod)
        return outcome

    async def _delete(
        self, replacement: Replacement, sts: StatefulSet, report: Report, read: "_Read"
    ) -> DeleteOutcome:
        """Delete one pod. Raises ApiError where other pods need not be tried."""
        group, pod, zone = sts.group, replacement.pod, replacement.reason.zone
        left = read.expires_at - self._clock.elapsed()
        if left <= timedelta(0):
            return cut_short_by(report, describe_slow(zone))
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
            return cut_short_by(report, f"{error}")
        except ApiError:
            self._deletes.refuse(pod)  # turned away at once
            raise
        self._count(group, "accepted")
        self._deletes.accept(pod)
        self._refused_at.pop(pod.uid, None)
        report.deleted += 1
        self._on_step(read.live, replacement)
        return DeleteOutcome.WENT

    def _record_changed(
        self, group: GroupName | None, pod: Pod, report: Report, error: NotFound | Conflict
    ) -> DeleteOutcome:
        """Drop a delete: another client changed the pod, and we know an old state of its zone
        (SI-04). A request for an older version, sent earlier, fails as well: none is under way any
        more.
        """
        is_gone = isinstance(error, NotFound)
        self._count(group, "gone" if is_gone else "conflict")
        if is_gone:
            self._deletes.accept(pod)
        else:
            self._deletes.drop(pod)
        report.is_contradicted = True
        report.reasons.append(explain_pod(Code.SNAPSHOT_CHANGED, pod, error))
        return DeleteOutcome.CHANGED

    def _record_refused(
        self, group: GroupName | None, pod: Pod, report: Report, error: Refused
    ) -> DeleteOutcome:
        self._count(group, "refused")
        self._deletes.refuse(pod)
        now = self._clock.elapsed()
        for uid, at in list(self._refused_at.items()):
            if now - at > REFUSAL_LASTS:
                del self._refused_at[uid]
        self._refused_at[pod.uid] = now
        report.reasons.append(explain_pod(Code.DELETE_REFUSED, pod, error, Severity.WARN))
        return DeleteOutcome.REFUSED

    def _count(self, group: GroupName | None, outcome: str) -> None:
        """Count the outcome of a delete, by the label of the StatefulSet where it has any."""
        if group is not None:
            self._metrics.pods_deleted.labels(group, outcome).inc()


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """A live read, and the reservations before it."""

    live: Group
    expires_at: timedelta
    """On the clock's `elapsed`."""
    reservations: Reservations


class _SeenMeta(msgspec.Struct):
    uid: str = ""
    deletionTimestamp: str | None = None


class _SeenPod(msgspec.Struct):
    metadata: _SeenMeta
