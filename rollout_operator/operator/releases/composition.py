"""Composition of release rollouts in one namespace.

Built only where they are switched on. Any of their kinds may be missing, or come and go.
"""

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.objects import list_decoded
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.operator.releases.caches import build_caches, follow
from rollout_operator.operator.releases.checks import HealthChecks
from rollout_operator.operator.releases.described import DescribedReleases
from rollout_operator.operator.releases.rollouts import RolloutReleases
from rollout_operator.operator.releases.schedules import NamespacedSchedules
from rollout_operator.telemetry.releases import show_releases


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
            NamespacedSchedules(context, self._caches),
            HealthChecks(context, self._caches),
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
