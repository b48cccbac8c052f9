"""Composition of the webhook servers: certificate, CA bundle, the reviews of `operator.reviews`.

Start: the reviews, certificate served, CA bundle injected, the server for other replicas, the
server for the API server. Stop: no new downscale is begun, reviews are answered until API servers
call others, those in flight get their answer.
"""

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from rollout_operator.aio.tasks import TaskStack, gather_all
from rollout_operator.config.flags import Config
from rollout_operator.kube.election import ElectionState
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import Configuration
from rollout_operator.model.names import ConfigError, InvalidInput
from rollout_operator.operator.context import Context, Process
from rollout_operator.operator.features import Budgets
from rollout_operator.operator.reviews import (
    LED_PATHS,
    Begin,
    Choose,
    Configurations,
    Reviews,
    route_reviews,
)
from rollout_operator.pki.bundle import BundleInjector, Injection
from rollout_operator.pki.certificates import SecretStore
from rollout_operator.pki.manager import CertificateCallbacks, CertificateController
from rollout_operator.pki.serving import CertificateFiles, CertificatePaths, ServingCertificate
from rollout_operator.planning.certificate import Wanted, choose_ca_life, choose_names
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.states import Health
from rollout_operator.web.dispatch import Forwarder, ForwardOutcome, Peers, Reviewer
from rollout_operator.web.middleware import ClusterRules, name_route
from rollout_operator.web.webhooks import ServerOptions, WebhookServer

PEER_FLAG: Final = "-server-tls.peer-port"
# The next elected process is known within a second; a read of one object costs next to nothing.
POLL_EVERY: Final = timedelta(milliseconds=500)
SELF_SIGNED_FLAG: Final = "-server-tls.self-signed-cert.enabled"


