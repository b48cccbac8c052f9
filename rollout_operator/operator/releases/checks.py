"""Composition of HealthChecks: what wakes a check, and the controller."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.own_writes import NewestObjects, StatusWriter
from rollout_operator.controllers.releases.caches import ReleaseCaches
from rollout_operator.controllers.releases.checks.controller import (
    CheckContext,
    CheckController,
    CheckSnapshot,
)
from rollout_operator.controllers.releases.checks.reader import CheckReader
from rollout_operator.controllers.releases.flux import gather_flux
from rollout_operator.controllers.retries import RECHECK, Attempts
from rollout_operator.controllers.worker import Workers
from rollout_operator.kube.client.discovery import KindCatalog
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.kube.release_kinds import HEALTH_CHECKS
from rollout_operator.model.decode.releases.kinds import DECODERS
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import AnyWatched, WatchedObject, list_decoded
from rollout_operator.model.releases.flux import FluxReference
from rollout_operator.model.releases.health import CheckFinding, HealthCheck, HealthCheckStatus
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature, NamespaceChecks
from rollout_operator.operator.releases.compat import get_compat
from rollout_operator.planning.releases.bake import describe_flux_wait
from rollout_operator.planning.releases.checks.evaluate import describe_stall
from rollout_operator.planning.releases.checks.record import find_class
from rollout_operator.planning.releases.flux import list_targets
from rollout_operator.planning.releases.health import Labels, selects_namespaces, takes_check
from rollout_operator.telemetry.spans import trace_keys

# HealthChecks that are reconciled at a time; each mostly waits for the API server.
WORKERS: Final = 8


class HealthChecks(Feature):
    """The controller of the HealthChecks of one namespace."""

    def __init__(self, context: Context, caches: ReleaseCaches) -> None:
        self._context = context
        self._caches = caches
        self._client = context.open("evaluating health", Priority.LIST)
        self._compat = get_compat(context.settings.release_compat, context.settings.release_order)
        self._queue: WorkQueue[str] = WorkQueue()
        self._controller = self._build_controller()
        self._workers = Workers(
            self._queue,
            trace_keys("reconcile health check", self._controller.reconcile),
            count=WORKERS,
            rng=context.rng,
        )
        context.process.health_checks.append(self)
        caches.checks.on_change(self._on_check)
        caches.rollouts.on_change(self._on_rollout)
        caches.kustomizations.on_change(self._on_kustomization)
        caches.oci_repositories.on_change(lambda old, new: self._wake_held())

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        return self._context.namespace

    def start(self, tasks: TaskStack) -> None:
        """Begin to act."""
        for watched in self._caches.checks.store.list_all():
            self._queue.add(watched.name)
        tasks.start("health workers", self._workers.run())

    def _build_controller(self) -> CheckController:
        context, client = self._context, self._client
        newest = NewestObjects(
            self._caches.checks.store.get, context.namespace, client, DECODERS["HealthCheck"]
        )
        longest = context.settings.reconcile_interval
        return CheckController(
            CheckContext(
                newest=newest,
                statuses=StatusWriter(client, HEALTH_CHECKS, newest),
                reader=CheckReader(
                    client, KindCatalog(client, context.clock), self._find_stall, self._compat
                ),
                observe=self._observe,
                find_lack=self._caches.find_lack,
                attempts=Attempts(context.clock, longest=longest, rng=context.rng),
                keeps_to_namespace=context.settings.keeps_to_namespace,
            )
        )

    def list_selecting(self, check: HealthCheck) -> list[ReleaseRollout]:
        """Return the Rollouts of this namespace that may select a check of another namespace."""
        return [
            rollout for rollout in self._caches.list_selecting(check) if selects_namespaces(rollout)
        ]

    def wake(self, rollouts: Sequence[ReleaseRollout]) -> None:
        """Reconcile the checks that Rollouts of any namespace may select."""
        for check in list_decoded(self._caches.checks.store.list_all(), HealthCheck):
            if any(takes_check(rollout, check) for rollout in rollouts):
                self._queue.add(check.head.name)

    def describe_wait(self, rollout: ReleaseRollout) -> str:
        """Return what Flux has yet to do for a Rollout of this namespace."""
        current = rollout.status.current
        if current is None or not current.is_active:
            return ""
        tag, name = current.version.tag, rollout.head.name
        targets = list_targets(name, tag, gather_flux(name, self._caches.list_flux))
        return describe_flux_wait(rollout, tag, targets, self._compat)

    def _observe(self, check: HealthCheck) -> CheckSnapshot:
        """Return the Rollouts that may select a check. Raises Unreachable."""
        selected: list[tuple[NamespaceChecks, ReleaseRollout]] = [
            (self, rollout) for rollout in self._caches.list_selecting(check)
        ]
        for other in self._context.process.health_checks:
            if other is not self:
                selected += [(other, rollout) for rollout in other.list_selecting(check)]
        selects = any(selects_namespaces(rollout) for _, rollout in selected)
        return CheckSnapshot(
            now=self._context.process.refine_time(self._client),
            rollouts=tuple(rollout for _, rollout in selected),
            namespaces=self._map_namespaces() if selects else {},
            waits={rollout.head.key: of.describe_wait(rollout) for of, rollout in selected},
        )

    def find_stall(self, group: str) -> CheckFinding | None:
        """Return why a rollout group of this namespace is held until a person acts."""
        state = self._context.group_states.find(GroupName(group))
        return None if state is None else describe_stall(state.plan.waits, state.since)

    def _find_stall(self, place: FluxReference) -> CheckFinding | None:
        """Return the same for a group of any namespace that this process acts for."""
        for checks in self._context.process.health_checks:
            if checks.namespace == place.namespace:
                return checks.find_stall(place.name)
        return None

    def _map_namespaces(self) -> Mapping[str, Labels]:
        """Return labels of namespaces; empty where they may not be read, as Rollouts say."""
        wide = self._context.process.wide_checks
        return {} if wide.find_problem() is not None else wide.map_labels()

    def _on_check(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake a check that has changed, after a moment where others have written its status.

        It may be of before a deployment, or contradict an evaluation. The moment bounds what a
        client with a slow clock, which answers each reset at once, makes of it.
        """
        if old is not None and new is not None and _get_wish(old) == _get_wish(new):
            if not self._controller.has_written(new):
                self._queue.add_after(new.name, RECHECK)
            return
        for version in (old, new):
            if version is not None:
                self._queue.add(version.name)

    def _on_rollout(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake the checks of a Rollout whose release or selection has changed."""
        rollouts = list_decoded((old, new), ReleaseRollout)
        if len(rollouts) == 2 and _get_cause(rollouts[0]) == _get_cause(rollouts[1]):
            return
        self.wake(rollouts)
        if wide := [rollout for rollout in rollouts if selects_namespaces(rollout)]:
            for other in self._context.process.health_checks:
                other.wake(wide)

    def _on_kustomization(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        names = {version.name for version in (old, new) if version is not None}
        for check in list_decoded(self._caches.checks.store.list_all(), HealthCheck):
            own = f"{check.head.namespace}/"
            named = (check.kustomization or "").removeprefix(own)
            if find_class(check) is not None and named in names:
                self._queue.add(check.head.name)
        self._wake_held()

    def _wake_held(self) -> None:
        for name in self._controller.held:
            self._queue.add(name)


def _get_wish(watched: AnyWatched) -> object:
    """Return a check without its status."""
    decoded = watched.decoded if isinstance(watched, WatchedObject) else watched
    if not isinstance(decoded, HealthCheck):
        return decoded
    return msgspec.structs.replace(decoded, status=HealthCheckStatus())


def _get_cause(rollout: ReleaseRollout) -> object:
    """Return the parts of a Rollout that make its checks start anew, or wait."""
    current = rollout.status.current
    entry = None if current is None else (current.id, current.version.tag, current.timestamp)
    retry = None if current is None else (current.last_retry_timestamp, current.bake_status)
    return entry, retry, rollout.spec.checks, rollout.waits_for_flux
