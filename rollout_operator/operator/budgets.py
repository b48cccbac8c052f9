"""Composition of disruption budgets: their caches, the arbiter, and the release of grants.

Always there, also without webhooks: a rollout uses the arbiter as evictions do. It costs one watch
where the kind is installed, and nothing for pods that no budget selects.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.budgets.controller import DisruptionController, PodKey
from rollout_operator.controllers.worker import Workers
from rollout_operator.guards.budgets.accounts import Accounts
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.budgets.catalog import BudgetCatalog
from rollout_operator.guards.budgets.pod_records import Recorder
from rollout_operator.guards.budgets.snapshots import ArbiterContext
from rollout_operator.guards.departed import AnySet, Scope, budget_scope
from rollout_operator.kube.api import ZONE_BUDGETS
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.optional import OptionalInformer
from rollout_operator.kube.cache.store import AnyBudget, BudgetStore
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.decode.budget import decode_budget
from rollout_operator.model.description import BudgetDescription
from rollout_operator.model.labels import selects
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.telemetry.spans import trace_keys

# Pods whose grants are reconciled at a time; each mostly waits for the API server.
WORKERS: Final = 4


class Budgets(Feature):
    """Watched budgets, the arbiter before them, and the controller behind them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # Evictions wait for grants, and so do deletes: neither waits for the reads of others.
        granting, counting = (
            context.open(name, Priority.ANSWER) for name in ("granting", "counting")
        )
        releasing = context.open("releasing grants", Priority.RELEASE)
        client = context.open("following budgets", Priority.LIST)
        self.catalog = BudgetCatalog(context.metrics)
        self._store = BudgetStore()
        self.informer = context.share_informer(
            client,
            Collection(
                resource=ZONE_BUDGETS,
                namespace=context.namespace,
                decode=decode_budget,
                store=self._store,
            ),
            lambda cluster: cluster.budgets,
        )
        self.informer.on_change(self._on_budget)
        context.departed.add_scopes(self._list_scopes)
        self.informer.on_change(context.events.on_budget)
        self._follow = OptionalInformer(self.informer, client, ZONE_BUDGETS, context.namespace)
        self.process = name = context.make_name()
        common = ArbiterContext(
            budgets=self.catalog,
            find_lack=self._find_lack,
            sets=context.sets,
            pods=context.pods,
            reader=context.make_observer(counting),
            in_flight=context.in_flight,
            recorder=Recorder(granting, context.clock, name),
            find_downscale=context.downscales.find_underway,
            find_newcomers=context.arrivals.get,
            find_departed=lambda name, live: context.departed.list_zones(budget_scope(name), live),
            age=lambda: max(context.age, self._follow.age),
            now=partial(context.get_time, granting),
            clock=context.clock,
            metrics=context.metrics,
        )
        self.arbiter = Arbiter(common)
        self.accounts = Accounts(common)
        context.health.part(f"{ZONE_BUDGETS.plural} watch", is_ready=self._describe_unknown)
        self._queue: WorkQueue[PodKey] = WorkQueue()
        controller = DisruptionController(
            pods=context.pods,
            in_flight=context.in_flight,
            recorder=Recorder(releasing, context.clock, name),
            client=releasing,
            clock=context.clock,
            metrics=context.metrics.disruptions,
        )
        self._workers = Workers(
            self._queue,
            trace_keys("reconcile budgets", controller.reconcile),
            count=WORKERS,
            rng=context.rng,
        )
        context.in_flight.on_change(lambda pod: self._queue.add((pod.namespace, pod.name)))
        context.pod_informer.on_change(self._on_pod)

    def follow(self, tasks: TaskStack) -> None:
        """Begin to follow budgets."""
        tasks.start("budget informer", self._follow.run(self._context.clock))

    async def wait_known(self) -> None:
        """Wait until the budgets are known, or that there are none."""
        await self._follow.wait_answered()

    def start(self, tasks: TaskStack) -> None:
        """Begin to decide, and to release grants that are not used."""
        self.arbiter.begin()
        self._context.events.report_budgets(self._store.list_all())
        tasks.start("disruption workers", self._workers.run())
        tasks.start("releases of grants", self.arbiter.run())

    def describe(self) -> Iterator[BudgetDescription]:
        """Yield the description of each budget, by name.

        Each takes milliseconds: other tasks run in between. Empty where budgets are not
        known.
        """
        return self.accounts.list_descriptions()

    def _on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        for pod in (old, new):
            if isinstance(pod, Pod) and (pod.disruption or self._context.in_flight.get(pod.uid)):
                self._queue.add((pod.namespace, pod.name))

    def _on_budget(self, old: AnyBudget | None, new: AnyBudget | None) -> None:
        """Take over a budget; what it selects no more may be a zone that is short."""
        version = new or old
        name = "" if version is None else version.name
        before = self._find_selector(name)
        self.catalog.on_change(old, new)
        after = self._find_selector(name)
        if before is None or before == after:
            return
        for sts in self._context.sets.list_all():
            if selects(before, sts.labels) and (after is None or not selects(after, sts.labels)):
                self._context.departed.on_left([budget_scope(name)], sts, sts)

    def _find_selector(self, name: str) -> Mapping[str, str] | None:
        """Return what selects the zones of a budget, by the version that is in force."""
        versions = self.catalog.get(name)
        return None if versions is None or versions.budget is None else versions.budget.selector

    def _list_scopes(self, sts: AnySet) -> Iterator[Scope]:
        """Yield the budgets that select a StatefulSet."""
        for versions in self.catalog.list_all():
            if versions.budget is not None and selects(versions.budget.selector, sts.labels):
                yield budget_scope(versions.name)

    def _describe_unknown(self) -> str | None:
        lack = None if self._follow.is_forbidden else self._follow.lack
        return None if lack is None else f"not followed yet: {lack}"

    def _find_lack(self, source: DisruptionSource) -> str | None:
        # A role of an earlier release does not show budgets: rollouts go on as they did under it,
        # evictions come to the operator only where a webhook configuration names them.
        if source is DisruptionSource.ROLLOUT and self._follow.is_forbidden:
            return None
        return self._follow.lack
