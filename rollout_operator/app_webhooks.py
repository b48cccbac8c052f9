"""Composition of the webhooks: certificate, hooks, server, CA bundle, and what follows downscales.

Start: downscales of an earlier process adopted, certificate served, server; then the controller and
the injector. Stop: no new downscale is begun, reviews in flight get their answer.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.downscales import DownscaleController
from rollout_operator.controllers.downscales import Parts as DownscaleParts
from rollout_operator.controllers.observe import Observer
from rollout_operator.controllers.worker import Workers
from rollout_operator.guards.downscales import Downscales, Stage
from rollout_operator.guards.locks import Locks
from rollout_operator.guards.notes import Notes
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Reader, Resource
from rollout_operator.kube.client import Client
from rollout_operator.kube.configurations import Configuration, ConfigurationStore
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.decode_webhooks import webhook_decoder
from rollout_operator.model.errors import ConfigError, InvalidInput
from rollout_operator.model.failure_policies import list_failure_policies
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable, WebhookConfiguration
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.pki.bundle import BundleInjector, Injection, is_ours
from rollout_operator.pki.files import CertificateFiles, CertificatePaths
from rollout_operator.pki.keeper import CertificateKeeper, Ties
from rollout_operator.pki.serving import ServingCertificate
from rollout_operator.pki.store import SecretStore
from rollout_operator.planning.certificate import Wanted, choose_ca_life, choose_names
from rollout_operator.pods.client import PodClient
from rollout_operator.telemetry.families import Counter
from rollout_operator.telemetry.health import Health
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.cluster import ClusterRules
from rollout_operator.web.no_downscale import NoDownscale
from rollout_operator.web.parents import Parents
from rollout_operator.web.prepare_downscale import Parts as PrepareParts
from rollout_operator.web.prepare_downscale import PrepareDownscale
from rollout_operator.web.routes import name_route
from rollout_operator.web.webhooks import Options, WebhookServer
from rollout_operator.webhook_flags import SelfSigned, WebhookConfig

NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_PATH: Final = "/admission/prepare-downscale"

# Sets whose downscales are looked after at a time; each mostly waits for pods.
WORKERS: Final = 8
BUG_BACKOFF: Final = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=15))
# A pod is told a second time after this many time-outs: nothing sent before arrives any more.
RETELL_TIMEOUTS: Final = 2
# After its last review a request is written within moments, where nothing else holds it up.
WRITE_LIMIT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the rollouts have built already and the webhooks use as well."""

    namespace: str
    sets: StatefulSetStore
    pods: PodStore
    locks: Locks
    downscales: Downscales
    metrics: Metrics
    health: Health
    clock: Clock
    cluster: ClusterRules
    make_client: Callable[[], Client]
    make_observer: Callable[[Reader], Observer]


