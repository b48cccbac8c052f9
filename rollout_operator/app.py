"""Composition root: builds the parts, starts them in order, stops them in reverse.

Start: admin server, caches filled, webhooks, workers, ready. Stop: not ready, reviews get their
answer, workers finish the group they are at and begin nothing new, webhooks, caches, admin server.
Each step waits for a bounded time. How the webhooks are put together is in `app_webhooks`.
"""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from rollout_operator import __version__
from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.clock import LoopClock
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack, race
from rollout_operator.config import Config
from rollout_operator.controllers.attempts import Attempts
from rollout_operator.controllers.executor import Executor
from rollout_operator.controllers.memory import OwnDeletes
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.rollout import Parts, RolloutController
from rollout_operator.controllers.wake import Waker
from rollout_operator.controllers.worker import Workers
from rollout_operator.guards.downscales import Downscales
from rollout_operator.guards.locks import Locks
from rollout_operator.kube.api import PODS, STATEFULSETS, Reader, Resource
from rollout_operator.kube.client import Client, Timeouts
from rollout_operator.kube.connect import Access, connect
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.limits import Limits as RateLimits
from rollout_operator.kube.store import PodStore, StatefulSetStore, Store
from rollout_operator.kube.transport import Transport
from rollout_operator.model.decode import decode_pod, decode_statefulset
from rollout_operator.model.errors import OperatorError, Throttled, TooManyRequests, Unreachable
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Viewed
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.board import Board
from rollout_operator.telemetry.health import Health, Heartbeat
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.cluster import ClusterRules
from rollout_operator.webhook_flags import WebhookConfig

if TYPE_CHECKING:
    from rollout_operator.app_webhooks import Webhooks

# Groups that are reconciled at a time. A worker mostly waits for the API server, so that many cost
# nothing; a bound keeps a thousand groups from opening a thousand connections.
WORKERS: Final = 32
# The kubelet kills us after 30 s (`terminationGracePeriodSeconds`); this much is for the workers.
FINISH_LIMIT: Final = timedelta(seconds=20)
# Of that for reviews in flight: no less than the default time of one.
REVIEW_LIMIT: Final = timedelta(seconds=12)
# A watch that fails for this long, other than by the API server's own trouble, wants a restart.
BROKEN_LIMIT: Final = timedelta(minutes=3)
# First wait after a bug in a reconcile.
BUG_BACKOFF: Final = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the life cycle that tests shorten."""

    sync: timedelta = timedelta(seconds=60)
    """How long the caches may take to fill before the process gives up and says why."""


class StartError(OperatorError):
    """The operator could not start; the message says what to change."""


def run(config: Config, limits: Limits | None = None) -> int:
    """Run the operator until a signal stops it; return the exit code: 0 after a clean stop.

    Raises ConfigError and StartError where it could not start, TaskDied where a part broke.
    """
    logs.configure(format=config.log_format, level=config.log_level)
    logs.install_stdlib_bridge()
    log.info("Starting rollout operator", version=__version__, namespace=config.namespace)
    if config.leftovers:
        log.warn("Ignoring words after the flags", words=" ".join(config.leftovers))
    with asyncio.Runner(loop_factory=_choose_loop()) as runner:
        runner.run(_serve(config, limits or Limits()))
    return 0


def _choose_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory, None for asyncio's own loop where uvloop does not install."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(config: Config, limits: Limits) -> None:
    stop = _listen_to_signals()
    async with AsyncExitStack() as stack:
        operator = Operator(config)
        await operator.open(stack)
        tasks = await stack.enter_async_context(TaskStack())
        operator.start_watches(tasks)
        stack.callback(operator.health.stopping)
        ready = operator.get_ready(stack, tasks, limits.sync)
        first = await race(stop=stop.wait(), died=tasks.watch(), ready=ready)
        if first == "ready":
            operator.start_workers(tasks)
            log.info("Rollout operator is ready")
            await race(stop=stop.wait(), died=tasks.watch())
        log.info("Stopping rollout operator")
        operator.health.stopping()
        await operator.finish_work()
    log.info("Rollout operator has stopped")


def _listen_to_signals() -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets; the second ends the process."""
    stop = asyncio.Event()

    def take(number: int) -> None:
        if stop.is_set():
            os._exit(1)
        log.info("Received signal", signal=signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, take, number)
    return stop


