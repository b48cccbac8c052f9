"""Both servers on free ports, what is behind them, and clients that speak HTTP by hand."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from aiohttp import ClientSession, web

from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.model.description import Description
from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.states import Health
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.connection import Connection
from rollout_operator.web.dispatch import Reviewer, ReviewHook
from rollout_operator.web.middleware import ClusterRules
from rollout_operator.web.webhooks import ServerOptions, WebhookServer
from tests.fakes_clock import FakeClock
from tests.model.review_trees import review_tree
from tests.web.status.descriptions import describe
from tests.world.pki import make_pki

PATH: Final = "/admission/no-downscale"
RULES: Final = ClusterRules(namespace="prod")
FINE: Final = Verdict(is_allowed=True, reason=Reason(code=Code.NOT_A_DOWNSCALE, text=""))
ALLOWED: Final = (
    b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",'
    b'"response":{"uid":"u-1","allowed":true}}'
)
CLOSE: Final = "Host: x\r\nConnection: close\r\n\r\n"
"""The end of a raw request whose answer is read to the end."""
MILLISECOND: Final = timedelta(milliseconds=1)
LONG: Final = timedelta(hours=1)
PATIENCE: Final = 120
"""Seconds, of what would be waited for without end."""


def body_of(**request: Any) -> bytes:
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


def check_anonymous(answer: bytes) -> None:
    """See that an answer does not say which versions it was made with (SEC-13)."""
    head = answer.partition(b"\r\n\r\n")[0]
    assert re.findall(rb"(?im)^server: *(.*?)\r?$", head) == [b"rollout-operator"]
    assert not re.search(rb"(?i)python|aiohttp", answer)


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
        self.writer.write(request)
        return await self.read()

    async def read(self) -> Answer:
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


class Served:
    """What a server counts, and connections to it, which are closed with it."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self._lines: list[Line] = []

    async def open_line(self, port: int, host: str = "127.0.0.1", **tls: Any) -> Line:
        async with asyncio.timeout(PATIENCE):
            line = Line(*await asyncio.open_connection(host, port, **tls))
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


class ServedAdmin(Served):
    """An admin server, and what it shows if that is known."""

    def __init__(self, cluster: ClusterRules = RULES) -> None:
        super().__init__()
        self.health = Health(FakeClock())
        self.server = AdminServer(0, self.metrics, self.health, cluster)
        self.client = ClientSession()
        self.now = describe()
        self.requested = 0

    async def describe(self) -> Description:
        self.requested += 1
        return self.now

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.port}{path}"

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and body."""
        async with self.client.get(self.url(path), headers=headers) as response:
            assert response.headers["Server"] == "rollout-operator"
            return response.status, await response.text()

    async def send(self, raw: bytes) -> bytes:
        """Send bytes on a connection of their own; return all that comes until it is closed."""
        line = await self.open_line(self.server.port)
        line.writer.write(raw)
        return await line.rest()


@asynccontextmanager
async def serving_admin(cluster: ClusterRules = RULES) -> AsyncIterator[ServedAdmin]:
    """Run a server, before anything is known."""
    admin = ServedAdmin(cluster)
    await admin.server.start()
    try:
        yield admin
    finally:
        await admin.close()
        await admin.client.close()
        await admin.server.stop()


@asynccontextmanager
async def showing() -> AsyncIterator[ServedAdmin]:
    """Run a server that shows an empty namespace, until `now` is something else."""
    async with serving_admin() as admin:
        admin.server.show(admin.describe)
        yield admin


@asynccontextmanager
async def listening(
    app: web.Application, *, read_limit: timedelta = timedelta(seconds=10)
) -> AsyncIterator[int]:
    """Run `operator.main` with the operator's own connections; give its port."""
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    server = runner.server
    assert server is not None
    listener = await asyncio.get_running_loop().create_server(
        lambda: Connection(server, read_limit=read_limit), "127.0.0.1", 0
    )
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await runner.cleanup()


@cache
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server, and that of its clients: a new pair after `cache_clear`."""
    with TemporaryDirectory() as folder:
        pki = make_pki(Path(folder))
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(pki.cert, pki.key)
        client = ssl.create_default_context(cafile=str(pki.ca))
    return server, client


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


class ServedWebhooks(Served):
    """A webhook server and its hook."""

    def __init__(
        self,
        port: int = 0,
        *,
        clock: Clock | None = None,
        options: ServerOptions | None = None,
        cluster: ClusterRules = RULES,
        hooks: Mapping[str, ReviewHook] | None = None,
        certificate: Callable[[], ssl.SSLContext] | None = None,
        **reviewing: Any,
    ) -> None:
        super().__init__()
        self.hook = ScriptedHook()
        self.clock = clock or LoopClock()
        self.server_context, self.client_context = contexts()
        self.given = 0
        self.server = WebhookServer(
            port,
            reviewer=Reviewer(
                hooks={PATH: self.hook} if hooks is None else hooks,
                clock=self.clock,
                **{"request_timeout": timedelta(seconds=10), **reviewing},
            ),
            certificate=certificate or self._give,
            metrics=self.metrics,
            cluster=cluster,
            clock=self.clock,
            options=options or ServerOptions(),
        )

    def _give(self) -> ssl.SSLContext:
        self.given += 1
        return self.server_context

    async def connect(self, host: str = "127.0.0.1") -> Line:
        tls = {"ssl": self.client_context, "server_hostname": "localhost"}
        return await self.open_line(self.server.port, host, **tls)

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
        return await self.open_line(self.server.port)


class Gate:
    """A hook's review that waits until the test lets it go."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.begun = asyncio.Semaphore(0)
        self.waits: Callable[[], AbstractContextManager[None]] = nullcontext

    async def __call__(self, review: Review, until: timedelta) -> Verdict:
        with self.waits():
            self.begun.release()
            await self.opened.wait()
        return FINE


@asynccontextmanager
async def serving(**setting: Any) -> AsyncIterator[ServedWebhooks]:
    served = ServedWebhooks(**setting)
    await served.server.start()
    try:
        yield served
    finally:
        await served.close()
        await served.server.stop()
