"""One process of the operator in a simulated world: its own code, between clients to that world.

Decides how such a process begins, dies and begins again. What the world does is decided in
`lab`, how both come together in `lab.world`.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from rollout_lab.admission.webhooks import HookCall
from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.model.history import Lived
from rollout_lab.network.client import SimulatedClient, SimulatedPodClient
from rollout_lab.network.faults import Faults
from rollout_lab.network.link import Link
from rollout_lab.nodes.pods import PodEndpoints
from rollout_lab.virtual_loop.loop import IS_GONE
from rollout_lab.virtual_loop.pace import SimulatedClock
from rollout_operator.aio.tasks import TaskDied, TaskStack, race
from rollout_operator.config.flags import Config
from rollout_operator.controllers.budgets import Budgets
from rollout_operator.controllers.context import Clients, Context, Feature, Process, Telemetry
from rollout_operator.kube.api import DEFAULT_TIMEOUTS, Fence
from rollout_operator.kube.rate_limit import Priority, RateLimiter
from rollout_operator.kube.store import Configuration
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.description import Description
from rollout_operator.model.lease import Identity
from rollout_operator.model.names import DecodeError, OperatorError
from rollout_operator.operator.fleet import Engine, Fleet
from rollout_operator.operator.reviews import Configurations, Reviews
from rollout_operator.telemetry.metrics import GroupState
from rollout_operator.web.dispatch import Reviewer

if TYPE_CHECKING:
    from rollout_operator.gates.controller import Asks
    from rollout_operator.outbound import Outbound

SYNC_LIMIT: Final = timedelta(seconds=60)
# The kubelet starts a container that has ended by itself again after ten seconds, at first.
RESTART_PAUSE: Final = timedelta(seconds=10)

ACTOR: Final[ContextVar[str]] = ContextVar("actor", default="operator")
"""Name of the process that the running code belongs to."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What a process finds around it."""

    api: SimulatedApi
    endpoints: PodEndpoints
    faults: Faults
    elapsed: Callable[[], timedelta]
    clock: Callable[[], SimulatedClock]
    """Makes a clock that is right."""
    rng: Callable[[str], random.Random]
    """Makes a random source for a purpose."""
    open_outbound: "Callable[[timedelta], Outbound] | None" = None
    """Opens the way to servers that tenants name; None where there are none."""
    asker: "Asks | None" = None
    """Answers the questions of health checks instead of such servers."""


class SimulatedProcess:
    """One replica of the operator: lives, dies and lives again."""

    def __init__(
        self, world: World, name: str, config: Config, *, writes_events: bool = False
    ) -> None:
        self.name = name
        self.writes_events = writes_events
        self.clock = world.clock()
        """Of the machine that it runs on: as wrong as ever after a restart."""
        self.starts = 0
        self._world = world
        self._config = config
        self._rng = world.rng(name)
        self._life: _Life | None = None
        self._tasks = TaskStack()
        self._links: list[Link] = []

    @property
    def is_running(self) -> bool:
        """Return whether it has been started and neither crashed nor ended."""
        return self._life is not None and not self._life.is_over

    @property
    def is_ready(self) -> bool:
        """Return whether it works and has not been told to stop."""
        return self._life is not None and self._life.is_ready

    @property
    def is_serving(self) -> bool:
        return self.is_ready and self._life is not None and self._life.reviewer is not None

    @property
    def acts(self) -> bool:
        """Return whether it decides, elected or alone."""
        return self.is_running and self._current.engine.is_leading

    @property
    def link(self) -> Link:
        """Return what connects this life of the process with the world."""
        return self._current.link

    @property
    def telemetry(self) -> Telemetry:
        """Return what this life of the process tells of itself."""
        return self._current.telemetry

    def start(self) -> None:
        """Begin to live, anew after a crash; a process that runs goes on."""
        if self.is_running:
            return
        self.starts += 1
        life = _Life(self._world, self, self._config, random.Random(self._rng.random()))
        self._life = life
        self._links.append(life.link)
        self._tasks.start(f"{self.name} life {self.starts}", self._live(life))

    def add_feature(self, build: Callable[[Context, Budgets], Feature]) -> None:
        """Have this life do what only a cluster needs; before it is ready."""
        self._current.engine.add_feature(build)

    async def wait_ready(self) -> None:
        """Wait until it is ready for the first time in this life."""
        await self._current.engine.ready.wait()

    def entries(self) -> tuple[GroupState, ...]:
        """Return the last plan of each group, with its reasons."""
        return self.telemetry.group_states.entries()

    async def describe(self) -> Description:
        """Return the namespace as this life of the process describes it to people."""
        return await self._current.engine.describe()

    def crash(self, why: str = "crashed") -> None:
        """Die at once: nothing of what it still does has any effect."""
        if self.is_running:
            self._current.die(why)

    async def stop(self) -> None:
        """Tell it to stop, as SIGTERM does, and wait until it has."""
        if self.is_running:
            self._current.stop.set()
            await self._current.over.wait()

    async def end(self) -> None:
        self.crash("killed")
        await self._tasks.stop()
        for link in self._links:
            await link.ground()

    async def answer(self, call: HookCall) -> bytes:
        """Answer a review. Raises OSError where it has gone or is out of reach."""
        return await self._current.answer(call)

    @property
    def _current(self) -> "_Life":
        assert self._life is not None, "start first"
        return self._life

    async def _live(self, life: "_Life") -> None:
        await life.run()
        if life.has_failed:
            await asyncio.sleep(RESTART_PAUSE.total_seconds())
            if self._life is life:
                self.start()


