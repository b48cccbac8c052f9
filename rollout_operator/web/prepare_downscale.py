"""The hook prepare-downscale: pods that are to go must confirm that they are prepared.

First the downscale is reserved: one live read of the group under its lock, and the decision of
`planning.downscales`. Then the reservation is recorded on its pods, they are called, the time is
recorded, and the request answered. `controllers.downscales` takes over from there, and undoes the
preparation if no answer is given.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import CLOCK_ERROR, Clock
from rollout_operator.guards.downscales import (
    PERSIST_LIMIT,
    DownscaleGrant,
    DownscaleReservation,
    Downscales,
    GroupTimes,
    Member,
    ReservationState,
)
from rollout_operator.guards.prepared_pods import CancelCalls, PodRecords
from rollout_operator.guards.tracker import DownscaleTimes
from rollout_operator.guards.turns import Locks, calls_lock, group_lock
from rollout_operator.model.names import (
    LAST_DOWNSCALE,
    PREPARE_DOWNSCALE,
    ApiError,
    Conflict,
    GroupName,
    InvalidInput,
    NotFound,
    Uid,
)
from rollout_operator.model.objects import (
    Decrease,
    Deletion,
    DownscaleRecord,
    Endpoint,
    Group,
    Key,
    StatefulSet,
    find_group,
)
from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review, Scalable, TimesSource
from rollout_operator.model.units import format_next_second
from rollout_operator.planning.downscales import (
    DownscaleSnapshot,
    EarlierDownscale,
    ReservationPlan,
    assess_unanswered,
    plan_reservation,
)
from rollout_operator.planning.requests import (
    RETRY,
    assess_prepare_change,
    plan_preparation,
    refuse_decrease,
)
from rollout_operator.planning.wording import join_names
from rollout_operator.pods import PodError
from rollout_operator.telemetry.logs import log
from rollout_operator.web.connection import giving_way
from rollout_operator.web.no_downscale import Parents, RepeatedReads

# Kept back of the time that there is, so that pods can be un-prepared before the answer.
_UNDO_SHARE: Final = 0.2
_FAILURES_SHOWN: Final = 3
# For writing the answer.
_ANSWER_TIME: Final = timedelta(milliseconds=200)
_NOT_RECORDED: Final = "setting downscale timestamp in the zone ConfigMap failed."
_NOT_PREPARED: Final = "one or more pods failed to prepare for shutdown."


class _GroupObserver(Protocol):
    def observe(self, name: GroupName) -> Group: ...

    async def observe_live(self, cached: Group) -> Group: ...

    async def observe_alone(self, name: str) -> Group: ...


class _PrepareCalls(CancelCalls, Protocol):
    async def prepare_all(self, endpoints: Sequence[Endpoint]) -> list[PodError]: ...


class PrepareContext(msgspec.Struct, frozen=True, kw_only=True):
    parents: Parents
    observer: _GroupObserver
    repeated: RepeatedReads
    locks: Locks
    downscales: Downscales
    records: DownscaleTimes
    pod_records: PodRecords
    pods: _PrepareCalls
    clock: Clock
    server_time: Callable[[], datetime]
    """The API server's clock, at most a second behind."""
    namespace: str
    cluster_domain: str
    is_stopping: Callable[[], bool] = lambda: False


