"""Settle downscales that were allowed: by UID of the set, until they happened or pods are told.

Records the time of a downscale that happened, where the answer to the review could not. Where it
did not happen, every pod that was prepared is un-prepared, where it was prepared and with as many
calls as it takes. A process that starts finds the records of the process before it. Calls are made
under the lock of the set, so that they do not overtake those of a review to the same pods.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.aio.clock import CLOCK_ERROR, Clock
from rollout_operator.aio.queue import CANCELLATIONS
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.controllers.worker import (
    Attempt,
    Attempts,
    Controller,
    GuardedStep,
    Result,
    get_retry_after,
)
from rollout_operator.guards.downscales import (
    LATEST_REPEAT,
    PERSIST_LIMIT,
    DownscaleReservation,
    Downscales,
    ReservationState,
    SetDownscales,
    is_annotated,
)
from rollout_operator.guards.prepared_pods import (
    BacklogEntry,
    CancelCalls,
    DueCancel,
    PodRecords,
    UnprepareBacklog,
    assess_downscale_record,
    read_downscale_record,
)
from rollout_operator.guards.turns import Locks, calls_lock
from rollout_operator.kube.api import STATEFULSETS, ApiClient
from rollout_operator.kube.store import is_older
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.names import (
    DOWNSCALE_RECORD,
    LAST_DOWNSCALE,
    ApiError,
    Conflict,
    InvalidInput,
    NotFound,
    Uid,
)
from rollout_operator.model.objects import (
    AnyPod,
    AnySet,
    DownscaleRecord,
    Endpoint,
    Key,
    Pod,
    StatefulSet,
    Target,
    Unreadable,
    selects,
)
from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import TimesSource
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.downscales import (
    DownscaleOutcome,
    choose_staying,
    find_replaced,
    is_over,
    is_wanted,
    judge_downscale,
    spares,
    took_pods,
)
from rollout_operator.planning.requests import NoTarget, plan_endpoint, plan_target
from rollout_operator.pods import AT_MOST_PER_REVIEW
from rollout_operator.telemetry.logs import log

# Events alone miss nothing; this is for changes without an event.
RESYNC: Final = timedelta(seconds=30)
# Sets whose downscales are reconciled at a time; each mostly waits for pods.
_WORKERS: Final = 8
# Timers may be early by a little.
_CATCH_UP: Final = timedelta(milliseconds=200)
# The cache does not show a live read yet.
_LAGGING: Final = timedelta(seconds=1)
# A pod may be missing in a cache only because a watch was cut; and a downscale whose pods were gone
# for so long no longer counts as reverted.
_GONE_AFTER: Final = timedelta(seconds=60)

# So many causes of a pod are logged as warnings: others are mostly variations.
_MOST_CAUSES: Final = 8


class _UnprepareCalls(msgspec.Struct, frozen=True, kw_only=True):
    downscales: Downscales
    locks: Locks
    calls: CancelCalls
    clock: Clock
    cluster_domain: str

    async def send(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Un-prepare pods of a set; return when to reconcile again."""
        memory = self.downscales.of(sts.uid)
        if not memory.backlog.due:
            return RESYNC
        if is_older(sts.resource_version, than=memory.backlog.version):
            return _LAGGING  # it may not show yet that the downscale before happened
        async with self.locks.hold(calls_lock(sts.uid)):
            # A due pod may have been reserved again before we had the lock.
            backlog = _map_free(memory, sts)
            due_pods = {cancel.uid: entry.pod for cancel, entry in backlog.items()}
            staying = choose_staying(sts, pods, due_pods)
            self._forget_gone(sts, pods, memory.backlog, backlog)
            now = self.clock.elapsed()
            places = {uid: place for place, uid in enumerate(staying)}
            due = [
                cancel
                for cancel, entry in backlog.items()
                if cancel.uid in staying and entry.due <= now
            ]
            due.sort(key=lambda cancel: places[cancel.uid])
            # Not all at once: reviews of the set wait for the lock.
            due = due[:AT_MOST_PER_REVIEW]
            for target in dict.fromkeys(cancel.target for cancel in due):
                here = {one: staying[one.uid] for one in due if one.target == target}
                await self._call(sts, memory, target, here)
        # Pods that come have events; those that are gone are forgotten in time.
        now = self.clock.elapsed()
        waits = [now + RESYNC]
        for cancel, entry in _map_free(memory, sts).items():
            if cancel.uid in staying:
                waits.append(entry.due)
            elif entry.over is not None:
                waits.append(entry.over + _GONE_AFTER)
        return max(min(waits) - now, _CATCH_UP)

    def _forget_gone(
        self,
        sts: StatefulSet,
        pods: Sequence[Pod],
        backlog: UnprepareBacklog,
        free: Mapping[DueCancel, BacklogEntry],
    ) -> None:
        now, present = self.clock.elapsed(), {pod.name for pod in pods}
        for cancel, entry in free.items():
            wanted = is_wanted(sts, entry.pod)
            if wanted or entry.pod in present:
                entry.gone, entry.is_dormant = None, not wanted
            elif entry.over is None:
                entry.gone = now
            elif entry.over + _GONE_AFTER <= now:
                backlog.due.pop(cancel, None)

    async def _call(
        self,
        sts: StatefulSet,
        memory: SetDownscales,
        target: Target | None,
        here: Mapping[DueCancel, Pod],
    ) -> None:
        pods = list({pod.uid: pod for pod in here.values()}.values())
        endpoints, failed = _plan_endpoints(sts, target, pods, self.cluster_domain)
        errors = await memory.unanswered.cancel_all(self.calls, endpoints) if endpoints else {}
        failed |= {uid: str(error) for uid, error in errors.items()}
        reached = [due_cancel for due_cancel, pod in here.items() if pod.uid not in failed]
        memory.backlog.record_un_prepared(reached)
        if reached:
            names = sorted({here[due_cancel].name for due_cancel in reached})
            log.info("Told pods that they stay", zone=sts.name, pods=names)
        for cancel, pod in here.items():
            entry = memory.backlog.due.get(cancel)
            if pod.uid in failed and entry is not None:
                self._postpone(sts, entry, failed[pod.uid])

    def _postpone(self, sts: StatefulSet, entry: BacklogEntry, why: str) -> None:
        """Try later, whatever changes: pods change all the time."""
        wait = CANCELLATIONS.bound(entry.failures + 1)
        # Once for each pod and cause, as it may last for days.
        is_news = why not in entry.causes and len(entry.causes) < _MOST_CAUSES
        write_log = log.warn if is_news else log.debug
        write_log(
            "Pod cannot be told that it stays", zone=sts.name, pod=entry.pod, again_in=wait, err=why
        )
        entry.due = self.clock.elapsed() + wait
        entry.failures += 1
        entry.causes |= {why}


