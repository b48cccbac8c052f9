"""Composition of the operator between its clients: caches, decisions, workers, and their life.

Where the clients lead is decided by who opens them: `operator.main` to a cluster, `lab.world` to a
simulated one. Start: caches filled, reviews served, workers, ready. Stop: not ready, reviews get
their answer, workers finish the group they are at and begin nothing new. Each step waits for a
bounded time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack, race
from rollout_operator.controllers.events_to_keys import Waker
from rollout_operator.controllers.live_reads import choose_most_looks
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.retries import Attempts
from rollout_operator.controllers.rollout.controller import RolloutContext, RolloutController
from rollout_operator.controllers.rollout.executor import Executor
from rollout_operator.controllers.rollout.own_deletes import OwnDeletes
from rollout_operator.controllers.worker import Workers
from rollout_operator.guards.budgets.in_flight import InFlight
from rollout_operator.guards.downscales.newcomers import Arrivals
from rollout_operator.guards.downscales.reservations import Downscales
from rollout_operator.guards.downscales.times import AnnotationTimes, Records
from rollout_operator.guards.downscales.zone_tracker import Tracker
from rollout_operator.guards.locks import Locks
from rollout_operator.kube.api import PODS, STATEFULSETS, ApiClient, Resource
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.store import PodStore, StatefulSetStore, Store
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.errors import OperatorError, Throttled, TooManyRequests, Unreachable
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, Viewed
from rollout_operator.operator.budgets import BudgetParts, Surroundings
from rollout_operator.operator.context import (
    Clients,
    EngineSettings,
    ReviewServing,
    Shared,
    Telemetry,
)
from rollout_operator.operator.scaling import ScalingParts
from rollout_operator.telemetry.logs import log

# Groups that are reconciled at a time. A worker mostly waits for the API server or for a token of
# our rate limits, so that many cost nothing: one that records a revision keeps no delete waiting.
WORKERS: Final = 128
# The kubelet kills us after 30 s (`terminationGracePeriodSeconds`); this much is for the workers.
FINISH_LIMIT: Final = timedelta(seconds=20)
# Of that for reviews in flight: no less than the default time of one.
REVIEW_LIMIT: Final = timedelta(seconds=12)
# A watch that fails for this long, other than by the API server's own trouble, wants a restart.
BROKEN_LIMIT: Final = timedelta(minutes=3)
# First wait after a bug in a reconcile.
BUG_BACKOFF: Final = timedelta(milliseconds=500)


class StartError(OperatorError):
    """The operator could not start; the message says what to change."""


class Engine:
    """All parts of one running operator but its servers, wired."""

    def __init__(self, settings: EngineSettings, clients: Clients, telemetry: Telemetry) -> None:
        self._settings = settings
        self._clients = clients
        self._clock = clients.clock
        self._metrics = telemetry.metrics
        self._health = telemetry.health
        self._group_states = telemetry.group_states
        self._queue: WorkQueue[GroupName] = WorkQueue(
            on_taken=lambda waited: self._metrics.queue_wait_seconds.observe(waited.total_seconds())
        )
        self._sets = StatefulSetStore()
        self._pods = PodStore()
        self._locks = Locks()
        self._downscales = Downscales(clients.clock, late_calls=settings.late_calls)
        self._deletes = OwnDeletes(self._pods.get, clients.clock)
        self._pending = InFlight(self._pods.get, self._deletes, clients.clock)
        self._reviewing: ReviewServing | None = None
        self.ready = asyncio.Event()
        """Set once caches are filled, reviews are served and groups are looked at."""
        # A list of ten thousand pods delays no delete, and no live look.
        following = clients.open("following", Priority.LIST)
        looking, acting = (clients.open(name, Priority.LOOK) for name in ("looking", "acting"))
        self._set_informer = self._follow(following, STATEFULSETS, decode_statefulset, self._sets)
        self._pod_informer = self._follow(following, PODS, decode_pod, self._pods)
        self._arrivals = self._watch_arrivals()
        self._budgets = self._build_budgets(telemetry)
        self._shared = self._share()
        self._scaling = ScalingParts(self._shared)
        self._wire(looking, acting)
        self._downscales.on_change(self._wake_group)
        self._pending.on_change(self._wake_owner)
        self._budgets.on_budget(self._wake_all)

    def add_reviews(self, build: Callable[[Shared], ReviewServing]) -> None:
        """Serve reviews as well, with what `build` makes of what both share."""
        reviewing = self._reviewing = build(self._shared)
        self._set_informer.on_change(reviewing.on_set)
        self._pod_informer.on_change(reviewing.on_pod)

    async def serve(
        self,
        stop: asyncio.Event,
        sync_limit: timedelta,
        also: Mapping[str, Coroutine[None, None, None]] | None = None,
    ) -> None:
        """Run until `stop` is set, with the tasks `also` beside its own.

        Caches may take `sync_limit` to fill. Raises StartError, ConfigError, ApiError and TaskDied.
        """
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(TaskStack())
            for name, work in (also or {}).items():
                tasks.start(name, work)
            self._start_watches(tasks)
            stack.callback(self._health.stopping)
            ready = self._get_ready(stack, tasks, sync_limit)
            first = await race(stop=stop.wait(), died=tasks.watch(), ready=ready)
            if first == "ready":
                self._start_workers(tasks)
                log.info("Rollout operator is ready")
                await race(stop=stop.wait(), died=tasks.watch())
            log.info("Stopping rollout operator")
            self._health.stopping()
            await self._finish_work()

    def _start_watches(self, tasks: TaskStack) -> None:
        tasks.start("statefulset informer", self._set_informer.run())
        tasks.start("pod informer", self._pod_informer.run())
        self._budgets.follow(tasks)
        self._health.part("tasks", is_alive=lambda: _name_dead(tasks))

    async def _get_ready(self, stack: AsyncExitStack, tasks: TaskStack, limit: timedelta) -> None:
        """Wait for the caches, then serve reviews where that is asked for."""
        await self._wait_synced(limit)
        if self._reviewing is not None:
            await self._reviewing.start(stack, tasks)

    async def _wait_synced(self, limit: timedelta) -> None:
        """Wait until the caches are filled. Raises StartError that says which is not, and why."""
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self._set_informer.wait_synced()
                await self._pod_informer.wait_synced()
                await self._budgets.wait_known()
        except TimeoutError as error:
            why = "; ".join(self._health.list_missing())
            raise StartError(f"not ready within {limit.total_seconds():g} s: {why}") from error

    def _start_workers(self, tasks: TaskStack) -> None:
        tasks.start("workers", self._workers.run())
        self._budgets.start(tasks)
        self._scaling.start(tasks)
        self.ready.set()

    async def _finish_work(self) -> None:
        """Begin nothing new, and wait a bounded time for what is under way."""
        self._queue.close()
        self._scaling.stopping()
        self._budgets.stopping()
        if self._reviewing is not None:
            self._reviewing.stopping()
        try:
            async with asyncio.timeout(FINISH_LIMIT.total_seconds()):
                await self._workers.wait_idle()
                await self._scaling.finish()
                await self._budgets.finish()
                if self._reviewing is not None:
                    await self._reviewing.drain(REVIEW_LIMIT)
        except TimeoutError:
            log.warn("Leaving unfinished work", groups=self._workers.busy, after=FINISH_LIMIT)

    def _follow(
        self,
        client: ApiClient,
        resource: Resource,
        decode: Callable[[bytes | msgspec.Raw], Viewed],
        store: Store[Viewed],
    ) -> Informer[Viewed]:
        collection = Collection(
            resource=resource, namespace=self._settings.namespace, decode=decode, store=store
        )
        informer = Informer(client, collection, self._metrics, self._clock, self._clients.rng)
        self._health.part(
            f"{resource.plural} watch",
            is_ready=partial(_describe_unsynced, informer),
            is_alive=partial(_describe_broken, informer),
        )
        return informer

    def _watch_arrivals(self) -> Arrivals:
        arrivals = Arrivals(self._sets, self._pods, self._clients.clock)
        self._set_informer.on_change(arrivals.on_set)
        self._pod_informer.on_change(arrivals.on_pod)
        self._sets.on_replaced(lambda: arrivals.on_list(self._set_informer.age))
        self._pods.on_replaced(lambda: arrivals.on_list(self._pod_informer.age))
        return arrivals

    def _share(self) -> Shared:
        return Shared(
            settings=self._settings,
            clients=self._clients,
            sets=self._sets,
            pods=self._pods,
            locks=self._locks,
            downscales=self._downscales,
            catalog=self._budgets.catalog,
            gate=self._budgets.gate,
            metrics=self._metrics,
            health=self._health,
            group_states=self._group_states,
            make_observer=self._make_observer,
            make_records=self._make_records,
        )

    def _build_budgets(self, telemetry: Telemetry) -> BudgetParts:
        budgets = BudgetParts(
            Surroundings(
                settings=self._settings,
                clients=self._clients,
                telemetry=telemetry,
                sets=self._sets,
                pods=self._pods,
                pending=self._pending,
                make_observer=self._make_observer,
                find_downscale=self._downscales.find_underway,
                find_newcomers=self._arrivals.get,
                age=lambda: max(self._set_informer.age, self._pod_informer.age),
            )
        )
        self._pod_informer.on_change(budgets.on_pod)
        return budgets

    def _wire(self, looking: ApiClient, acting: ApiClient) -> None:
        waker = Waker(self._sets, self._queue.add)
        for woken in (waker, self._scaling):
            self._set_informer.on_change(woken.on_set)
            self._pod_informer.on_change(woken.on_pod)
        observer = self._make_observer(looking)
        longest = self._settings.reconcile_interval
        parts = RolloutContext(
            observer=observer,
            executor=Executor(
                acting,
                observer,
                self._deletes,
                clock=self._clock,
                metrics=self._metrics,
                gate=self._budgets.gate,
                locks=self._locks,
                # No delete rests on it: it waits for all looks.
                recording=self._clients.open("recording", Priority.RECORD),
                most_looks=choose_most_looks(self._settings.client_qps),
                is_stopping=lambda: self._queue.is_closed,
            ),
            deletes=self._deletes,
            attempts=Attempts(self._clock, longest=longest, rng=self._clients.rng),
            group_states=self._group_states,
            metrics=self._metrics,
            clock=self._clock,
            refresh=self._refresh,
        )
        self._workers: Workers[GroupName] = Workers(
            self._queue,
            RolloutController(parts).reconcile,
            count=WORKERS,
            backoff=Backoff(first=BUG_BACKOFF, most=max(BUG_BACKOFF, longest)),
            rng=self._clients.rng,
        )
        self._metrics.queue_depth.set_function(lambda: self._queue.depth)
        self._metrics.workers_busy.set_function(lambda: self._workers.busy)
        self._health.part(
            "workers", is_ready=lambda: None if self.ready.is_set() else "not started"
        )

    def _make_observer(self, client: ApiClient) -> Observer:
        return Observer(
            namespace=self._settings.namespace,
            reader=client,
            clock=self._clock,
            sets=self._sets,
            pods=self._pods,
            watches=(self._set_informer, self._pod_informer),
            pending=self._pending,
            now=partial(self._clients.tell_time, client),
            find_downscale=self._downscales.find_underway,
            find_newcomers=self._arrivals.get,
        )

    def _make_records(self, client: ApiClient) -> Records:
        settings = self._settings
        if not settings.zone_tracker:
            return AnnotationTimes(client, self._downscales)
        return Tracker(
            client,
            self._downscales,
            namespace=settings.namespace,
            name=settings.zone_tracker,
            now=partial(self._clients.tell_time, client),
        )

    def _wake_group(self, set_uid: Uid, group: GroupName | None) -> None:
        if group is not None and self._sets.list_group(group):
            self._queue.add(group)

    def _wake_owner(self, pod: Pod) -> None:
        sts = None if pod.owner_uid is None else self._sets.get_by_uid(pod.owner_uid)
        if sts is not None and sts.group is not None:
            self._queue.add(sts.group)

    def _wake_all(self) -> None:
        for group in dict.fromkeys(sts.group for sts in self._sets.list_all()):
            if group is not None:
                self._queue.add(group)

    def _refresh(self, cause: str) -> None:
        self._set_informer.refresh(cause)
        self._pod_informer.refresh(cause)


def _name_dead(tasks: TaskStack) -> str | None:
    dead = tasks.list_dead()
    return f"ended: {', '.join(dead)}" if dead else None


def _describe_unsynced(informer: Informer[Viewed]) -> str | None:
    if informer.has_synced:
        return None
    return f"not followed yet: {informer.last_error or 'no answer yet'}"


def _describe_broken(informer: Informer[Viewed]) -> str | None:
    """Say what is wrong with a watch that a restart may mend; trouble of the server is not that."""
    broken_for = informer.broken_for
    if broken_for is None or broken_for < BROKEN_LIMIT:
        return None
    if isinstance(informer.last_error, Unreachable | TooManyRequests | Throttled):
        return None
    return f"not re-established for {broken_for.total_seconds():.0f} s: {informer.last_error}"
