"""Composition of the controller that moves replica counts through the zones of a group.

Always there: it costs nothing where no zone follows another and none mirrors anything. Start: with
the workers of rollouts, once the caches are filled and reviews are served, because counts that we
write come back as reviews. Stop: with them.
"""

from functools import partial
from typing import Final

from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.live_reads import choose_most_live_reads
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.retries import Attempts
from rollout_operator.controllers.scaling.contests import Contests
from rollout_operator.controllers.scaling.controller import ScalingController, is_scaled
from rollout_operator.controllers.scaling.intents import IntentWriter
from rollout_operator.controllers.scaling.pod_calls import PodCaller
from rollout_operator.controllers.scaling.removals import Removals
from rollout_operator.controllers.scaling.replicas import Replicas
from rollout_operator.controllers.scaling.writes import ScalingWrites
from rollout_operator.controllers.worker import Waker, Workers
from rollout_operator.guards.departed import GROUP
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.scales.references import References
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import StatefulSet, Unreadable
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.planning.scaling.following import keeps_time
from rollout_operator.telemetry.spans import trace_keys

# Groups whose counts are reconciled at a time; each mostly waits for the API server.
WORKERS: Final = 32
# Sets whose pods are called at a time: a pod that is slow to answer holds one of these.
CALLERS: Final = 64


class Scaling(Feature):
    """The controller of replica counts, with its clients and workers."""

    def __init__(self, context: Context, process: str) -> None:
        """`process` names it: no two processes of a namespace have the same name."""
        self._context = context
        self._queue: WorkQueue[GroupName] = WorkQueue()
        self._client = client = context.open("scaling", Priority.READ)
        # A client of its own: pods that hang never delay the pods of a review.
        self._calls = context.make_pod_client()
        self._pod_calls = PodCaller(
            self._calls,
            now=partial(context.get_time, client),
            on_answers=self._wake_set,
            late_calls=context.late_calls,
        )
        self._references = References(
            # Many objects that cannot be watched may take all tokens: all other reads go first.
            context.open("mirroring", Priority.LIST),
            context.namespace,
            reader=client,
            reconcile_interval=context.settings.reconcile_interval,
            clock=context.clock,
            rng=context.rng,
        )
        self._references.on_change(self._queue.add)
        self._waker = Waker(context.sets, self._wake)
        observer = context.make_observer(client)
        self._removals = Removals(
            context.downscales.intents, context.clock, context.settings.client_qps
        )
        self._counts = Replicas(
            client,
            observer,
            context.make_records(client),
            locks=context.locks,
            downscales=context.downscales,
            clock=context.clock,
            metrics=context.metrics,
            intents=IntentWriter(
                client,
                context.open("revoking", Priority.RELEASE),
                self._removals,
                context.downscales,
                process,
            ),
            removals=self._removals,
            is_stopping=lambda: context.is_stopping,
            on_scaled=context.events.on_scaled,
        )
        self._contests = Contests(client, context.clock, context.settings.operator_name)
        self._controller = self._build_controller(observer)
        self._workers: Workers[GroupName] = Workers(
            self._queue,
            trace_keys("reconcile scaling", self._controller.reconcile),
            # Answers of pods and live reads must still count when the count is written.
            count=min(WORKERS, choose_most_live_reads(context.settings.client_qps)),
            rng=context.rng,
        )
        self._callers: Workers[Uid] = Workers(
            self._pod_calls.queue,
            trace_keys("call pods", self._pod_calls.reconcile),
            count=CALLERS,
            rng=context.rng,
        )
        context.downscales.on_change(lambda uid, group: self._wake_set(uid))
        context.set_informer.on_change(self._on_set)
        context.pod_informer.on_change(self._waker.on_pod)
        context.on_stale(self._wake_all)
        context.departed.on_change(GROUP, lambda name: self._wake(GroupName(name)))

    def start(self, tasks: TaskStack) -> None:
        """Begin to reconcile groups."""
        tasks.start("references", self._references.run())
        tasks.start("scaling workers", self._workers.run())
        tasks.start("pod callers", self._callers.run())

    def close(self) -> None:
        """Begin nothing new from now on."""
        super().close()
        self._callers.close()

    async def finish(self) -> None:
        """Wait until no group is reconciled; calls to pods are not waited for."""
        await super().finish()
        await self._calls.close()

    def _on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        if old is not None and new is None:
            self._pod_calls.forget(old.uid)
            self._counts.forget(old.uid)
            self._contests.forget(old.uid)
        if isinstance(old, StatefulSet) and isinstance(new, StatefulSet):
            self._record_downscale(old, new)
        self._waker.on_set(old, new)

    def _wake_set(self, set_uid: Uid) -> None:
        sts = self._context.sets.get_by_uid(set_uid)
        if sts is not None and sts.group is not None:
            self._wake(sts.group)

    def _wake_all(self) -> None:
        for group in self._context.sets.list_groups():
            self._wake(group)

    def _wake(self, group: GroupName) -> None:
        """Reconcile a group, unless no count of it is ours: most events are of such groups."""
        members = self._context.sets.list_group(group)
        if self._controller.knows(group) or is_scaled(members):
            self._queue.add(group)

    def _record_downscale(self, old: StatefulSet, new: StatefulSet) -> None:
        """Keep the time of a downscale that no other process keeps (SEED-066)."""
        if old.uid != new.uid or new.replicas >= old.replicas or new.group is None:
            return
        group = self._context.sets.list_group(new.group)
        is_kept = keeps_time(new, [sts for sts in group if isinstance(sts, StatefulSet)])
        if is_kept and not self._counts.has_written(new):
            self._counts.record_downscale(new.uid)

    def _build_controller(self, observer: Observer) -> ScalingController:
        context = self._context
        attempts = Attempts(
            context.clock, longest=context.settings.reconcile_interval, rng=context.rng
        )
        return ScalingController(
            observer=observer,
            counts=self._counts,
            pod_calls=self._pod_calls,
            references=self._references,
            attempts=attempts,
            writes=ScalingWrites(attempts),
            contests=self._contests,
            removals=self._removals,
            group_states=context.group_states,
            metrics=context.metrics,
            clock=context.clock,
            cluster_domain=context.settings.cluster_domain,
            late_calls=context.late_calls,
        )