class Operator:
    """All parts of one running operator, wired."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clock = LoopClock()
        self._metrics = Metrics()
        self.health = Health(self._clock)
        self._board = Board(self._metrics, self._clock)
        self._heartbeat = Heartbeat(self._clock, self._metrics)
        self._queue: WorkQueue[GroupName] = WorkQueue(
            on_taken=lambda waited: self._metrics.queue_wait_seconds.observe(waited.total_seconds())
        )
        self._sets = StatefulSetStore()
        self._pods = PodStore()
        self._locks = Locks()
        self._downscales = Downscales(self._clock)
        self._deletes = OwnDeletes(self._pods.get, self._clock)
        self._webhooks: Webhooks | None = None
        self._is_working = False

    async def open(self, stack: AsyncExitStack) -> None:
        """Take the port, find the API server and build everything. Raises ConfigError."""
        config = self._config
        admin = AdminServer(
            config.server_port, metrics=self._metrics, health=self.health, board=self._board,
            cluster=_cluster_rules(config),
        )  # fmt: skip
        await admin.start()
        stack.push_async_callback(admin.stop)
        access = Access(
            namespace=config.namespace, api_url=config.api_url, config_file=config.config_file
        )
        transport = await connect(access, self._clock)
        stack.push_async_callback(transport.close)
        # Buckets of their own: a list of ten thousand pods delays no delete, and no live look.
        following, looking, acting = (self._make_client(transport) for _ in range(3))
        self._set_informer = self._follow(following, STATEFULSETS, decode_statefulset, self._sets)
        self._pod_informer = self._follow(following, PODS, decode_pod, self._pods)
        self._wire(looking, acting)
        if config.webhooks is not None:
            self._webhooks = self._build_webhooks(config.webhooks, transport)

    def start_watches(self, tasks: TaskStack) -> None:
        """Begin to fill the caches."""
        tasks.start("heartbeat", self._heartbeat.run())
        tasks.start("statefulset informer", self._set_informer.run())
        tasks.start("pod informer", self._pod_informer.run())
        self.health.part("tasks", is_alive=lambda: _name_dead(tasks))

    async def get_ready(self, stack: AsyncExitStack, tasks: TaskStack, limit: timedelta) -> None:
        """Wait for the caches, then serve reviews where that is asked for.

        Raises StartError, ConfigError and ApiError.
        """
        await self._wait_synced(limit)
        if self._webhooks is not None:
            await self._webhooks.start(stack, tasks)

    async def _wait_synced(self, limit: timedelta) -> None:
        """Wait until the caches are filled. Raises StartError that says which is not, and why."""
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self._set_informer.wait_synced()
                await self._pod_informer.wait_synced()
        except TimeoutError as error:
            why = "; ".join(self.health.list_missing())
            raise StartError(f"not ready within {limit.total_seconds():g} s: {why}") from error

    def start_workers(self, tasks: TaskStack) -> None:
        """Begin to look at groups."""
        tasks.start("workers", self._workers.run())
        self._is_working = True

    async def finish_work(self) -> None:
        """Begin nothing new, and wait a bounded time for what is under way."""
        self._queue.close()
        if self._webhooks is not None:
            self._webhooks.stopping()
        try:
            async with asyncio.timeout(FINISH_LIMIT.total_seconds()):
                await self._workers.wait_idle()
                if self._webhooks is not None:
                    await self._webhooks.drain(REVIEW_LIMIT)
        except TimeoutError:
            log.warn("Leaving unfinished work", groups=self._workers.busy, after=FINISH_LIMIT)

    def _make_client(self, transport: Transport) -> Client:
        limits = RateLimits(self._config.client_qps, self._config.client_burst, self._clock)
        timeouts = Timeouts().at_most(self._config.client_timeout)
        return Client(transport, limits, self._metrics, timeouts)

    def _follow(
        self,
        client: Client,
        resource: Resource,
        decode: Callable[[bytes | msgspec.Raw], Viewed],
        store: Store[Viewed],
    ) -> Informer[Viewed]:
        collection = Collection(
            resource=resource, namespace=self._config.namespace, decode=decode, store=store
        )
        informer = Informer(client, collection, self._metrics, self._clock, random.random)
        self.health.part(
            f"{resource.plural} watch",
            is_ready=partial(_describe_unsynced, informer),
            is_alive=partial(_describe_broken, informer),
        )
        return informer

    def _wire(self, looking: Client, acting: Client) -> None:
        waker = Waker(self._sets, self._queue.add)
        self._set_informer.on_change(waker.on_set)
        self._pod_informer.on_change(waker.on_pod)
        observer = self._make_observer(looking)
        parts = Parts(
            observer=observer,
            executor=Executor(
                acting,
                observer,
                self._deletes,
                clock=self._clock,
                metrics=self._metrics,
                locks=self._locks,
                is_stopping=lambda: self._queue.is_closed,
            ),
            deletes=self._deletes,
            attempts=Attempts(self._clock, longest=self._config.reconcile_interval),
            board=self._board,
            metrics=self._metrics,
            clock=self._clock,
            refresh=self._refresh,
        )
        self._workers: Workers[GroupName] = Workers(
            self._queue,
            RolloutController(parts).reconcile,
            count=WORKERS,
            backoff=Backoff(
                first=BUG_BACKOFF, most=max(BUG_BACKOFF, self._config.reconcile_interval)
            ),
            chance=random.random,
        )
        self._metrics.queue_depth.set_function(lambda: self._queue.depth)
        self._metrics.workers_busy.set_function(lambda: self._workers.busy)
        self.health.part("event loop", is_alive=self._heartbeat.find_stall)
        self.health.part("workers", is_ready=lambda: None if self._is_working else "not started")

    def _make_observer(self, reader: Reader) -> Observer:
        return Observer(
            namespace=self._config.namespace,
            reader=reader,
            sets=self._sets,
            pods=self._pods,
            watches=(self._set_informer, self._pod_informer),
            deletes=self._deletes,
            clock=self._clock,
            find_downscale=self._downscales.find_underway,
        )

    def _build_webhooks(self, config: WebhookConfig, transport: Transport) -> "Webhooks":
        # 12 MiB and a quarter of a second, for certificates and all, where they are wanted.
        from rollout_operator.app_webhooks import Shared, Webhooks

        shared = Shared(
            namespace=self._config.namespace,
            sets=self._sets,
            pods=self._pods,
            locks=self._locks,
            downscales=self._downscales,
            metrics=self._metrics,
            health=self.health,
            clock=self._clock,
            cluster=_cluster_rules(self._config),
            make_client=lambda: self._make_client(transport),
            make_observer=self._make_observer,
        )
        webhooks = Webhooks(config, shared)
        self._set_informer.on_change(webhooks.on_set)
        self._pod_informer.on_change(webhooks.on_pod)
        self._downscales.on_change(self._wake_group)
        return webhooks

    def _wake_group(self, set_uid: Uid, group: GroupName | None) -> None:
        if group is not None and self._sets.list_group(group):
            self._queue.add(group)

    def _refresh(self, cause: str) -> None:
        self._set_informer.refresh(cause)
        self._pod_informer.refresh(cause)


def _cluster_rules(config: Config) -> ClusterRules:
    return ClusterRules(
        namespace=config.namespace,
        enabled=config.cluster_validation_enabled,
        soft=config.cluster_validation_soft,
        excluded_paths=config.cluster_validation_excluded_paths,
        excluded_user_agents=config.cluster_validation_excluded_user_agents,
    )


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
