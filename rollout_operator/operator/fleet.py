"""All namespaces of one process: which are watched, and the order of start and stop.

Start: caches filled, reviews served, ready, elected, controllers. Stop: not ready, controllers
finish their key, pods are prepared to the end, the Lease is released, reviews are answered until
API servers call another replica, the server closes. Each step has a time limit.

A namespace whose objects may not be read does not hold up the others, and joins once they may be
read. Namespaces of a cluster are found by their StatefulSets in rollout groups, budgets, policies
and Rollouts, and by reviews, as a namespace may hold only a Deployment that must not be scaled
down.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import Recent
from rollout_operator.aio.tasks import TaskStack, gather_all, race
from rollout_operator.config.flags import Config, is_label
from rollout_operator.controllers.budgets import BudgetReports, Budgets
from rollout_operator.controllers.context import Context, Feature, Process, Telemetry
from rollout_operator.controllers.rollout import RolloutController
from rollout_operator.controllers.scaling import ScalingController
from rollout_operator.controllers.shadow import ShadowController
from rollout_operator.controllers.unobeyed import UnobeyedPolicies
from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    PODS,
    ROLLOUTS,
    STATEFULSETS,
    ZONE_BUDGETS,
    Reader,
    Resource,
)
from rollout_operator.kube.election import ElectionState
from rollout_operator.kube.informer import Collection
from rollout_operator.kube.kinds import FollowedKind
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import Store
from rollout_operator.model.budget import EventRecord
from rollout_operator.model.decode.objects import decode_statefulset, place_decoder
from rollout_operator.model.description import Description, GroupDescription
from rollout_operator.model.names import ApiError, OperatorError
from rollout_operator.model.objects import AnyWatched, Group, Unreadable, WatchedObject
from rollout_operator.operator.gates import HealthGates
from rollout_operator.planning.describe_groups import describe_group, merge_descriptions, share_pods
from rollout_operator.planning.rollout import plan_group
from rollout_operator.telemetry.logs import bind_keys, log
from rollout_operator.telemetry.states import Health

if TYPE_CHECKING:
    from rollout_operator.controllers.policies import PolicyController
    from rollout_operator.gates.controller import Asks
    from rollout_operator.operator.releases import ClusterSchedules, OtherHealthChecks, Releases
    from rollout_operator.operator.reviews import Reviews

_Described = TypeVar("_Described")
ReviewSource = Callable[[Context, Budgets], "Reviews"]
# The kubelet kills us after 30 s (`terminationGracePeriodSeconds`); this much is for the workers.
_FINISH_LIMIT: Final = timedelta(seconds=20)
# The part of it for reviews in flight: no less than the default timeout of a review.
_REVIEW_LIMIT: Final = timedelta(seconds=12)
# How long readiness waits for all of several namespaces; after that one is enough.
_TOGETHER: Final = timedelta(seconds=5)
# How long namespaces that are found wait for the lists of budgets and policies.
_LISTED_WITHIN: Final = timedelta(seconds=5)
# How many namespaces without objects are watched on the word of a review.
MOST_UNPROVEN: Final = 64
# Between reads of namespaces named by reviews: a client that makes up names gets no more tokens.
PAUSE: Final = timedelta(seconds=1)
# The review waits for the read.
ANSWER_WITHIN: Final = timedelta(seconds=1)
# An empty namespace is not read again for this long.
EMPTY_LASTS: Final = timedelta(seconds=30)
MOST_EMPTY: Final = 256

_Question = Callable[[Health], tuple[str, ...]]


class StartError(OperatorError): ...


class Superseded(OperatorError):
    """Another process leads: this one has to start anew and forget everything."""


class Namespaces:
    """Builds an engine for each namespace, named by a flag, found in the cluster or reviewed."""

    def __init__(
        self, config: Config, process: Process, telemetry: Telemetry, reviews: ReviewSource | None
    ) -> None:
        self._config = config
        self._process = process
        self._telemetry = telemetry
        self._reviews = reviews
        self.fleet = Fleet(process, is_several=config.watches_several)
        self._discovery: _Discovery | None = None
        self._reviewed: ReviewedNamespaces | None = None
        for namespace in config.namespaces or (config.namespace,):
            self.add(namespace)

    def discover(self) -> Mapping[str, Coroutine[None, None, None]]:
        """Return the task that finds namespaces by its name; empty unless all are watched."""
        if not self._config.watches_all:
            return {}
        self._discovery = discovery = _Discovery(self._process, self.add)
        self._reviewed = ReviewedNamespaces(
            self._process.open("checking namespaces of reviews", Priority.LIST),
            self._process.clock,
            begin=self.add,
            is_empty=lambda namespace: self.fleet.engines[namespace].is_empty,
        )
        self.fleet.wait_for(discovery.wait_answered)
        return {"namespaces": discovery.run()}

    async def add_for_review(self, namespace: str) -> None:
        """Watch a namespace that a review has named."""
        discovery, reviewed = self._discovery, self._reviewed
        if discovery is None or reviewed is None or discovery.is_forbidden:
            return
        if is_label(namespace):
            await reviewed.add(namespace)

    def add(self, namespace: str) -> None:
        if namespace in self.fleet.engines:
            return
        if not self._config.watches_several:
            self._add(namespace, self._telemetry)
            return
        with bind_keys(namespace=namespace):
            self._add(namespace, self._telemetry.for_namespace(namespace, self._process.clock))

    async def describe(self) -> Description:
        engines = tuple(self.fleet.engines.values())
        if not self._config.watches_several:
            return await engines[0].describe()
        own = Description(
            namespace=self._process.namespace,
            now=self._process.clock.now(),
            operator=self._process.health.describe(
                is_acting=any(engine.is_leading for engine in self.fleet.engines.values())
            ),
        )
        return merge_descriptions(own, [await engine.describe() for engine in engines])

    def _add(self, namespace: str, telemetry: Telemetry) -> None:
        settings = dataclasses.replace(self._config, namespace=namespace)
        engine = Engine(settings, self._process, telemetry)
        if not settings.is_shadow:
            engine.add_feature(BudgetReports)
            if not self._process.drives_policies:
                engine.add_feature(UnobeyedPolicies)
        if self._reviews is not None:
            engine.add_reviews(self._reviews)
        self.fleet.add(engine)


class ReviewServer(Protocol):
    """The review server of all namespaces, where webhooks are switched on."""

    async def start(self, stack: AsyncExitStack, tasks: TaskStack) -> None:
        """Serve reviews; the caches must be filled. Raises ConfigError and ApiError."""
        ...

    async def settle(self, limit: timedelta) -> timedelta:
        """Wait until nothing is being prepared, for at most `limit`; return the time left."""
        ...

    async def drain(self, limit: timedelta) -> None:
        """Answer while API servers may still call, then finish the reviews in flight, and close.

        Only the reviews in flight have the limit. The Lease has been released by then.
        """
        ...


class Engine:
    """All that runs for one namespace: its caches, features and reviews."""

    def __init__(self, settings: Config, process: Process, telemetry: Telemetry) -> None:
        self._context = context = Context(settings, process, telemetry)
        self._budgets = Budgets(context)
        is_shadow = settings.is_shadow
        self._policies = self._build_policies()
        self._releases = self._build_releases(settings)
        rollouts = ShadowController if is_shadow else RolloutController
        self._rollouts = rollouts(context, self._budgets.arbiter)
        self._features: tuple[Feature, ...] = (self._rollouts,)
        if is_shadow:
            self._budgets.close()  # grants are not its own to release
        else:
            scaling = ScalingController(context, self._budgets.process)
            self._features = (self._rollouts, self._budgets, scaling)
        self._gates = HealthGates(context, self._rollouts, self._policies)
        if not is_shadow:
            self._features = (*self._features, self._gates)
        if self._policies is not None:
            self._features = (*self._features, self._policies)
            self._policies.on_change(self._rollouts.waker.wake_all)
        if self._releases is not None:
            self._features = (*self._features, self._releases)
        self._budgets.kind.on_change(lambda old, new: self._rollouts.waker.wake_all())
        self._reviews: Reviews | None = None
        self._observer = context.make_observer(context.following)
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
        return self._context.namespace

    @property
    def is_leading(self) -> bool:
        return self._context.is_leading

    @property
    def is_empty(self) -> bool:
        """Return whether the caches hold no StatefulSet and no pod."""
        return not (len(self._context.sets) or len(self._context.pods))

    @property
    def busy(self) -> int:
        also = (self._gates, self._policies, self._releases)
        return self._rollouts.busy + sum(part.busy for part in also if part is not None)

    async def describe(self) -> Description:
        """Return the namespace as it is now.

        Yields to other tasks between groups and budgets: a thousand of them take a second.
        """
        context, policies, releases = self._context, self._policies, self._releases
        groups: list[GroupDescription] = []
        most_pods = share_pods(sum(sts.group is not None for sts in context.sets.list_all()))
        for name in sorted(context.sets.list_groups()):
            group = self._observer.observe(name)
            if group.zones or group.unreadable:
                groups.append(self._describe_group(group, most_pods))
            await asyncio.sleep(0)
        described = Description(
            namespace=context.namespace,
            now=context.clock.now(),
            operator=context.health.describe(is_acting=context.is_leading),
            groups=tuple(groups),
            budgets=await _list_slowly(self._budgets.describe()),
            policies=UNSET if policies is None else await _list_slowly(policies.describe()),
        )
        if releases is None:
            return described
        return replace(
            described,
            releases=await _list_slowly(releases.describe_releases()),
            schedules=await _list_slowly(releases.describe_schedules()),
            health_checks=await _list_slowly(releases.describe_checks()),
        )

    def report(self, event: EventRecord) -> None:
        self._context.events.report(event)

    def add_reviews(self, build: ReviewSource) -> None:
        self._reviews = build(self._context, self._budgets)

    def add_feature(self, build: Callable[[Context, Budgets], Feature]) -> None:
        """Have another feature start once this process acts."""
        self._features = (*self._features, build(self._context, self._budgets))

    def answer_health_checks(self, asker: "Asks") -> None:
        """Have this answer the questions of health checks instead of servers."""
        self._gates.asker = asker

    def follow(self, tasks: TaskStack) -> None:
        """Begin to fill the caches."""
        self._context.events.start(tasks)
        tasks.start("statefulset informer", self._context.set_informer.run())
        tasks.start("pod informer", self._context.pod_informer.run())
        self._budgets.follow(tasks)
        self._gates.follow(tasks)
        for part in (self._policies, self._releases):
            if part is not None:
                part.follow(tasks)

    async def wait_known(self) -> None:
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
        for feature in self._features:
            feature.close()

    async def finish(self) -> None:
        for feature in self._features:
            await feature.finish()

    async def flush(self) -> None:
        await self._context.events.flush()

    def _describe_group(self, group: Group, most_pods: int) -> GroupDescription:
        state = self._context.group_states.find_newest(group.name)
        if state is None:
            now = self._context.clock.now()
            return describe_group(group, plan_group(group), now, most_pods=most_pods)
        return describe_group(
            group,
            state.plan,
            state.looked,
            state.since,
            is_underway=state.is_underway,
            most_pods=most_pods,
        )

    def _build_policies(self) -> "PolicyController | None":
        if not self._context.process.drives_policies:
            return None
        # Imported here: most operators never need it.
        from rollout_operator.controllers.policies import PolicyController

        return PolicyController(self._context, self._budgets.arbiter)

    def _build_releases(self, settings: Config) -> "Releases | None":
        if not settings.drives_releases:
            return None
        from rollout_operator.operator.releases import Releases

        return Releases(self._context)


async def _list_slowly(described: Iterable[_Described]) -> tuple[_Described, ...]:
    """Return the items, yielding to other tasks after each."""
    descriptions: list[_Described] = []
    for part in described:
        descriptions.append(part)
        await asyncio.sleep(0)
    return tuple(descriptions)


class Fleet:
    """Starts and stops the engines of all namespaces, in the order above."""

    def __init__(self, process: Process, *, is_several: bool = False) -> None:
        self._process = process
        self._is_several = is_several
        self._engines: dict[str, Engine] = {}
        self._server: ReviewServer | None = None
        self._wait_found: Callable[[], Awaitable[None]] | None = None
        self._tasks: TaskStack | None = None
        self._is_serving = asyncio.Event()
        self._is_acting = asyncio.Event()
        self._has_known = asyncio.Event()
        """Set once any namespace is known."""
        self._cluster_parts = self._build_cluster_parts()
        if is_several:
            process.health.part("namespaces", is_ready=self._find_lack, is_alive=self._find_fault)

    @property
    def engines(self) -> Mapping[str, Engine]:
        return self._engines

    def add(self, engine: Engine) -> None:
        """Add a namespace, at any time where several are watched."""
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
        """Become ready only after `wait`, which ends once all namespaces have been found."""
        self._wait_found = wait

    def serve_reviews(self, server: ReviewServer) -> None:
        self._server = server

    async def serve(
        self,
        stop: asyncio.Event,
        sync_limit: timedelta,
        also: Mapping[str, Coroutine[None, None, None]] | None = None,
    ) -> None:
        """Run until `stop` is set, with the tasks `also` beside its own.

        Caches must fill within `sync_limit`. Raises StartError, ConfigError, ApiError and TaskDied,
        and Superseded where another process acts now.
        """
        health = self._process.health
        async with AsyncExitStack() as stack:
            # Runs once the tasks have ended: the Events of what they did are written last.
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
        with self._bind(engine):
            engine.follow(tasks)
            tasks.start(f"namespace {engine.namespace}", self._join(engine, tasks))

    async def _join(self, engine: Engine, tasks: TaskStack) -> None:
        """Start a namespace once it is known and this process acts."""
        await engine.wait_known()
        self._has_known.set()
        await self._is_serving.wait()
        engine.ready.set()
        await self._is_acting.wait()
        if not self._process.is_stopping:
            if self._is_several:
                log.info("Looking after namespace")
            engine.lead(tasks)
        await asyncio.Event().wait()  # a task that ends counts as dead

    def _record_ready(self) -> None:
        self._is_serving.set()
        log.info("Rollout operator is ready")

    async def _take_part(self, stop: asyncio.Event, tasks: TaskStack) -> str:
        """Follow until elected, then act; return why it ended."""
        election, died = self._process.election, tasks.watch
        if election.state is ElectionState.FOLLOWING:
            tasks.start("election", election.run())
            first = await race(stop=stop.wait(), died=died(), elected=election.wait_elected())
            if first != "elected":
                return first
        self._is_acting.set()
        for part in self._cluster_parts.values():
            part.start(tasks)
        return await race(stop=stop.wait(), died=died(), superseded=election.wait_superseded())

    async def _get_ready(self, stack: AsyncExitStack, tasks: TaskStack, limit: timedelta) -> None:
        """Wait for the caches, then serve reviews. Raises StartError naming the missing cache."""
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self._wait_any_known()
        except TimeoutError as error:
            why = "; ".join(self._process.health.list_missing())
            raise StartError(f"not ready within {limit.total_seconds():g} s: {why}") from error
        if self._server is not None:
            await self._server.start(stack, tasks)

    async def _wait_any_known(self) -> None:
        if self._wait_found is not None:
            await self._wait_found()
        with suppress(TimeoutError):
            async with asyncio.timeout(_TOGETHER.total_seconds()):
                for engine in tuple(self._engines.values()):
                    await engine.known.wait()
        await self._has_known.wait()
        if self._wait_found is not None:
            await self._wait_found()  # a denial may be of before any namespace could be read

    async def _finish_work(self) -> None:
        self._process.stopping_since = self._process.clock.elapsed()
        for engine in self._engines.values():
            engine.close()
        for part in self._cluster_parts.values():
            part.close()
        try:
            async with asyncio.timeout(_FINISH_LIMIT.total_seconds()):
                await self._for_each(Engine.finish)
                for part in self._cluster_parts.values():
                    await part.finish()
                left = _REVIEW_LIMIT
                if self._server is not None:
                    left = await self._server.settle(left)
                await self._process.election.release()
                if self._server is not None:
                    await self._server.drain(left)
        except TimeoutError:
            busy = sum(engine.busy for engine in self._engines.values())
            log.warn("Leaving unfinished work", groups=busy, after=_FINISH_LIMIT)

    async def _for_each(self, step: Callable[[Engine], Awaitable[None]]) -> None:
        """Run a step for all namespaces at once."""

        async def take(engine: Engine) -> None:
            with self._bind(engine):
                await step(engine)

        await gather_all(take(engine) for engine in self._engines.values())

    def _bind(self, engine: Engine) -> AbstractContextManager[None]:
        """Add its namespace to what is logged of an engine, where there are several."""
        return bind_keys(namespace=engine.namespace) if self._is_several else nullcontext()

    def _build_cluster_parts(self) -> "Mapping[str, ClusterSchedules | OtherHealthChecks]":
        if not self._process.settings.drives_releases:
            return {}
        # Imported here: most operators never need them.
        from rollout_operator.operator.releases import ClusterSchedules, OtherHealthChecks

        return {
            "schedules": ClusterSchedules(self._process, self._report),
            "health": OtherHealthChecks(self._process),
        }

    def _report(self, event: EventRecord) -> None:
        """Write an Event about an object of the cluster through any namespace's sender."""
        engine = next(iter(self._engines.values()), None)
        if engine is not None:
            engine.report(event)

    def _find_lack(self) -> str | None:
        """Return what is missing while no namespace is followed: one is enough to be ready."""
        if self._has_known.is_set():
            return None
        return f"none is followed yet: {'; '.join(self._collect_all(Health.list_missing))}"

    def _find_fault(self) -> str | None:
        """Return what is broken in all namespaces: a restart for one would disturb the others."""
        faults = self._collect_all(Health.list_faults)
        return "; ".join(faults) if faults and len(faults) == len(self._engines) else None

    def _collect_all(self, question: _Question) -> list[str]:
        answers = ((engine, _name_answer(engine, question)) for engine in self._engines.values())
        return [f"namespace {other.namespace}: {answer}" for other, answer in answers if answer]