class _DecreaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A decrease of a StatefulSet that the review says carries the label.

    It holds the user, the StatefulSet, and the two counts: everything else is read (D-68).
    """

    decrease: Decrease
    set_uid: Uid
    group: GroupName | None
    """The StatefulSet as the review has it, to be confirmed."""
    first_ordinal: int | None
    """None where the review does not say."""
    until: timedelta
    takes_patch: bool
    """Whether the StatefulSet itself is under review, not its Scale."""

    @property
    def lock(self) -> str:
        return calls_lock(self.set_uid) if self.group is None else group_lock(self.group)

    def describes(self, sts: StatefulSet) -> bool:
        is_same = sts.uid == self.set_uid and sts.name == self.decrease.name
        is_first = self.first_ordinal is None or sts.first_ordinal == self.first_ordinal
        is_counted = sts.replicas == self.decrease.replicas_from
        return is_same and is_first and is_counted and sts.group == self.group

    def refuse_changed(self, sts: StatefulSet | None) -> Verdict:
        """Return the refusal for a StatefulSet that is not stored as the review says."""
        return self.refuse(Code.CHANGED_MEANWHILE, _render_change(sts), status=RETRY)

    def refuse(self, code: Code, why: str, *, status: int = 0) -> Verdict:
        """Return the refusal; `why` follows `is not allowed because`."""
        return refuse_decrease(self.decrease, code, why, status=status)


class _ReservedDownscale(msgspec.Struct, frozen=True, kw_only=True):
    """A reserved downscale, and the pods that are still to be called for it."""

    reservation: DownscaleReservation
    plan: ReservationPlan
    granted_at: timedelta | None
    """On the clock's `elapsed`: when the same was allowed before, if that may still persist."""
    sts: StatefulSet
    others: tuple[StatefulSet, ...]
    """The rest of the group at the decision."""
    seen: GroupTimes
    """The times that the decision used."""


