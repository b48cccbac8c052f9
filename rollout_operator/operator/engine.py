"""All features of one namespace: which start with it, and which stop.

When that happens is decided in `fleet`, for all namespaces of the process.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.flags import Config
from rollout_operator.model.description import Description
from rollout_operator.model.event import EventRecord
from rollout_operator.operator.budgets import Budgets
from rollout_operator.operator.context import Context
from rollout_operator.operator.describe import Describer
from rollout_operator.operator.process import Feature, Process, Telemetry
from rollout_operator.operator.rollout import Rollouts
from rollout_operator.operator.scaling import Scaling
from rollout_operator.operator.shadow import Shadow

if TYPE_CHECKING:
    from rollout_operator.operator.policies import Policies
    from rollout_operator.operator.releases.composition import Releases
    from rollout_operator.operator.reviews import Reviews


ReviewSource = Callable[[Context, Budgets], "Reviews"]
"""Makes the reviews of a namespace."""


class Engine:
    """All features of one namespace but the servers, which it shares."""

    def __init__(self, settings: Config, process: Process, telemetry: Telemetry) -> None:
        """`settings` name the namespace, `telemetry` takes its metrics and states."""
        self._context = context = Context(settings, process, telemetry)
        self._budgets = Budgets(context)
        is_shadow = settings.is_shadow
        self._policies = self._build_policies()
        self._releases = self._build_releases(settings)
        self._rollouts = (Shadow if is_shadow else Rollouts)(context, self._budgets.arbiter)
        self._features: tuple[Feature, ...] = (self._rollouts,)
        if is_shadow:
            self._budgets.close()  # grants are not its own to release
        else:
            scaling = Scaling(context, self._budgets.process)
            self._features = (self._rollouts, self._budgets, scaling)
        if self._policies is not None:
            self._features = (*self._features, self._policies)
            self._policies.on_change(self._rollouts.wake_all)
        if self._releases is not None:
            self._features = (*self._features, self._releases)
        self._budgets.informer.on_change(lambda old, new: self._rollouts.wake_all())
        self._reviews: Reviews | None = None
        self._describer = Describer(
            context,
            self._budgets,
            None if self._policies is None else self._policies.describe,
            None if self._releases is None else self._releases.describer,
        )
        self.health = context.health
        self.known = asyncio.Event()
        """Set once caches are filled."""
        self.ready = asyncio.Event()
        """Set once caches are filled, reviews are served and groups are reconciled."""
        context.health.part(
            "workers", is_ready=lambda: None if self.ready.is_set() else "not started"
        )

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        return self._context.namespace

    @property
    def is_leading(self) -> bool:
        """Return whether this process decides."""
        return self._context.is_leading

    @property
    def is_empty(self) -> bool:
        """Return whether no StatefulSet and no pod has been seen in it."""
        return not (len(self._context.sets) or len(self._context.pods))

    @property
    def busy(self) -> int:
        """Return how many groups are worked on now."""
        also = (self._policies, self._releases)
        return self._rollouts.busy + sum(part.busy for part in also if part is not None)

    async def describe(self) -> Description:
        """Return the namespace as this process knows it, for people; at any time."""
        return await self._describer.describe()

    def report(self, event: EventRecord) -> None:
        """Have an Event written about an object that is no namespace's own."""
        self._context.events.report(event)

    def add_reviews(self, build: ReviewSource) -> None:
        """Decide reviews as well, by those that `build` makes."""
        self._reviews = build(self._context, self._budgets)

    def add_feature(self, build: Callable[[Context, Budgets], Feature]) -> None:
        """Have another feature, which `build` makes, work once this process acts."""
        self._features = (*self._features, build(self._context, self._budgets))

    def follow(self, tasks: TaskStack) -> None:
        """Begin to fill the caches."""
        self._context.events.start(tasks)
        tasks.start("statefulset informer", self._context.set_informer.run())
        tasks.start("pod informer", self._context.pod_informer.run())
        self._budgets.follow(tasks)
        for part in (self._policies, self._releases):
            if part is not None:
                part.follow(tasks)

    async def wait_known(self) -> None:
        """Wait until the caches are filled."""
        await self._context.wait_known()
        await self._budgets.wait_known()
        self._context.departed.begin()
        self.known.set()

    def lead(self, tasks: TaskStack) -> None:
        """Act from now on; the caches must be filled."""
        if self._reviews is not None:
            self._reviews.lead(tasks)
        for feature in self._features:
            feature.start(tasks)
        self._context.has_begun = True

    def close(self) -> None:
        """Begin nothing new from now on."""
        for feature in self._features:
            feature.close()

    async def finish(self) -> None:
        """Wait until nothing is worked on."""
        for feature in self._features:
            await feature.finish()

    async def flush(self) -> None:
        """Write the last Events, once the tasks have ended."""
        await self._context.events.flush()

    def _build_policies(self) -> "Policies | None":
        """Return the feature for MultiAZRollouts, where they are switched on."""
        if not self._context.process.drives_policies:
            return None
        # Not before: most operators never need it.
        from rollout_operator.operator.policies import Policies

        return Policies(self._context, self._budgets.arbiter)

    def _build_releases(self, settings: Config) -> "Releases | None":
        """Return the feature for releases, where they are switched on."""
        if not settings.drives_releases:
            return None
        from rollout_operator.operator.releases.composition import Releases

        return Releases(self._context)
