"""Composition of Rollouts: what wakes a Rollout, the look-ups in registries, and the controller."""

import asyncio
import os
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.operator_flags import REGISTRY
from rollout_operator.controllers.own_writes import NewestObjects, StatusWriter
from rollout_operator.controllers.releases.caches import ReleaseCaches, list_concerned
from rollout_operator.controllers.releases.controller import (
    ReleaseContext,
    ReleaseController,
    ReleaseReports,
)
from rollout_operator.controllers.releases.flux import FluxObjects
from rollout_operator.controllers.releases.look_ups import ReleaseLookUps
from rollout_operator.controllers.releases.observe import ReleaseObserver
from rollout_operator.controllers.releases.schedules.observe import (
    FollowedSchedules,
    ScheduleReader,
)
from rollout_operator.controllers.retries import Attempts
from rollout_operator.controllers.worker import Workers
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.connection.transport import choose_proxy
from rollout_operator.kube.release_kinds import ROLLOUTS
from rollout_operator.model.decode.releases.kinds import DECODERS
from rollout_operator.model.objects import AnyWatched, list_decoded
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.plan import FluxTarget
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.model.releases.schedule import ScheduleObject, ScheduleStatus
from rollout_operator.oci.client import RESULTS, RegistryClient
from rollout_operator.oci.exchange import RegistryExchange
from rollout_operator.oci.sender import RegistrySender
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.operator.releases.compat import get_compat
from rollout_operator.planning.releases.flux import list_targets
from rollout_operator.planning.releases.health import selects_namespaces, takes_check
from rollout_operator.telemetry.releases import ReleaseCounters
from rollout_operator.telemetry.spans import trace_keys

# Rollouts that are reconciled at a time; each mostly waits for the API server.
WORKERS: Final = 16
# All of them together read four registries at a time.
REGISTRY_WORKERS: Final = 4
# The limit of one request to a registry, its whole answer included.
REQUEST_LIMIT: Final = timedelta(seconds=15)
# Outcomes of look-ups that say nothing of a registry.
_OTHER_RESULTS: Final = ("invalid", "cancelled")