class PrepareDownscale:
    """Answers reviews; a repeated review gets the same answer and has no second effect."""

    def __init__(self, context: PrepareContext) -> None:
        self._context = context

    async def review(self, review: Review, until: timedelta) -> Verdict:
        change = assess_prepare_change(review)
        if isinstance(change, Verdict):
            return change
        old = review.old
        assert isinstance(old, Scalable), "nothing else is a decrease"
        is_scale = old.kind == "Scale"
        try:
            # Of a whole object its old state decides, so that no request can take the label off.
            carrier = await self._context.parents.get_set(review, until) if is_scale else old
        except (ApiError, InvalidInput) as error:
            why = f"the label {PREPARE_DOWNSCALE} cannot be ruled out: {error}"
            return refuse_decrease(change, Code.CANNOT_CHECK, why, status=RETRY)
        # Only to be quick where nothing is done; the decision is made again by what the store says.
        verdict = plan_preparation(
            change, carrier.labels, carrier.annotations, carrier.service_name
        )
        if isinstance(verdict, Verdict):
            return verdict
        if change.moves_ordinals:
            why = (
                "it changes spec.ordinals.start, and pods are prepared only where the first ordinal"
                " stays"
            )
            return refuse_decrease(change, Code.PREPARE_MISCONFIGURED, why)
        request = _DecreaseRequest(
            decrease=change,
            set_uid=old.uid,
            group=find_group(carrier.labels),
            first_ordinal=None if is_scale else old.first_ordinal,
            until=until,
            takes_patch=not is_scale,
        )
        refusal = self._assess_place(request)
        if refusal is None:
            refusal = await self._confirm(request, review, carrier)
        return await self._prepare(request) if refusal is None else refusal

    def _assess_place(self, request: _DecreaseRequest) -> Verdict | None:
        context = self._context
        if request.decrease.namespace != context.namespace:
            why = f"namespace {request.decrease.namespace} is not looked after by this operator"
            return request.refuse(Code.OTHER_NAMESPACE, why)
        if context.is_stopping():
            return request.refuse(Code.STOPPING, "the operator is stopping", status=RETRY)
        return None

    async def _confirm(
        self, request: _DecreaseRequest, review: Review, carrier: Scalable | StatefulSet
    ) -> Verdict | None:
        """Return the refusal if there is no such StatefulSet as the review says.

        That precedes the lock and the live read of a group: made-up names must not hold up reviews
        of StatefulSets that exist.
        """
        try:
            if isinstance(carrier, StatefulSet):
                held = carrier
            else:
                held = await self._context.parents.get_set(review, request.until)
        except NotFound:
            return request.refuse_changed(None)
        except (ApiError, InvalidInput) as error:
            why = f"it is unknown whether it is as the request says: {error}"
            return request.refuse(Code.CANNOT_CHECK, why, status=RETRY)
        if held.uid != request.set_uid or held.group != request.group:
            return request.refuse_changed(None)
        return None if request.describes(held) else request.refuse_changed(held)

    async def _prepare(self, request: _DecreaseRequest) -> Verdict:
        try:
            async with asyncio.timeout(self._left(request.until)):
                step = await _reserve_downscale(self._context, request)
                if isinstance(step, asyncio.Future):
                    with giving_way():  # any client may send the same again and again
                        return await asyncio.shield(step)
        except TimeoutError:
            why = "there was no time left to read the group"
            return request.refuse(Code.REVIEW_TIMED_OUT, why, status=RETRY)
        except (ApiError, InvalidInput) as error:
            why = f"finding other statefulsets failed. {error}"
            return request.refuse(Code.GROUP_NOT_READ, why, status=RETRY)
        if isinstance(step, Verdict):
            return step
        return await self._carry_out(request, step)

    async def _carry_out(self, request: _DecreaseRequest, step: _ReservedDownscale) -> Verdict:
        context = self._context
        # For reviews of the same, where this task is cancelled.
        why = "the same was requested already, and that review was given up"
        verdict = request.refuse(Code.REVIEW_TIMED_OUT, why, status=RETRY)
        is_un_prepared = False
        try:
            async with context.locks.hold(calls_lock(request.set_uid)):
                # Again: while we waited for the lock, pods may have been un-prepared.
                refusal = _find_unanswered(context, request, step.plan.missing)
                if refusal is None:
                    verdict = await self._prepare_pods(request, step)
                    may_undo = not verdict.is_allowed and step.granted_at is None
                    is_un_prepared = may_undo and await self._un_prepare(request, step)
                else:
                    verdict = refusal
        finally:
            # Also where this task is cancelled: the answer never comes, pods must be un-prepared.
            self._end(step, verdict, is_un_prepared=is_un_prepared)
        return verdict

    async def _prepare_pods(self, request: _DecreaseRequest, step: _ReservedDownscale) -> Verdict:
        context = self._context
        problem = await self._call_pods(request, step) or self._find_joined(request, step)
        # The nearer to the write the better: other zones wait from then on (SI-11).
        now = None if step.plan.is_repeated else context.server_time() + CLOCK_ERROR
        if problem is None and now is not None:
            problem = await self._record(request, step, now)
        if problem is None:
            context.downscales.allow(step.reservation, now)
            return self._allow(request, step)
        return problem

    def _find_joined(self, request: _DecreaseRequest, step: _ReservedDownscale) -> Verdict | None:
        """Refuse if the group has a zone by now that was not asked when the downscale was decided.

        It may have been scaled down a moment ago, also in this very group.
        """
        if not request.group or step.plan.is_repeated:
            return None
        group = self._context.observer.observe(request.group)
        joined = group.owners - step.reservation.neighbours - {request.set_uid}
        names = sorted(zone.sts.name for zone in group.zones if zone.sts.uid in joined)
        if not joined:
            return None
        why = f"{join_names(names) or 'a statefulset'} joined the group while pods were prepared"
        return request.refuse(Code.GROUP_NOT_READ, why, status=RETRY)

    def _end(self, step: _ReservedDownscale, verdict: Verdict, *, is_un_prepared: bool) -> None:
        """Settle the reservation of a review that is over, however it ended."""
        downscales, reservation = self._context.downscales, step.reservation
        later = downscales.late_calls
        if reservation.state is ReservationState.PREPARING and step.granted_at is not None:
            # A refused downscale is not written: it does not hold the group back for longer.
            reservation.requested_at = step.granted_at
            downscales.allow(reservation)
        elif reservation.state is ReservationState.PREPARING and is_un_prepared:
            downscales.close(reservation, un_prepare=reservation.pods, after=later)
        elif reservation.state is ReservationState.PREPARING:
            downscales.close(reservation, un_prepare=reservation.pods, again=later)
        if reservation.answer is not None:
            reservation.answer.set_result(verdict)
            reservation.answer = None

    async def _call_pods(
        self, request: _DecreaseRequest, step: _ReservedDownscale
    ) -> Verdict | None:
        """Record the downscale on its pods and call them; refuse unless all confirmed."""
        context, reservation = self._context, step.reservation
        limit = self._left(request.until) * (1 - _UNDO_SHARE)
        called = {target.uid for target in step.plan.missing}
        if called:
            log.info(
                "Preparing pods for a downscale",
                zone=reservation.name, replicas_from=reservation.key.replicas_from,
                replicas_to=reservation.key.replicas_to,
                pods=[target.pod for target in step.plan.missing],
            )  # fmt: skip
        elif step.plan.is_repeated:
            return None
        try:
            async with asyncio.timeout(limit):
                # Where no pod is called either: after a crash the time of it counts (SI-11).
                annotated = [pod for pod in step.plan.pods.going if pod.uid in called]
                earlier = context.downscales.of(reservation.key.set_uid).backlog.list_targets()
                record = DownscaleRecord.of(reservation.key, reservation.begun, earlier=earlier)
                await context.pod_records.write(record, annotated, step.plan.pods.staying)
                failures = await context.pods.prepare_all(step.plan.missing)
        except ApiError as error:
            why = f"adding an annotation to the pods failed. {error}"
            return request.refuse(Code.NOT_RECORDED, why, status=RETRY)
        except TimeoutError:
            why = f"{_NOT_PREPARED} not all have answered within {limit:.1f}s"
            return request.refuse(Code.REVIEW_TIMED_OUT, why, status=RETRY)
        if failures:
            why = f"{_NOT_PREPARED} {_render_failures(failures)}"
            return request.refuse(Code.POD_NOT_PREPARED, why)
        reservation.prepared |= called
        return None

    async def _record(
        self, request: _DecreaseRequest, step: _ReservedDownscale, at: datetime
    ) -> Verdict | None:
        """Record the time of the downscale if times are kept; refuse if that fails."""
        limit = self._left(request.until) * (1 - _UNDO_SHARE)
        grant = DownscaleGrant(
            reservation=step.reservation, sts=step.sts, others=step.others, seen=step.seen, at=at
        )
        try:
            async with asyncio.timeout(limit):
                refusal = await self._context.records.record(grant)
        except (ApiError, InvalidInput) as error:
            return request.refuse(Code.NOT_RECORDED, f"{_NOT_RECORDED} {error}", status=RETRY)
        except TimeoutError:
            why = f"{_NOT_RECORDED} no answer within {limit:.1f}s"
            return request.refuse(Code.REVIEW_TIMED_OUT, why, status=RETRY)
        return None if refusal is None else request.refuse(refusal.code, refusal.why)

    async def _un_prepare(self, request: _DecreaseRequest, step: _ReservedDownscale) -> bool:
        """Un-prepare all pods of the range, called or not (PREP-22); return whether all confirmed.

        They are called again later, since a slow call to prepare may arrive after these.
        """
        context = self._context
        unanswered = context.downscales.of(request.set_uid).unanswered
        try:
            async with asyncio.timeout(self._left(request.until - _ANSWER_TIME)):
                failed = await unanswered.cancel_all(context.pods, step.plan.pods.endpoints)
        except TimeoutError:
            log.warn("Pods are not told yet that they stay", zone=step.reservation.name)
            return False
        for error in failed.values():
            log.warn("Pod is not told yet that it stays", zone=step.reservation.name, err=error)
        return not failed

    def _allow(self, request: _DecreaseRequest, step: _ReservedDownscale) -> Verdict:
        text = f"{request.decrease.text} is allowed -- all pods successfully prepared for shutdown."
        skipped = step.plan.pods.skipped
        return Verdict(
            is_allowed=True,
            reason=Reason(code=Code.PODS_PREPARED, text=text),
            warnings=(f"not prepared: {skipped}",) if skipped else (),
            annotations=self._stamp(step.reservation) if request.takes_patch else {},
        )

    def _stamp(self, reservation: DownscaleReservation) -> Mapping[str, str]:
        """Return the record to add to the answer, if StatefulSets keep times themselves."""
        if self._context.records.source is TimesSource.TRACKER:
            return {}
        # Repeated, it is written later: the record must not be of before the write (SI-11).
        now = self._context.server_time() + CLOCK_ERROR
        return {LAST_DOWNSCALE: format_next_second(max(reservation.begun, now))}

    def _left(self, until: timedelta) -> float:
        return max((until - self._context.clock.elapsed()).total_seconds(), 0)


