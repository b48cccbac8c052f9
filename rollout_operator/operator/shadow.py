"""Composition of shadow mode: what wakes a group, and the controllers that decide without acting.

In place of the composition of rollouts and of scaling; caches and budgets are the same.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from rollout_operator.aio.queue import AT_ONCE, WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.shadow.controller import ShadowController, ShadowScalingController
from rollout_operator.controllers.shadow.differences import Differences
from rollout_operator.controllers.worker import Result, Waker, Workers
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.departed import GROUP
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.scales.references import References
from rollout_operator.model.names import GroupName
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.telemetry.spans import trace_keys

# Groups that are reconciled at a time; it costs no request but those for the zone tracker.
WORKERS: Final = 8


class Shadow(Feature):
    """The controllers that only observe, with what wakes them."""

    def __init__(self, context: Context, arbiter: Arbiter) -> None:
        self._context = context
        client = context.open("observing", Priority.READ)
        self._references = References(
            context.open("mirroring", Priority.LIST),
            context.namespace,
            reader=client,
            reconcile_interval=context.settings.reconcile_interval,
            clock=context.clock,
            rng=context.rng,
        )
        self._differences = Differences(context.sets, context.clock, context.metrics)
        observer = context.make_observer(client)
        rollouts = ShadowController(
            observer=observer,
            arbiter=arbiter,
            differences=self._differences,
            group_states=context.group_states,
            metrics=context.metrics,
            clock=context.clock,
        )
        scaling = ShadowScalingController(
            observer=observer,
            times=context.make_records(client),
            references=self._references,
            group_states=context.group_states,
            metrics=context.metrics,
            cluster_domain=context.settings.cluster_domain,
        )
        self._queues: list[WorkQueue[GroupName]] = []
        self._both_workers = [self._employ(rollouts.reconcile), self._employ(scaling.reconcile)]
        waker = Waker(context.sets, self._wake)
        context.set_informer.on_change(waker.on_set)
        # Before the group is woken by the same change.
        context.pod_informer.on_change(self._differences.on_pod)
        context.pod_informer.on_change(waker.on_pod)
        context.on_stale(self.wake_all)
        context.departed.on_change(GROUP, lambda name: self._wake(GroupName(name)))
        self._references.on_change(self._wake)
        context.health.part("shadow mode", describe=self._describe)

    @property
    def busy(self) -> int:
        """Return how many groups are reconciled now."""
        return sum(workers.busy for workers in self._both_workers)

    def start(self, tasks: TaskStack) -> None:
        """Begin to reconcile groups."""
        tasks.start("references", self._references.run())
        for name, workers in zip(("workers", "scaling workers"), self._both_workers, strict=True):
            tasks.start(name, workers.run())

    def close(self) -> None:
        """Begin nothing new from now on."""
        for workers in self._both_workers:
            workers.close()

    async def finish(self) -> None:
        """Wait until no group is being reconciled."""
        for workers in self._both_workers:
            await workers.wait_idle()

    def wake_all(self, after: timedelta = AT_ONCE) -> None:
        """Reconcile all groups again, after a while."""
        for group in self._context.sets.list_groups():
            for queue in self._queues:
                queue.add_after(group, after)

    def _employ(self, reconcile: Callable[[GroupName], Awaitable[Result]]) -> Workers[GroupName]:
        queue: WorkQueue[GroupName] = WorkQueue()
        self._queues.append(queue)
        shadowed = trace_keys("reconcile shadow", reconcile)
        return Workers(queue, shadowed, count=WORKERS, rng=self._context.rng)

    def _wake(self, group: GroupName) -> None:
        for queue in self._queues:
            queue.add(group)

    def _describe(self) -> str:
        total = self._differences.total
        return f"nothing is written; {total} differences from the operator that acts"