class _Life:
    """One run of a process, from its start to its end."""

    def __init__(
        self, world: World, process: SimulatedProcess, config: Config, rng: random.Random
    ) -> None:
        self._world = world
        self._name = process.name
        self._config = config
        self._task: asyncio.Task[None] | None = None
        self.stop = asyncio.Event()
        self.over = asyncio.Event()
        self.has_failed = False
        self.reviewer: Reviewer | None = None
        self.clock = process.clock
        self.link = Link(process.name, faults=world.faults, rng=rng)
        self.link.on_crash = self.die
        self.telemetry = Telemetry.begin(process.clock)
        self._timeouts = DEFAULT_TIMEOUTS.at_most(config.client_timeout)
        self._limits = RateLimiter(config.client_qps, config.client_burst)
        clients = Clients(
            open=self._open_client,
            open_pods=lambda namespace: SimulatedPodClient(self.link, world.endpoints),
            open_outbound=world.open_outbound,
            clock=process.clock,
            rng=rng.random,
            identity=Identity(name=process.name, life=f"{process.starts}"),
            writes_events=process.writes_events,
        )
        self._process = Process(config, clients, self.telemetry)
        self._fleet = Fleet(self._process)
        self.engine = Engine(config, self._process, self.telemetry)
        self._fleet.add(self.engine)
        if world.asker is not None:
            self.engine.answer_health_checks(world.asker)
        if config.answers_reviews:
            self.engine.add_reviews(self._build_reviews)

    @property
    def is_over(self) -> bool:
        return self.over.is_set() or self.link.is_dead

    @property
    def is_ready(self) -> bool:
        return not self.is_over and self.engine.ready.is_set() and not self.stop.is_set()

    def die(self, why: str = "crashed") -> None:
        if self.over.is_set():
            return
        self.link.kill()
        self._record(why)
        self.over.set()
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        self._enter()
        self._task = asyncio.current_task()
        self._record("started")
        try:
            async with TaskStack() as tasks:
                tasks.start("ready", self._announce_ready())
                await self._fleet.serve(self.stop, SYNC_LIMIT)
        except (OperatorError, TaskDied) as error:
            if not self.is_over:
                self.has_failed = True
                self._record(f"ended: {_chain(error)}")
        else:
            self._record("stopped")
        finally:
            self.link.kill()
            self.over.set()

    def _enter(self) -> None:
        """Let the running task, and all that it begins, belong to this life."""
        ACTOR.set(self._name)
        link = self.link
        IS_GONE.set(lambda: link.is_dead)

    async def answer(self, call: HookCall) -> bytes:
        call.taken_by.append(self._name)
        await self.link.let_in()
        answers: list[bytes] = []
        await race(answer=self._review(call, answers), death=self.link.wait_dead())
        if not answers:
            raise ConnectionResetError(f"{self._name} has gone")
        await self.link.let_out()
        return answers[0]

    async def _review(self, call: HookCall, answers: list[bytes]) -> None:
        self._enter()
        reviewer = self.reviewer
        assert reviewer is not None, "only a serving process is called"
        path, _, query = call.path.partition("?")
        deadline = reviewer.set_deadline(self.clock.elapsed(), query)
        try:
            review = decode_review(call.body)
        except DecodeError as error:
            raise ConnectionResetError(str(error)) from error
        answers.append(await reviewer.answer(path, review, deadline))

    async def _announce_ready(self) -> None:
        await self.engine.ready.wait()
        self._record("ready")
        await asyncio.Event().wait()

    def _open_client(self, name: str, reads: Priority, fence: Fence) -> SimulatedClient:
        return SimulatedClient(
            self._world.api,
            self.link,
            name=name,
            limits=self._limits,
            timeouts=self._timeouts,
            reads=reads,
            fence=fence,
        )

    def _build_reviews(self, context: Context, budgets: Budgets) -> Reviews:
        configurations = Configurations(self._process, self._config.bundle_names)
        reviews = Reviews(self._config, context, budgets, configurations)
        server = _SimulatedReviews(reviews, configurations, self._begin_serving)
        self._fleet.serve_reviews(server)
        return reviews

    def _begin_serving(self, reviewer: Reviewer) -> None:
        self.reviewer = reviewer

    def _record(self, what: str) -> None:
        self._world.api.history.add(Lived(at=self._world.elapsed(), actor=self._name, what=what))


class _SimulatedReviews:
    """Serves reviews without a server. Implements `operator.fleet.ReviewServer`."""

    def __init__(
        self,
        reviews: Reviews,
        configurations: Configurations,
        begin_serving: Callable[[Reviewer], None],
    ) -> None:
        self._reviews = reviews
        self._configurations = configurations
        self._begin_serving = begin_serving

    async def start(self, stack: AsyncExitStack, tasks: TaskStack) -> None:
        stack.push_async_callback(self._reviews.close)
        self._configurations.follow(tasks, _ignore_configuration)
        self._begin_serving(self._reviews.reviewer)

    async def settle(self, limit: timedelta) -> timedelta:
        left = await self._reviews.settle(limit)
        await self._reviews.finish()
        return left

    async def drain(self, limit: timedelta) -> None:
        pass


def _ignore_configuration(old: Configuration | None, new: Configuration | None) -> None:
    """There is no CA here whose bundle could be injected."""


def _chain(error: BaseException) -> str:
    cause = f": {error.__cause__!r}" if error.__cause__ is not None else ""
    return f"{error}{cause}"
