"""The life of the operator between its clients: the order of start and of stop.

Where the clients lead is decided by their opener: `operator.main` to a cluster, `lab.world` to a
simulated one. Start: caches filled, reviews served, ready, elected, workers. Stop: not ready,
workers finish the group they are at and begin nothing new, what is being prepared is finished, the
lease is released, reviews get their answer until API servers call others, the server ends. Each
step waits for a bounded time.

Of several namespaces none waits for another: a namespace whose objects may not be read holds
nothing but itself, and joins when they may be.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Final, Protocol

from rollout_operator.aio.tasks import TaskStack, gather_all, race
from rollout_operator.kube.election import ElectionState
from rollout_operator.model.errors import OperatorError
from rollout_operator.model.event import EventRecord
from rollout_operator.operator.engine import Engine
from rollout_operator.operator.process import Process
from rollout_operator.telemetry.health import Health
from rollout_operator.telemetry.logs import bind_keys, log

# The kubelet kills us after 30 s (`terminationGracePeriodSeconds`); this much is for the workers.
FINISH_LIMIT: Final = timedelta(seconds=20)
# Of that for reviews in flight: no less than the default time of a review.
REVIEW_LIMIT: Final = timedelta(seconds=12)
# How long the first of several namespaces wait for the others: reviews are served after that.
TOGETHER: Final = timedelta(seconds=5)

Question = Callable[[Health], tuple[str, ...]]


class StartError(OperatorError):
    """The operator could not start; the message says what to change."""


class Superseded(OperatorError):
    """Another process leads: this process has to begin anew, with nothing that it remembers."""


class ReviewServer(Protocol):
    """The server of the reviews of all namespaces, where webhooks are switched on."""

    async def start(self, stack: AsyncExitStack, tasks: TaskStack) -> None:
        """Serve reviews; the caches must be filled. Raises ConfigError and ApiError."""
        ...

    async def settle(self, limit: timedelta) -> timedelta:
        """Wait until nothing is being prepared, for at most `limit`; return the time left."""
        ...

    async def drain(self, limit: timedelta) -> None:
        """Answer for as long as API servers may still call, then the reviews in flight, and end.

        The latter takes at most `limit`. The lease has been released by then.
        """
        ...


class ClusterPart(Protocol):
    """A part of the operator that looks after objects of the whole cluster."""

    async def follow(self) -> None:
        """Follow what it needs, until cancelled."""
        ...

    def start(self, tasks: TaskStack) -> None:
        """Begin to act."""
        ...

    def close(self) -> None:
        """Begin nothing new from now on."""
        ...

    async def finish(self) -> None:
        """Wait until no object is reconciled."""
        ...


class Fleet:
    """The engines of all namespaces of one process."""

    def __init__(self, process: Process, *, is_several: bool = False) -> None:
        """Several namespaces have telemetry of their own, each; a single one has the process's."""
        self._process = process
        self._is_several = is_several
        self._engines: dict[str, Engine] = {}
        self._server: ReviewServer | None = None
        self._wait_found: Callable[[], Awaitable[None]] | None = None
        self._tasks: TaskStack | None = None
        self._is_serving = asyncio.Event()
        self._is_acting = asyncio.Event()
        self._has_known = asyncio.Event()
        """Whether any namespace is known."""
        self._cluster_parts = self._build_cluster_parts()
        if is_several:
            process.health.part("namespaces", is_ready=self._find_lack, is_alive=self._find_fault)

    @property
    def engines(self) -> Mapping[str, Engine]:
        """Return all engines by namespace."""
        return self._engines

    def add(self, engine: Engine) -> None:
        """Add a namespace; where several are watched, also while the others are served."""
        self._engines[engine.namespace] = engine
        if not self._is_several:
            return
        self._process.health.part(
            f"namespace {engine.namespace}",
            find_partial_lack=lambda: _name_answer(engine, Health.list_missing),
            describe=lambda: _name_answer(engine, Health.list_descriptions),
        )
        if self._tasks is not None and not self._process.is_stopping:
            self._begin(engine, self._tasks)

    def wait_for(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Become ready after `wait`, which waits until all namespaces are added."""
        self._wait_found = wait

    def serve_reviews(self, server: ReviewServer) -> None:
        """Serve reviews as well."""
        self._server = server

    async def serve(
        self,
        stop: asyncio.Event,
        sync_limit: timedelta,
        also: Mapping[str, Coroutine[None, None, None]] | None = None,
    ) -> None:
        """Run until `stop` is set, with the tasks `also` beside its own.

        Caches may take `sync_limit` to fill. Raises StartError, ConfigError, ApiError and TaskDied,
        and Superseded where another process acts now.
        """
        health = self._process.health
        async with AsyncExitStack() as stack:
            # Once the tasks have ended: what they did is written last.
            stack.push_async_callback(self._for_each, Engine.flush)
            self._tasks = tasks = await stack.enter_async_context(TaskStack())
            for name, work in (also or {}).items():
                tasks.start(name, work)
            if self._process.drives_policies:
                tasks.start("node informer", self._process.nodes.run())
            for what, part in self._cluster_parts.items():
                tasks.start(f"{what} of the cluster", part.follow())
            for engine in self._engines.values():
                self._begin(engine, tasks)
            health.part("tasks", is_alive=lambda: _name_dead(tasks))
            stack.callback(health.stopping)
            ready = self._get_ready(stack, tasks, sync_limit)
            first = await race(stop=stop.wait(), died=tasks.watch(), ready=ready)
            if first == "ready":
                self._record_ready()
                first = await self._take_part(stop, tasks)
            log.info("Stopping rollout operator")
            health.stopping()
            await self._finish_work()
        if first == "superseded":
            raise Superseded(self._process.election.loss)

    def _begin(self, engine: Engine, tasks: TaskStack) -> None:
        if not self._is_several:
            engine.follow(tasks)
            return
        with bind_keys(namespace=engine.namespace):
            engine.follow(tasks)
            tasks.start(f"namespace {engine.namespace}", self._join(engine, tasks))

    async def _join(self, engine: Engine, tasks: TaskStack) -> None:
        """Have a namespace take part once it is known, and this process acts."""
        await engine.wait_known()
        self._has_known.set()
        await self._is_serving.wait()
        engine.ready.set()
        await self._is_acting.wait()
        if not self._process.is_stopping:
            log.info("Looking after namespace")
            engine.lead(tasks)
        await asyncio.Event().wait()  # what it has begun are tasks of their own

    def _record_ready(self) -> None:
        self._is_serving.set()
        if not self._is_several:
            for engine in self._engines.values():
                engine.ready.set()
        log.info("Rollout operator is ready")

    async def _take_part(self, stop: asyncio.Event, tasks: TaskStack) -> str:
        """Follow until this process is elected, then act; return why it ended."""
        election, died = self._process.election, tasks.watch
        if election.state is ElectionState.FOLLOWING:
            tasks.start("election", election.run())
            first = await race(stop=stop.wait(), died=died(), elected=election.wait_elected())
            if first != "elected":
                return first
        self._is_acting.set()
        for part in self._cluster_parts.values():
            part.start(tasks)
        if not self._is_several:
            for engine in self._engines.values():
                engine.lead(tasks)
        return await race(stop=stop.wait(), died=died(), superseded=election.wait_superseded())

    async def _get_ready(self, stack: AsyncExitStack, tasks: TaskStack, limit: timedelta) -> None:
        """Wait for the caches, then serve reviews where webhooks are switched on.

        Raises StartError that says which cache is not filled, and why.
        """
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await (self._wait_any_known() if self._is_several else self._wait_all_known())
        except TimeoutError as error:
            why = "; ".join(self._process.health.list_missing())
            raise StartError(f"not ready within {limit.total_seconds():g} s: {why}") from error
        if self._server is not None:
            await self._server.start(stack, tasks)

    async def _wait_all_known(self) -> None:
        for engine in self._engines.values():
            await engine.wait_known()

    async def _wait_any_known(self) -> None:
        """Wait for all namespaces for a moment, then for any."""
        if self._wait_found is not None:
            await self._wait_found()
        with suppress(TimeoutError):
            async with asyncio.timeout(TOGETHER.total_seconds()):
                for engine in tuple(self._engines.values()):
                    await engine.known.wait()
        await self._has_known.wait()

    async def _finish_work(self) -> None:
        """Begin nothing new, and wait a bounded time for work under way."""
        self._process.stopping_since = self._process.clock.elapsed()
        for engine in self._engines.values():
            engine.close()
        for part in self._cluster_parts.values():
            part.close()
        try:
            async with asyncio.timeout(FINISH_LIMIT.total_seconds()):
                await self._for_each(Engine.finish)
                for part in self._cluster_parts.values():
                    await part.finish()
                left = REVIEW_LIMIT
                if self._server is not None:
                    left = await self._server.settle(left)
                await self._process.election.release()
                if self._server is not None:
                    await self._server.drain(left)
        except TimeoutError:
            busy = sum(engine.busy for engine in self._engines.values())
            log.warn("Leaving unfinished work", groups=busy, after=FINISH_LIMIT)

    async def _for_each(self, step: Callable[[Engine], Awaitable[None]]) -> None:
        """Take a step with all namespaces at the same time."""

        async def take(engine: Engine) -> None:
            with bind_keys(namespace=engine.namespace):
                await step(engine)

        if self._is_several:
            await gather_all(take(engine) for engine in self._engines.values())
            return
        for engine in self._engines.values():
            await step(engine)

    def _build_cluster_parts(self) -> Mapping[str, ClusterPart]:
        """Return the parts for schedules and health, where releases are switched on."""
        if not self._process.settings.drives_releases:
            return {}
        # Not before: most operators never need them.
        from rollout_operator.operator.releases.checks import OtherHealthChecks
        from rollout_operator.operator.releases.cluster_schedules import ClusterSchedules

        return {
            "schedules": ClusterSchedules(self._process, self._report),
            "health": OtherHealthChecks(self._process),
        }

    def _report(self, event: EventRecord) -> None:
        """Have an Event about an object of the cluster written, by any namespace's sender."""
        engine = next(iter(self._engines.values()), None)
        if engine is not None:
            engine.report(event)

    def _find_lack(self) -> str | None:
        """Say what keeps all namespaces: a namespace that is held alone holds no other."""
        if self._has_known.is_set():
            return None
        return f"none is followed yet: {'; '.join(self._collect_all(Health.list_missing))}"

    def _find_fault(self) -> str | None:
        """Say what is broken in all namespaces: a restart for one of them costs the others."""
        faults = self._collect_all(Health.list_faults)
        return "; ".join(faults) if faults and len(faults) == len(self._engines) else None

    def _collect_all(self, question: Question) -> list[str]:
        """Return the answers of all namespaces that have one."""
        answers = ((engine, _name_answer(engine, question)) for engine in self._engines.values())
        return [f"namespace {other.namespace}: {answer}" for other, answer in answers if answer]


def _name_answer(engine: Engine, question: Question) -> str | None:
    with bind_keys(namespace=engine.namespace):
        return "; ".join(question(engine.health)) or None


def _name_dead(tasks: TaskStack) -> str | None:
    dead = tasks.list_dead()
    return f"ended: {', '.join(dead)}" if dead else None
