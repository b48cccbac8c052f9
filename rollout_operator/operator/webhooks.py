"""Composition of the webhook server: certificate, CA bundle, and the reviews of `operator.reviews`.

Start: what answers reviews, certificate served, server, CA bundle injected. Stop: no new downscale
is begun, reviews in flight get their answer.
"""

from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.webhook_flags import SelfSigned, WebhookConfig
from rollout_operator.kube.cache.configurations import Configuration
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.errors import ConfigError, InvalidInput
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.operator.context import Shared
from rollout_operator.operator.reviews import Reviews
from rollout_operator.pki.bundle import BundleInjector, Injection
from rollout_operator.pki.files import CertificateFiles, CertificatePaths
from rollout_operator.pki.manager import CertificateKeeper, Ties
from rollout_operator.pki.serving import ServingCertificate
from rollout_operator.pki.store import SecretStore
from rollout_operator.planning.certificate import Wanted, choose_ca_life, choose_names
from rollout_operator.telemetry.logs import log
from rollout_operator.web.http.cluster import ClusterRules
from rollout_operator.web.webhooks import ServerOptions, WebhookServer


class Webhooks:
    """All parts of the webhooks of one operator, wired. Implements `operator.engine.Reviewing`."""

    def __init__(self, config: WebhookConfig, shared: Shared, cluster: ClusterRules) -> None:
        """Build everything; needs a running loop. Raises ConfigError for an unreadable file."""
        self._config = config
        self._shared = shared
        self._cluster = cluster
        self._serving = make_serving(config.client_ca_file)
        self._keeper: CertificateKeeper | None = None
        self._reviews = Reviews(config, shared)
        self._injector = (
            self._build_injector(config.certificate)
            if config.updates_bundle and isinstance(config.certificate, SelfSigned)
            else None
        )
        self._server: WebhookServer | None = None
        shared.health.part("webhooks", is_ready=self._find_lack, is_alive=self._find_fault)

    async def start(self, stack: AsyncExitStack, tasks: TaskStack) -> None:
        """Serve reviews; the caches must be filled. Raises ConfigError and ApiError."""
        await self._reviews.start(stack, tasks, self._on_configuration)
        await self._start_certificate(tasks)
        server = self._build_server()
        await server.start()
        stack.push_async_callback(server.stop)
        self._server = server
        log.info("Serving webhooks", port=server.port)

    def on_set(
        self, old: StatefulSet | Unreadable | None, new: StatefulSet | Unreadable | None
    ) -> None:
        """Take note of a changed set: the callback for its informer."""
        self._reviews.on_set(old, new)

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Take note of a changed pod: the callback for its informer."""
        self._reviews.on_pod(old, new)

    def stopping(self) -> None:
        """Begin no new downscale from now on."""
        self._reviews.stopping()

    async def drain(self, limit: timedelta) -> None:
        """Answer the reviews in flight, at most for `limit`, and accept no connection after that.

        The port stays open while pods are being called: see `Reviews.settle`.
        """
        left = await self._reviews.settle(limit)
        if self._server is not None:
            await self._server.drain(left)
        await self._reviews.finish()

    def _on_configuration(self, old: Configuration | None, new: Configuration | None) -> None:
        if self._injector is not None:
            self._injector.on_change(old, new)

    def _find_lack(self) -> str | None:
        if self._server is not None:
            return None
        error = None if self._keeper is None else self._keeper.last_error
        return f"no certificate yet: {error}" if error else "not served yet"

    def _find_fault(self) -> str | None:
        is_ending = self._reviews.is_stopping
        is_fine = is_ending or self._server is None or self._server.is_serving
        return None if is_fine else "not accepting connections"

    def _build_server(self) -> WebhookServer:
        return WebhookServer(
            self._config.port,
            reviewer=self._reviews.reviewer,
            certificate=lambda: self._serving.current,
            metrics=self._shared.metrics,
            cluster=self._cluster,
            clock=self._shared.clients.clock,
            options=ServerOptions(client_name=self._config.client_name),
        )

    def _build_injector(self, certificate: SelfSigned) -> BundleInjector:
        shared = self._shared
        return BundleInjector(
            shared.clients.open("injecting", Priority.LOOK),
            Injection(
                namespace=shared.namespace,
                list_configurations=self._reviews.list_configurations,
                bundle=lambda: b"" if self._keeper is None else self._keeper.ca_bundle,
                names=self._choose_names(certificate),
            ),
            shared.metrics,
            shared.clients.clock,
            shared.clients.rng,
        )

    async def _start_certificate(self, tasks: TaskStack) -> None:
        shared, certificate = self._shared, self._config.certificate
        if not isinstance(certificate, SelfSigned):
            files = CertificateFiles(
                CertificatePaths(cert=Path(certificate.certificate), key=Path(certificate.key)),
                self._serving,
                shared.clients.clock,
                self._note_expiry,
            )
            files.load()
            tasks.start("certificate files", files.run())
            return
        client = shared.clients.open("certificate", Priority.LOOK)
        wanted = Wanted(
            names=self._choose_names(certificate),
            organisation=certificate.organisation,
            expiration=certificate.expiration,
            ca_life=choose_ca_life(certificate.expiration),
        )
        store = SecretStore(client, namespace=shared.namespace, name=certificate.secret_name)
        ties = Ties(
            holds=self._holds_bundle, on_change=self._wake_injector, note_expiry=self._note_expiry
        )
        self._keeper = CertificateKeeper(store, self._serving, shared.clients.clock, wanted, ties)
        await self._keeper.start()
        tasks.start("certificate keeper", self._keeper.run())
        if self._injector is not None:
            tasks.start("CA bundle injector", self._injector.run())

    def _choose_names(self, certificate: SelfSigned) -> tuple[str, ...]:
        return choose_names(certificate.dns_name, self._shared.settings.cluster_domain)

    def _note_expiry(self, which: str, not_after: datetime) -> None:
        gauge = self._shared.metrics.certificate_expiry
        gauge.labels(which).set(not_after.timestamp())

    def _holds_bundle(self, bundle: bytes) -> bool:
        return self._injector is None or self._injector.holds(bundle)

    def _wake_injector(self) -> None:
        if self._injector is not None:
            self._injector.wake()


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