class RolloutReleases(Feature):
    """The controller of the Rollouts of one namespace."""

    def __init__(self, context: Context, caches: ReleaseCaches) -> None:
        self._context = context
        self._caches = caches
        self._counters = ReleaseCounters(
            context.metrics.registry, context.namespace, ("ok", *RESULTS.values(), *_OTHER_RESULTS)
        )
        self._sender = RegistrySender(REQUEST_LIMIT)
        self._queue: WorkQueue[str] = WorkQueue()
        self._flux = self._build_flux()
        reads_registries = context.settings.release_metadata == REGISTRY
        self._look_ups = self._build_look_ups() if reads_registries else None
        self._controller = self._build_controller()
        self._workers = Workers(
            self._queue,
            trace_keys("reconcile release", self._controller.reconcile),
            count=WORKERS,
            rng=context.rng,
        )
        for kind in caches.list_kinds():
            kind.on_change(self._on_schedule if kind is caches.schedules else self._on_change)
            kind.on_news(self._wake_all)
        context.process.wide_checks.on_change(self._on_check, self._wake_wide)
        if (wide := context.process.wide_schedules) is not None:
            wide.on_news(self._wake_all)
            wide.kinds.schedules.on_change(self._on_schedule)
            wide.kinds.schedules.on_news(self._wake_all)
            if wide.kinds.namespaces is not None:
                wide.kinds.namespaces.on_change(self._on_namespace)
                wide.kinds.namespaces.on_news(self._wake_all)

    def start(self, tasks: TaskStack) -> None:
        """Begin to act."""
        self._wake_all()
        if self._look_ups is not None:
            tasks.start("registry connections", self._keep_connections())
            tasks.start("look-ups of releases", self._query_registries(self._look_ups))
        tasks.start("release workers", self._workers.run())

    def close(self) -> None:
        """Begin nothing new from now on."""
        super().close()
        if self._look_ups is not None:
            self._look_ups.queue.close()

    def list_targets(self, rollout: ReleaseRollout) -> tuple[FluxTarget, ...]:
        """Return the places that carry the tag of a Rollout, as they are known here."""
        current, name = rollout.status.current, rollout.head.name
        tag = None if current is None else current.version.tag
        return list_targets(name, tag, self._flux.get_flux(name))

    def get_error(self, name: str) -> str:
        """Return why the last pass over a Rollout failed; empty where it did not."""
        return self._controller.get_error(name)

    def _build_look_ups(self) -> ReleaseLookUps:
        context = self._context
        exchange = RegistryExchange(
            self._sender, context.clock, lambda url: choose_proxy(url, os.environ)
        )
        return ReleaseLookUps(
            RegistryClient(exchange, context.clock, self._counters.count_request),
            context.open("reading pull secrets", Priority.READ),
            context.clock,
            self._queue.add_after,
        )

    def _build_flux(self) -> FluxObjects:
        context, caches = self._context, self._caches
        return FluxObjects(
            context.open("writing objects of Flux", Priority.READ),
            context.namespace,
            caches.oci_repositories,
            caches.kustomizations,
        )

    def _build_controller(self) -> ReleaseController:
        context, caches = self._context, self._caches
        writing = context.open("recording releases", Priority.READ)
        newest = NewestObjects(
            caches.rollouts.store.get, context.namespace, writing, DECODERS["Rollout"]
        )
        longest = context.settings.reconcile_interval
        compat = get_compat(context.settings.release_compat, context.settings.release_order)
        return ReleaseController(
            ReleaseContext(
                newest=newest,
                statuses=StatusWriter(writing, ROLLOUTS, newest),
                observer=ReleaseObserver(
                    namespace=context.namespace,
                    caches=caches,
                    flux=self._flux,
                    look_ups=self._look_ups,
                    reader=writing,
                    wide=context.process.wide_checks,
                    schedules=FollowedSchedules(
                        own=caches.schedules,
                        wide=context.process.wide_schedules,
                        reader=ScheduleReader(compat),
                    ),
                    now=partial(context.process.refine_time, writing),
                    compat=compat,
                    verifies_wanted=context.settings.verifies_wanted,
                    keeps_to_namespace=context.settings.keeps_to_namespace,
                ),
                flux=self._flux,
                patcher=writing,
                attempts=Attempts(context.clock, longest=longest, rng=context.rng),
                reports=ReleaseReports(context.events.report, self._counters),
            )
        )

    def _wake_all(self) -> None:
        for watched in self._caches.rollouts.store.list_all():
            self._queue.add(watched.name)

    def _on_change(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake the Rollouts that a change concerns, and those that it concerned before."""
        for decoded in list_decoded((old, new), object):
            for name in list_concerned(decoded, self._caches):
                self._queue.add(name)

    def _on_schedule(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake the Rollouts that a schedule held, or is to hold; its status opens nothing."""
        before, after = _drop_status(old), _drop_status(new)
        if before is None or before != after:
            self._on_change(old, new)

    def _on_namespace(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake all Rollouts where other schedules of the cluster may select their namespace."""
        if self._context.namespace in {version.name for version in (old, new) if version}:
            self._wake_all()

    def _on_check(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake the Rollouts that may select a HealthCheck of another namespace."""
        checks = list_decoded((old, new), HealthCheck)
        for rollout in self._list_wide():
            if any(takes_check(rollout, check) for check in checks):
                self._queue.add(rollout.head.name)

    def _wake_wide(self) -> None:
        for rollout in self._list_wide():
            self._queue.add(rollout.head.name)

    def _list_wide(self) -> list[ReleaseRollout]:
        rollouts = self._caches.list_rollouts()
        return [rollout for rollout in rollouts if selects_namespaces(rollout)]

    async def _query_registries(self, look_ups: ReleaseLookUps) -> None:
        await Workers(
            look_ups.queue, look_ups.look_up, count=REGISTRY_WORKERS, rng=self._context.rng
        ).run()

    async def _keep_connections(self) -> None:
        """Close the connections to registries after their last use."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self._sender.close()


def _drop_status(schedule: AnyWatched | None) -> ScheduleObject | None:
    """Return a schedule as its writers have it; None where there is none, or it is unreadable."""
    for decoded in list_decoded([schedule], ScheduleObject):
        return msgspec.structs.replace(decoded, status=ScheduleStatus())
    return None
