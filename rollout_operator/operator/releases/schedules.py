"""Composition of schedules: what wakes a schedule, and the controller of its gates.

The same for schedules of one namespace and of the cluster, which differ in their caches.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.own_writes import NewestObjects, StatusWriter
from rollout_operator.controllers.releases.schedules.controller import (
    ScheduleContext,
    ScheduleController,
    report_schedule,
)
from rollout_operator.controllers.releases.schedules.gates import KeptGates
from rollout_operator.controllers.releases.schedules.observe import (
    ScheduleKinds,
    ScheduleObserver,
    read_gated,
)
from rollout_operator.controllers.retries import Attempts
from rollout_operator.controllers.worker import Workers
from rollout_operator.kube.api import ApiClient, Resource
from rollout_operator.model.decode.releases.kinds import DECODERS
from rollout_operator.model.event import EventRecord
from rollout_operator.model.objects import AnyWatched, list_decoded
from rollout_operator.model.releases.rollout import ReleaseGate
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.operator.process import Feature, Process
from rollout_operator.operator.releases.compat import get_compat
from rollout_operator.planning.releases.schedules.gates import list_by_gate, list_by_rollout
from rollout_operator.telemetry.spans import trace_keys

# Schedules that are reconciled at a time; each mostly waits for the API server.
WORKERS: Final = 4


class Schedules(Feature):
    """The controller of schedules, of one namespace or of the cluster."""

    def __init__(
        self,
        process: Process,
        client: ApiClient,
        resource: Resource,
        kinds: ScheduleKinds,
        record: Callable[[EventRecord], None],
        *,
        namespace: str = "",
    ) -> None:
        """`record` has an Event written soon; `namespace` is empty for schedules of the cluster."""
        self._process = process
        self._client = client
        self._resource = resource
        self._kinds = kinds
        self._record = record
        self._namespace = namespace
        self._queue: WorkQueue[str] = WorkQueue()
        self._workers = Workers(
            self._queue,
            trace_keys("reconcile schedule", self._build_controller().reconcile),
            count=WORKERS,
            rng=process.rng,
        )
        kinds.schedules.on_change(self._on_schedule)
        kinds.rollouts.on_change(self._on_rollout)
        kinds.gates.on_change(self._on_gate)
        if kinds.namespaces is not None:
            kinds.namespaces.on_change(lambda old, new: self._wake_all())

    def start(self, tasks: TaskStack) -> None:
        """Begin to act."""
        self._wake_all()
        tasks.start("schedule workers", self._workers.run())

    def _build_controller(self) -> ScheduleController:
        process, client = self._process, self._client
        settings, resource, kinds = process.settings, self._resource, self._kinds
        decode = DECODERS[resource.kind]
        newest = NewestObjects(kinds.schedules.store.get, self._namespace, client, decode)
        gates = KeptGates(client, kinds.gates, process.clock)
        return ScheduleController(
            ScheduleContext(
                resource=resource,
                newest=newest,
                statuses=StatusWriter(client, resource, newest),
                observer=ScheduleObserver(
                    kinds=kinds,
                    gates=gates,
                    now=partial(process.refine_time, client),
                    compat=get_compat(settings.release_compat, settings.release_order),
                ),
                gates=gates,
                attempts=Attempts(
                    process.clock, longest=settings.reconcile_interval, rng=process.rng
                ),
                report=partial(report_schedule, self._record),
            )
        )

    def _on_schedule(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        for version in (old, new):
            if version is not None:
                self._queue.add(version.name)

    def _on_gate(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        for gate in list_decoded((old, new), ReleaseGate):
            for name in list_by_gate(self._resource.kind, gate):
                self._queue.add(name)

    def _on_rollout(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake the schedules that select a Rollout, which its status never changes."""
        before, after = read_gated(old), read_gated(new)
        if before == after:
            return
        versions = [version for version in (before, after) if version is not None]
        for name in list_by_rollout(self._list_schedules(), versions):
            self._queue.add(name)

    def _wake_all(self) -> None:
        for watched in self._kinds.schedules.store.list_all():
            self._queue.add(watched.name)

    def _list_schedules(self) -> Iterable[ScheduleObject]:
        return list_decoded(self._kinds.schedules.store.list_all(), ScheduleObject)
