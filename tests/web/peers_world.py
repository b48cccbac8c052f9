"""Two replicas over real TLS: one that leads and answers, one that passes reviews on to it."""

import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from aiohttp import web

from rollout_operator.aio.clock import LoopClock
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.lease import Lease
from rollout_operator.model.outcome import Verdict
from rollout_operator.pki.certificates import KeyMaterial, carry_out
from rollout_operator.pki.serving import ServingCertificate
from rollout_operator.planning.certificate import CertificateStep, Decision
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.dispatch import Forwarder, ForwardOutcome, LeaderOnly, Peers, Reviewer
from rollout_operator.web.middleware import ClusterRules
from rollout_operator.web.webhooks import ServerOptions, WebhookServer
from tests.pki.certificates import HOST, WANTED
from tests.web.webhook_world import ScriptedHook, body_of

PATH = "/admission/pod-eviction"
SPAN = timedelta(seconds=10)
FRESH = Decision(step=CertificateStep.START_OVER, reason="there is no secret")

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def fresh() -> KeyMaterial:
    """Return a CA of its own, and a leaf that it has signed."""
    return carry_out(FRESH, KeyMaterial(), WANTED, datetime.now(UTC))


def serving_of(material: KeyMaterial) -> ServingCertificate:
    serving = ServingCertificate()
    serving.swap(material)
    return serving


@dataclass
class Leader:
    """What is at the address in the Lease."""

    serving: ServingCertificate
    hook: ScriptedHook = field(default_factory=ScriptedHook)
    is_leading: bool = True
    port: int = 0
    metrics: Metrics = field(default_factory=Metrics)


@asynccontextmanager
async def leading(serving: ServingCertificate) -> AsyncIterator[Leader]:
    """Run the server for other replicas, as `operator.webhooks` does."""
    leader = Leader(serving)
    clock = LoopClock()
    hook = LeaderOnly(
        path=PATH,
        hook=leader.hook,
        is_leading=lambda: leader.is_leading,
        describe=lambda: "another",
    )
    server = WebhookServer(
        0,
        reviewer=Reviewer(hooks={PATH: hook}, request_timeout=SPAN, clock=clock),
        certificate=lambda: leader.serving.peers.accepting,
        metrics=leader.metrics,
        cluster=ClusterRules(namespace="prod", enabled=True, excluded_paths=("none",)),
        clock=clock,
        options=ServerOptions(client_host=HOST),
    )
    await server.start()
    leader.port = server.port
    try:
        yield leader
    finally:
        await server.stop()


@asynccontextmanager
async def strange_server(answer: Answer, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Run a server of another owner on a free port."""
    runner = web.ServerRunner(web.Server(answer))  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


class Follower:
    """A replica that does not lead."""

    def __init__(self, serving: ServingCertificate, port: int) -> None:
        self.clock = LoopClock()
        self.outcomes = Counter[tuple[str, ForwardOutcome]]()
        self.serving = serving
        self.lease: Lease | None = Lease(
            version="1", holder="leader_1", address=f"127.0.0.1:{port}"
        )
        self.is_leading = False
        self.unknown: set[str] = set()
        """Names that its cache does not show."""
        self.hook = ScriptedHook()
        self.forwarder = Forwarder(
            Peers(
                find_leader=lambda: self.lease,
                trust=lambda: self.serving.peers.calling,
                host=HOST,
                namespace="prod",
            ),
            self.clock,
            lambda path, outcome: self.outcomes.update([(path, outcome)]),
        )
        self.led = LeaderOnly(
            path=PATH,
            hook=self.hook,
            is_leading=lambda: self.is_leading,
            describe=lambda: "another",
            confirms=lambda review: review.name not in self.unknown,
            forwarder=self.forwarder,
        )

    async def send_request(self, span: timedelta = SPAN, **request: object) -> Verdict | bytes:
        """Request a review that was sent to this replica; the answer must be out after `span`."""
        body = body_of(**request)
        review = decode_review(body, keeps=self.led.forwards)
        return await self.led.review(review, self.clock.elapsed() + span)

    def count(self) -> dict[str, int]:
        """Return how many reviews came to which outcome."""
        return {outcome.value: count for (_, outcome), count in self.outcomes.items()}


@asynccontextmanager
async def following(serving: ServingCertificate, port: int) -> AsyncIterator[Follower]:
    """Run a replica that passes reviews on to this port."""
    follower = Follower(serving, port)
    try:
        yield follower
    finally:
        await follower.forwarder.close()
