"""The reviews of each namespace, and the webhook configurations that name them.

Which server serves them is decided in `operator.webhooks`. A review is answered by the namespace of
its object. One of a namespace that is not watched is answered by the first namespace, which says
so; one of a namespace whose caches are not filled yet is refused for now. Webhook configurations
are cluster-scoped: they are followed once for all namespaces, and nothing waits for them because a
Role may forbid them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.flags import Config
from rollout_operator.controllers.budgets import Budgets
from rollout_operator.controllers.context import Context, Process
from rollout_operator.controllers.downscales import DownscaleController
from rollout_operator.guards.downscales import ReservationState
from rollout_operator.guards.prepared_pods import PodRecords
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ApiClient, Resource
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import Configuration, ConfigurationStore
from rollout_operator.model.decode.installation import webhook_decoder
from rollout_operator.model.objects import Pod, WebhookConfiguration, list_failure_policies
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import Review, Scalable
from rollout_operator.pki.bundle import is_ours
from rollout_operator.planning.budgets import is_running
from rollout_operator.planning.requests import RETRY, assess_unprepared, refuse
from rollout_operator.telemetry.exposition import Counter
from rollout_operator.telemetry.logs import bind_keys, log
from rollout_operator.web.dispatch import Forwarder, LeaderOnly, Reviewer, ReviewHook
from rollout_operator.web.eviction import PodEviction, ZpdbValidation
from rollout_operator.web.middleware import name_route
from rollout_operator.web.no_downscale import (
    NoDownscale,
    Parents,
    RepeatedReads,
    UnconfirmedReads,
    UnknownPods,
)
from rollout_operator.web.prepare_downscale import PrepareContext, PrepareDownscale

_OnConfiguration = Callable[[Configuration | None, Configuration | None], None]
_NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_PATH: Final = "/admission/prepare-downscale"
EVICTION_PATH: Final = "/admission/pod-eviction"
_BUDGETS_PATH: Final = "/admission/zpdb-validation"
_HEALTH_CHECKS_PATH: Final = "/admission/rollout-health-check-validation"
LED_PATHS: Final = (PREPARE_PATH, EVICTION_PATH)
"""Paths of reviews that only the elected replica decides."""
# After its last review a request is written within moments, where nothing else holds it up.
_WRITE_LIMIT: Final = timedelta(seconds=1)
# A namespace of which a review is the first sign is listed in a few milliseconds.
_KNOWN_WITHIN: Final = timedelta(seconds=1)
# Of webhook configurations, which are listed anew every four minutes: no decision is urgent.
_LIVE_LIMIT: Final = timedelta(minutes=5)
Begin = Callable[[str], Awaitable[None]]


class Configurations:
    """Webhook configurations of both kinds, as far as they may be read."""

    def __init__(self, process: Process, names: Sequence[str]) -> None:
        """Without names all configurations are followed."""
        self._process = process
        self._names = tuple(names) or ("",)
        self._stores: list[ConfigurationStore] = []
        self._informers: list[Informer[Configuration]] = []

    @property
    def are_known(self) -> bool:
        """Return whether all that there are have been read, and are followed still."""
        return all(informer.age <= _LIVE_LIMIT for informer in self._informers)

    def list_all(self) -> list[Configuration]:
        return [configuration for store in self._stores for configuration in store.list_all()]

    def collect_kinds(self, path: str) -> set[str]:
        """Return the kinds of our configurations that call this path."""
        return {
            configuration.kind
            for configuration in self.list_all()
            if isinstance(configuration, WebhookConfiguration)
            and is_ours(configuration, self._process.namespace)
            for hook in configuration.webhooks
            if hook.path == path
        }

    def follow(self, tasks: TaskStack, on_change: _OnConfiguration) -> None:
        process = self._process
        client = process.open("following configurations", Priority.LIST)
        for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            for name in self._names:
                informer = self._make_informer(client, resource, name)
                informer.on_change(on_change)
                tasks.start(f"{resource.plural} informer {name}".strip(), informer.run())
        process.metrics.failure_policies(
            lambda: list_failure_policies(self.list_all(), process.namespace)
        )

    def _make_informer(
        self, client: ApiClient, resource: Resource, name: str
    ) -> Informer[Configuration]:
        store = ConfigurationStore()
        self._stores.append(store)
        collection = Collection(
            resource=resource,
            namespace="",
            decode=webhook_decoder(resource.kind),
            store=store,
            field_selector=f"metadata.name={name}" if name else "",
        )
        informer = self._process.make_informer(client, collection)
        self._informers.append(informer)
        return informer


class _HealthCheckValidation(msgspec.Struct, frozen=True):
    """Implements `web.dispatch.ReviewHook`."""

    config: Config

    async def review(self, review: Review, until: timedelta) -> Verdict:
        # Not before: most operators never need it.
        from rollout_operator.gates.prometheus import AllowedUrls
        from rollout_operator.gates.webhook import review_health_check

        return review_health_check(review, AllowedUrls(self.config))


class Reviews:
    def __init__(
        self,
        config: Config,
        context: Context,
        budgets: Budgets,
        configurations: Configurations,
        forwarder: Forwarder | None = None,
    ) -> None:
        """`forwarder` passes reviews on to the elected replica."""
        self._config = config
        self._context = context
        self._configurations = configurations
        self._counters: dict[tuple[str, bool, Code], Counter] = {}
        # Reviews wait for no live read of a controller, and for no list.
        self._checking, self._reviewing = (
            context.open(name, Priority.ANSWER) for name in ("checking", "reviewing")
        )
        self._name = context.make_name()
        self._reads = UnconfirmedReads(context.settings.client_qps)
        self._calls = context.make_pod_client()
        self.downscales = DownscaleController(
            context,
            context.open("settling", Priority.READ),
            self._calls,
            process=self._name,
            server_time=partial(context.get_time, self._reviewing),
        )
        self._forwarder = forwarder
        self._led = {
            PREPARE_PATH: replace(
                self._for_leader(PREPARE_PATH, PrepareDownscale(self._join_prepare())),
                assess=assess_unprepared,
                confirms=self._shows_set,
            ),
            EVICTION_PATH: replace(
                self._for_leader(EVICTION_PATH, self._join_eviction(budgets)),
                confirms=self._shows_pod,
            ),
        }
        self.reviewer = self._build_reviewer(budgets)
        # Reviews that another replica has passed on are not passed on again.
        hooks = {path: replace(led, forwarder=None) for path, led in self._led.items()}
        self.peer_reviewer = replace(self.reviewer, hooks=hooks, keeps=lambda path: False)
        for path in self.reviewer.paths:
            context.metrics.denials.begin(name_route(path))

    @property
    def namespace(self) -> str:
        return self._context.namespace

    async def is_known(self, within: timedelta) -> bool:
        """Wait at most so long for the caches; return whether they are filled."""
        if self.find_lack() is None:
            return True
        try:
            async with asyncio.timeout(within.total_seconds()):
                await self._context.wait_known()
        except TimeoutError:
            return False
        return True

    def find_lack(self) -> str | None:
        return self._context.find_lack()

    def lead(self, tasks: TaskStack) -> None:
        self.downscales.start(tasks)

    async def close(self) -> None:
        await self._calls.close()

    async def settle(self, limit: timedelta) -> timedelta:
        """Wait until nothing is being prepared, for at most `limit`; return the time left.

        A request whose pods have been called comes back for its next review, `no-downscale`: if the
        server closed before, fifty pods would have been prepared for nothing.
        """
        clock = self._context.clock
        end = clock.elapsed() + limit
        await self._wait_none(ReservationState.PREPARING, limit)
        await self._wait_none(ReservationState.OPEN, min(_WRITE_LIMIT, end - clock.elapsed()))
        return max(end - clock.elapsed(), timedelta(0))

    async def finish(self) -> None:
        self.downscales.close()
        await self.downscales.finish()

    async def _wait_none(self, state: ReservationState, limit: timedelta) -> None:
        downscales, changed = self._context.downscales, asyncio.Event()
        downscales.on_change(lambda uid, group: changed.set())
        try:
            async with asyncio.timeout(limit.total_seconds()):
                while downscales.count(state):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            log.debug("Stopping with downscales that are not settled", state=state)

    def _join_prepare(self) -> PrepareContext:
        context, config = self._context, self._config
        return PrepareContext(
            parents=self._make_parents(self._reviewing),
            observer=context.make_observer(self._reviewing),
            repeated=RepeatedReads(config.client_qps, context.clock),
            locks=context.locks,
            downscales=context.downscales,
            records=context.make_records(self._reviewing),
            pod_records=PodRecords(self._reviewing, self._name),
            pods=self._calls,
            clock=context.clock,
            server_time=partial(context.get_time, self._reviewing),
            namespace=context.namespace,
            cluster_domain=config.cluster_domain,
            is_stopping=lambda: context.is_stopping,
        )

    def _join_eviction(self, budgets: Budgets) -> PodEviction:
        context = self._context
        return PodEviction(
            arbiter=budgets.arbiter,
            pods=context.pods,
            sets=context.sets,
            unknown=UnknownPods(
                context.open("evicting", Priority.ANSWER), context.namespace, self._reads
            ),
            metrics=context.metrics.disruptions,
            clock=context.clock,
            namespace=context.namespace,
        )

    def _build_reviewer(self, budgets: Budgets) -> Reviewer:
        context, config = self._context, self._config
        checked = self._make_parents(self._checking)
        return Reviewer(
            hooks={
                _NO_DOWNSCALE_PATH: NoDownscale(checked, fails_closed=config.fails_closed),
                **self._led,
                _BUDGETS_PATH: ZpdbValidation(
                    budgets.catalog, context.pods, namespace=context.namespace
                ),
                _HEALTH_CHECKS_PATH: _HealthCheckValidation(config),
            },
            request_timeout=config.request_timeout,
            clock=context.clock,
            keeps=lambda path: path in self._led and self._led[path].forwards,
            may_patch=self._may_patch,
            on_verdict=self._count_verdict,
        )

    def _shows_set(self, review: Review) -> bool:
        """Return whether the cache holds the StatefulSet under review: UIDs cannot be guessed."""
        sts = self._context.sets.get(review.namespace, review.name)
        return sts is not None and isinstance(review.old, Scalable) and sts.uid == review.old.uid

    def _shows_pod(self, review: Review) -> bool:
        """Return whether the cache holds a running pod: the elected replica ignores others."""
        pod = self._context.pods.get(review.namespace, review.name)
        return isinstance(pod, Pod) and is_running(pod)

    def _for_leader(self, path: str, hook: ReviewHook) -> LeaderOnly:
        context = self._context
        return LeaderOnly(
            path=path,
            hook=hook,
            is_leading=lambda: context.is_leading,
            describe=lambda: context.election.text,
            forwarder=self._forwarder,
        )

    def _make_parents(self, client: ApiClient) -> Parents:
        context = self._context
        return Parents(
            context.sets,
            client,
            self._reads,
            namespace=context.namespace,
            clock=context.clock,
        )

    def _count_verdict(self, path: str, review: Review, verdict: Verdict) -> None:
        metrics = self._context.metrics
        if not verdict.is_allowed:
            metrics.denials.count(name_route(path), review.user, self._context.clock.elapsed())
            self._context.events.on_refusal(review, verdict)
        key = (path, verdict.is_allowed, verdict.reason.code)
        counter = self._counters.get(key)
        if counter is None:  # looking it up by labels costs more than counting
            word = "allowed" if verdict.is_allowed else "refused"
            counter = metrics.reviews.labels(name_route(path), word, verdict.reason.code)
            self._counters[key] = counter
        counter.inc()

    def _may_patch(self, path: str) -> bool:
        """Return whether the webhook of this path is a mutating one, as our configurations say.

        An answer with a patch would fail a validating webhook, and a review names no webhook.
        """
        return self._configurations.collect_kinds(path) == {MUTATING_WEBHOOKS.kind}


Choose = Callable[[Reviews], Reviewer]


class _Routes(msgspec.Struct, frozen=True):
    reviews: Mapping[str, Reviews]
    choose: Choose
    begin: Begin

    def get(self, namespace: str) -> Reviews:
        """Return the reviews of a namespace, those of the first for an unknown one."""
        reviews = self.reviews.get(namespace)
        return next(iter(self.reviews.values())) if reviews is None else reviews

    def count(self, path: str, review: Review, verdict: Verdict) -> None:
        self.choose(self.get(review.namespace)).on_verdict(path, review, verdict)


class _RoutedHook(msgspec.Struct, frozen=True):
    """The hooks of one path, of all namespaces. Implements `web.dispatch.ReviewHook`."""

    path: str
    routes: _Routes

    async def review(self, review: Review, until: timedelta) -> Verdict | bytes:
        if review.namespace not in self.routes.reviews:
            await self.routes.begin(review.namespace)
        reviews = self.routes.get(review.namespace)
        if review.namespace == reviews.namespace and not await reviews.is_known(_KNOWN_WITHIN):
            text = f"namespace {review.namespace} is not followed yet: {reviews.find_lack()}"
            return refuse(Code.CANNOT_CHECK, f"{text}; try again", status=RETRY)
        with bind_keys(namespace=review.namespace):
            return await self.routes.choose(reviews).hooks[self.path].review(review, until)


def route_reviews(reviews: Mapping[str, Reviews], choose: Choose, begin: Begin) -> Reviewer:
    """Return a reviewer that has each namespace answer its reviews; there must be one at least.

    `begin` is called with an unknown namespace, and may add it.
    """
    routes = _Routes(reviews, choose, begin)
    first = choose(next(iter(reviews.values())))
    hooks = {path: _RoutedHook(path, routes) for path in first.paths}
    return replace(first, hooks=hooks, on_verdict=routes.count)
