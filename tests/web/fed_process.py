"""A process as it is put together for one namespace, above caches that tests feed."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from rollout_operator.controllers.budgets import Budgets
from rollout_operator.kube.api import PODS, STATEFULSETS, ZONE_BUDGETS
from rollout_operator.kube.informer import Collection
from rollout_operator.kube.store import AnyBudget, Cached, PodStore
from rollout_operator.model.names import ApiError, Uid
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.model.outcome import Verdict
from rollout_operator.model.scaling import Review
from rollout_operator.operator.reviews import Configurations, Reviews
from rollout_operator.pods import Sender
from tests.controllers.fake_client import FakeClient
from tests.controllers.fed_context import FedContext, FedInformer
from tests.virtual_time import VirtualClock, elapsed


class JumpingClock(VirtualClock):
    """Stands ahead of the loop: a process was frozen, and no timer of it has run yet."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def elapsed(self) -> timedelta:
        return elapsed() + self.ahead


class CountingPods(PodStore):
    """Counts how often the pods of a zone are read for a decision."""

    reads = 0

    def list_by_owner(self, uid: Uid) -> Sequence[Pod | Unreadable]:
        self.reads += 1
        return super().list_by_owner(uid)


class FedProcess(FedContext):
    """It leads, and knows all that the API server holds at first."""

    clock: JumpingClock
    pods: CountingPods

    def __init__(
        self, client: FakeClient, name: str = "x", pods: Sender | None = None, *args: str
    ) -> None:
        self.name = name
        self.informers: dict[str, FedInformer[Any]] = {}
        super().__init__(client, JumpingClock(), pods, "-kubernetes.client-qps=0", *args)
        self.pods.__class__ = CountingPods  # the store that `Context` has made
        self.has_begun = True
        self.budgets = Budgets(self)
        self.reviews = Reviews(self.settings, self, self.budgets, Configurations(self.process, ()))
        self.sync(client)

    def make_informer(self, client: Any, collection: Collection[Cached]) -> FedInformer[Cached]:
        informer = super().make_informer(client, collection)
        self.informers[collection.resource.plural] = informer
        return informer

    def make_name(self) -> str:
        return self.name

    def feed_budgets(self, budgets: Iterable[AnyBudget]) -> None:
        self.informers[ZONE_BUDGETS.plural].feed(budgets)

    def lack_budgets(self, error: ApiError | None) -> None:
        self.informers[ZONE_BUDGETS.plural].error = error

    def grow_old(self, age: timedelta) -> None:
        """Have caches that follow no more for so long."""
        for resource in (STATEFULSETS, PODS):
            self.informers[resource.plural].fed_age = age

    async def review(self, path: str, review: Review, within: timedelta) -> Verdict:
        hook = self.reviews.reviewer.hooks[path]
        verdict = await hook.review(review, self.clock.elapsed() + within)
        assert isinstance(verdict, Verdict)
        return verdict
