"""Composition of rollouts: what wakes a group, the controller, and the executor of its plans."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from rollout_operator.aio.backoff import BUGS, Backoff
from rollout_operator.aio.queue import AT_ONCE, WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.live_reads import choose_most_live_reads
from rollout_operator.controllers.retries import Attempts
from rollout_operator.controllers.rollout.controller import RolloutController
from rollout_operator.controllers.rollout.executor import Executor
from rollout_operator.controllers.rollout.other_operators import OtherOperators
from rollout_operator.controllers.rollout.rule import LabelRule
from rollout_operator.controllers.worker import Waker, Workers
from rollout_operator.guards.budgets.arbiter import Arbiter
from rollout_operator.guards.departed import GROUP
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.telemetry.spans import trace_keys

# Groups that are reconciled at a time. A worker mostly waits for the API server or for a token of
# our rate limits, so that many cost nothing: a worker that records a revision keeps no delete
# waiting.
WORKERS: Final = 128


class Rollouts(Feature):
    """The controller of rollouts, with what wakes it."""

    def __init__(self, context: Context, arbiter: Arbiter) -> None:
        self._context = context
        self._queue: WorkQueue[GroupName] = WorkQueue(
            on_taken=lambda waited: context.metrics.queue_wait_seconds.observe(
                waited.total_seconds()
            )
        )
        self._waker = Waker(context.sets, self._queue.add)
        self._others = OtherOperators(
            context.sets,
            context.deletes,
            context.clock,
            lambda group: context.metrics.pods_deleted_by_others.labels(group).inc(),
        )
        context.set_informer.on_change(self._on_set)
        # Before the group is woken by the same change.
        context.pod_informer.on_change(self._others.on_pod)
        context.pod_informer.on_change(self._waker.on_pod)
        context.downscales.on_change(self._wake_group)
        context.in_flight.on_change(self._wake_owner)
        context.departed.on_change(GROUP, lambda name: self._queue.add(GroupName(name)))
        # They wait for the budgets now; else they would show their last state until a resync.
        context.on_stale(self.wake_all)
        longest = context.settings.reconcile_interval
        self._workers: Workers[GroupName] = Workers(
            self._queue,
            trace_keys("reconcile rollout", self._build_controller(arbiter, longest).reconcile),
            count=WORKERS,
            backoff=Backoff(first=BUGS.first, most=max(BUGS.first, longest)),
            rng=context.rng,
        )
        context.metrics.queue_depth.set_function(lambda: self._queue.depth)
        context.metrics.workers_busy.set_function(lambda: self._workers.busy)

    def start(self, tasks: TaskStack) -> None:
        """Begin to reconcile groups."""
        self._others.begin()
        tasks.start("workers", self._workers.run())

    def wake_all(self, after: timedelta = AT_ONCE) -> None:
        """Reconcile all groups again, after a while."""
        for group in self._context.sets.list_groups():
            self._queue.add_after(group, after)

    def _build_controller(self, arbiter: Arbiter, longest: timedelta) -> RolloutController:
        context = self._context
        observer = replace(
            context.make_observer(context.open("observing", Priority.READ)),
            find_other_rollout=self._others.find,
        )
        return RolloutController(
            observer=observer,
            executor=Executor(
                context.open("acting", Priority.READ),
                LabelRule(observer),
                context.deletes,
                clock=context.clock,
                metrics=context.metrics,
                arbiter=arbiter,
                locks=context.locks,
                # No delete rests on it: it waits for all live reads.
                recording=context.open("recording", Priority.RECORD),
                most_live_reads=choose_most_live_reads(context.settings.client_qps),
                is_stopping=lambda: context.is_stopping,
                on_step=context.events.on_step,
            ),
            deletes=context.deletes,
            attempts=Attempts(context.clock, longest=longest, rng=context.rng),
            group_states=context.group_states,
            metrics=context.metrics,
            clock=context.clock,
            refresh=context.refresh,
        )

    def _on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """Wake the group of a set; not for marks of ours, which come and go with each attempt."""
        is_ours = (
            isinstance(old, StatefulSet)
            and isinstance(new, StatefulSet)
            and self._context.downscales.intents.concerns_us_only(old, new)
        )
        if not is_ours:
            self._waker.on_set(old, new)

    def _wake_group(self, set_uid: Uid, group: GroupName | None) -> None:
        if group is not None and self._context.sets.list_group(group):
            self._queue.add(group)

    def _wake_owner(self, pod: Pod) -> None:
        owner = pod.owner_uid
        sts = None if owner is None else self._context.sets.get_by_uid(owner)
        if sts is not None and sts.group is not None:
            self._queue.add(sts.group)
