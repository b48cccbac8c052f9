"""Composition of HealthChecks: what wakes a check, and the controllers.

A Rollout may select checks of namespaces that this process does not look after otherwise. These
have one part for all of them, which is told of changes by the followed checks of the whole cluster.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.own_writes import GetCached, NewestObjects, StatusWriter
from rollout_operator.controllers.releases.caches import ReleaseCaches
from rollout_operator.controllers.releases.checks.controller import (
    CheckContext,
    CheckController,
    CheckSnapshot,
)
from rollout_operator.controllers.releases.checks.reader import CheckReader
from rollout_operator.controllers.releases.flux import gather_flux
from rollout_operator.controllers.retries import RECHECK, Attempts
from rollout_operator.controllers.worker import Result, Workers
from rollout_operator.kube.api import ApiClient
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
from rollout_operator.operator.process import Feature, NamespaceChecks, Process
from rollout_operator.operator.releases.compat import get_compat
from rollout_operator.planning.releases.bake import describe_flux_wait
from rollout_operator.planning.releases.checks.evaluate import describe_stall
from rollout_operator.planning.releases.checks.record import find_class, find_reset
from rollout_operator.planning.releases.flux import list_targets
from rollout_operator.planning.releases.health import Labels, selects_namespaces, takes_check
from rollout_operator.telemetry.logs import bind_keys
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
        context = self._context
        return build_controller(
            context.process,
            context.namespace,
            self._client,
            CheckReader(
                self._client,
                KindCatalog(self._client, context.clock),
                partial(find_stall, context.process),
                self._compat,
            ),
            get_cached=self._caches.checks.store.get,
            find_lack=self._caches.find_lack,
            observe=self._observe,
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
        return take_snapshot(self._context.process, self._client, selected)

    def find_stall(self, group: str) -> CheckFinding | None:
        """Return why a rollout group of this namespace is held until a person acts."""
        state = self._context.group_states.find(GroupName(group))
        return None if state is None else describe_stall(state.plan.waits, state.since)

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


class OtherHealthChecks(Feature):
    """The controllers of the HealthChecks that Rollouts select in all other namespaces.

    What these checks look at is not followed: they are evaluated at their interval, and as soon as
    a Rollout waits for nothing else.
    """

    namespace: Final = ""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._client = process.open("evaluating health elsewhere", Priority.LIST)
        compat = get_compat(process.settings.release_compat, process.settings.release_order)
        catalog = KindCatalog(self._client, process.clock)
        self._reader = CheckReader(self._client, catalog, partial(find_stall, process), compat)
        self._controllers: dict[str, CheckController] = {}
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue()
        self._workers = Workers(
            self._queue,
            trace_keys("reconcile health check", self._reconcile),
            count=WORKERS,
            rng=process.rng,
        )
        process.health_checks.append(self)
        process.wide_checks.on_change(self._on_check, self._wake_all)

    async def follow(self) -> None:
        """Follow the checks of all namespaces, once they are needed, until cancelled."""
        await self._process.wide_checks.run(self._process.clock)

    def start(self, tasks: TaskStack) -> None:
        """Begin to act."""
        self._wake_all()
        tasks.start("health workers of other namespaces", self._workers.run())

    def find_stall(self, group: str) -> CheckFinding | None:
        """Return nothing: the groups of these namespaces are not known."""
        return None

    def list_selecting(self, check: HealthCheck) -> list[ReleaseRollout]:
        """Return none: there are no Rollouts in these namespaces."""
        return []

    def describe_wait(self, rollout: ReleaseRollout) -> str:
        """Return nothing, for no Rollout."""
        return ""

    def wake(self, rollouts: Sequence[ReleaseRollout]) -> None:
        """Reconcile the checks that Rollouts may select."""
        for check in self._process.wide_checks.list_checks():
            if any(takes_check(rollout, check) for rollout in rollouts):
                self._add(check)

    async def _reconcile(self, key: tuple[str, str]) -> Result:
        namespace, name = key
        if not self._is_other(namespace):
            return Result()
        controller = self._controllers.get(namespace)
        if controller is None:
            wide = self._process.wide_checks
            controller = self._controllers[namespace] = build_controller(
                self._process,
                namespace,
                self._client,
                self._reader,
                get_cached=wide.get_watched,
                find_lack=wide.find_lack,
                observe=self._observe,
                is_elsewhere=True,
            )
        with bind_keys(namespace=namespace):
            return await controller.reconcile(name)

    def _observe(self, check: HealthCheck) -> CheckSnapshot:
        selected = [
            (checks, rollout)
            for checks in self._process.health_checks
            for rollout in checks.list_selecting(check)
        ]
        return take_snapshot(self._process, self._client, selected)

    def _on_check(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake a check that has changed; what others write matters where it has to be reset."""
        for check in list_decoded((new or old,), HealthCheck):
            if old is not None and new is not None and _get_wish(old) == _get_wish(new):
                if self._needs_reset(check):
                    self._queue.add_after((check.head.namespace, check.head.name), RECHECK)
            else:
                self._add(check)

    def _needs_reset(self, check: HealthCheck) -> bool:
        if self._process.wide_checks.find_lack():
            return False
        seen = self._observe(check)
        return find_reset(check, seen.rollouts, seen.namespaces, seen.now) is not None

    def _wake_all(self) -> None:
        for check in self._process.wide_checks.list_checks():
            self._add(check)

    def _add(self, check: HealthCheck) -> None:
        if self._is_other(check.head.namespace):
            self._queue.add((check.head.namespace, check.head.name))

    def _is_other(self, namespace: str) -> bool:
        return all(checks.namespace != namespace for checks in self._process.health_checks)


