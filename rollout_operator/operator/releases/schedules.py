"""Composition of schedules: what wakes a schedule, and the controller of its gates.

The same for schedules of one namespace and of the cluster, which differ in their caches.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.own_writes import NewestObjects, StatusWriter
from rollout_operator.controllers.releases.caches import ReleaseCaches
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
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.release_kinds import ROLLOUT_SCHEDULES
from rollout_operator.model.decode.releases.head import watch_as
from rollout_operator.model.decode.releases.schedule import decode_schedule
from rollout_operator.model.event import EventRecord
from rollout_operator.model.objects import AnyWatched, list_decoded
from rollout_operator.model.releases.compat import ReleaseCompat
from rollout_operator.model.releases.gate import ReleaseGate
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.operator.releases.compat import get_compat
from rollout_operator.planning.releases.schedules.gates import list_by_gate, list_by_rollout
from rollout_operator.telemetry.spans import trace_keys

# Schedules that are reconciled at a time; each mostly waits for the API server.
WORKERS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """The client, caches and rules of schedules."""

    resource: Resource
    namespace: str
    """Empty for schedules of the cluster."""
    client: ApiClient
    clock: Clock
    now: Callable[[], datetime]
    """The API server's time."""
    rng: Callable[[], float]
    longest_pause: timedelta
    compat: ReleaseCompat
    record: Callable[[EventRecord], None]
    """Has an Event written soon."""


class Schedules(Feature):
    """The controller of schedules, of one namespace or of the cluster."""

    def __init__(self, kinds: ScheduleKinds, settings: ScheduleSettings) -> None:
        self._kinds = kinds
        self._settings = settings
        self._queue: WorkQueue[str] = WorkQueue()
        self._workers = Workers(
            self._queue,
            trace_keys("reconcile schedule", self._build_controller().reconcile),
            count=WORKERS,
            rng=settings.rng,
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
        settings, kinds = self._settings, self._kinds
        decode = watch_as(partial(decode_schedule, settings.resource.kind))
        newest = NewestObjects(
            kinds.schedules.store.get, settings.namespace, settings.client, decode
        )
        gates = KeptGates(settings.client, kinds.gates, settings.clock)
        return ScheduleController(
            ScheduleContext(
                resource=settings.resource,
                newest=newest,
                statuses=StatusWriter(settings.client, settings.resource, newest),
                observer=ScheduleObserver(
                    kinds=kinds, gates=gates, now=settings.now, compat=settings.compat
                ),
                gates=gates,
                attempts=Attempts(settings.clock, longest=settings.longest_pause, rng=settings.rng),
                report=partial(report_schedule, settings.record),
            )
        )

    def _on_schedule(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        for version in (old, new):
            if version is not None:
                self._queue.add(version.name)

    def _on_gate(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        for gate in list_decoded((old, new), ReleaseGate):
            for name in list_by_gate(self._settings.resource.kind, gate):
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


class NamespacedSchedules(Schedules):
    """The controller of the RolloutSchedules of one namespace."""

    def __init__(self, context: Context, caches: ReleaseCaches) -> None:
        client = context.open("keeping gates", Priority.READ)
        context.process.followed_schedules.append(caches.schedules)
        super().__init__(
            ScheduleKinds(schedules=caches.schedules, rollouts=caches.rollouts, gates=caches.gates),
            ScheduleSettings(
                resource=ROLLOUT_SCHEDULES,
                namespace=context.namespace,
                client=client,
                clock=context.clock,
                now=partial(context.process.refine_time, client),
                rng=context.rng,
                longest_pause=context.settings.reconcile_interval,
                compat=get_compat(context.settings.release_compat, context.settings.release_order),
                record=context.events.report,
            ),
        )
