"""The hook zpdb-validation: a budget that cannot be obeyed is not stored.

Decides which reviews are about a budget of ours. What a budget must be like is decided in
`model.decode.budget` and `planning.budgets.reviews`. Nothing that it does can be seen from
outside, and it calls no server: what it knows of pods and other budgets is what the caches hold.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.guards.budgets.catalog import BudgetCatalog
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.model.budget import Budget
from rollout_operator.model.decode.budget import parse_budget
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import LEFT_OUT, selects
from rollout_operator.model.names import ABSENT_PEERS
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review
from rollout_operator.planning.budgets.reviews import (
    INVALID,
    BudgetUnderReview,
    Overlap,
    assess_budget,
)
from rollout_operator.planning.downscales.request import allow, refuse

# A few milliseconds; other reviews are answered in between.
_STEP: Final = 500
_JUDGED: Final = frozenset({"CREATE", "UPDATE"})


class _Annotations(msgspec.Struct):
    absent_peers: str | None = msgspec.field(default=None, name=ABSENT_PEERS)


class _Head(msgspec.Struct, rename="camel"):
    annotations: _Annotations | None = None
    deletion_timestamp: str | None = None


class _Object(msgspec.Struct):
    metadata: _Head | None = None


_DECODER: Final = msgspec.json.Decoder(_Object)


class ZpdbValidation:
    """Answers reviews of budgets."""

    def __init__(self, catalog: BudgetCatalog, pods: PodStore, *, namespace: str) -> None:
        self._catalog = catalog
        self._pods = pods
        self._namespace = namespace

    async def review(self, review: Review, until: timedelta) -> Verdict:
        """Return the verdict; it takes milliseconds and waits for no call."""
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
        """Yield the pods that it selects: a pod that it only may select refuses no budget."""
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
    """Return the metadata, an empty one where it cannot be read."""
    try:
        return _DECODER.decode(body).metadata or _Head()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Head()