async def _reserve_downscale(
    context: PrepareContext, request: _DecreaseRequest
) -> Verdict | _ReservedDownscale | asyncio.Future[Verdict]:
    """Decide on a live read of the group, and reserve the downscale under the same lock.

    Returns the future of the answer if another review of the same is in progress. Raises ApiError.
    """
    # Not under the lock: other reviews of the group go on meanwhile.
    with giving_way():
        await context.repeated.wait_turn(request.set_uid, request.until - context.clock.elapsed())
    async with context.locks.hold(request.lock):
        group = await _observe(context, request)
        zone = next((each for each in group.zones if each.sts.uid == request.set_uid), None)
        if zone is None or not request.describes(zone.sts):
            return request.refuse_changed(None if zone is None else zone.sts)
        sts = zone.sts
        target = plan_preparation(request.decrease, sts.labels, sts.annotations, sts.service_name)
        if isinstance(target, Verdict):
            return target
        key = Key(
            set_uid=request.set_uid,
            replicas_from=request.decrease.replicas_from,
            replicas_to=request.decrease.replicas_to,
            target=target,
        )
        downscale = context.downscales.get(request.set_uid)
        if (
            downscale is not None
            and downscale.key == key
            and downscale.answer is not None
            and not _is_elsewhere(downscale, request, group)
        ):
            # The API server may write it as late as this review allows.
            context.downscales.renew(downscale, ())
            return downscale.answer
        seen = await _read_times(context, request, key, group)
        if isinstance(seen, Verdict):
            return seen
        # Again: during the read it may have been settled, or found on the pods.
        downscale = context.downscales.get(request.set_uid)
        if downscale is not None and sts.replicas <= downscale.key.replicas_to:
            context.downscales.record_persisted(downscale, context.server_time())
        if request.group:
            group = _add_going(group, context.observer.observe(request.group))
        sets = [zone.sts for zone in group.zones]
        underway = context.downscales.find_underway(request.group, sets, but=request.set_uid)
        snapshot = DownscaleSnapshot(
            decrease=request.decrease,
            key=key,
            target=target,
            zone=zone,
            group=replace(group, now=context.server_time(), downscale=underway),
            is_grouped=bool(request.group),
            times=None if seen is None else seen.times,
            recalled=context.records.recall(sets),
            source=context.records.source,
            earlier=_find_earlier(context, request, group),
            cluster_domain=context.cluster_domain,
        )
        return _decide(context, request, snapshot, seen)


