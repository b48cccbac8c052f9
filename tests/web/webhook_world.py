"""A webhook server on a free port, the hooks behind it, and clients that speak TLS by hand."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.dispatch import Reviewer, ReviewHook
from rollout_operator.web.middleware import ClusterRules
from rollout_operator.web.webhooks import ServerOptions, WebhookServer
from tests.model.review_trees import review_tree
from tests.web.admin_world import check_anonymous
from tests.world.pki import make_pki

PATH: Final = "/admission/no-downscale"
FINE: Final = Verdict(is_allowed=True, reason=Reason(code=Code.NOT_A_DOWNSCALE, text=""))
ALLOWED: Final = (
    b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",'
    b'"response":{"uid":"u-1","allowed":true}}'
)
MILLISECOND: Final = timedelta(milliseconds=1)
LONG: Final = timedelta(hours=1)
PATIENCE: Final = 120
"""Seconds, of what would be waited for without end."""


def body_of(**request: Any) -> bytes:
    """Return the review as bytes."""
    return json.dumps(review_tree(**request)).encode()


def post(body: bytes, *lines: str, path: str = PATH, length: int | None = None) -> bytes:
    """Return a whole request; `lines` are more headers."""
    head = [
        f"POST {path} HTTP/1.1",
        "Host: operator",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if length is None else length}",
        *lines,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server, and that of its clients: a new pair after `cache_clear`."""
    with TemporaryDirectory() as folder:
        pki = make_pki(Path(folder))
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(pki.cert, pki.key)
        client = ssl.create_default_context(cafile=str(pki.ca))
    return server, client


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


class Line:
    """One TLS connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send_request(self, request: bytes) -> Answer:
        """Send bytes and read one answer."""
        self.writer.write(request)
        return await self.read()

    async def read(self) -> Answer:
        """Read one answer."""
        async with asyncio.timeout(PATIENCE):
            head, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.partition(": ") for line in lines if line)
            headers = {name.lower(): value for name, _, value in pairs}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        check_anonymous("\r\n".join([head, *lines]).encode() + body)
        return Answer(int(head.split(" ")[1]), headers, body)

    async def rest(self) -> bytes:
        """Read until the end of the connection, in order or not."""
        parts = []
        async with asyncio.timeout(PATIENCE):
            try:
                while part := await self.reader.read(1 << 16):
                    parts.append(part)
            except (ConnectionError, ssl.SSLError):
                pass
        if parts:
            check_anonymous(b"".join(parts))
        return b"".join(parts)

    async def close(self) -> None:
        self.writer.transport.abort()
        try:
            await self.writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            return


Answering = Callable[[Review, timedelta], Awaitable[Verdict]]


@dataclass
class ScriptedHook:
    """Records what it reviews, and answers what the test says."""

    verdict: Verdict = FINE
    act: Answering | None = None
    reviewed: list[Review] = field(default_factory=list)
    until: list[timedelta] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def review(self, review: Review, until: timedelta) -> Verdict:
        self.reviewed.append(review)
        self.until.append(until)
        self.begun.set()
        return self.verdict if self.act is None else await self.act(review, until)


class WebhookWorld:
    """A server, its hook, and how to reach it."""

    def __init__(
        self,
        port: int = 0,
        *,
        clock: Clock | None = None,
        options: ServerOptions | None = None,
        cluster: ClusterRules | None = None,
        hooks: Mapping[str, ReviewHook] | None = None,
        **reviewing: Any,
    ) -> None:
        self.hook = ScriptedHook()
        self.clock = clock or LoopClock()
        self.metrics = Metrics()
        self.server_context, self.client_context = contexts()
        self.given = 0
        self.server = WebhookServer(
            port,
            reviewer=Reviewer(
                hooks={PATH: self.hook, **(hooks or {})},
                clock=self.clock,
                **{"request_timeout": timedelta(seconds=10), **reviewing},
            ),
            certificate=self._give,
            metrics=self.metrics,
            cluster=cluster or ClusterRules(namespace="prod"),
            clock=self.clock,
            options=options or ServerOptions(),
        )
        self._lines: list[Line] = []

    def _give(self) -> ssl.SSLContext:
        self.given += 1
        return self.server_context

    async def connect(self, host: str = "127.0.0.1") -> Line:
        """Open a connection, closed at the end of the test."""
        async with asyncio.timeout(PATIENCE):
            line = Line(
                *await asyncio.open_connection(
                    host, self.server.port, ssl=self.client_context, server_hostname="localhost"
                )
            )
        self._lines.append(line)
        return line

    async def send_request(self, request: bytes) -> Answer:
        """Send bytes on a connection of their own."""
        return await (await self.connect()).send_request(request)

    async def hold(self, line: Line, gate: "Gate") -> None:
        """Send on this connection, and let the review wait at a gate."""
        self.hook.act = gate
        line.writer.write(post(body_of()))
        await gate.begun.acquire()

    async def dial(self) -> Line:
        """Open a connection without TLS."""
        line = Line(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self._lines.append(line)
        return line

    async def close(self) -> None:
        for line in self._lines:
            await line.close()

    def series(self, name: str) -> list[str]:
        """Return the lines of one metric, without its name."""
        body = b"".join(self.metrics.render()).decode()
        start = f"rollout_operator_{name}"
        return [line.removeprefix(start) for line in body.splitlines() if line.startswith(start)]


class Gate:
    """A hook's review that waits until the test lets it go."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    async def __call__(self, review: Review, until: timedelta) -> Verdict:
        self.begun.release()
        await self.opened.wait()
        return FINE


@asynccontextmanager
async def serving(**setting: Any) -> AsyncIterator[WebhookWorld]:
    """Run a server."""
    world = WebhookWorld(**setting)
    await world.server.start()
    try:
        yield world
    finally:
        await world.close()
        await world.server.stop()