class Webhooks:
    """All parts of the webhooks of one process, wired: a `ReviewServer` of the fleet."""

    def __init__(self, config: Config, process: Process, cluster: ClusterRules) -> None:
        """Build everything; needs a running loop. Raises ConfigError for an unreadable file."""
        self._config = config
        self._process = process
        self._cluster = cluster
        self._names = choose_names(config.service_name, config.cluster_domain)
        self._serving = make_serving(config.client_ca_file)
        self._certificates: CertificateController | None = None
        self._forwarder = self._build_forwarder()
        self._configurations = Configurations(process, config.bundle_names)
        self._reviews: dict[str, Reviews] = {}
        self.begin_namespace: Begin = _begin_none
        """Called with each namespace of which a review is the first sign."""
        self._injector = (
            self._build_injector() if config.updates_bundle and config.self_signed else None
        )
        self._server: WebhookServer | None = None
        self._peer_server: WebhookServer | None = None
        self._has_others = False
        """Whether another process may answer reviews once this process ends."""

    def make_reviews(self, context: Context, budgets: Budgets) -> Reviews:
        """Return the reviews of another namespace, also while others are served."""
        reviews = Reviews(self._config, context, budgets, self._configurations, self._forwarder)
        self._reviews[reviews.namespace] = reviews
        return reviews

    def report_to(self, health: Health) -> None:
        """Have `health` show what is missing or broken."""
        health.part(
            "webhooks",
            is_ready=self._find_lack,
            is_alive=self._find_fault,
            describe=self._describe_certificate,
        )

    async def start(self, stack: AsyncExitStack, tasks: TaskStack) -> None:
        """Serve reviews; the caches must be filled. Raises ConfigError and ApiError."""
        stack.push_async_callback(self._close_reviews)
        self._configurations.follow(tasks, self._on_configuration)
        if self._config.self_signed:
            await self._start_own_certificate(tasks)
        else:
            self._start_given_certificate(tasks)
        if self._forwarder is not None:
            stack.push_async_callback(self._forwarder.close)
            if self._serving.peers.calling is None:
                why = "the certificate is not meant for clients: its renewal mends that"
                log.info("This replica passes no reviews on", why=why)
        if self._process.address:
            self._peer_server = await self._serve(
                stack,
                self._config.peer_port,
                self._route(lambda reviews: reviews.peer_reviewer),
                lambda: self._serving.peers.accepting,
                ServerOptions(client_host=self._names[0], flag=PEER_FLAG),
            )
            log.info("Answering other replicas", address=self._process.address)
        elif self._config.lease:
            log.info("No reviews are passed on to this replica", why=self._explain_no_address())
        self._server = await self._serve(
            stack,
            self._config.webhooks_port,
            self._route(lambda reviews: reviews.reviewer),
            lambda: self._serving.current,
            ServerOptions(client_name=self._config.client_name),
        )
        log.info("Serving webhooks", port=self._server.port)

    async def settle(self, limit: timedelta) -> timedelta:
        """Wait until nothing is being prepared; the port stays open, see `Reviews.settle`."""
        self._has_others = self._process.election.state is not ElectionState.ALONE
        left = limit
        for reviews in self._reviews.values():
            left = await reviews.settle(left)
        for reviews in self._reviews.values():
            await reviews.finish()
        return left

    async def drain(self, limit: timedelta) -> None:
        """Answer for as long as API servers may still call, then the reviews in flight, and end.

        The latter takes at most `limit`; no connection is accepted meanwhile.
        """
        if self._has_others:
            await self._linger()
        await gather_all([server.drain(limit) for server in self._servers])

    def _route(self, choose: Choose) -> Reviewer:
        if self._config.watches_several:
            return route_reviews(self._reviews, choose, self.begin_namespace)
        return choose(next(iter(self._reviews.values())))

    async def _close_reviews(self) -> None:
        for reviews in self._reviews.values():
            await reviews.close()

    @property
    def _servers(self) -> list[WebhookServer]:
        return [server for server in (self._server, self._peer_server) if server is not None]

    async def _linger(self) -> None:
        """Go on answering until no API server sends reviews to this process any more.

        API servers learn of its end some moments later than the process itself. Reviews for the
        replica that leads go to the next leader as soon as it is known.
        """
        clock, election = self._process.clock, self._process.election
        for server in self._servers:
            server.leave()
        end = (self._process.stopping_since or clock.elapsed()) + self._config.shutdown_delay
        while (left := end - clock.elapsed()) > timedelta(0):
            await election.read_leader()
            await clock.sleep(min(POLL_EVERY, left))

    async def _serve(
        self,
        stack: AsyncExitStack,
        port: int,
        reviewer: Reviewer,
        certificate: Callable[[], ssl.SSLContext],
        options: ServerOptions,
    ) -> WebhookServer:
        server = WebhookServer(
            port,
            reviewer=reviewer,
            certificate=certificate,
            metrics=self._process.metrics,
            cluster=self._cluster,
            clock=self._process.clock,
            options=options,
        )
        await server.start()
        stack.push_async_callback(server.stop)
        return server

    def _on_configuration(self, old: Configuration | None, new: Configuration | None) -> None:
        if self._injector is not None:
            self._injector.on_change(old, new)

    def _find_lack(self) -> str | None:
        if self._server is not None:
            return None
        error = None if self._certificates is None else self._certificates.last_error
        return f"no certificate yet: {error}" if error else "not served yet"

    def _describe_certificate(self) -> str | None:
        """Say what is wrong with the certificate that is served: a restart may find none."""
        if (
            self._server is None
            or self._certificates is None
            or self._certificates.last_error is None
        ):
            return None
        return f"served, but not as they should be: {self._certificates.last_error}"

    def _find_fault(self) -> str | None:
        is_ending = self._process.is_stopping
        is_fine = is_ending or all(server.is_serving for server in self._servers)
        return None if is_fine else "not accepting connections"

    def _explain_no_address(self) -> str:
        if not self._config.self_signed:
            return f"the certificate is not of a CA of ours: {SELF_SIGNED_FLAG} is false"
        if not self._config.peer_port:
            return f"{PEER_FLAG} is 0"
        return "POD_IP in the environment is not the address of a pod"

    def _build_forwarder(self) -> Forwarder | None:
        process = self._process
        if not self._config.forwarding_port:
            return None
        peers = Peers(
            find_leader=lambda: process.election.leader,
            trust=lambda: self._serving.peers.calling,
            host=self._names[0],
            namespace=process.namespace,
        )
        for path in LED_PATHS:
            for outcome in ForwardOutcome:
                process.metrics.forwarded_reviews.labels(name_route(path), outcome)
        return Forwarder(peers, process.clock, self._count_forwarded)

    def _count_forwarded(self, path: str, outcome: ForwardOutcome) -> None:
        self._process.metrics.forwarded_reviews.labels(name_route(path), outcome).inc()

    def _build_injector(self) -> BundleInjector:
        process = self._process
        return BundleInjector(
            process.open_unfenced("injecting", Priority.READ),
            Injection(
                namespace=process.namespace,
                list_configurations=self._configurations.list_all,
                bundle=lambda: b"" if self._certificates is None else self._certificates.ca_bundle,
                confirm=self._confirm_bundle,
                names=self._names,
            ),
            process.metrics,
            process.clock,
            process.rng,
        )

    def _start_given_certificate(self, tasks: TaskStack) -> None:
        files = CertificateFiles(
            CertificatePaths(cert=Path(self._config.cert_file), key=Path(self._config.key_file)),
            self._serving,
            self._process.clock,
            self._record_expiry,
        )
        files.load()
        tasks.start("certificate files", files.run())

    async def _start_own_certificate(self, tasks: TaskStack) -> None:
        process, config = self._process, self._config
        wanted = Wanted(
            names=self._names,
            organisation=config.organisation,
            expiration=config.expiration,
            ca_life=choose_ca_life(config.expiration),
        )
        client = process.open_unfenced("certificate", Priority.READ)
        store = SecretStore(client, namespace=process.namespace, name=config.secret_name)
        callbacks = CertificateCallbacks(
            holds=self._holds_bundle,
            on_change=self._wake_injector,
            record_expiry=self._record_expiry,
        )
        self._certificates = CertificateController(
            store, self._serving, process.clock, wanted, callbacks
        )
        await self._certificates.start()
        tasks.start("certificate manager", self._certificates.run())
        if self._injector is not None:
            tasks.start("CA bundle injector", self._injector.run())

    def _record_expiry(self, which: str, not_after: datetime) -> None:
        gauge = self._process.metrics.certificate_expiry
        gauge.labels(which).set(not_after.timestamp())

    def _holds_bundle(self, bundle: bytes) -> bool:
        return self._injector is None or self._injector.holds(bundle)

    async def _confirm_bundle(self) -> None:
        if self._certificates is not None:
            await self._certificates.confirm()

    def _wake_injector(self) -> None:
        if self._injector is not None:
            self._injector.wake()


async def _begin_none(namespace: str) -> None:
    """Add no namespace to those that were named."""


def make_serving(client_ca_file: str) -> ServingCertificate:
    """Return the certificate to serve; with a file only to clients with one of its CAs.

    Raises ConfigError: a file without a certificate would let every client in.
    """
    if not client_ca_file:
        return ServingCertificate()
    try:
        return ServingCertificate(Path(client_ca_file).read_bytes())
    except (OSError, InvalidInput) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"-server-tls.client-ca-file: {client_ca_file}: {why}") from error
