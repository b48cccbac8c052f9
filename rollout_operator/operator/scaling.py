"""Composition of what moves replica counts through the zones of a group.

Always there: it costs nothing where no zone follows another and none mirrors anything. Start: with
the workers of rollouts, once the caches are filled and reviews are served, because counts that we
write come back as reviews. Stop: with them.
"""

from datetime import datetime, timedelta
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.events_to_keys import Waker
from rollout_operator.controllers.live_reads import choose_most_looks
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.retries import Attempts
from rollout_operator.controllers.scaling.contests import Contests
from rollout_operator.controllers.scaling.controller import (
    ScalingContext,
    ScalingController,
    is_scaled,
)
from rollout_operator.controllers.scaling.pod_calls import Talks
from rollout_operator.controllers.scaling.replicas import Counts
from rollout_operator.controllers.worker import Workers
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.scales.references import References
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.operator.context import Shared
from rollout_operator.planning.scaling.following import keeps_time
from rollout_operator.pods.client import PodClient

# Groups whose counts are looked at at a time; each mostly waits for the API server.
WORKERS: Final = 32
# Sets whose pods are talked to at a time: one that is slow to answer holds one of these.
TALKERS: Final = 64
BUG_BACKOFF: Final = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=15))


class ScalingParts:
    """The controller of counts, with what it works with."""

    def __init__(self, shared: Shared) -> None:
        settings, clients = shared.settings, shared.clients
        self._shared = shared
        self._queue: WorkQueue[GroupName] = WorkQueue()
        self._client = clients.open("scaling", Priority.LOOK)
        # A client of its own: pods that hang never delay the pods of a review.
        self._calls = PodClient(
            clients.open_pods(),
            timeout=settings.pods_timeout,
            metrics=shared.metrics,
            clock=clients.clock,
        )
        self._talks = Talks(
            self._calls,
            now=self._now,
            on_heard=self._wake_set,
            late_calls=settings.late_calls,
        )
        self._references = References(
            # Many that cannot be watched may take all there is: whatever else is read goes first.
            clients.open("mirroring", Priority.LIST),
            shared.namespace,
            looks=self._client,
            reconcile_interval=settings.reconcile_interval,
            clock=clients.clock,
            rng=clients.rng,
        )
        self._references.on_change(self._queue.add)
        self._waker = Waker(shared.sets, self._wake)
        shared.downscales.on_change(lambda uid, group: self._wake_set(uid))
        observer = shared.make_observer(self._client)
        self._counts = self._build_counts(observer)
        self._contests = Contests(self._client, clients.clock)
        self._controller = self._build_controller(observer)
        self._workers: Workers[GroupName] = Workers(
            self._queue,
            self._controller.reconcile,
            # What pods said and what a live read shows must still count when the count is written.
            count=min(WORKERS, choose_most_looks(settings.client_qps)),
            backoff=BUG_BACKOFF,
            rng=clients.rng,
        )
        self._talkers: Workers[Uid] = Workers(
            self._talks.queue,
            self._talks.reconcile,
            count=TALKERS,
            backoff=BUG_BACKOFF,
            rng=clients.rng,
        )

    def start(self, tasks: TaskStack) -> None:
        """Begin to look at groups."""
        tasks.start("references", self._references.run())
        tasks.start("scaling workers", self._workers.run())
        tasks.start("pod talkers", self._talkers.run())

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """Wake the group of a set that came, changed or went: the callback for its informer."""
        if old is not None and new is None:
            self._talks.forget(old.uid)
            self._counts.forget(old.uid)
            self._contests.forget(old.uid)
        if isinstance(old, StatefulSet) and isinstance(new, StatefulSet):
            self._note_downscale(old, new)
        self._waker.on_set(old, new)

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Wake the group of a pod."""
        self._waker.on_pod(old, new)

    def stopping(self) -> None:
        """Begin nothing new from now on."""
        self._queue.close()
        self._talks.queue.close()

    async def finish(self) -> None:
        """Wait until no group is looked at; pods that are being talked to are not waited for."""
        await self._workers.wait_idle()
        await self._calls.close()

    def _now(self) -> datetime:
        return self._shared.clients.tell_time(self._client)

    def _wake_set(self, set_uid: Uid) -> None:
        sts = self._shared.sets.get_by_uid(set_uid)
        if sts is not None and sts.group is not None:
            self._wake(sts.group)

    def _wake(self, group: GroupName) -> None:
        """Look at a group, unless no count of it is ours: most events are of such groups."""
        members = self._shared.sets.list_group(group)
        if self._controller.knows(group) or is_scaled(members):
            self._queue.add(group)

    def _note_downscale(self, old: StatefulSet, new: StatefulSet) -> None:
        """Keep the time of a downscale that nobody else keeps, whoever wrote it (SEED-066)."""
        if old.uid != new.uid or new.replicas >= old.replicas or new.group is None:
            return
        group = self._shared.sets.list_group(new.group)
        is_kept = keeps_time(new, [one for one in group if isinstance(one, StatefulSet)])
        if is_kept and not self._counts.has_written(new):
            self._counts.note_downscale(new.uid)

    def _build_counts(self, observer: Observer) -> Counts:
        shared = self._shared
        return Counts(
            self._client,
            observer,
            shared.make_records(self._client),
            locks=shared.locks,
            downscales=shared.downscales,
            clock=shared.clients.clock,
            metrics=shared.metrics,
            is_stopping=lambda: self._queue.is_closed,
        )

    def _build_controller(self, observer: Observer) -> ScalingController:
        shared, clock = self._shared, self._shared.clients.clock
        parts = ScalingContext(
            observer=observer,
            counts=self._counts,
            talks=self._talks,
            references=self._references,
            attempts=Attempts(
                clock,
                longest=shared.settings.reconcile_interval,
                rng=shared.clients.rng,
            ),
            contests=self._contests,
            group_states=shared.group_states,
            metrics=shared.metrics,
            clock=clock,
            cluster_domain=shared.settings.cluster_domain,
            late_calls=shared.settings.late_calls,
        )
        return ScalingController(parts)