def _map_free(memory: SetDownscales, sts: StatefulSet) -> dict[DueCancel, BacklogEntry]:
    """Return the due calls to pods that no downscale may still remove (SI-12)."""
    reservation = memory.reservation
    return {
        cancel: entry
        for cancel, entry in memory.backlog.due.items()
        if reservation is None or spares(reservation.key, sts, entry.pod)
    }


def _plan_endpoints(
    sts: StatefulSet, called_at: Target | None, pods: Sequence[Pod], cluster_domain: str
) -> tuple[list[Endpoint], dict[Uid, str]]:
    """Return where pods are called, and why the others cannot be.

    That is where they were prepared, whatever the set has by now; if unknown, what the set has.
    """
    target = called_at or plan_target(sts.annotations, sts.service_name)
    if isinstance(target, NoTarget):
        return [], dict.fromkeys((pod.uid for pod in pods), target.sentence)
    planned = {pod.uid: plan_endpoint(pod, target, cluster_domain) for pod in pods}
    endpoints = [endpoint for endpoint in planned.values() if isinstance(endpoint, Endpoint)]
    return endpoints, {uid: why for uid, why in planned.items() if isinstance(why, str)}


class _RecordsOfPods:
    """Records on pods, by set and pod, while the cache shows the pods."""

    def __init__(self) -> None:
        self._by_set: dict[Uid, dict[Uid, str]] = {}

    def add(self, set_uid: Uid, pods: Sequence[Pod]) -> None:
        carrying = {pod.uid: pod.downscale_record for pod in pods if pod.downscale_record}
        if carrying:
            self._by_set.setdefault(set_uid, {}).update(carrying)

    def list_others(self, set_uid: Uid, pods: Sequence[Pod]) -> list[Pod]:
        ours = self._by_set.get(set_uid, {})
        carrying = [pod for pod in pods if pod.downscale_record]
        return [pod for pod in carrying if ours.get(pod.uid) != pod.downscale_record]

    def keep(self, set_uid: Uid, pods: Sequence[Pod]) -> None:
        ours = self._by_set.pop(set_uid, {})
        left = {pod.uid: ours[pod.uid] for pod in pods if pod.uid in ours}
        if left:
            self._by_set[set_uid] = left


