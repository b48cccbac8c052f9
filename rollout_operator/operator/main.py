"""Composition root: open the clients of a cluster, serve, and end on a signal.

The admin server starts first and stops last; `operator.fleet` orders the rest.
"""

import asyncio
import os
import random
import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock, MachineClock
from rollout_operator.aio.memory import return_rest
from rollout_operator.config.flags import METRICS_PORT, Config
from rollout_operator.controllers.context import Clients, Process, Telemetry
from rollout_operator.kube.api import Fence, Timeouts
from rollout_operator.kube.client import Client
from rollout_operator.kube.connection import Access, Transport, connect
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.kube.rate_limit import RateLimiter as RateLimits
from rollout_operator.model.lease import Identity, render_address
from rollout_operator.model.names import FIELD_MANAGER, ConfigError
from rollout_operator.operator.fleet import Namespaces
from rollout_operator.pods import HttpSender
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.states import Heartbeat
from rollout_operator.telemetry.tracing import traced
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.middleware import ClusterRules

if TYPE_CHECKING:
    from rollout_operator.operator.webhooks import Webhooks


class LifeLimits(msgspec.Struct, frozen=True, kw_only=True):
    sync: timedelta = timedelta(seconds=60)
    """How long the caches may take to fill before the process gives up."""


def run(config: Config, limits: LifeLimits | None = None) -> int:
    """Run the operator until a signal stops it; return the exit code: 0 after a clean stop.

    Raises ConfigError and StartError where it could not start, TaskDied where a part broke.
    """
    logs.configure(format=config.log_format, level=config.log_level)
    logs.install_stdlib_bridge()
    with ExitStack() as stack:
        if config.operator_name != FIELD_MANAGER:
            stack.enter_context(logs.bind_keys(operator=config.operator_name))
        return _run(config, limits or LifeLimits())


def _run(config: Config, limits: LifeLimits) -> int:
    log.info("Starting rollout operator", version=__version__, namespace=config.namespace)
    _log_environment(config)
    for name in config.without_effect:
        log.warn("Deprecated flag has no effect", flag=name)
    if config.leftovers:
        log.warn("Ignoring words after the flags", words=" ".join(config.leftovers))
    with traced(os.environ), asyncio.Runner(loop_factory=_choose_loop()) as runner:
        runner.run(_serve(config, limits))
    return 0


def _log_environment(config: Config) -> None:
    environment = config.environment
    for warning in environment.warnings:
        log.warn("Variable of the environment is not as it should be", why=warning)
    if environment.is_given:
        log.info(
            "Effective configuration",
            namespaces=",".join(config.namespaces) or "all",
            log_level=config.log_level,
            operator=config.operator_name,
            lease=config.lease,
            ports=[port for port in (config.server_port, config.extra_port) if port],
        )


def _choose_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory, None where it is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(config: Config, limits: LifeLimits) -> None:
    stop = _listen_to_signals()
    clock = MachineClock()
    telemetry = Telemetry.begin(clock)
    heartbeat = Heartbeat(clock, telemetry.metrics)
    async with AsyncExitStack() as stack:
        admin = AdminServer(
            config.server_port,
            metrics=telemetry.metrics,
            health=telemetry.health,
            cluster=_cluster_rules(config),
        )
        await admin.start()
        stack.push_async_callback(admin.stop)
        await listen_also(admin, config)
        access = Access(
            namespace=config.namespace,
            name=config.operator_name,
            api_url=config.api_url,
            config_file=config.config_file,
        )
        transport = await connect(access, clock)
        stack.push_async_callback(transport.close)
        # Not earlier: without any part it reports that the operator starts, and so not ready.
        telemetry.health.part("event loop", is_alive=heartbeat.find_stall)
        namespaces = _build_namespaces(config, transport, clock, telemetry)
        admin.show(namespaces.describe)
        also = {
            "heartbeat": heartbeat.run(),
            "memory": return_rest(clock),
            **namespaces.discover(),
        }
        await namespaces.fleet.serve(stop, limits.sync, also)
    log.info("Rollout operator has stopped")


async def listen_also(admin: AdminServer, config: Config) -> None:
    """Listen on `METRICS_PORT` as well; only a port that the user chose must be free."""
    if not config.extra_port:
        return
    try:
        await admin.listen_also(config.extra_port, METRICS_PORT)
    except ConfigError as error:
        if config.environment.is_port_chosen:
            raise
        log.warn("Metrics are served on one port only", port=config.server_port, err=error)


def _build_namespaces(
    config: Config, transport: Transport, clock: Clock, telemetry: Telemetry
) -> Namespaces:
    timeouts = Timeouts().at_most(config.client_timeout)
    limits = RateLimits(config.client_qps, config.client_burst)
    telemetry.health.part("API client", describe=limits.describe_line)

    def open_client(name: str, reads: Priority, fence: Fence) -> Client:
        return Client(transport, limits, telemetry.metrics, timeouts, reads, fence)

    clients = Clients(
        open=open_client,
        open_pods=HttpSender,
        clock=clock,
        rng=random.random,
        identity=choose_identity(os.environ, config.forwarding_port, config.pod_name),
        writes_events=True,
    )
    process = Process(config, clients, telemetry)
    if config.is_shadow:
        log.info("Shadow mode: nothing is written, and no webhook is answered")
    webhooks = _build_webhooks(config, process) if config.answers_reviews else None
    reviews = None if webhooks is None else webhooks.make_reviews
    namespaces = Namespaces(config, process, telemetry, reviews)
    if webhooks is not None:
        webhooks.begin_namespace = namespaces.add_for_review
        webhooks.report_to(telemetry.health)
        namespaces.fleet.serve_reviews(webhooks)
    return namespaces


def _build_webhooks(config: Config, process: Process) -> "Webhooks":
    # 12 MiB and a quarter of a second, for certificates and all, where they are wanted.
    from rollout_operator.operator.webhooks import Webhooks

    return Webhooks(config, process, _cluster_rules(config))


def choose_identity(environment: Mapping[str, str], port: int, pod_name: str = "") -> Identity:
    """Return the identity of this process among the replicas.

    The pod's name comes from `pod_name`, `POD_NAME` or else the machine's; a random part tells two
    processes of one machine apart. Other replicas are answered at `POD_IP` on `port`.
    """
    pod = pod_name or environment.get("POD_NAME", "")
    return Identity(
        name=pod or socket.gethostname(),
        life=secrets.token_hex(4),
        is_pod=bool(pod),
        address=render_address(environment.get("POD_IP", ""), port),
    )


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


def _cluster_rules(config: Config) -> ClusterRules:
    return ClusterRules(
        namespace=config.namespace,
        enabled=config.cluster_validation_enabled,
        soft=config.cluster_validation_soft,
        excluded_paths=config.cluster_validation_excluded_paths,
        excluded_user_agents=config.cluster_validation_excluded_user_agents,
    )