def _add_going(live: Group, cached: Group) -> Group:
    """Return a group with the pods that were let go, or went, since it was read live.

    An eviction is held back by a downscale only once that is reserved: not while lists and times
    are read.
    """
    pods = (pod for zone in cached.zones for pod in zone.pods)
    standing = {pod.uid for pod in pods if not pod.is_terminating}
    gone = {
        pod.uid: Deletion.ACCEPTED
        for zone in live.zones
        for pod in zone.pods
        if pod.uid not in standing
    }
    return replace(live, deletions={**live.deletions, **gone, **cached.deletions})


def _decide(
    context: PrepareContext,
    request: _DecreaseRequest,
    snapshot: DownscaleSnapshot,
    seen: GroupTimes | None,
) -> Verdict | _ReservedDownscale:
    downscales, zone = context.downscales, snapshot.zone
    plan = plan_reservation(snapshot)
    if isinstance(plan, Verdict):
        return plan
    refusal = _find_unanswered(context, request, plan.missing)
    if refusal is not None:
        return refusal
    remembered, earlier = downscales.get(request.set_uid), snapshot.earlier
    is_same = earlier is not None and earlier.may_be(snapshot.key)
    same = remembered if is_same else None
    granted_at = None if same is None else downscales.granted_at(same)
    pods = [(endpoint.uid, endpoint.pod) for endpoint in plan.pods.endpoints]
    if same is not None and plan.is_repeated:
        downscales.renew(same, pods)
        reservation = same
    else:
        if is_same and earlier is not None and earlier.is_late:
            log.warn(
                "Downscale is requested again and again, and does not happen",
                zone=zone.sts.name, replicas_from=snapshot.key.replicas_from,
                replicas_to=snapshot.key.replicas_to,
            )  # fmt: skip
        # The server's clock may be a second ahead of what we know of it.
        begun = context.server_time() + CLOCK_ERROR
        reservation = downscales.begin(zone.sts, snapshot.key, begun, pods)
        reservation.neighbours = snapshot.group.owners - {request.set_uid}
    reservation.state = ReservationState.PREPARING
    reservation.answer = asyncio.get_running_loop().create_future()
    return _ReservedDownscale(
        reservation=reservation,
        plan=plan,
        granted_at=granted_at,
        sts=zone.sts,
        others=tuple(each.sts for each in snapshot.group.zones if each is not zone),
        seen=seen or GroupTimes(),
    )