def _name_answer(engine: Engine, question: _Question) -> str | None:
    with bind_keys(namespace=engine.namespace):
        return "; ".join(question(engine.health)) or None


def _name_dead(tasks: TaskStack) -> str | None:
    dead = tasks.list_dead()
    return f"ended: {', '.join(dead)}" if dead else None


def _decode_member(raw: bytes | msgspec.Raw) -> WatchedObject:
    """Return of a StatefulSet where it is and its group: most of them are no concern of ours."""
    sts = decode_statefulset(raw)
    return WatchedObject(
        namespace=sts.namespace,
        name=sts.name,
        uid=sts.uid,
        resource_version=sts.resource_version,
        decoded=sts.group,
    )


class _Discovery:
    """Finds the namespaces of a cluster by the objects in them.

    Where StatefulSets of the cluster may not be listed, the operator watches its own namespace.
    """

    def __init__(self, process: Process, found: Callable[[str], None]) -> None:
        """`found` is called for each object, any number of times with the same namespace."""
        self._process = process
        self._found = found
        self._client = process.open("following the cluster", Priority.LIST)
        self._sets = self._follow(STATEFULSETS, _decode_member, self._on_set)
        others = (ZONE_BUDGETS, MULTI_AZ_ROLLOUTS, *[ROLLOUTS] * process.settings.drives_releases)
        self._others = [
            self._follow(kind, place_decoder(kind.kind), self._on_object) for kind in others
        ]
        self._answered = asyncio.Event()

    @property
    def is_forbidden(self) -> bool:
        return self._sets.is_forbidden

    async def wait_answered(self) -> None:
        """Wait until namespaces are found, or may not be: what was denied before is asked again."""
        self._sets.doubt_denial()
        await self._answered.wait()
        await self._sets.wait_answered()

    async def run(self) -> None:
        clock = self._process.clock
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sets.run(clock), name="StatefulSets of the cluster")
            await self._sets.wait_answered()
            if self.is_forbidden:
                log.info("Looking after its own namespace alone", namespace=self._process.namespace)
                self._answered.set()
            # An account that may not list StatefulSets does not try the others: one warning is
            # enough.
            await self._sets.wait_synced()
            for kind in self._others:
                tasks.create_task(kind.run(clock), name="other kinds of the cluster")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LISTED_WITHIN.total_seconds()):
                    for kind in self._others:
                        await kind.wait_answered()
            self._answered.set()

    def _follow(
        self,
        resource: Resource,
        decode: Callable[[bytes | msgspec.Raw], WatchedObject],
        on_change: Callable[[AnyWatched | None, AnyWatched | None], None],
    ) -> FollowedKind[AnyWatched]:
        of: Collection[AnyWatched] = Collection(
            resource=replace(resource, is_namespaced=False),
            namespace="",
            decode=decode,
            store=Store(),
            slots=self._process.pages,
        )
        kind = FollowedKind(self._client, of, self._process.make_informer)
        kind.on_change(on_change)
        return kind

    def _on_set(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        if new is not None and (new.group if isinstance(new, Unreadable) else new.decoded):
            self._on_object(old, new)

    def _on_object(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        if new is not None and new.namespace:
            self._found(new.namespace)


@dataclass(slots=True)
class ReviewedNamespaces:
    """Watches the namespaces that only reviews have named.

    Any client that reaches the port may name a namespace that does not exist, so only a few are
    watched on the word of a review. One that turns out to hold objects no longer counts. When too
    many are empty, another is watched only after a read shows an object in it.
    """

    reader: Reader
    clock: Clock
    _: KW_ONLY
    begin: Callable[[str], None]
    is_empty: Callable[[str], bool]
    _unproven: set[str] = field(default_factory=set, init=False)
    _empty: Recent[str, timedelta] = field(default_factory=lambda: Recent(MOST_EMPTY), init=False)
    """Namespaces without objects, and when they were read."""
    _next_at: timedelta = field(default=timedelta(0), init=False)

    async def add(self, namespace: str) -> None:
        self._unproven = {*filter(self.is_empty, self._unproven)}
        if len(self._unproven) < MOST_UNPROVEN:
            self._unproven.add(namespace)
            self.begin(namespace)
        elif self._may_read(namespace) and await self._holds_anything(namespace):
            self.begin(namespace)

    def _may_read(self, namespace: str) -> bool:
        now, empty_at = self.clock.elapsed(), self._empty.get(namespace)
        if now < self._next_at or (empty_at is not None and now - empty_at < EMPTY_LASTS):
            return False
        self._next_at = now + PAUSE
        return True

    async def _holds_anything(self, namespace: str) -> bool:
        try:
            async with asyncio.timeout(ANSWER_WITHIN.total_seconds()):
                for resource in (STATEFULSETS, PODS):
                    page = await self.reader.fetch_page(resource, namespace, limit=1)
                    if page.items:
                        return True
        except (ApiError, TimeoutError) as error:
            log.debug("Namespace of a review not read", namespace=namespace, err=error)
            return False
        self._empty.put(namespace, self.clock.elapsed())
        return False
