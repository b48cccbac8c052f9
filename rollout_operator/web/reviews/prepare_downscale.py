"""The hook prepare-downscale: pods that are to go are called, and must confirm, before they go.

A reservation is recorded on its pods; they are called, the time is recorded, and the request is
answered. Which reviews must wait is decided in `prepare_reservation`, before that. What
becomes of a downscale afterwards is the concern of `controllers.downscales.controller`; an answer
that is never given, for whatever reason, leaves it pods to un-prepare.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from rollout_operator.aio.clock import CLOCK_ERROR
from rollout_operator.guards.downscales.reservations import DownscaleReservation, ReservationState
from rollout_operator.guards.downscales.times import DownscaleGrant
from rollout_operator.guards.locks import calls_lock
from rollout_operator.model.downscale import DownscaleRecord
from rollout_operator.model.errors import ApiError, InvalidInput, NotFound
from rollout_operator.model.names import LAST_DOWNSCALE, PREPARE_DOWNSCALE
from rollout_operator.model.objects import StatefulSet, find_group
from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.review import Review, Scalable
from rollout_operator.model.tracker import TimesSource
from rollout_operator.planning.downscales.request import (
    RETRY,
    assess_prepare_change,
    plan_preparation,
    refuse_decrease,
)
from rollout_operator.planning.downscales.spacing import format_downscale_time
from rollout_operator.pods.client import PodError
from rollout_operator.telemetry.logs import log
from rollout_operator.web.reviews.prepare_reservation import (
    DecreaseRequest,
    PrepareContext,
    ReservedDownscale,
    find_unanswered,
    reserve_downscale,
)
from rollout_operator.web.reviews.scale_parent import Parents

# Kept back of the time that there is, so that pods can be un-prepared before the answer.
UNDO_SHARE: Final = 0.2
FAILURES_SHOWN: Final = 3
# For writing the answer.
ANSWER_TIME: Final = timedelta(milliseconds=200)

_NOT_RECORDED: Final = "setting downscale timestamp in the zone ConfigMap failed."
_NOT_PREPARED: Final = "one or more pods failed to prepare for shutdown."


class PrepareDownscale:
    """Answers reviews. To a repeated review it gives the same answer and does nothing twice."""

    def __init__(self, context: PrepareContext) -> None:
        self._context = context

    async def review(self, review: Review, until: timedelta) -> Verdict:
        """Return the verdict; `until`, on the clock's `elapsed`, is when it must be out."""
        change = assess_prepare_change(review)
        if isinstance(change, Verdict):
            return change
        old = review.old
        assert isinstance(old, Scalable), "nothing else is a decrease"
        is_scale = old.kind == "Scale"
        try:
            # Of a whole object its old state decides, so that no request can take the label off.
            carrier = await self._parents.get_set(review, until) if is_scale else old
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
        request = DecreaseRequest(
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

    @property
    def _parents(self) -> Parents:
        return self._context.parents

    def _assess_place(self, request: DecreaseRequest) -> Verdict | None:
        context = self._context
        if request.decrease.namespace != context.namespace:
            why = f"namespace {request.decrease.namespace} is not looked after by this operator"
            return request.refuse(Code.OTHER_NAMESPACE, why)
        if context.is_stopping():
            return request.refuse(Code.STOPPING, "the operator is stopping", status=RETRY)
        return None

    async def _confirm(
        self, request: DecreaseRequest, review: Review, carrier: Scalable | StatefulSet
    ) -> Verdict | None:
        """Return the refusal where there is no such set, or it is not as the review says.

        Before the lock of a group is taken and the group is read live: else made-up names
        would hold up reviews of sets that exist. The cache shows it where it is fresh enough.
        """
        try:
            if isinstance(carrier, StatefulSet):
                held = carrier
            else:
                held = await self._parents.get_set(review, request.until)
        except NotFound:
            return request.refuse_changed(None)
        except (ApiError, InvalidInput) as error:
            why = f"it is unknown whether it is as the request says: {error}"
            return request.refuse(Code.CANNOT_CHECK, why, status=RETRY)
        if held.uid != request.set_uid or held.group != request.group:
            return request.refuse_changed(None)
        return None if request.describes(held) else request.refuse_changed(held)

    async def _prepare(self, request: DecreaseRequest) -> Verdict:
        try:
            async with asyncio.timeout(self._left(request.until)):
                step = await reserve_downscale(self._context, request)
                if isinstance(step, asyncio.Future):
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

    async def _carry_out(self, request: DecreaseRequest, step: ReservedDownscale) -> Verdict:
        context = self._context
        # For reviews of the same, where this task is cancelled.
        why = "the same was requested already, and that review was given up"
        verdict = request.refuse(Code.REVIEW_TIMED_OUT, why, status=RETRY)
        is_un_prepared = False
        try:
            async with context.locks.hold(calls_lock(request.set_uid)):
                # Again: while we waited for the lock, pods may have been un-prepared.
                refusal = find_unanswered(context, request, step.plan.missing)
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

    async def _prepare_pods(self, request: DecreaseRequest, step: ReservedDownscale) -> Verdict:
        """Call the pods and record the time; return the verdict."""
        context = self._context
        problem = await self._call_pods(request, step)
        # The nearer to the write the better: other zones wait from then on (SI-11).
        now = None if step.plan.is_repeated else context.server_time() + CLOCK_ERROR
        if problem is None and now is not None:
            problem = await self._record(request, step, now)
        if problem is None:
            context.downscales.allow(step.reservation, now)
            return self._allow(request, step)
        return problem

    def _end(self, step: ReservedDownscale, verdict: Verdict, *, is_un_prepared: bool) -> None:
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

    async def _call_pods(self, request: DecreaseRequest, step: ReservedDownscale) -> Verdict | None:
        """Record the downscale on its pods and call them; refuse where not all confirmed."""
        context, reservation = self._context, step.reservation
        limit = self._left(request.until) * (1 - UNDO_SHARE)
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
                earlier = context.downscales.backlog.list_targets(reservation.key.set_uid)
                record = DownscaleRecord.of(reservation.key, reservation.begun, earlier=earlier)
                await context.pod_records.write(record, annotated, step.plan.pods.annotated_pod)
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
        self, request: DecreaseRequest, step: ReservedDownscale, at: datetime
    ) -> Verdict | None:
        """Record the time of the downscale where times are kept; refuse where that fails."""
        limit = self._left(request.until) * (1 - UNDO_SHARE)
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

    async def _un_prepare(self, request: DecreaseRequest, step: ReservedDownscale) -> bool:
        """Un-prepare all pods of the range, called or not (PREP-22); return whether all confirmed.

        They are called a second time later: a slow call may arrive after these.
        """
        context, unanswered = self._context, self._context.downscales.unanswered
        try:
            async with asyncio.timeout(self._left(request.until - ANSWER_TIME)):
                failed = await unanswered.cancel_all(
                    context.pods, request.set_uid, step.plan.pods.endpoints
                )
        except TimeoutError:
            log.warn("Pods are not told yet that they stay", zone=step.reservation.name)
            return False
        for error in failed.values():
            log.warn("Pod is not told yet that it stays", zone=step.reservation.name, err=error)
        return not failed

    def _allow(self, request: DecreaseRequest, step: ReservedDownscale) -> Verdict:
        text = f"{request.decrease.text} is allowed -- all pods successfully prepared for shutdown."
        skipped = step.plan.pods.skipped
        return Verdict(
            is_allowed=True,
            reason=Reason(code=Code.PODS_PREPARED, text=text),
            warnings=(f"not prepared: {skipped}",) if skipped else (),
            annotations=self._stamp(step.reservation) if request.takes_patch else {},
        )

    def _stamp(self, reservation: DownscaleReservation) -> Mapping[str, str]:
        """Return the record that an answer carries, where sets themselves do."""
        if self._context.records.source is TimesSource.TRACKER:
            return {}
        # Repeated, it is written later: the record must not be of before the write (SI-11).
        now = self._context.server_time() + CLOCK_ERROR
        return {LAST_DOWNSCALE: format_downscale_time(max(reservation.begun, now))}

    def _left(self, until: timedelta) -> float:
        return max((until - self._context.clock.elapsed()).total_seconds(), 0)


def _render_failures(failures: Sequence[PodError]) -> str:
    shown = "; ".join(str(error) for error in failures[:FAILURES_SHOWN])
    hidden = len(failures) - FAILURES_SHOWN
    return f"{shown}; and {hidden} more" if hidden > 0 else shown