def _find_earlier(
    context: PrepareContext, request: _DecreaseRequest, group: Group
) -> EarlierDownscale | None:
    reservation = context.downscales.get(request.set_uid)
    if reservation is None:
        return None
    return EarlierDownscale(
        key=reservation.key,
        is_preparing=reservation.state is ReservationState.PREPARING,
        is_persisted=reservation.state is ReservationState.PERSISTED,
        is_adopted=reservation.is_adopted,
        is_late=context.server_time() - reservation.begun >= PERSIST_LIMIT,
        is_elsewhere=_is_elsewhere(reservation, request, group),
        prepared=reservation.prepared,
    )


def _is_elsewhere(
    reservation: DownscaleReservation, request: _DecreaseRequest, group: Group
) -> bool:
    joined = group.owners - {request.set_uid} - reservation.neighbours
    return reservation.group != request.group or bool(joined)


async def _read_times(
    context: PrepareContext, request: _DecreaseRequest, key: Key, group: Group
) -> GroupTimes | Verdict | None:
    """Return when zones were scaled down last, None where that does not matter."""
    earlier = _find_earlier(context, request, group)
    if not request.group or (earlier is not None and earlier.is_repeated_by(key)):
        return None
    members: list[Member] = [zone.sts for zone in group.zones]
    members += group.unreadable
    try:
        return await context.records.fetch_times(members, but=request.set_uid)
    except ApiError as error:
        why = f"loading zones failed. {error}"
        return request.refuse(Code.GROUP_NOT_READ, why, status=RETRY)
    except InvalidInput as error:
        return request.refuse(Code.BAD_DOWNSCALE_TIME, f"{error}")


async def _observe(context: PrepareContext, request: _DecreaseRequest) -> Group:
    """Return the live state. Raises ApiError, and Conflict where the cache is behind it."""
    observer = context.observer
    if not request.group:
        return await observer.observe_alone(request.decrease.name)
    cached = observer.observe(request.group)
    live = await observer.observe_live(cached)
    if cached.owners != live.owners:
        raise Conflict("the cache does not yet show the same members of the group")
    return live


def _find_unanswered(
    context: PrepareContext, request: _DecreaseRequest, endpoints: Sequence[Endpoint]
) -> Verdict | None:
    """Return the refusal if a late call that a pod stays may still arrive after ours."""
    waits = context.downscales.of(request.set_uid).unanswered.map_waits(endpoints)
    return assess_unanswered(request.decrease, endpoints, waits)


def _render_change(sts: StatefulSet | None) -> str:
    if sts is None:
        return "the API server does not confirm that it exists in its group; try again"
    return f"the API server shows it with {sts.replicas} replicas; try again"


def _render_failures(failures: Sequence[PodError]) -> str:
    shown = "; ".join(str(error) for error in failures[:_FAILURES_SHOWN])
    hidden = len(failures) - _FAILURES_SHOWN
    return f"{shown}; and {hidden} more" if hidden > 0 else shown
