"""Composition of the status of budgets: which changes concern which budget, and the writer.

Only on a cluster: no decision rests on it, so the lab does without.
"""

from collections.abc import Iterable
from functools import partial

from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.budgets.status import SETTLE, BudgetStatuses
from rollout_operator.controllers.worker import Workers
from rollout_operator.guards.budgets.accounts import BudgetAccount
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.labels import selects
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.operator.budgets import Budgets
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.telemetry.spans import trace_keys


class BudgetReports(Feature):
    """Keeps the status of each budget up to date, in the process that acts."""

    def __init__(self, context: Context, budgets: Budgets) -> None:
        self._budgets = budgets
        self._queue: WorkQueue[str] = WorkQueue()
        # The budgets that select a StatefulSet, and the other way round, as they were last seen.
        self._names: dict[Uid, set[str]] = {}
        self._zones: dict[str, tuple[Uid, ...]] = {}
        client = context.open("reporting budgets", Priority.REPORT)
        statuses = BudgetStatuses(
            client=client,
            namespace=context.namespace,
            find_account=self._find_account,
            now=partial(context.get_time, client),
            clock=context.clock,
        )
        reconcile = trace_keys("reconcile budget status", statuses.reconcile)
        self._workers = Workers(self._queue, reconcile, count=1, rng=context.rng)
        context.set_informer.on_change(self._on_set)
        context.pod_informer.on_change(self._on_pod)
        context.in_flight.on_change(lambda pod: self._wake_owners([pod.owner_uid]))
        context.downscales.on_change(lambda uid, group: self._wake_owners([uid]))
        budgets.informer.on_change(lambda old, new: self._wake_all())
        self._is_running = False

    def start(self, tasks: TaskStack) -> None:
        """Begin to write."""
        self._is_running = True
        self._wake_all()
        tasks.start("budget status", self._workers.run())

    async def finish(self) -> None:
        """Wait for nothing: the next process makes a write that is cut off."""

    def _find_account(self, name: str) -> BudgetAccount | None:
        """Return the account of a budget, and remember whose changes concern it."""
        account = self._budgets.accounts.find(name)
        zones = () if account is None else account.zones
        for uid in self._zones.pop(name, ()):
            self._names[uid].discard(name)
            if not self._names[uid]:
                del self._names[uid]
        if account is not None:
            self._zones[name] = zones
        for uid in zones:
            self._names.setdefault(uid, set()).add(name)
        return account

    def _on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        sets = [version for version in (old, new) if version is not None]
        self._wake_owners(sts.uid for sts in sets)
        for budget in self._budgets.catalog.list_all():
            # A StatefulSet that it did not select before.
            if any(selects(own, sts.labels) for own in budget.selectors for sts in sets):
                self._wake(budget.name)

    def _on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        self._wake_owners({version.owner_uid for version in (old, new) if version is not None})

    def _wake_owners(self, owners: Iterable[Uid | None]) -> None:
        for owner in owners:
            for name in self._names.get(owner, ()) if owner is not None else ():
                self._wake(name)

    def _wake_all(self) -> None:
        """Reconcile all budgets: a budget that changes may overlap with others, or no longer."""
        for name in {*self._zones, *(budget.name for budget in self._budgets.catalog.list_all())}:
            self._wake(name)

    def _wake(self, name: str) -> None:
        if self._is_running:
            self._queue.add_after(name, SETTLE)