def build_controller(
    process: Process,
    namespace: str,
    client: ApiClient,
    reader: CheckReader,
    *,
    get_cached: GetCached[WatchedObject],
    find_lack: Callable[[], str | None],
    observe: Callable[[HealthCheck], CheckSnapshot],
    is_elsewhere: bool = False,
) -> CheckController:
    """Return the controller of the HealthChecks of a namespace."""
    newest = NewestObjects(get_cached, namespace, client, DECODERS["HealthCheck"])
    longest = process.settings.reconcile_interval
    return CheckController(
        CheckContext(
            newest=newest,
            statuses=StatusWriter(client, HEALTH_CHECKS, newest),
            reader=reader,
            observe=observe,
            find_lack=find_lack,
            attempts=Attempts(process.clock, longest=longest, rng=process.rng),
            is_elsewhere=is_elsewhere,
            keeps_to_namespace=process.settings.keeps_to_namespace,
        )
    )


def take_snapshot(
    process: Process, client: ApiClient, selected: Sequence[tuple[NamespaceChecks, ReleaseRollout]]
) -> CheckSnapshot:
    """Return the Rollouts that may select a check, each with what knows its namespace.

    Labels of namespaces are empty where they may not be read, as Rollouts say. Raises Unreachable.
    """
    namespaces: Mapping[str, Labels] = {}
    wide = process.wide_checks
    if any(selects_namespaces(rollout) for _, rollout in selected) and not wide.find_problem():
        namespaces = wide.map_labels()
    return CheckSnapshot(
        now=process.refine_time(client),
        rollouts=tuple(rollout for _, rollout in selected),
        namespaces=namespaces,
        waits={rollout.head.key: checks.describe_wait(rollout) for checks, rollout in selected},
    )


def find_stall(process: Process, place: FluxReference) -> CheckFinding | None:
    """Return why a group, of any namespace that this process acts for, waits for a person."""
    for checks in process.health_checks:
        if checks.namespace == place.namespace:
            return checks.find_stall(place.name)
    return None


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
    # What is elsewhere is not followed: it is looked at once Flux is through.
    is_wide = selects_namespaces(rollout)
    wait = current.bake_status_message if current is not None and is_wide else None
    return entry, retry, wait, rollout.spec.checks, rollout.waits_for_flux
