"""The hooks pod-eviction and zpdb-validation.

`pod-eviction` asks the arbiter whether a pod may go, and reads live what the cache cannot know: a
pod that is missing there or not running, and an owner that is no StatefulSet. `zpdb-validation`
refuses a budget that cannot be obeyed, as `model.decode.custom` and `planning.budgets` judge it; it
has no side effects and makes no calls.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.arbiter import Arbiter, BudgetCatalog
from rollout_operator.guards.grants import DisruptionRequest
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.decode.custom import parse_budget
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.decode.review import decode_owner, find_wanted_uid
from rollout_operator.model.names import ABSENT_PEERS, ApiError, InvalidInput, NotFound
from rollout_operator.model.objects import LEFT_OUT, Pod, Unreadable, selects
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import Review
from rollout_operator.planning.budgets import (
    INVALID,
    BudgetUnderReview,
    Overlap,
    Refusal,
    allow_not_found,
    allow_not_running,
    assess_budget,
    assess_request,
    is_running,
    wants_dry_run,
)
from rollout_operator.planning.requests import RETRY, allow, refuse, show
from rollout_operator.telemetry.metrics import DisruptionMetrics
from rollout_operator.web.dispatch import SHARE
from rollout_operator.web.no_downscale import Standing, UnknownPods

# The verdict is decided here, and not by the server, which refuses whatever is late.
_TO_DECIDE: Final = timedelta(milliseconds=200)
_NO_OWNER: Final = 500
_CONFLICT: Final = 409
_MARGIN: Final = timedelta(milliseconds=500)
# A few milliseconds; other reviews are answered in between.
_STEP: Final = 500
_JUDGED: Final = frozenset({"CREATE", "UPDATE"})


class PodEviction(msgspec.Struct, frozen=True, kw_only=True):
    arbiter: Arbiter
    pods: PodStore
    sets: StatefulSetStore
    unknown: UnknownPods
    metrics: DisruptionMetrics
    clock: Clock
    namespace: str

    async def review(self, review: Review, until: timedelta) -> Verdict:
        verdict = assess_request(review, self.namespace)
        if verdict is None:
            pod = self.pods.get(review.namespace, review.name)
            is_known = isinstance(pod, Pod) and is_running(pod) and self._is_owned(pod)
            if isinstance(pod, Pod) and is_known and not self._may_be_another(pod, review):
                return await self._review_pod(pod, review, until)
            left = until - _TO_DECIDE - self.clock.elapsed()
            try:
                async with asyncio.timeout(left.total_seconds()):
                    verdict = await self._answer_live(pod, review, left)
            except TimeoutError:
                text = f"the API server did not answer in time what {review.name} is"
                verdict = refuse(Code.CANNOT_CHECK, text, status=RETRY)
            except (ApiError, InvalidInput) as error:
                text = f"it is unknown whether {review.name} may go: {error}"
                verdict = refuse(Code.CANNOT_CHECK, text, status=RETRY)
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

    def _may_be_another(self, pod: Pod, review: Review) -> bool:
        """Return whether a pod was let go a moment ago, or another of its name is meant."""
        if find_wanted_uid(review.body) not in ("", pod.uid):
            return self.arbiter.may_cover(pod)
        return not wants_dry_run(review) and self.arbiter.is_granted(pod)

    async def _answer_live(
        self, cached: Pod | Unreadable | None, review: Review, left: timedelta
    ) -> Verdict:
        """Return the verdict on a pod that the arbiter does not decide on.

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
        wanted = find_wanted_uid(review.body)
        if wanted not in ("", pod.uid):
            # As the API server answers later: a grant would hold the budget for nothing till then.
            text = f"{pod.name} has UID {pod.uid}, and the eviction is for UID {show(wanted)}"
            return refuse(Code.CHANGED_MEANWHILE, text, status=_CONFLICT)
        if isinstance(cached, Pod) and cached.uid == pod.uid and arbiter.is_granted(cached):
            return allow(Code.DISRUPTION_GRANTED)
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


def _hint(again: timedelta | None) -> timedelta | None:
    """Return when the client should retry, if that is a matter of a moment.

    Clients obey such a hint silently, so longer ones are left to the message.
    """
    return again if again is not None and again <= timedelta(seconds=1) else None


class _Annotations(msgspec.Struct):
    absent_peers: str | None = msgspec.field(default=None, name=ABSENT_PEERS)


class _Head(msgspec.Struct, rename="camel"):
    annotations: _Annotations | None = None
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Head | None = None


_DECODER: Final = msgspec.json.Decoder(_Object)


class ZpdbValidation:
    def __init__(self, catalog: BudgetCatalog, pods: PodStore, *, namespace: str) -> None:
        self._catalog = catalog
        self._pods = pods
        self._namespace = namespace

    async def review(self, review: Review, until: timedelta) -> Verdict:
        if review.operation not in _JUDGED or review.subresource:
            return allow(Code.BUDGET_VALID)
        if review.namespace != self._namespace:
            why = f"namespace {review.namespace} is not looked after by this operator"
            return refuse(Code.OTHER_NAMESPACE, why, status=INVALID)
        head = _read_head(review.body)
        if head.deletion_timestamp:
            return allow(Code.BUDGET_VALID)  # it ends by updates that take off its finalizers
        try:
            budget = parse_budget(review.body)
        except InvalidInput as error:
            return refuse(Code.BUDGET_INVALID, str(error), status=INVALID)
        pods = tuple(self._list_selected(budget))
        draft = BudgetUnderReview(
            budget=budget,
            absent_peers=head.annotations.absent_peers if head.annotations else None,
            pods=pods,
            overlap=await self._find_overlap(budget.name or review.name, pods),
        )
        return assess_budget(draft)

    def _list_selected(self, budget: Budget) -> Iterable[Pod]:
        """Yield the pods that a budget certainly selects: one that it may select refuses none."""
        for pod in self._pods.list_all():
            if not isinstance(pod, Pod) or LEFT_OUT in pod.labels:
                continue
            if selects(budget.selector, pod.labels):
                yield pod

    async def _find_overlap(self, name: str, pods: Iterable[Pod]) -> Overlap | None:
        for number, pod in enumerate(sorted(pods, key=lambda pod: pod.name), start=1):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            for entry in self._catalog.list_selecting(pod.labels):
                if entry.name != name:
                    return Overlap(pod=pod.name, other=entry.name)
        return None


def _read_head(body: bytes) -> _Head:
    try:
        return _DECODER.decode(body).metadata or _Head()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Head()