class Webhooks:
    """All parts of the webhooks of one operator, wired."""

    def __init__(self, config: WebhookConfig, shared: Shared) -> None:
        """Build everything. Raises ConfigError for a file that cannot be read."""
        self._config = config
        self._shared = shared
        self._is_stopping = False
        self._configurations: list[ConfigurationStore] = []
        self._serving = make_serving(config.client_ca_file)
        self._keeper: CertificateKeeper | None = None
        self._injector: BundleInjector | None = None
        # Buckets of their own: reviews never wait for what controllers send, nor for each other.
        self._checking, self._reviewing, self._settling = (shared.make_client() for _ in range(3))
        self._queue: WorkQueue[Uid] = WorkQueue()
        self._server: WebhookServer | None = None
        shared.health.part("webhooks", is_ready=self._find_lack, is_alive=self._find_fault)
        self._workers: Workers[Uid] | None = None
        self._counters: dict[tuple[str, bool, Code], Counter] = {}

    async def start(self, stack: AsyncExitStack, tasks: TaskStack) -> None:
        """Serve reviews; the caches must be filled. Raises ConfigError and ApiError."""
        config, shared = self._config, self._shared
        pods = PodClient(
            namespace=shared.namespace,
            timeout=config.pods_timeout,
            metrics=shared.metrics,
            clock=shared.clock,
        )
        stack.push_async_callback(pods.close)
        self._follow_configurations(tasks)
        self._start_controller(pods, tasks)
        await self._start_certificate(tasks)
        server = self._build_server(pods)
        await server.start()
        stack.push_async_callback(server.stop)
        self._server = server
        log.info("Serving webhooks", port=server.port)

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

    async def drain(self, limit: timedelta) -> None:
        """Answer the reviews in flight, at most for `limit`, and accept no connection after that.

        A request whose pods are being called comes back for its next review, `no-downscale`: with
        the door shut before, fifty pods would have been prepared for nothing. Pods that are just
        being told something are told it, all others by the next process.
        """
        end = self._shared.clock.elapsed() + limit
        await self._wait_none(Stage.PREPARING, limit)
        await self._wait_none(Stage.OPEN, min(WRITE_LIMIT, end - self._shared.clock.elapsed()))
        if self._server is not None:
            await self._server.drain(max(end - self._shared.clock.elapsed(), timedelta(0)))
        self._queue.close()
        if self._workers is not None:
            await self._workers.wait_idle()

    async def _wait_none(self, stage: Stage, limit: timedelta) -> None:
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

    def _find_lack(self) -> str | None:
        if self._server is not None:
            return None
        error = None if self._keeper is None else self._keeper.last_error
        return f"no certificate yet: {error}" if error else "not served yet"

    def _find_fault(self) -> str | None:
        is_fine = self._is_stopping or self._server is None or self._server.is_serving
        return None if is_fine else "not accepting connections"

    def _build_server(self, pods: PodClient) -> WebhookServer:
        shared, config = self._shared, self._config
        parents = self._make_parents(self._checking)
        parts = PrepareParts(
            parents=self._make_parents(self._reviewing),
            looker=shared.make_observer(self._reviewing),
            locks=shared.locks,
            downscales=shared.downscales,
            notes=Notes(self._reviewing),
            pods=pods,
            clock=shared.clock,
            server_time=self._tell_server_time,
            namespace=shared.namespace,
            cluster_domain=config.cluster_domain,
            retell_after=config.pods_timeout * RETELL_TIMEOUTS,
            is_stopping=lambda: self._is_stopping,
        )
        return WebhookServer(
            config.port,
            hooks={
                NO_DOWNSCALE_PATH: NoDownscale(parents, fails_closed=config.fails_closed),
                PREPARE_PATH: PrepareDownscale(parts),
            },
            certificate=lambda: self._serving.current,
            request_timeout=config.request_timeout,
            metrics=shared.metrics,
            cluster=shared.cluster,
            clock=shared.clock,
            options=Options(
                may_patch=self._may_patch,
                on_verdict=self._count_verdict,
                client_name=config.client_name,
            ),
        )

    def _make_parents(self, client: Client) -> Parents:
        shared = self._shared
        return Parents(shared.sets, client, namespace=shared.namespace, clock=shared.clock)

    def _tell_server_time(self) -> datetime:
        """Return the API server's time, which every client knows by the answers to all of them."""
        return self._reviewing.server_time() or self._shared.clock.now()

    def _count_verdict(self, path: str, verdict: Verdict) -> None:
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
            for one in self._list_configurations()
            if isinstance(one, WebhookConfiguration) and is_ours(one, self._shared.namespace)
            for hook in one.webhooks
            if hook.path == path
        }
        return kinds == {MUTATING_WEBHOOKS.kind}

    def _start_controller(self, pods: PodClient, tasks: TaskStack) -> None:
        shared = self._shared
        controller = DownscaleController(
            DownscaleParts(
                sets=shared.sets,
                pods=shared.pods,
                downscales=shared.downscales,
                locks=shared.locks,
                notes=Notes(self._settling),
                calls=pods,
                door=self._settling,
                clock=shared.clock,
                server_time=self._tell_server_time,
                cluster_domain=self._config.cluster_domain,
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
            chance=random.random,
        )
        tasks.start("downscale workers", self._workers.run())
        states = shared.metrics.downscales
        states.labels("underway").set_function(
            lambda: shared.downscales.count(Stage.PREPARING) + shared.downscales.count(Stage.OPEN)
        )
        states.labels("persisted").set_function(lambda: shared.downscales.count(Stage.PERSISTED))
        states.labels("undoing").set_function(shared.downscales.count_owed)

    async def _start_certificate(self, tasks: TaskStack) -> None:
        shared, certificate = self._shared, self._config.certificate
        if not isinstance(certificate, SelfSigned):
            files = CertificateFiles(
                CertificatePaths(cert=Path(certificate.certificate), key=Path(certificate.key)),
                self._serving,
                shared.clock,
                self._note_expiry,
            )
            files.load()
            tasks.start("certificate files", files.run())
            return
        client = shared.make_client()
        wanted = Wanted(
            names=choose_names(certificate.dns_name, self._config.cluster_domain),
            organisation=certificate.organisation,
            expiration=certificate.expiration,
            ca_life=choose_ca_life(certificate.expiration),
        )
        store = SecretStore(client, namespace=shared.namespace, name=certificate.secret_name)
        ties = Ties(
            holds=self._holds_bundle, on_change=self._wake_injector, note_expiry=self._note_expiry
        )
        self._keeper = CertificateKeeper(store, self._serving, shared.clock, wanted, ties)
        await self._keeper.start()
        tasks.start("certificate keeper", self._keeper.run())
        if self._injector is not None:
            tasks.start("CA bundle injector", self._injector.run())

    def _note_expiry(self, which: str, not_after: datetime) -> None:
        gauge = self._shared.metrics.certificate_expiry
        gauge.labels(which).set(not_after.timestamp())

    def _holds_bundle(self, bundle: bytes) -> bool:
        return self._injector is None or self._injector.holds(bundle)

    def _wake_injector(self) -> None:
        if self._injector is not None:
            self._injector.wake()

    def _list_configurations(self) -> list[Configuration]:
        return [one for store in self._configurations for one in store.list_all()]

    def _follow_configurations(self, tasks: TaskStack) -> None:
        """Follow webhook configurations of both kinds: all of the cluster, or those named.

        They are of the cluster, and a role may forbid them: nothing waits for them.
        """
        shared, config = self._shared, self._config
        following = shared.make_client()
        if config.updates_bundle:
            self._injector = BundleInjector(
                following,
                Injection(
                    namespace=shared.namespace,
                    list_configurations=self._list_configurations,
                    bundle=lambda: b"" if self._keeper is None else self._keeper.ca_bundle,
                ),
                shared.metrics,
                shared.clock,
                random.random,
            )
        for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            for name in config.bundle_names or ("",):
                informer = self._follow(following, resource, name)
                tasks.start(f"{resource.plural} informer {name}".strip(), informer.run())
        shared.metrics.failure_policies(
            lambda: list_failure_policies(self._list_configurations(), shared.namespace)
        )

    def _follow(self, client: Client, resource: Resource, name: str) -> Informer[Configuration]:
        store = ConfigurationStore()
        self._configurations.append(store)
        collection = Collection(
            resource=resource,
            namespace="",
            decode=webhook_decoder(resource.kind),
            store=store,
            field_selector=f"metadata.name={name}" if name else "",
        )
        informer: Informer[Configuration] = Informer(
            client, collection, self._shared.metrics, self._shared.clock, random.random
        )
        if self._injector is not None:
            informer.on_change(self._injector.on_change)
        return informer


def make_serving(client_ca_file: str) -> ServingCertificate:
    """Return the holder of what is served; with a file only to clients that one of its CAs knows.

    Raises ConfigError: a file without a certificate would let anybody in.
    """
    if not client_ca_file:
        return ServingCertificate()
    try:
        return ServingCertificate(Path(client_ca_file).read_bytes())
    except (OSError, InvalidInput) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"-server-tls.client-ca-file: {client_ca_file}: {why}") from error
