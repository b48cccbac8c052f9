"""The life of the operator between its clients: what starts when, and what stops when.

Where the clients lead is decided by who opens them: `operator.main` to a cluster, `lab.world` to a
simulated one. Start: caches filled, reviews served, ready, elected, workers. Stop: not ready,
workers finish the group they are at and begin nothing new, what is being prepared is finished, the
lease is released, reviews get their answer until API servers ask others, the server ends. Each step
waits for a bounded time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final, Protocol

from rollout_operator.aio.tasks import TaskStack, race
from rollout_operator.kube.election import ElectionState
from rollout_operator.model.description import Description
from rollout_operator.model.errors import OperatorError
from rollout_operator.operator.budgets import Budgets
from rollout_operator.operator.context import Clients, Context, EngineSettings, Telemetry
from rollout_operator.operator.describe import Describer
from rollout_operator.operator.rollout import Rollouts
from rollout_operator.operator.scaling import Scaling
from rollout_operator.operator.shadow import Shadow
from rollout_operator.telemetry.logs import log

# The kubelet kills us after 30 s (`terminationGracePeriodSeconds`); this much is for the workers.
FINISH_LIMIT: Final = timedelta(seconds=20)
# Of that for reviews in flight: no less than the default time of one.
REVIEW_LIMIT: Final = timedelta(seconds=12)


class StartError(OperatorError):
    """The operator could not start; the message says what to change."""


class Superseded(OperatorError):
    """Another process leads: this one has to begin anew, with nothing that it remembers."""


class ReviewServer(Protocol):
    """What serves reviews, where that is asked for."""

    async def start(self, stack: AsyncExitStack, tasks: TaskStack) -> None:
        """Serve reviews; the caches must be filled. Raises ConfigError and ApiError."""
        ...

    def lead(self, tasks: TaskStack) -> None:
        """Look after what was granted, by an earlier process too: this one acts from now on."""
        ...

    async def settle(self, limit: timedelta) -> timedelta:
        """Wait until nothing is being prepared, at most for `limit`; return what is left of it."""
        ...

    async def drain(self, limit: timedelta) -> None:
        """Answer for as long as API servers may still ask, then what is in flight, and end.

        The latter takes at most `limit`. The lease has been released by then.
        """
        ...


class Feature(Protocol):
    """A part of the operator that works once this process acts."""

    def start(self, tasks: TaskStack) -> None:
        """Begin to work."""
        ...

    def close(self) -> None:
        """Begin nothing new from now on."""
        ...

    async def finish(self) -> None:
        """Wait until nothing is worked on."""
        ...


class Engine:
    """All features of one running operator but its servers."""

    def __init__(self, settings: EngineSettings, clients: Clients, telemetry: Telemetry) -> None:
        self._context = context = Context(settings, clients, telemetry)
        self._budgets = Budgets(context)
        is_shadow = settings.is_shadow
        self._rollouts = (Shadow if is_shadow else Rollouts)(context, self._budgets.arbiter)
        self._features: tuple[Feature, ...] = (self._rollouts,)
        if is_shadow:
            self._budgets.close()  # what was granted is not its own to release
        else:
            scaling = Scaling(context, self._budgets.process)
            self._features = (self._rollouts, self._budgets, scaling)
        self._budgets.informer.on_change(lambda old, new: self._rollouts.wake_all())
        self._reviews: ReviewServer | None = None
        self._describer = Describer(context, self._budgets)
        self.ready = asyncio.Event()
        """Set once caches are filled, reviews are served and groups are reconciled."""
        context.health.part(
            "workers", is_ready=lambda: None if self.ready.is_set() else "not started"
        )

    @property
    def is_leading(self) -> bool:
        """Tell whether this process decides."""
        return self._context.is_leading

    async def describe(self) -> Description:
        """Return the namespace as this process knows it, for people; at any time."""
        return await self._describer.describe()

    def add_reviews(self, build: Callable[[Context, Budgets], ReviewServer]) -> None:
        """Serve reviews as well, with what `build` makes."""
        self._reviews = build(self._context, self._budgets)

    def add_feature(self, build: Callable[[Context, Budgets], Feature]) -> None:
        """Have one more part work once this process acts: what `build` makes."""
        self._features = (*self._features, build(self._context, self._budgets))

    async def serve(
        self,
        stop: asyncio.Event,
        sync_limit: timedelta,
        also: Mapping[str, Coroutine[None, None, None]] | None = None,
    ) -> None:
        """Run until `stop` is set, with the tasks `also` beside its own.

        Caches may take `sync_limit` to fill. Raises StartError, ConfigError, ApiError and TaskDied,
        and Superseded where another process has become the one that acts.
        """
        health = self._context.health
        async with AsyncExitStack() as stack:
            # Once the tasks have ended: what they did is written last.
            stack.push_async_callback(self._context.events.flush)
            tasks = await stack.enter_async_context(TaskStack())
            self._context.events.start(tasks)
            for name, work in (also or {}).items():
                tasks.start(name, work)
            tasks.start("statefulset informer", self._context.set_informer.run())
            tasks.start("pod informer", self._context.pod_informer.run())
            self._budgets.follow(tasks)
            health.part("tasks", is_alive=lambda: _name_dead(tasks))
            stack.callback(health.stopping)
            ready = self._get_ready(stack, tasks, sync_limit)
            first = await race(stop=stop.wait(), died=tasks.watch(), ready=ready)
            if first == "ready":
                self.ready.set()
                log.info("Rollout operator is ready")
                first = await self._take_part(stop, tasks)
            log.info("Stopping rollout operator")
            health.stopping()
            await self._finish_work()
        if first == "superseded":
            raise Superseded(self._context.election.loss)

    async def _take_part(self, stop: asyncio.Event, tasks: TaskStack) -> str:
        """Follow until this process is elected, then act; return what put an end to that."""
        election, died = self._context.election, tasks.watch
        if election.state is ElectionState.FOLLOWING:
            tasks.start("election", election.run())
            first = await race(stop=stop.wait(), died=died(), elected=election.wait_elected())
            if first != "elected":
                return first
        if self._reviews is not None:
            self._reviews.lead(tasks)
        for feature in self._features:
            feature.start(tasks)
        self._context.has_begun = True
        return await race(stop=stop.wait(), died=died(), superseded=election.wait_superseded())

    async def _get_ready(self, stack: AsyncExitStack, tasks: TaskStack, limit: timedelta) -> None:
        """Wait for the caches, then serve reviews where that is asked for.

        Raises StartError that says which cache is not filled, and why.
        """
        context = self._context
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await context.set_informer.wait_synced()
                await context.pod_informer.wait_synced()
                await self._budgets.wait_known()
        except TimeoutError as error:
            why = "; ".join(context.health.list_missing())
            raise StartError(f"not ready within {limit.total_seconds():g} s: {why}") from error
        if self._reviews is not None:
            await self._reviews.start(stack, tasks)

    async def _finish_work(self) -> None:
        """Begin nothing new, and wait a bounded time for what is under way."""
        self._context.stopping_since = self._context.clock.elapsed()
        for feature in self._features:
            feature.close()
        try:
            async with asyncio.timeout(FINISH_LIMIT.total_seconds()):
                for feature in self._features:
                    await feature.finish()
                left = REVIEW_LIMIT
                if self._reviews is not None:
                    left = await self._reviews.settle(left)
                await self._context.election.release()
                if self._reviews is not None:
                    await self._reviews.drain(left)
        except TimeoutError:
            log.warn("Leaving unfinished work", groups=self._rollouts.busy, after=FINISH_LIMIT)


def _name_dead(tasks: TaskStack) -> str | None:
    dead = tasks.list_dead()
    return f"ended: {', '.join(dead)}" if dead else None
