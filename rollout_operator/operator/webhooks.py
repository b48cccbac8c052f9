"""The webhook servers of one process: certificate, CA bundle, listeners.

Start: reviews, certificate, CA bundle, the server for other replicas, the server for the API
server. Stop: no new downscale begins, reviews are answered until API servers call another replica,
reviews in flight get their answer.
"""

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final

from rollout_operator.aio.tasks import TaskStack, gather_all
from rollout_operator.config.flags import Config
from rollout_operator.controllers.budgets import Budgets
from rollout_operator.controllers.context import Context, Process
from rollout_operator.kube.election import ElectionState
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.store import Configuration
from rollout_operator.model.names import ConfigError, InvalidInput
from rollout_operator.operator.reviews import (
    LED_PATHS,
    Begin,
    Choose,
    Configurations,
    Reviews,
    route_reviews,
)
from rollout_operator.pki.bundle import BundleInjector, Injection
from rollout_operator.pki.manager import CertificateController, SecretStore
from rollout_operator.pki.serving import CertificateFiles, CertificatePaths, ServingCertificate
from rollout_operator.planning.certificate import Wanted, choose_ca_life, choose_names
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.states import Health
from rollout_operator.web.dispatch import Forwarder, ForwardOutcome, Peers, Reviewer
from rollout_operator.web.middleware import ClusterRules, name_route
from rollout_operator.web.webhooks import ServerOptions, WebhookServer

_PEER_FLAG: Final = "-server-tls.peer-port"
# The next elected process is known within a second; a read of one object costs next to nothing.
_POLL_EVERY: Final = timedelta(milliseconds=500)
_SELF_SIGNED_FLAG: Final = "-server-tls.self-signed-cert.enabled"


class Webhooks:
    """Implements `ReviewServer` of the fleet."""

    def __init__(self, config: Config, process: Process, cluster: ClusterRules) -> None:
        """Needs a running loop. Raises ConfigError for an unreadable file."""
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
        """Called with each namespace that a review names and this process does not watch."""
        self._injector = (
            self._build_injector() if config.updates_bundle and config.self_signed else None
        )
        self._server: WebhookServer | None = None
        self._peer_server: WebhookServer | None = None
        self._has_others = False
        """Whether another process may answer reviews once this one ends."""

    def make_reviews(self, context: Context, budgets: Budgets) -> Reviews:
        reviews = Reviews(self._config, context, budgets, self._configurations, self._forwarder)
        self._reviews[reviews.namespace] = reviews
        return reviews

    def report_to(self, health: Health) -> None:
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
                ServerOptions(client_host=self._names[0], flag=_PEER_FLAG),
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
        left, served = limit, tuple(self._reviews.values())  # a namespace may come meanwhile
        for reviews in served:
            left = await reviews.settle(left)
        for reviews in served:
            await reviews.finish()
        return left

    async def drain(self, limit: timedelta) -> None:
        """Answer while API servers may still call, then finish the reviews in flight, and close.

        Only the reviews in flight have the limit; no connection is accepted meanwhile.
        """
        if self._has_others:
            await self._linger()
        await gather_all([server.drain(limit) for server in self._servers])

    def _route(self, choose: Choose) -> Reviewer:
        if self._config.watches_several:
            return route_reviews(self._reviews, choose, self.begin_namespace)
        return choose(next(iter(self._reviews.values())))

    async def _close_reviews(self) -> None:
        for reviews in tuple(self._reviews.values()):
            await reviews.close()

    @property
    def _servers(self) -> list[WebhookServer]:
        return [server for server in (self._server, self._peer_server) if server is not None]

    async def _linger(self) -> None:
        """Go on answering until no API server calls this process any more.

        API servers learn that it ends some moments later. Reviews for the elected replica go to the
        next one as soon as it is known.
        """
        clock, election = self._process.clock, self._process.election
        for server in self._servers:
            server.leave()
        end = (self._process.stopping_since or clock.elapsed()) + self._config.shutdown_delay
        while (left := end - clock.elapsed()) > timedelta(0):
            await election.read_leader()
            await clock.sleep(min(_POLL_EVERY, left))

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
        error = None if self._certificates is None else self._certificates.last_error
        if self._server is None or error is None:
            return None
        return f"served, but not as they should be: {error}"

    def _find_fault(self) -> str | None:
        is_ending = self._process.is_stopping
        is_fine = is_ending or all(server.is_serving for server in self._servers)
        return None if is_fine else "not accepting connections"

    def _explain_no_address(self) -> str:
        if not self._config.self_signed:
            return f"the certificate is not of a CA of ours: {_SELF_SIGNED_FLAG} is false"
        if not self._config.peer_port:
            return f"{_PEER_FLAG} is 0"
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
        count = process.metrics.forwarded_reviews.labels
        return Forwarder(
            peers, process.clock, lambda path, outcome: count(name_route(path), outcome).inc()
        )

    def _build_injector(self) -> BundleInjector:
        process = self._process
        return BundleInjector(
            process.open_unfenced("injecting", Priority.READ),
            Injection(
                namespace=process.namespace,
                list_configurations=self._configurations.list_all,
                confirm=self._confirm_bundle,
                names=self._names,
                are_known=lambda: self._configurations.are_known,
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
            self._process.metrics,
        )
        files.load()
        tasks.start("certificate files", files.run())

    async def _start_own_certificate(self, tasks: TaskStack) -> None:
        process, config, injector = self._process, self._config, self._injector
        wanted = Wanted(
            names=self._names,
            organisation=config.organisation,
            expiration=config.expiration,
            ca_life=choose_ca_life(config.expiration),
        )
        client = process.open_unfenced("certificate", Priority.READ)
        store = SecretStore(client, namespace=process.namespace, name=config.secret_name)
        self._certificates = CertificateController(
            store, self._serving, process.clock, wanted, process.metrics, injector
        )
        await self._certificates.start()
        tasks.start("certificate manager", self._certificates.run())
        if injector is not None:
            tasks.start("CA bundle injector", injector.run())

    async def _confirm_bundle(self) -> None:
        if self._certificates is not None:
            await self._certificates.confirm()


async def _begin_none(namespace: str) -> None: ...


def make_serving(client_ca_file: str) -> ServingCertificate:
    """Return the certificate to serve; with a file, only to clients with one of its CAs.

    Raises ConfigError: a file without a certificate would let every client in.
    """
    if not client_ca_file:
        return ServingCertificate()
    try:
        return ServingCertificate(Path(client_ca_file).read_bytes())
    except (OSError, InvalidInput) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"-server-tls.client-ca-file: {client_ca_file}: {why}") from error
