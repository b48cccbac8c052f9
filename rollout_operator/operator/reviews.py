"""Composition of what answers reviews, and of what follows the downscales that were granted.

Between its clients: who serves the reviews, and under which certificate, is decided in
`operator.webhooks`. Start: downscales of an earlier process adopted, then the controller. Stop: no
new downscale is begun, those whose pods are being told are waited for.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.webhook_flags import WebhookConfig
from rollout_operator.controllers.downscales.controller import DownscaleContext, DownscaleController
from rollout_operator.controllers.worker import Workers
from rollout_operator.guards.downscales.pod_records import PodRecords
from rollout_operator.guards.downscales.reservations import ReservationState
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ApiClient, Resource
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.configurations import Configuration, ConfigurationStore
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.decode.webhooks import webhook_decoder
from rollout_operator.model.failure_policies import list_failure_policies
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable, WebhookConfiguration
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review
from rollout_operator.operator.context import Shared
from rollout_operator.pki.bundle import is_ours
from rollout_operator.pods.client import PodClient
from rollout_operator.telemetry.families import Counter
from rollout_operator.telemetry.logs import log
from rollout_operator.web.http.routes import name_route
from rollout_operator.web.reviews.budget_validation import ZpdbValidation
from rollout_operator.web.reviews.dispatch import Reviewer
from rollout_operator.web.reviews.eviction import EvictionContext, PodEviction
from rollout_operator.web.reviews.no_downscale import NoDownscale
from rollout_operator.web.reviews.prepare_downscale import PrepareDownscale
from rollout_operator.web.reviews.prepare_reservation import PrepareContext
from rollout_operator.web.reviews.read_shares import RepeatedLooks, UnconfirmedReads
from rollout_operator.web.reviews.scale_parent import Parents
from rollout_operator.web.reviews.unknown_pods import UnknownPods

NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_PATH: Final = "/admission/prepare-downscale"
EVICTION_PATH: Final = "/admission/pod-eviction"
BUDGETS_PATH: Final = "/admission/zpdb-validation"

# Sets whose downscales are looked after at a time; each mostly waits for pods.
WORKERS: Final = 8
BUG_BACKOFF: Final = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=15))
# After its last review a request is written within moments, where nothing else holds it up.
WRITE_LIMIT: Final = timedelta(seconds=1)

OnConfiguration = Callable[[Configuration | None, Configuration | None], None]


class Reviews:
    """The hooks of one operator, what they work with and what comes after them."""

    def __init__(self, config: WebhookConfig, shared: Shared) -> None:
        self._config = config
        self._shared = shared
        self._is_stopping = False
        self._configurations: list[ConfigurationStore] = []
        self._counters: dict[tuple[str, bool, Code], Counter] = {}
        # Reviews wait for no look of a controller, and for no list.
        self._checking, self._reviewing = (
            shared.clients.open(name, Priority.ANSWER) for name in ("checking", "reviewing")
        )
        self._settling = shared.clients.open("settling", Priority.LOOK)
        self._name = f"{shared.clients.rng():.16f}"[2:]
        self._reads = UnconfirmedReads(shared.settings.client_qps)
        self._queue: WorkQueue[Uid] = WorkQueue()
        self._workers: Workers[Uid] | None = None
        self._calls = PodClient(
            shared.clients.open_pods(),
            timeout=shared.settings.pods_timeout,
            metrics=shared.metrics,
            clock=shared.clients.clock,
        )
        self.reviewer = self._build_reviewer()
        for path in self.reviewer.paths:
            shared.metrics.denials.begin(name_route(path))

    async def start(
        self, stack: AsyncExitStack, tasks: TaskStack, on_configuration: OnConfiguration
    ) -> None:
        """Begin to look after downscales; the caches must be filled.

        Webhook configurations are followed, and each change of one is told `on_configuration`.
        """
        stack.push_async_callback(self._calls.close)
        self._follow_configurations(tasks, on_configuration)
        self._start_controller(tasks)

    def list_configurations(self) -> list[Configuration]:
        """Return the webhook configurations of the cluster, as far as they may be read."""
        return [one for store in self._configurations for one in store.list_all()]

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """Wake the downscale of a set that came, changed or went: the callback for its informer."""
        for one in (old, new):
            # Of one that is gone the time of its last downscale is remembered, too.
            if one is not None and (new is None or self._shared.downscales.remembers(one.uid)):
                self._queue.add(one.uid)

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Wake the downscale that a pod belongs to."""
        for one in (old, new):
            uid = None if one is None else one.owner_uid
            is_noted = isinstance(one, Pod) and one.downscale_note != ""
            if uid is not None and (is_noted or self._shared.downscales.remembers(uid)):
                self._queue.add(uid)

    def stopping(self) -> None:
        """Begin no new downscale from now on."""
        self._is_stopping = True

    @property
    def is_stopping(self) -> bool:
        """Tell whether no new downscale is begun."""
        return self._is_stopping

    async def settle(self, limit: timedelta) -> timedelta:
        """Wait until nothing is being prepared, at most for `limit`; return what is left of it.

        A request whose pods are being called comes back for its next review, `no-downscale`: with
        the door shut before, fifty pods would have been prepared for nothing. Pods that are just
        being told something are told it, all others by the next process.
        """
        clock = self._shared.clients.clock
        end = clock.elapsed() + limit
        await self._wait_none(ReservationState.PREPARING, limit)
        await self._wait_none(ReservationState.OPEN, min(WRITE_LIMIT, end - clock.elapsed()))
        return max(end - clock.elapsed(), timedelta(0))

    async def finish(self) -> None:
        """Look after no downscale any more, once those that are looked after now are done."""
        self._queue.close()
        if self._workers is not None:
            await self._workers.wait_idle()

    async def _wait_none(self, stage: ReservationState, limit: timedelta) -> None:
        """Wait until no downscale is at this stage, at most for `limit`."""
        downscales, changed = self._shared.downscales, asyncio.Event()
        downscales.on_change(lambda uid, group: changed.set())
        try:
            async with asyncio.timeout(limit.total_seconds()):
                while downscales.count(stage):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            log.debug("Stopping with downscales that are not settled", stage=stage)

    def _build_reviewer(self) -> Reviewer:
        shared, config = self._shared, self._config
        clock = shared.clients.clock
        parts = PrepareContext(
            parents=self._make_parents(self._reviewing),
            looker=shared.make_observer(self._reviewing),
            looks=RepeatedLooks(shared.settings.client_qps, clock),
            locks=shared.locks,
            downscales=shared.downscales,
            records=shared.make_records(self._reviewing),
            notes=PodRecords(self._reviewing, self._name),
            pods=self._calls,
            clock=clock,
            server_time=self._tell_server_time,
            namespace=shared.namespace,
            cluster_domain=shared.settings.cluster_domain,
            is_stopping=lambda: self._is_stopping,
        )
        parents = self._make_parents(self._checking)
        return Reviewer(
            hooks={
                NO_DOWNSCALE_PATH: NoDownscale(parents, fails_closed=config.fails_closed),
                PREPARE_PATH: PrepareDownscale(parts),
                EVICTION_PATH: self._build_eviction(),
                BUDGETS_PATH: ZpdbValidation(
                    shared.catalog, shared.pods, namespace=shared.namespace
                ),
            },
            request_timeout=config.request_timeout,
            clock=clock,
            may_patch=self._may_patch,
            on_verdict=self._count_verdict,
        )

    def _build_eviction(self) -> PodEviction:
        shared = self._shared
        return PodEviction(
            EvictionContext(
                gate=shared.gate,
                pods=shared.pods,
                sets=shared.sets,
                unknown=UnknownPods(
                    shared.clients.open("evicting", Priority.ANSWER), shared.namespace, self._reads
                ),
                metrics=shared.metrics.disruptions,
                clock=shared.clients.clock,
                namespace=shared.namespace,
            )
        )

    def _make_parents(self, client: ApiClient) -> Parents:
        shared = self._shared
        return Parents(
            shared.sets,
            client,
            self._reads,
            namespace=shared.namespace,
            clock=shared.clients.clock,
        )

    def _tell_server_time(self) -> datetime:
        return self._shared.clients.tell_time(self._reviewing)

    def _count_verdict(self, path: str, review: Review, verdict: Verdict) -> None:
        if not verdict.is_allowed:
            now = self._shared.clients.clock.elapsed()
            self._shared.metrics.denials.count(name_route(path), review.user, now)
        key = (path, verdict.is_allowed, verdict.reason.code)
        counter = self._counters.get(key)
        if counter is None:  # looking it up by labels costs more than counting
            word = "allowed" if verdict.is_allowed else "refused"
            counter = self._shared.metrics.reviews.labels(
                name_route(path), word, verdict.reason.code
            )
            self._counters[key] = counter
        counter.inc()

    def _may_patch(self, path: str) -> bool:
        """Tell whether who asks on this path takes patches: a mutating webhook, and no other.

        A validating webhook whose answer holds a patch fails. A review does not tell who asks, our
        configurations do.
        """
        kinds = {
            one.kind
            for one in self.list_configurations()
            if isinstance(one, WebhookConfiguration) and is_ours(one, self._shared.namespace)
            for hook in one.webhooks
            if hook.path == path
        }
        return kinds == {MUTATING_WEBHOOKS.kind}

    def _start_controller(self, tasks: TaskStack) -> None:
        shared = self._shared
        controller = DownscaleController(
            DownscaleContext(
                sets=shared.sets,
                pods=shared.pods,
                downscales=shared.downscales,
                locks=shared.locks,
                records=shared.make_records(self._settling),
                notes=PodRecords(self._settling, self._name),
                calls=self._calls,
                client=self._settling,
                clock=shared.clients.clock,
                server_time=self._tell_server_time,
                cluster_domain=shared.settings.cluster_domain,
            )
        )
        # Before any rollout is looked at: what is underway holds its group back.
        for sts in shared.sets.list_all():
            controller.adopt(sts.uid)
        shared.downscales.on_change(lambda uid, group: self._queue.add(uid))
        for uid in shared.downscales.list_sets():
            self._queue.add(uid)
        self._workers = Workers(
            self._queue,
            controller.reconcile,
            count=WORKERS,
            backoff=BUG_BACKOFF,
            rng=shared.clients.rng,
        )
        tasks.start("downscale workers", self._workers.run())
        states = shared.metrics.downscales
        states.labels("underway").set_function(
            lambda: (
                shared.downscales.count(ReservationState.PREPARING)
                + shared.downscales.count(ReservationState.OPEN)
            )
        )
        states.labels("persisted").set_function(
            lambda: shared.downscales.count(ReservationState.PERSISTED)
        )
        states.labels("undoing").set_function(shared.downscales.debts.count)
        states.labels("unreached").set_function(shared.downscales.debts.count_unreached)

    def _follow_configurations(self, tasks: TaskStack, on_change: OnConfiguration) -> None:
        """Follow webhook configurations of both kinds: all of the cluster, or those named.

        They are of the cluster, and a role may forbid them: nothing waits for them.
        """
        following = self._shared.clients.open("following configurations", Priority.LIST)
        for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            for name in self._config.bundle_names or ("",):
                informer = self._follow(following, resource, name)
                informer.on_change(on_change)
                tasks.start(f"{resource.plural} informer {name}".strip(), informer.run())
        self._shared.metrics.failure_policies(
            lambda: list_failure_policies(self.list_configurations(), self._shared.namespace)
        )

    def _follow(self, client: ApiClient, resource: Resource, name: str) -> Informer[Configuration]:
        store = ConfigurationStore()
        self._configurations.append(store)
        collection = Collection(
            resource=resource,
            namespace="",
            decode=webhook_decoder(resource.kind),
            store=store,
            field_selector=f"metadata.name={name}" if name else "",
        )
        clients = self._shared.clients
        return Informer(client, collection, self._shared.metrics, clients.clock, clients.rng)
