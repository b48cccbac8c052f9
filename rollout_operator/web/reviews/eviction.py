"""The hook pod-eviction: requests from the arbiter that a pod may go.

Decides for which pods the arbiter decides, and reads live where the cache cannot know: a pod that
it does not show, or shows as not running, and an owner that is no StatefulSet. How often the API
server is read for that is left to `read_shares`.
"""

import asyncio
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.budgets.request import DisruptionRequest
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.decode.review import decode_owner
from rollout_operator.model.errors import ApiError, InvalidInput, NotFound, OperatorError
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review
from rollout_operator.planning.budgets.reviews import (
    allow_not_found,
    allow_not_running,
    assess_request,
    is_running,
    wants_dry_run,
)
from rollout_operator.planning.budgets.rule import Refusal
from rollout_operator.planning.downscales.request import RETRY, allow, refuse
from rollout_operator.telemetry.budgets import DisruptionMetrics
from rollout_operator.web.reviews.dispatch import SHARE
from rollout_operator.web.reviews.read_shares import Standing, UnknownPods

# The verdict is decided here, and not by the server, which refuses whatever is late.
_TO_DECIDE: Final = timedelta(milliseconds=200)
_NO_OWNER: Final = 500
_MARGIN: Final = timedelta(milliseconds=500)


class PodEviction(msgspec.Struct, frozen=True, kw_only=True):
    """Answers reviews of evictions."""

    arbiter: Arbiter
    pods: PodStore
    sets: StatefulSetStore
    unknown: UnknownPods
    metrics: DisruptionMetrics
    clock: Clock
    namespace: str

    async def review(self, review: Review, until: timedelta) -> Verdict:
        """Return the verdict; `until`, on the clock's `elapsed`, is when it must be out."""
        verdict = assess_request(review, self.namespace)
        if verdict is None:
            pod = self.pods.get(review.namespace, review.name)
            if isinstance(pod, Pod) and is_running(pod) and self._is_owned(pod):
                return await self._review_pod(pod, review, until)
            left = until - _TO_DECIDE - self.clock.elapsed()
            try:
                async with asyncio.timeout(left.total_seconds()):
                    verdict = await self._answer_live(pod, review, left)
            except TimeoutError:
                text = f"the API server did not answer in time what {review.name} is"
                verdict = refuse(Code.CANNOT_CHECK, text, status=RETRY)
            except (ApiError, InvalidInput) as error:
                verdict = _cannot_check(review, error)
        self.metrics.count(verdict.reason.code, 0 if verdict.is_allowed else verdict.code)
        return verdict

    async def _review_pod(self, pod: Pod, review: Review, until: timedelta) -> Verdict:
        # The API server takes an answer for a little longer than ours may take.
        lasts = (until - self.clock.elapsed()) / SHARE + _MARGIN
        request = DisruptionRequest(
            pod=pod, engine=DisruptionSource.EVICTION, lasts=lasts, dry_run=wants_dry_run(review)
        )
        answer = await self.arbiter.request(request, until - _TO_DECIDE)
        if isinstance(answer, Refusal):
            return _refuse(answer)
        if not answer.budget:
            return allow(Code.POD_NOT_IN_SCOPE)
        return allow(Code.DISRUPTION_GRANTED)

    def _is_owned(self, pod: Pod) -> bool:
        """Return whether the arbiter knows the owner, or no budget selects the pod."""
        owner = None if pod.owner_uid is None else self.sets.get_by_uid(pod.owner_uid)
        return owner is not None or not self.arbiter.may_cover(pod)

    async def _answer_live(
        self, cached: Pod | Unreadable | None, review: Review, left: timedelta
    ) -> Verdict:
        """Return the verdict on a pod that the arbiter has no part in.

        Raises ApiError, and InvalidInput where the pod cannot be read.
        """
        arbiter = self.arbiter
        if isinstance(cached, Pod) and not arbiter.may_cover(cached):
            return allow_not_running()
        if isinstance(cached, Pod) and wants_dry_run(review) and not is_running(cached):
            return allow_not_running()  # it lets nothing go: what the cache shows will do
        try:
            standing = Standing.UNKNOWN if cached is None else Standing.SHOWN
            body = await self.unknown.fetch(review.name, standing, left)
        except NotFound:
            return allow_not_found(review.name)
        pod = decode_pod(body)
        if not is_running(pod):
            return allow_not_running()
        choice = arbiter.choose(DisruptionRequest(pod=pod, engine=DisruptionSource.EVICTION))
        if choice is None:
            return allow(Code.POD_NOT_IN_SCOPE)
        if isinstance(choice, Refusal):  # also where it cannot be known yet
            return _refuse(choice)
        if pod.owner_uid is None:
            text = "unable to find a StatefulSet pod owner"
            return refuse(Code.OWNER_NOT_STATEFULSET, text, status=_NO_OWNER)
        kind, owner = decode_owner(body) or ("", "")
        if kind != "StatefulSet":
            text = f"pod owner is not a StatefulSet - {pod.name} has owner {owner} ({kind})"
            return refuse(Code.OWNER_NOT_STATEFULSET, text, status=_NO_OWNER)
        text = f"{review.name}, or its StatefulSet {owner}, is newer than what the operator knows"
        return refuse(Code.CANNOT_CHECK, f"{text}; try again", status=RETRY)


def _refuse(refusal: Refusal) -> Verdict:
    return Verdict(
        is_allowed=False,
        reason=refusal.reason,
        code=refusal.status,
        retry_after=_hint(refusal.requeue_after),
    )


def _cannot_check(review: Review, error: OperatorError) -> Verdict:
    text = f"it is unknown whether {review.name} may go: {error}"
    return refuse(Code.CANNOT_CHECK, text, status=RETRY)


def _hint(again: timedelta | None) -> timedelta | None:
    """Return when the client is to try again, where that is a matter of a moment.

    Clients obey such a hint without a word to their user: longer hints are for people only.
    """
    return again if again is not None and again <= timedelta(seconds=1) else None
