"""Composition of release rollouts in one namespace: caches, controllers, and what describes them.

Built only where they are switched on. Any of their kinds may be missing, or come and go. Statuses
say what the process decided that acts: for a description nothing is requested of the API server.
"""

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.releases.caches import ReleaseCaches, follow_kind
from rollout_operator.controllers.releases.schedules.observe import ScheduleKinds
from rollout_operator.kube import release_kinds as kinds
from rollout_operator.kube.api import ApiClient, Resource
from rollout_operator.kube.cache.followed import FollowedKind
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.described.releases import (
    HealthCheckDescription,
    ReleaseDescription,
    ScheduleDescription,
)
from rollout_operator.model.objects import Unreadable, list_decoded
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.objects import ReleaseObjects
from rollout_operator.model.releases.plan import FluxTarget
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseGate, ReleaseRollout
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.operator.releases.checks import HealthChecks
from rollout_operator.operator.releases.rollouts import RolloutReleases
from rollout_operator.operator.releases.schedules import Schedules
from rollout_operator.planning.description.releases.gates import describe_schedule, order_schedules
from rollout_operator.planning.description.releases.rollouts import (
    describe_check,
    describe_release,
    describe_unreadable_release,
)
from rollout_operator.planning.releases.health import selects_namespaces
from rollout_operator.telemetry.releases import show_releases


def build_caches(context: Context, client: ApiClient) -> ReleaseCaches:
    """Return the caches of all kinds; this client fills them once `follow` is called."""
    make_informer = partial(context.make_informer, client)

    def follow_here(*resources: Resource) -> FollowedKind:
        return follow_kind(resources, client, make_informer, context.namespace)

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


def follow(caches: ReleaseCaches, context: Context, tasks: TaskStack) -> None:
    """Begin to follow all kinds."""
    for kind in caches.list_kinds():
        tasks.start(f"{kind.kind} informer", kind.run(context.clock))


class DescribedReleases:
    """Describes the Rollouts, schedules and HealthChecks of one namespace."""

    def __init__(self, context: Context, caches: ReleaseCaches, rollouts: RolloutReleases) -> None:
        self._context = context
        self._caches = caches
        self._rollouts = rollouts

    def describe_releases(self) -> Iterator[ReleaseDescription]:
        """Yield all Rollouts by name."""
        common = ReleaseObjects(schedules=self._list_schedules(), checks=self._list_checks())
        for watched in sorted(self._caches.rollouts.store.list_all(), key=lambda each: each.name):
            if isinstance(watched, Unreadable):
                yield describe_unreadable_release(watched)
            elif isinstance(watched.decoded, ReleaseRollout | RefusedRelease):
                yield self._describe_release(watched.decoded, common)

    def describe_schedules(self) -> Iterator[ScheduleDescription]:
        """Yield the schedules of the namespace, and those of the cluster."""
        return map(describe_schedule, self._list_schedules())

    def describe_checks(self) -> Iterator[HealthCheckDescription]:
        """Yield all HealthChecks by name."""
        labels = self._context.process.wide_checks.map_labels()
        for check in self._list_checks():
            yield describe_check(check, self._list_selecting(check), labels)

    def _list_selecting(self, check: HealthCheck) -> Iterator[ReleaseRollout]:
        """Yield the Rollouts that may select a check, those of other namespaces as well."""
        yield from self._caches.list_selecting(check)
        for other in self._context.process.health_checks:
            for rollout in other.list_selecting(check):
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
                wide = self._context.process.wide_checks
                checks, labels = wide.list_checks(), wide.map_labels()
                objects = replace(objects, checks=checks, namespaces=labels)
        return describe_release(rollout, objects, targets, self._rollouts.get_error(name))

    def _list_checks(self) -> tuple[HealthCheck, ...]:
        checks = list_decoded(self._caches.checks.store.list_all(), HealthCheck)
        return tuple(sorted(checks, key=lambda check: check.head.name))

    def _list_schedules(self) -> tuple[ScheduleObject, ...]:
        kinds = self._context.process.followed_schedules
        schedules = (
            schedule
            for kind in kinds
            for schedule in list_decoded(kind.store.list_all(), ScheduleObject)
        )
        here = ("", self._context.namespace)
        return order_schedules(each for each in schedules if each.head.namespace in here)


class Releases(Feature):
    """All controllers of releases, and their shared caches."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._caches = build_caches(context, context.open("following releases", Priority.LIST))
        caches = self._caches
        show_releases(
            context.metrics.registry,
            lambda: list_decoded(caches.rollouts.store.list_all(), ReleaseRollout, RefusedRelease),
            lambda: list_decoded(caches.checks.store.list_all(), HealthCheck),
        )
        rollouts = RolloutReleases(context, self._caches)
        self.describer = DescribedReleases(context, self._caches, rollouts)
        self._controllers = (
            rollouts,
            self._build_schedules(),
            HealthChecks(context, self._caches),
        )

    def _build_schedules(self) -> Schedules:
        context, caches = self._context, self._caches
        context.process.followed_schedules.append(caches.schedules)
        return Schedules(
            context.process,
            context.open("keeping gates", Priority.READ),
            kinds.ROLLOUT_SCHEDULES,
            ScheduleKinds(schedules=caches.schedules, rollouts=caches.rollouts, gates=caches.gates),
            context.events.report,
            namespace=context.namespace,
        )

    @property
    def busy(self) -> int:
        """Return how many objects are reconciled now."""
        return sum(controller.busy for controller in self._controllers)

    def follow(self, tasks: TaskStack) -> None:
        """Begin to follow all that releases depend on."""
        follow(self._caches, self._context, tasks)

    def start(self, tasks: TaskStack) -> None:
        """Begin to act."""
        for controller in self._controllers:
            controller.start(tasks)

    def close(self) -> None:
        """Begin nothing new from now on."""
        for controller in self._controllers:
            controller.close()

    async def finish(self) -> None:
        """Wait until no object is reconciled."""
        for controller in self._controllers:
            await controller.finish()
