"""The releases of a namespace as one process knows them, for its description.

Statuses say what the process decided that acts. Nothing is requested of the API server for a
description.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from rollout_operator.controllers.releases.caches import ReleaseCaches
from rollout_operator.model.described.releases import (
    HealthCheckDescription,
    ReleaseDescription,
    ScheduleDescription,
)
from rollout_operator.model.objects import Unreadable, list_decoded
from rollout_operator.model.releases.gate import ReleaseGate
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.operator.context import Context
from rollout_operator.operator.releases.rollouts import RolloutReleases
from rollout_operator.planning.description.releases.checks import describe_check
from rollout_operator.planning.description.releases.gates import describe_schedule
from rollout_operator.planning.description.releases.rollouts import (
    RelatedObjects,
    describe_release,
    describe_unreadable_release,
)
from rollout_operator.planning.releases.health import selects_namespaces


class DescribedReleases:
    """Describes the Rollouts, schedules and HealthChecks of one namespace."""

    def __init__(self, context: Context, caches: ReleaseCaches, rollouts: RolloutReleases) -> None:
        self._context = context
        self._caches = caches
        self._rollouts = rollouts

    def describe_releases(self) -> Iterator[ReleaseDescription]:
        """Yield all Rollouts by name."""
        common = RelatedObjects(schedules=self._list_schedules(), checks=self._list_checks())
        for watched in sorted(self._caches.rollouts.store.list_all(), key=lambda each: each.name):
            if isinstance(watched, Unreadable):
                yield describe_unreadable_release(watched)
            elif isinstance(watched.decoded, ReleaseRollout | RefusedRelease):
                yield describe_release(watched.decoded, self._relate(watched.decoded, common))

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

    def _relate(
        self, rollout: ReleaseRollout | RefusedRelease, common: RelatedObjects
    ) -> RelatedObjects:
        name = rollout.head.name
        gates = self._caches.gates.store.list_tagged(name)
        related = replace(
            common,
            gates=list_decoded(gates, ReleaseGate),
            error=self._rollouts.get_error(name),
        )
        if isinstance(rollout, RefusedRelease):
            return related
        related = replace(related, targets=self._rollouts.list_targets(rollout))
        if not selects_namespaces(rollout):
            return related
        wide = self._context.process.wide_checks
        return replace(related, checks=wide.list_checks(), namespaces=wide.map_labels())

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
        own = [
            schedule
            for schedule in schedules
            if schedule.head.namespace in ("", self._context.namespace)
        ]
        return tuple(
            sorted(own, key=lambda schedule: (schedule.head.namespace == "", schedule.head.name))
        )
