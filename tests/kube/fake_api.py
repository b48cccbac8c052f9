"""An HTTP server on a loopback port that answers what a test scripted for each path.

    async with FakeApi() as api:
        api.on("GET", "/api/v1/namespaces/prod/pods", reply({"items": []}))
        await api.client().fetch_page(PODS, "prod")
        assert api.requests[0].query["limit"] == "500"

A path may have several answers: they are given in order, and the last one again and again. An
answer is a function of the request, so that a test can hold it back, cut it or stream it.
"""

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self

import msgspec
from aiohttp import web

from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.kube.api import (
    DEFAULT_TIMEOUTS,
    PODS,
    Fence,
    JsonObject,
    Precondition,
    Timeouts,
    WatchEvent,
    no_fence,
)
from rollout_operator.kube.client import Client
from rollout_operator.kube.connection import Transport, open_transport
from rollout_operator.kube.kubeconfig import Credential
from rollout_operator.kube.lean import Configuration
from rollout_operator.kube.rate_limit import Priority, RateLimiter
from rollout_operator.model.names import Uid
from rollout_operator.telemetry.metrics import Metrics
from tests.samples import read_samples

POD = "/api/v1/namespaces/prod/pods/a-0"
POD_LIST = "/api/v1/namespaces/prod/pods"
SET = "/apis/apps/v1/namespaces/prod/statefulsets/a"
SET_STATUS = "/apis/apps/v1/namespaces/prod/statefulsets/a/status"
THIS = Precondition(uid=Uid("u-1"), resource_version="7")
# A watch of one second may be silent for half a second; a busy machine takes a while to connect.
SHORT = Timeouts(
    read=timedelta(milliseconds=500),
    write=timedelta(milliseconds=500),
    page=timedelta(milliseconds=500),
    silence=timedelta(milliseconds=-500),
)
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> object:
        return json.loads(self.body)


@dataclass
class FakeApi:
    """The server, and clients of it. `requests` are all that arrived, in order."""

    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    requests: list[Seen] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    """Of its clients."""

    def __post_init__(self) -> None:
        self._answers: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self._runner = web.ServerRunner(
            web.Server(self._answer, access_log=None), handle_signals=False, shutdown_timeout=0.1
        )
        self._port = 0
        self._transports: list[Transport] = []

    @property
    def url(self) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self._port}"

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """Add answers for a path; after the last, that answer is repeated."""
        self._answers[method, path].extend(answers)

    def connect(
        self, url: str = "", credential: Credential | None = None, clock: Clock | None = None
    ) -> None:
        """Have clients call this URL from now on, and send this credential."""
        configuration = Configuration(host=url or self.url)
        self._transports.append(
            open_transport(configuration, credential, "ops", clock or LoopClock(), {})
        )

    def client(
        self,
        limits: RateLimiter | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        fence: Fence = no_fence,
    ) -> Client:
        """Return a client over the connections of `connect`, without which it is of this server."""
        if not self._transports:
            self.connect()
        unlimited = RateLimiter(0, 0)
        transport = self._transports[-1]
        return Client(transport, limits or unlimited, self.metrics, timeouts, Priority.READ, fence)

    def watch(self, seconds: float = 5) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Open a watch of pods with a client of its own."""
        lasts = timedelta(seconds=seconds)
        return self.client().watch(PODS, "prod", resource_version="5", lasts=lasts)

    def measured(self) -> dict[tuple[str, ...], float]:
        """Return how many requests were measured, by path, method and status."""
        name = "kubernetes_api_client_request_duration_seconds_count"
        return read_samples(self.metrics, name)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, 0, ssl_context=self.tls)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *raised: object) -> None:
        for transport in self._transports:
            await transport.close()
        # A connection of the last moment is accepted first, so that it is closed with the others.
        for _ in range(10):
            await asyncio.sleep(0)
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(
            Seen(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                headers={name.lower(): value for name, value in request.headers.items()},
                body=await request.read(),
            )
        )
        answers = self._answers.get((request.method, request.path))
        if not answers:
            return web.json_response(status_body(404, "NotFound", "nothing scripted"), status=404)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return await answer(request)


def reply(body: JsonObject | bytes, status: int = 200, **headers: str) -> Answer:
    """Answer with JSON; underscores in header names stand for dashes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named.setdefault("Content-Type", "application/json")

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=raw, status=status, headers=named)

    return answer


def refuse(code: int, reason: str, message: str, **headers: str) -> Answer:
    """Answer with a Status of failure."""
    return reply(status_body(code, reason, message), code, **headers)


def status_body(code: int, reason: str, message: str, **details: object) -> JsonObject:
    """Return a Status as the API server writes it."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        "details": details,
    }


def stream(chunks: AsyncIterator[bytes] | Sequence[bytes]) -> Answer:
    """Answer with a body in these chunks, ended in order."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if isinstance(chunks, Sequence):
            for chunk in chunks:
                await response.write(chunk)
        else:
            async for chunk in chunks:
                await response.write(chunk)
        await response.write_eof()
        return response

    return answer


def cut(head: bytes = b"") -> Answer:
    """Write raw bytes, if any, and break the connection."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        if head:
            request.transport.write(head)
        request.transport.close()
        return web.Response()

    return answer


def pods(count: int, version: str = "100", token: str = "") -> JsonObject:
    """Return a page of a pod list."""
    metadata = {"resourceVersion": version, "continue": token}
    items = [{"metadata": {"name": f"a-{number}"}} for number in range(count)]
    return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}


def event(kind: str, version: int) -> bytes:
    """Return a line of a watch."""
    item = {"metadata": {"resourceVersion": f"{version}"}}
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"