class DownscaleController(Feature):
    """Settles the downscales of each StatefulSet."""

    def __init__(
        self,
        context: Context,
        client: ApiClient,
        calls: CancelCalls,
        *,
        process: str,
        server_time: Callable[[], datetime],
    ) -> None:
        """`process` is a name that no other process of the namespace has."""
        self._context = context
        self.sets, self.pods, self.locks = context.sets, context.pods, context.locks
        self.downscales, self.clock = context.downscales, context.clock
        self.client, self.server_time = client, server_time
        self.records, self.pod_records = context.make_records(client), PodRecords(client, process)
        self._cancellations = _UnprepareCalls(
            downscales=self.downscales,
            locks=self.locks,
            calls=calls,
            clock=self.clock,
            cluster_domain=context.settings.cluster_domain,
        )
        self._attempts = Attempts(self.clock, longest=CANCELLATIONS.most, rng=context.rng)
        self._known, self._removed = _RecordsOfPods(), _RecordsOfPods()
        """Records with a known outcome, so that no downscale is adopted again after its end."""
        self.controller = Controller(
            "reconcile downscales", self.reconcile, workers=_WORKERS, rng=context.rng
        )
        self.controllers = (self.controller,)
        context.set_informer.on_change(self._on_set)
        context.pod_informer.on_change(self._on_pod)

    def start(self, tasks: TaskStack) -> None:
        # Before any rollout is reconciled: a downscale underway holds its group back.
        failed = self.adopt_all()
        self.downscales.on_change(lambda uid, group: self.controller.add(uid))
        for uid in (*failed, *self.downscales.list_sets()):
            self.controller.add(uid)
        super().start(tasks)
        self._show()

    def _on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        for sts in (old, new):
            # The time of the last downscale of a set that is gone is remembered, too.
            if sts is not None and (new is None or self.downscales.remembers(sts.uid)):
                self.controller.add(sts.uid)

    def _on_pod(self, old: AnyPod | None, new: AnyPod | None) -> None:
        for pod in (old, new):
            uid = None if pod is None else pod.owner_uid
            has_record = isinstance(pod, Pod) and pod.downscale_record != ""
            if uid is not None and (has_record or self.downscales.remembers(uid)):
                self.controller.add(uid)

    def _show(self) -> None:
        downscales, states = self.downscales, self._context.metrics.downscales
        states.labels("underway").set_function(
            lambda: (
                downscales.count(ReservationState.PREPARING)
                + downscales.count(ReservationState.OPEN)
            )
        )
        states.labels("persisted").set_function(
            lambda: downscales.count(ReservationState.PERSISTED)
        )
        states.labels("undoing").set_function(downscales.count_due)
        states.labels("unreached").set_function(downscales.count_unreached)
        self._context.health.part("pods", describe=downscales.describe_unreached)

    def adopt_all(self) -> list[Uid]:
        """Take over the downscales in the records on pods; return the sets where that is to come.

        No other task waits for these: a bug failed it, or they are still to adopt pods.
        """
        failed = list[Uid]()
        for sts in self.sets.list_all():
            if not isinstance(sts, StatefulSet):
                continue
            pods = self._list_pods(sts.uid)
            with GuardedStep() as adoption:
                self._adopt(sts, pods)
            error = adoption.error
            if self._is_adopting_pods(sts, pods):
                failed.append(sts.uid)
            elif error is not None:
                stack = "".join(traceback.format_exception(error))
                log.error("Cannot adopt downscales by a bug", zone=sts.name, err=error, stack=stack)
                failed.append(sts.uid)
        return failed

    async def reconcile(self, set_uid: Uid) -> Result:
        """Reconcile one set, do what is due, and return when to reconcile again."""
        sts = self.sets.get_by_uid(set_uid)
        if sts is None:
            reservation = self.downscales.get(set_uid)
            if reservation is not None and self.downscales.time_left(reservation) > timedelta(0):
                return Result(again=RESYNC)  # too new for the cache
            self.downscales.forget_set(set_uid)
            self._known.keep(set_uid, ())
            self._removed.keep(set_uid, ())
            return Result()
        if isinstance(sts, Unreadable):
            return Result(again=RESYNC)
        pods = self._list_pods(set_uid)
        again, is_failing = RESYNC, False
        # A step that fails, also by a bug, does not delay the others.
        with GuardedStep() as adoption:
            self._adopt(sts, pods)
        bug = adoption.error
        is_adopting = self._is_adopting_pods(sts, pods)
        steps = [self._settle, self._record, self._restore, self._cancellations.send]
        if bug is None and not is_adopting:  # else the records are still needed
            steps.append(self._clean)
        for step in steps:
            attempt = (step.__name__, set_uid)
            wait, _ = self._attempts.wait_before(attempt)
            if not wait:
                with GuardedStep() as guarded:
                    again = min(again, await step(sts, pods))
                match guarded.error:
                    case None:
                        self._attempts.record_success(attempt)
                    case ApiError() | InvalidInput() as error:
                        wait = self._back_off(attempt, error)
                    case error:
                        bug = bug or error
            if wait:
                again, is_failing = min(again, wait + _CATCH_UP), True
        self._known.keep(set_uid, pods)
        self._removed.keep(set_uid, pods)
        if bug is not None:
            raise bug
        if is_failing or self.downscales.remembers(set_uid):
            return Result(again=again)
        return Result(again=_LAGGING) if is_adopting else Result()

    def _adopt(self, sts: StatefulSet, pods: Sequence[Pod]) -> None:
        if self.downscales.remembers(sts.uid):
            self._known.add(sts.uid, pods)
            return
        if self._is_adopting_pods(sts, pods):
            return
        records = self._read_records(sts, pods)
        if not records:
            return
        self._known.add(sts.uid, pods)
        # Downscales that followed one another count as one.
        newest = max(records, key=lambda record: record.at)
        key = Key(
            set_uid=sts.uid,
            replicas_from=max(record.replicas_from for record in records),
            replicas_to=min(record.replicas_to for record in records),
            target=newest.target,
        )
        # The time in a record may be forged: it only picks among times of the API server.
        recorded = self._find_record(sts, key, newest.at)
        now = self.server_time() + CLOCK_ERROR
        lowest = sts.first_ordinal + key.replicas_to
        called = [
            (pod.uid, pod.name)
            for pod in pods
            if (ordinal := sts.ordinal_of(pod.name)) is not None and ordinal >= lowest
        ]
        log.info(
            "Found a downscale of an earlier process",
            zone=sts.name, replicas_from=key.replicas_from, replicas_to=key.replicas_to,
            pods=[name for _, name in called], settled_in=PERSIST_LIMIT,
        )  # fmt: skip
        # Not from `begun` on: the other process may have allowed the same again until it ended.
        places = (place for record in records for place in (record.target, *record.earlier))
        self.downscales.adopt(
            sts, key, recorded or now, called,
            earlier=[one for one in dict.fromkeys(places) if one is not None and one != key.target],
            latest=None if recorded is None else max(recorded, newest.at + LATEST_REPEAT),
            replaced_at=find_replaced(key, sts, pods, newest.at, now),
        )  # fmt: skip

    def _is_adopting_pods(self, sts: StatefulSet, pods: Sequence[Pod]) -> bool:
        """Return whether a set takes over pods with records of the one before, one by one.

        Its own records do not wait for that, nor is a pod awaited that it never adopts, such as a
        copy by `kubectl debug`.
        """
        return (
            not sts.is_terminating
            and any(
                isinstance(pod, Pod)
                and not pod.is_terminating
                and sts.ordinal_of(pod.name) is not None
                and selects(sts.selector, pod.labels)
                for pod in self.pods.list_orphans(sts.name)
            )
            and any(self._is_recorded_for_another(pod, sts) for pod in pods)
        )

    def _is_recorded_for_another(self, pod: Pod, sts: StatefulSet) -> bool:
        try:
            record = read_downscale_record(pod, self.server_time())
        except InvalidInput:
            return False
        return record is not None and record.set_uid not in (Uid(""), sts.uid)

    def _find_record(self, sts: StatefulSet, key: Key, at: datetime) -> datetime | None:
        if sts.replicas > key.replicas_to:
            return None
        recorded = self.records.recall([sts]).get(sts.uid)
        if self.records.source is TimesSource.ANNOTATIONS and is_annotated(sts, at):
            recorded = parse_rfc3339(sts.annotations[LAST_DOWNSCALE])
        return recorded if recorded is not None and recorded >= at else None

    def _read_records(self, sts: StatefulSet, pods: Sequence[Pod]) -> list[DownscaleRecord]:
        """Return the records to believe; the others are known from now on, and logged."""
        set_uid, records = sts.uid, list[DownscaleRecord]()
        now = self.server_time()
        doubts: dict[str, list[str]] = {}
        for pod in self._known.list_others(set_uid, pods):
            try:
                record = read_downscale_record(pod, now)
            except InvalidInput as error:
                log.warn("Ignoring a record that cannot be read", err=error)
                self._known.add(set_uid, [pod])
                continue
            if record is None:
                continue
            if self.pod_records.is_own(record, set_uid):
                # Settled before the cache showed it, minutes late if its event was lost.
                self._known.add(set_uid, [pod])
            elif problem := assess_downscale_record(record, pod, sts):
                doubts.setdefault(problem, []).append(pod.name)
                self._known.add(set_uid, [pod])
            else:
                records.append(record)
        for problem, names in doubts.items():
            log.warn(
                "Not adopting the downscale that an annotation describes",
                zone=sts.name, pods=names, annotation=DOWNSCALE_RECORD, err=problem,
            )  # fmt: skip
        return records

    async def _settle(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Find out the outcome of the reservation; return when to reconcile again."""
        downscales = self.downscales
        reservation = downscales.get(sts.uid)
        if reservation is None or reservation.state is ReservationState.PREPARING:
            return RESYNC
        if is_older(sts.resource_version, than=reservation.seen_version):
            return _LAGGING  # it shows the set before the downscale
        left = downscales.time_left(reservation)
        match judge_downscale(reservation.key, sts, may_persist=left > timedelta(0)):
            case DownscaleOutcome.OPEN:
                return max(left, _CATCH_UP)
            case DownscaleOutcome.HAPPENED:
                if reservation.state is not ReservationState.PERSISTED:
                    log.info("Downscale has happened", zone=sts.name, replicas_to=sts.replicas)
                downscales.record_persisted(reservation, self.server_time())
                if is_over(pods, reservation.pods):
                    # Not forgotten before they are gone: they may be wanted again meanwhile.
                    later = max(left, timedelta(0))
                    downscales.close(
                        reservation, un_prepare=reservation.pods, after=later, are_going=True
                    )
                return RESYNC
            case DownscaleOutcome.FAILED:
                return await self._give_up(reservation, sts, pods)

    async def _record(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Write the time of a downscale unless an answer did, not too early. Raises ApiError."""
        memory = self.downscales.of(sts.uid)
        late = memory.unrecorded
        if late is None:
            return RESYNC
        # The later of when it was allowed and when it was seen: after a repeated review the object
        # has the time of the first answer (SI-11).
        at = max(late.begun, self.downscales.last.times.get(sts.uid, late.begun))
        try:
            version = await self.records.keep(sts, at)
        except Conflict:
            return _LAGGING  # the new object decides
        self.downscales.last.record_shown(sts.uid, at, version)
        self.downscales.record_written(sts.uid, late.begun)
        return RESYNC

    async def _restore(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        """Remove the tracker's entry of a downscale that did not happen. Raises ApiError."""
        memory = self.downscales.of(sts.uid)
        if memory.entry is None:
            return RESYNC
        # Reviews record under the same lock: the entry of a new review is not removed.
        async with self.locks.hold(calls_lock(sts.uid)):
            if memory.entry is not None:
                try:
                    await self.records.restore(sts, memory.entry)
                except Conflict:
                    return _LAGGING
                memory.entry = None
        return RESYNC

    async def _give_up(
        self, reservation: DownscaleReservation, sts: StatefulSet, pods: Sequence[Pod]
    ) -> timedelta:
        """End a reservation that is over: read the set live before pods are un-prepared (SI-12)."""
        try:
            body = await self.client.fetch(STATEFULSETS, sts.namespace, sts.name)
        except NotFound:
            return _LAGGING
        live = decode_statefulset(body)
        if live.uid != sts.uid or live.replicas <= reservation.key.replicas_to:
            return _LAGGING
        # Its review was repeated during the read: it may still happen.
        is_current = self.downscales.get(sts.uid) is reservation
        is_preparing = reservation.state is ReservationState.PREPARING
        has_time = self.downscales.time_left(reservation) > timedelta(0)
        if not is_current or is_preparing or has_time:
            return _CATCH_UP
        called = {uid: called.pod for uid, called in reservation.pods.items()}
        became = "did not happen"
        if at := self._find_reverted(reservation, live, took_pods(live, pods, called)):
            # It happened, and was reverted before it was seen: other zones wait (SI-11).
            self.downscales.record_reverted(reservation, at)
            became = "was reverted"
        staying = choose_staying(live, pods, called)
        log.warn(
            f"Downscale {became}, telling pods that they stay",
            zone=sts.name, replicas_from=reservation.key.replicas_from,
            replicas_to=reservation.key.replicas_to, replicas=live.replicas,
            pods=sorted(pod.name for pod in staying.values()), reason=Code.DOWNSCALE_UNDONE,
        )  # fmt: skip
        # An older cache may show pods as staying that the live set lets go.
        reservation.seen_version = live.resource_version
        self.downscales.close(reservation, un_prepare=reservation.pods)
        return RESYNC

    def _find_reverted(
        self, reservation: DownscaleReservation, live: StatefulSet, took: bool
    ) -> datetime | None:
        """Return the latest time at which it can have happened unseen, None if it did not.

        `took`: pods are gone. The time of an answer is on a set only if that was written. Fewer
        replicas than before are left of it where it was reverted in part.
        """
        if reservation.is_adopted:
            return reservation.replaced_at
        is_tracked = self.records.source is TimesSource.TRACKER
        took |= live.replicas < reservation.key.replicas_from
        if took or (not is_tracked and is_annotated(live, reservation.begun)):
            # Its time has been over for so long.
            over = self.downscales.time_left(reservation)
            return self.server_time() + CLOCK_ERROR + over
        return None

    async def _clean(self, sts: StatefulSet, pods: Sequence[Pod]) -> timedelta:
        carrying = self._removed.list_others(sts.uid, pods)
        if not carrying or self.downscales.remembers(sts.uid):
            return RESYNC
        # Reviews write their records under the same lock: none of a new review is removed.
        async with self.locks.hold(calls_lock(sts.uid)):
            if self.downscales.remembers(sts.uid):
                return RESYNC
            error = await self.pod_records.remove(carrying)
        if error is not None:
            raise error
        self._removed.add(sts.uid, carrying)
        return RESYNC

    def _list_pods(self, set_uid: Uid) -> list[Pod]:
        return [pod for pod in self.pods.list_by_owner(set_uid) if isinstance(pod, Pod)]

    def _back_off(self, attempt: Attempt, error: ApiError | InvalidInput) -> timedelta:
        """Return when to try a step again, however many events wake the set (LI-11)."""
        wait = self._attempts.record_failure(attempt, str(error), at_least=get_retry_after(error))
        write_log = log.warn if self._attempts.count(attempt) == 1 else log.debug
        write_log("Downscale is not settled yet", again_in=wait, err=error)
        return wait
