"""Release rollouts: what wakes the controllers of Rollouts, HealthChecks and schedules.

Imported only where releases are switched on. Any of the kinds may be missing, or come and go. A
Rollout may select HealthChecks of namespaces that this process does not watch: one part serves them
all. ClusterRolloutSchedules have one controller for all namespaces of the process.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.flags import AS_ANNOUNCED, REGISTRY
from rollout_operator.config.flags import KUBERIK as AS_KUBERIK
from rollout_operator.controllers.context import Context, Feature, Process
from rollout_operator.controllers.worker import RECHECK, Attempts, Controller, GetCached, Result
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import ApiClient, JsonObject, Resource
from rollout_operator.kube.connection import choose_proxy
from rollout_operator.kube.kinds import WatchedKind
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.responses import KindCatalog
from rollout_operator.model.budget import EventRecord
from rollout_operator.model.decode.installation import decode_allowed
from rollout_operator.model.description import (
    HealthCheckDescription,
    ReleaseDescription,
    ScheduleDescription,
)
from rollout_operator.model.names import DecodeError, Denied, GroupName, NotFound, Unreachable
from rollout_operator.model.objects import AnyWatched, Unreadable, WatchedObject, list_decoded
from rollout_operator.releases.controller import (
    FluxObjects,
    ReleaseController,
    ReleaseObserver,
    ReleaseReports,
    gather_targets,
)
from rollout_operator.releases.health_checks import (
    CheckController,
    CheckReader,
    CheckSnapshot,
    NamespaceChecks,
    SharedReleases,
)
from rollout_operator.releases.metrics import ReleaseCounters, show_releases, show_schedules
from rollout_operator.releases.model.plan import (
    CheckClass,
    CheckFinding,
    FluxTarget,
    HealthCheck,
    HealthCheckStatus,
    ReleaseObjects,
)
from rollout_operator.releases.model.releases import (
    KUBERIK,
    OURS,
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseRollout,
    ScheduleObject,
    ScheduleStatus,
)
from rollout_operator.releases.planning.bake import (
    describe_flux_wait,
    selects_namespaces,
    takes_check,
)
from rollout_operator.releases.planning.describe import (
    describe_check,
    describe_release,
    describe_schedule,
    describe_unreadable_release,
    order_schedules,
)
from rollout_operator.releases.planning.health_checks import describe_stall, find_class, find_reset
from rollout_operator.releases.planning.schedules import list_by_gate, list_by_rollout
from rollout_operator.releases.registry import RESULTS, RegistryClient, RegistryExchange
from rollout_operator.releases.schedules import (
    FollowedSchedules,
    KeptGates,
    ScheduleController,
    ScheduleKinds,
    ScheduleObserver,
    ScheduleReader,
    read_gated,
    report_schedule,
)
from rollout_operator.releases.sources import (
    ReleaseCaches,
    ReleaseLookUps,
    build_wide_checks,
    follow_kind,
    list_concerned,
)
from rollout_operator.telemetry.logs import bind_keys

# Objects of a kind that are reconciled at a time; each mostly waits for the API server.
_RELEASE_WORKERS: Final = 16
_CHECK_WORKERS: Final = 8
_SCHEDULE_WORKERS: Final = 4
# For one request to a registry, with its whole answer.
_REQUEST_LIMIT: Final = timedelta(seconds=15)
# Outcomes of look-ups that say nothing about a registry.
_OTHER_RESULTS: Final = ("invalid", "cancelled")


def get_compat(system: str, order: str) -> ReleaseCompat:
    """Return the rules for the values of `-releases.compat` and `-releases.order` (RELB-03)."""
    compat = KUBERIK if system == AS_KUBERIK else OURS
    if order == AS_ANNOUNCED:
        return replace(compat, compares_versions=False)
    return compat


def share_releases(process: Process) -> SharedReleases:
    """Return what all namespaces share of releases."""
    return process.share(_build_shared)


def _build_shared(process: Process) -> SharedReleases:
    client = process.open("following health of the cluster", Priority.LIST)
    return SharedReleases(build_wide_checks(client, process.make_informer))


C = TypeVar("C", ReleaseController, CheckController, ScheduleController)


def _make_attempts(process: Process) -> Attempts:
    longest = process.settings.reconcile_interval
    return Attempts(process.clock, longest=longest, rng=process.rng)


class _Named(Feature, Generic[C]):
    """Reconciles the objects of a kind by their names, and all of them once it acts."""

    _controller: C

    def __init__(self, kind: WatchedKind, span: str, count: int, rng: Callable[[], float]) -> None:
        self._kind = kind
        self._queue: Controller[str] = Controller(span, self._reconcile, workers=count, rng=rng)
        self.controllers = (self._queue,)

    async def _reconcile(self, name: str) -> Result:
        return await self._controller.reconcile(name)

    def start(self, tasks: TaskStack) -> None:
        self._wake_all()
        super().start(tasks)

    def _wake_all(self) -> None:
        for watched in self._kind.store.list_all():
            self._queue.add(watched.name)


class RolloutReleases(_Named[ReleaseController]):
    """The controller of the Rollouts of one namespace, and their look-ups in registries."""

    def __init__(self, context: Context, caches: ReleaseCaches) -> None:
        super().__init__(caches.rollouts, "reconcile release", _RELEASE_WORKERS, context.rng)
        self._context = context
        self._caches = caches
        self._counters = ReleaseCounters(
            context.metrics.registry, context.namespace, ("ok", *RESULTS.values(), *_OTHER_RESULTS)
        )
        self._exchange = RegistryExchange(
            context.clock, _REQUEST_LIMIT, lambda url: choose_proxy(url, os.environ)
        )
        self._flux = FluxObjects(
            context.open("writing objects of Flux", Priority.READ),
            context.namespace,
            caches.oci_repositories,
            caches.kustomizations,
        )
        reads_registries = context.settings.release_metadata == REGISTRY
        self._look_ups = self._build_look_ups() if reads_registries else None
        self._controller = self._build_controller()
        for kind in caches.list_kinds():
            kind.on_change(self._on_schedule if kind is caches.schedules else self._on_change)
            kind.on_news(self._wake_all)
        share_releases(context.process).checks.on_change(self._on_check, self._wake_wide)
        if (wide := share_releases(context.process).cluster_schedules) is not None:
            wide.schedules.on_change(self._on_schedule)
            wide.schedules.on_news(self._wake_all)
            if wide.namespaces is not None:
                wide.namespaces.on_change(self._on_namespace)
                wide.namespaces.on_news(self._wake_all)

    def start(self, tasks: TaskStack) -> None:
        super().start(tasks)
        if self._look_ups is not None:
            tasks.start("registry connections", self._keep_connections())
            look_ups = self._look_ups.controller
            tasks.start(look_ups.name, look_ups.run())

    def close(self) -> None:
        super().close()
        if self._look_ups is not None:
            self._look_ups.controller.close()

    def list_targets(self, rollout: ReleaseRollout) -> tuple[FluxTarget, ...]:
        """Return the known places that carry the tag of a Rollout."""
        return gather_targets(rollout, self._flux.list_newest)

    def get_error(self, name: str) -> str:
        """Return why the last reconcile of a Rollout failed; empty if it did not."""
        return self._controller.get_error(name)

    def _build_look_ups(self) -> ReleaseLookUps:
        context = self._context
        return ReleaseLookUps(
            RegistryClient(self._exchange, context.clock, self._counters.count_request),
            context.open("reading pull secrets", Priority.READ),
            context.clock,
            self._queue.add_after,
            rng=context.rng,
        )

    def _build_controller(self) -> ReleaseController:
        context, caches = self._context, self._caches
        writing = context.open("recording releases", Priority.READ)
        settings, process = context.settings, context.process
        shared = share_releases(process)
        compat = get_compat(settings.release_compat, settings.release_order)
        observer = ReleaseObserver(
            namespace=context.namespace,
            caches=caches,
            flux=self._flux,
            look_ups=self._look_ups,
            reader=writing,
            wide=shared.checks,
            schedules=FollowedSchedules(
                own=caches.schedules,
                wide=shared.cluster_schedules,
                reader=ScheduleReader(compat),
            ),
            now=partial(process.refine_time, writing),
            compat=compat,
            verifies_wanted=settings.verifies_wanted,
            keeps_to_namespace=settings.keeps_to_namespace,
        )
        return ReleaseController(
            client=writing,
            resource=kinds.ROLLOUTS,
            namespace=context.namespace,
            get_cached=caches.rollouts.store.get,
            find_lack=observer.find_lack,
            attempts=_make_attempts(process),
            observer=observer,
            flux=self._flux,
            reports=ReleaseReports(context.events.report, self._counters),
        )

    def _on_change(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake the Rollouts that a change concerns, and those that it concerned before."""
        for decoded in list_decoded((old, new), object):
            for name in list_concerned(decoded, self._caches):
                self._queue.add(name)

    def _on_schedule(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake the Rollouts that a schedule held or will hold, unless only its status changed."""
        before, after = _drop_schedule_status(old), _drop_schedule_status(new)
        if before is None or before != after:
            self._on_change(old, new)

    def _on_namespace(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake all Rollouts: schedules of the cluster select namespaces by label."""
        if self._context.namespace in {version.name for version in (old, new) if version}:
            self._wake_all()

    def _on_check(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake the Rollouts that may select a HealthCheck of another namespace."""
        checks = list_decoded((old, new), HealthCheck)
        self._wake_wide(lambda rollout: any(takes_check(rollout, check) for check in checks))

    def _wake_wide(self, concerns: Callable[[ReleaseRollout], bool] = lambda rollout: True) -> None:
        for rollout in self._caches.list_rollouts():
            if selects_namespaces(rollout) and concerns(rollout):
                self._queue.add(rollout.head.name)

    async def _keep_connections(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self._exchange.close()


def _drop_schedule_status(schedule: AnyWatched | None) -> ScheduleObject | None:
    for decoded in list_decoded([schedule], ScheduleObject):
        return replace(decoded, status=ScheduleStatus())
    return None


class _HealthChecks(_Named[CheckController]):
    """The controller of the HealthChecks of one namespace."""

    def __init__(self, context: Context, caches: ReleaseCaches) -> None:
        super().__init__(caches.checks, "reconcile health check", _CHECK_WORKERS, context.rng)
        self._context = context
        self._caches = caches
        self._shared = share_releases(context.process)
        self._client = context.open("evaluating health", Priority.LIST)
        self._compat = get_compat(context.settings.release_compat, context.settings.release_order)
        self._controller = _build_check_controller(
            context.process,
            context.namespace,
            self._client,
            CheckReader(
                self._client,
                KindCatalog(self._client, context.clock),
                self._shared.find_stall,
                self._compat,
            ),
            get_cached=caches.checks.store.get,
            find_lack=caches.find_lack,
            observe=self._observe,
        )
        self._shared.namespaces[context.namespace] = self
        caches.checks.on_change(self._on_check)
        caches.rollouts.on_change(self._on_rollout)
        caches.kustomizations.on_change(self._on_kustomization)
        caches.oci_repositories.on_change(lambda old, new: self._wake_held())

    def list_selecting(self, check: HealthCheck) -> list[ReleaseRollout]:
        return [
            rollout for rollout in self._caches.list_selecting(check) if selects_namespaces(rollout)
        ]

    def wake(self, rollouts: Sequence[ReleaseRollout]) -> None:
        for check in list_decoded(self._caches.checks.store.list_all(), HealthCheck):
            if any(takes_check(rollout, check) for rollout in rollouts):
                self._queue.add(check.head.name)

    def describe_wait(self, rollout: ReleaseRollout) -> str:
        current = rollout.status.current
        if current is None or not current.is_active:
            return ""
        targets = gather_targets(rollout, self._caches.list_flux)
        return describe_flux_wait(rollout, current.version.tag, targets, self._compat)

    def _observe(self, check: HealthCheck) -> CheckSnapshot:
        own: list[tuple[NamespaceChecks, ReleaseRollout]] = [
            (self, rollout) for rollout in self._caches.list_selecting(check)
        ]
        others = (each for each in self._shared.list_selecting(check) if each[0] is not self)
        return self._shared.observe(
            self._context.process.refine_time(self._client), [*own, *others]
        )

    def find_stall(self, group: str) -> CheckFinding | None:
        state = self._context.group_states.find(GroupName(group))
        return None if state is None else describe_stall(state.plan.waits, state.since)

    def _on_check(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake a changed check, a moment later if another client wrote its status.

        Such a status may precede a deployment or contradict an evaluation. The moment keeps a
        client with a slow clock, which answers each reset at once, from making this a busy loop.
        """
        if old is not None and new is not None and _is_only_status(old, new):
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
            self._shared.wake(wide)

    def _on_kustomization(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        names = {version.name for version in (old, new) if version is not None}
        for check in list_decoded(self._caches.checks.store.list_all(), HealthCheck):
            own = f"{check.head.namespace}/"
            named = check.named.get(CheckClass.KUSTOMIZATION, "").removeprefix(own)
            if find_class(check) is not None and named in names:
                self._queue.add(check.head.name)
        self._wake_held()

    def _wake_held(self) -> None:
        for name in self._controller.held:
            self._queue.add(name)


class OtherHealthChecks(Feature):
    """The HealthChecks of all other namespaces that Rollouts select.

    The objects of these checks are not followed: checks are evaluated at their interval, and as
    soon as a Rollout waits for nothing else.
    """

    def __init__(self, process: Process) -> None:
        self._process, self._shared = process, share_releases(process)
        self._client = process.open("evaluating health elsewhere", Priority.LIST)
        compat = get_compat(process.settings.release_compat, process.settings.release_order)
        catalog = KindCatalog(self._client, process.clock)
        self._reader = CheckReader(self._client, catalog, self._shared.find_stall, compat)
        self._controllers: dict[str, CheckController] = {}
        self._queue: Controller[tuple[str, str]] = Controller(
            "reconcile health check", self._reconcile, workers=_CHECK_WORKERS, rng=process.rng
        )
        self.controllers = (self._queue,)
        self._shared.wake_others = self._wake
        self._shared.checks.on_change(self._on_check, self._wake_all)

    async def follow(self) -> None:
        await self._shared.checks.run(self._process.clock)

    def start(self, tasks: TaskStack) -> None:
        self._wake_all()
        super().start(tasks)

    def _wake(self, rollouts: Sequence[ReleaseRollout]) -> None:
        for check in self._shared.checks.list_checks():
            if any(takes_check(rollout, check) for rollout in rollouts):
                self._add(check)

    async def _reconcile(self, key: tuple[str, str]) -> Result:
        namespace, name = key
        wide = self._shared.checks
        is_gone = wide.get_watched(namespace, name) is None
        if not self._is_other(namespace) or (
            is_gone and all(check.head.namespace != namespace for check in wide.list_checks())
        ):
            self._controllers.pop(namespace, None)
            return Result()
        controller = self._controllers.get(namespace)
        if controller is None:
            controller = self._controllers[namespace] = _build_check_controller(
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
        now = self._process.refine_time(self._client)
        return self._shared.observe(now, [*self._shared.list_selecting(check)])

    def _on_check(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake a changed check; a change of its status alone counts if it must be reset."""
        for check in list_decoded((new or old,), HealthCheck):
            if old is None or new is None or not _is_only_status(old, new):
                self._add(check)
            elif self._needs_reset(check):
                self._queue.add_after((check.head.namespace, check.head.name), RECHECK)

    def _needs_reset(self, check: HealthCheck) -> bool:
        if self._shared.checks.find_lack():
            return False
        seen = self._observe(check)
        return find_reset(check, seen.rollouts, seen.namespaces, seen.now) is not None

    def _wake_all(self) -> None:
        for check in self._shared.checks.list_checks():
            self._add(check)

    def _add(self, check: HealthCheck) -> None:
        if self._is_other(check.head.namespace):
            self._queue.add((check.head.namespace, check.head.name))

    def _is_other(self, namespace: str) -> bool:
        return namespace not in self._shared.namespaces


def _build_check_controller(
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
    return CheckController(
        client=client,
        resource=kinds.HEALTH_CHECKS,
        namespace=namespace,
        get_cached=get_cached,
        find_lack=find_lack,
        attempts=_make_attempts(process),
        reader=reader,
        observe=observe,
        is_elsewhere=is_elsewhere,
        keeps_to_namespace=process.settings.keeps_to_namespace,
    )


def _is_only_status(old: AnyWatched, new: AnyWatched) -> bool:
    """Return whether nothing but the status of a HealthCheck differs, if anything does."""
    return _drop_check_status(old) == _drop_check_status(new)


def _drop_check_status(watched: AnyWatched) -> object:
    for check in list_decoded((watched,), HealthCheck):
        return replace(check, status=HealthCheckStatus())
    return watched


def _get_cause(rollout: ReleaseRollout) -> object:
    """Return the parts of a Rollout that restart its checks or make them wait."""
    current = rollout.status.current
    entry = None if current is None else (current.id, current.version.tag, current.timestamp)
    retry = None if current is None else (current.last_retry_timestamp, current.bake_status)
    # Objects elsewhere are not followed: they are checked once the wait for Flux is over.
    is_wide = selects_namespaces(rollout)
    wait = current.bake_status_message if current is not None and is_wide else None
    return entry, retry, wait, rollout.spec.checks, rollout.waits_for_flux


class _Schedules(_Named[ScheduleController]):
    """The controller of the schedules of one namespace, or of the cluster."""

    def __init__(
        self,
        process: Process,
        client: ApiClient,
        resource: Resource,
        followed: ScheduleKinds,
        record: Callable[[EventRecord], None],
        *,
        namespace: str = "",
    ) -> None:
        """`namespace` is empty for schedules of the cluster."""
        super().__init__(followed.schedules, "reconcile schedule", _SCHEDULE_WORKERS, process.rng)
        self._process, self._client, self._resource = process, client, resource
        self._followed = followed
        settings = process.settings
        gates = KeptGates(client, followed.gates, process.clock)
        self._controller = ScheduleController(
            client=client,
            resource=resource,
            namespace=namespace,
            get_cached=followed.schedules.store.get,
            find_lack=followed.find_lack,
            attempts=_make_attempts(process),
            observer=ScheduleObserver(
                kinds=followed,
                gates=gates,
                now=partial(process.refine_time, client),
                compat=get_compat(settings.release_compat, settings.release_order),
            ),
            gates=gates,
            report=partial(report_schedule, record),
        )
        followed.schedules.on_change(self._on_schedule)
        followed.rollouts.on_change(self._on_rollout)
        followed.gates.on_change(self._on_gate)
        if followed.namespaces is not None:
            followed.namespaces.on_change(lambda old, new: self._wake_all())

    def _on_schedule(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        for version in (old, new):
            if version is not None:
                self._queue.add(version.name)

    def _on_gate(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        for gate in list_decoded((old, new), ReleaseGate):
            for name in list_by_gate(self._resource.kind, gate):
                self._queue.add(name)

    def _on_rollout(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        """Wake the schedules that select a Rollout, unless only its status changed."""
        before, after = read_gated(old), read_gated(new)
        if before == after:
            return
        versions = [version for version in (before, after) if version is not None]
        schedules = list_decoded(self._kind.store.list_all(), ScheduleObject)
        for name in list_by_rollout(schedules, versions):
            self._queue.add(name)


def build_caches(context: Context, client: ApiClient) -> ReleaseCaches:
    def follow_here(*resources: Resource) -> WatchedKind:
        return follow_kind(resources, client, context.make_informer, context.namespace)

    return ReleaseCaches(
        rollouts=follow_here(kinds.ROLLOUTS),
        gates=follow_here(kinds.ROLLOUT_GATES),
        checks=follow_here(kinds.HEALTH_CHECKS),
        policies=follow_here(*kinds.IMAGE_POLICIES),
        image_repositories=follow_here(*kinds.IMAGE_REPOSITORIES),
        oci_repositories=follow_here(*kinds.OCI_REPOSITORIES),
        kustomizations=follow_here(*kinds.KUSTOMIZATIONS),
        schedules=follow_here(kinds.ROLLOUT_SCHEDULES),
    )


class Releases(Feature):
    """All controllers of releases, and the caches that they share."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._caches = build_caches(context, context.open("following releases", Priority.LIST))
        caches = self._caches
        show_releases(
            context.metrics.registry,
            lambda: list_decoded(caches.rollouts.store.list_all(), ReleaseRollout, RefusedRelease),
            lambda: list_decoded(caches.checks.store.list_all(), HealthCheck),
        )
        self._rollouts = RolloutReleases(context, caches)
        self._features = (
            self._rollouts,
            self._build_schedules(),
            _HealthChecks(context, caches),
        )
        self.controllers = [each for feature in self._features for each in feature.controllers]

    def _build_schedules(self) -> _Schedules:
        context, caches = self._context, self._caches
        share_releases(context.process).schedules.append(caches.schedules)
        return _Schedules(
            context.process,
            context.open("keeping gates", Priority.READ),
            kinds.ROLLOUT_SCHEDULES,
            ScheduleKinds(schedules=caches.schedules, rollouts=caches.rollouts, gates=caches.gates),
            context.events.report,
            namespace=context.namespace,
        )

    def follow(self, tasks: TaskStack) -> None:
        for kind in self._caches.list_kinds():
            tasks.start(f"{kind.kind} informer", kind.run(self._context.clock))

    def start(self, tasks: TaskStack) -> None:
        for feature in self._features:
            feature.start(tasks)

    def close(self) -> None:
        for feature in self._features:
            feature.close()

    def describe_releases(self) -> Iterator[ReleaseDescription]:
        common = ReleaseObjects(schedules=self._list_schedules(), checks=self._list_checks())
        for watched in sorted(self._caches.rollouts.store.list_all(), key=lambda each: each.name):
            if isinstance(watched, Unreadable):
                yield describe_unreadable_release(watched)
            elif isinstance(watched.decoded, ReleaseRollout | RefusedRelease):
                yield self._describe_release(watched.decoded, common)

    def describe_schedules(self) -> Iterator[ScheduleDescription]:
        return map(describe_schedule, self._list_schedules())

    def describe_checks(self) -> Iterator[HealthCheckDescription]:
        labels = share_releases(self._context.process).checks.map_labels()
        for check in self._list_checks():
            yield describe_check(check, self._list_selecting(check), labels)

    def _list_selecting(self, check: HealthCheck) -> Iterator[ReleaseRollout]:
        """Yield the Rollouts of any namespace that may select a check."""
        yield from self._caches.list_selecting(check)
        for _, rollout in share_releases(self._context.process).list_selecting(check):
            if rollout.head.namespace != self._context.namespace:
                yield rollout

    def _describe_release(
        self, rollout: ReleaseRollout | RefusedRelease, common: ReleaseObjects
    ) -> ReleaseDescription:
        name = rollout.head.name
        gates = list_decoded(self._caches.gates.store.list_tagged(name), ReleaseGate)
        objects = replace(common, gates=gates)
        targets: tuple[FluxTarget, ...] = ()
        if isinstance(rollout, ReleaseRollout):
            targets = self._rollouts.list_targets(rollout)
            if selects_namespaces(rollout):
                wide = share_releases(self._context.process).checks
                checks, labels = wide.list_checks(), wide.map_labels()
                objects = replace(objects, checks=checks, namespaces=labels)
        return describe_release(rollout, objects, targets, self._rollouts.get_error(name))

    def _list_checks(self) -> tuple[HealthCheck, ...]:
        checks = list_decoded(self._caches.checks.store.list_all(), HealthCheck)
        return tuple(sorted(checks, key=lambda check: check.head.name))

    def _list_schedules(self) -> tuple[ScheduleObject, ...]:
        kinds = share_releases(self._context.process).schedules
        schedules = (
            schedule
            for kind in kinds
            for schedule in list_decoded(kind.store.list_all(), ScheduleObject)
        )
        here = ("", self._context.namespace)
        return order_schedules(each for each in schedules if each.head.namespace in here)


class ClusterSchedules(_Schedules):
    """The controller of ClusterRolloutSchedules.

    Rollouts, gates and namespaces of the cluster are followed from the first schedule on.
    """

    def __init__(self, process: Process, record: Callable[[EventRecord], None]) -> None:
        client = process.open("keeping gates of the cluster", Priority.READ)
        followed, shared = _follow_cluster(process), share_releases(process)
        super().__init__(process, client, kinds.CLUSTER_ROLLOUT_SCHEDULES, followed, record)
        self._wanted = asyncio.Event()
        shared.cluster_schedules = followed
        followed.schedules.on_change(lambda old, new: self._wanted.set())
        shared.schedules.append(followed.schedules)
        show_schedules(process.metrics.registry, self._list_followed)

    async def follow(self) -> None:
        clock = self._process.clock
        first, *others = self._followed.list_kinds()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first.run(clock), name=f"{first.kind} informer")
            await self._wanted.wait()
            for kind in others:
                tasks.create_task(kind.run(clock), name=f"{kind.kind} informer of the cluster")

    def _list_followed(self) -> Iterator[ScheduleObject]:
        for kind in share_releases(self._process).schedules:
            yield from list_decoded(kind.store.list_all(), ScheduleObject)


def _follow_cluster(process: Process) -> ScheduleKinds:
    client = process.open("following releases of the cluster", Priority.LIST)
    # Each replica checks its rights, whether or not it acts.
    rights = process.open_unfenced("reading rights", Priority.LIST)

    def follow(
        resource: Resource, check: Callable[[], Awaitable[None]] | None = None
    ) -> WatchedKind:
        return follow_kind([resource], client, process.make_informer, check=check)

    return ScheduleKinds(
        schedules=follow(kinds.CLUSTER_ROLLOUT_SCHEDULES, lambda: _check_rights(rights)),
        rollouts=follow(kinds.ROLLOUTS),
        gates=follow(kinds.ROLLOUT_GATES),
        namespaces=follow(kinds.NAMESPACES),
    )


async def _check_rights(client: ApiClient) -> None:
    """Raise NotFound where this process has no right to list ClusterRolloutSchedules.

    It has none to obey then, and a denied list would count as an error.
    """
    wanted, review = kinds.CLUSTER_ROLLOUT_SCHEDULES, kinds.SELF_ACCESS_REVIEWS
    attributes = {"verb": "list", "group": wanted.group, "resource": wanted.plural}
    body: JsonObject = {
        "apiVersion": f"{review.group}/{review.version}",
        "kind": review.kind,
        "spec": {"resourceAttributes": attributes},
    }
    try:
        is_granted = decode_allowed(review.kind, await client.create(review, "", body))
    except NotFound:  # rights cannot be checked: the list shows them
        is_granted = await _may_list(client, wanted)
    except DecodeError as error:
        raise Unreachable(str(error)) from error
    if not is_granted:
        raise NotFound(f"no right to list {wanted.plural}")


async def _may_list(client: ApiClient, resource: Resource) -> bool:
    try:
        await client.fetch_page(resource, "", limit=1)
    except Denied:
        return False
    return True
