"""A reverse proxy between the operator and the API server that can be made to misbehave.

Rules are added and removed while requests run. The newest rule that matches a request decides how
it is answered; `Freeze` and `Cut` also reach watches that are open already.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Self, assert_never

import aiohttp
import msgspec
from aiohttp import web

from tests.world.plane import ControlPlane

HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host"}
)
CONNECT_LIMIT: Final = timedelta(seconds=10)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule may read."""

    method: str
    path: str
    query: Mapping[str, str]

    @property
    def is_watch(self) -> bool:
        """Say whether it requests a stream of changes."""
        return self.method == "GET" and self.query.get("watch", "") in ("1", "true")

    @property
    def resource(self) -> str:
        """Return the plural, with its subresource: `pods`, `statefulsets/status`."""
        parts = self.path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            rest = rest[2:]
        return "/".join([*rest[:1], *rest[2:]])

    @property
    def verb(self) -> str:
        """Return the verb as Kubernetes names it."""
        parts = self.path.strip("/").split("/")
        in_namespace = 2 if "namespaces" in parts[2:-2] else 0
        depth = len(parts) - (2 if parts[0] == "api" else 3) - in_namespace
        match self.method:
            case "GET" if self.is_watch:
                return "watch"
            case "GET":
                return "list" if depth == 1 else "get"
            case "POST":
                return "create"
            case "PUT":
                return "update"
            case "DELETE" if depth == 1:
                return "deletecollection"
        return self.method.lower()


class Delay(msgspec.Struct, frozen=True):
    """Forward after a time."""

    by: timedelta


class Freeze(msgspec.Struct, frozen=True):
    """Hold the bytes of the answer back while the rule is in force, then let them flow."""


class Cut(msgspec.Struct, frozen=True):
    """Break the connection off."""


class NeverAnswer(msgspec.Struct, frozen=True):
    """Forward at once and keep the answer; the connection stays open."""


Effect = Delay | Freeze | Cut | NeverAnswer
Predicate = Callable[[Request], bool]


@dataclass(slots=True, eq=False)
class Rule:
    """A predicate and what happens to requests that match."""

    predicate: Predicate
    effect: Effect
    times: int | None = None
    """How many requests it may still meet; None is no limit."""
    hits: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it is removed."""


def watches(resource: str = "") -> Predicate:
    """Match watches, of one resource if it is named."""
    return lambda request: request.is_watch and resource in ("", request.resource)


def lists(resource: str = "") -> Predicate:
    """Match lists, of one resource if it is named."""
    return lambda request: request.verb == "list" and resource in ("", request.resource)


def verbs(verb: str, resource: str) -> Predicate:
    """Match one verb on one resource."""
    return lambda request: (request.verb, request.resource) == (verb, resource)


@dataclass(slots=True, eq=False)
class _Stream:
    """An answer on its way to the operator."""

    request: Request
    transport: asyncio.Transport
    gate: asyncio.Event


class FaultProxy:
    """Listens on loopback with a certificate of the test CA. Use with `async with`."""

    def __init__(self, plane: ControlPlane, port: int = 0) -> None:
        self.plane = plane
        self.port = port
        self.rules: list[Rule] = []
        self._streams: set[_Stream] = set()
        self._frozen: dict[Rule, set[_Stream]] = {}
        self._client: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self._is_closing = asyncio.Event()

    @property
    def url(self) -> str:
        """Return the address that the operator should take for the API server's."""
        return f"https://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession(
            base_url=self.plane.url,
            auto_decompress=False,
            # What the operator did not send is not for us to add.
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            connector=aiohttp.TCPConnector(ssl=self.plane.context(), limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_LIMIT.total_seconds()),
        )
        server = web.Server(self._serve, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.plane.pki.cert, self.plane.pki.key)
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self._is_closing.set()
        for rule in list(self.rules):
            self.remove(rule)
        for stream in self._streams:
            stream.transport.abort()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()

    # Rules

    def add(self, predicate: Predicate, effect: Effect, *, times: int | None = None) -> Rule:
        """Put a rule in force, for open watches too where its effect can reach them."""
        rule = Rule(predicate, effect, times)
        self.rules.append(rule)
        for stream in list(self._streams):
            if stream.request.is_watch and predicate(stream.request):
                rule.hits += 1
                self._reach(rule, stream)
        return rule

    def remove(self, rule: Rule) -> None:
        """End a rule; what it froze flows on. Ending it twice does no harm."""
        if rule in self.rules:
            self.rules.remove(rule)
        rule.over.set()
        for stream in self._frozen.pop(rule, ()):
            stream.gate.set()

    @contextmanager
    def during(
        self, predicate: Predicate, effect: Effect, *, times: int | None = None
    ) -> Iterator[Rule]:
        """Put a rule in force inside a block."""
        rule = self.add(predicate, effect, times=times)
        try:
            yield rule
        finally:
            self.remove(rule)

    def _reach(self, rule: Rule, stream: _Stream) -> None:
        match rule.effect:
            case Freeze():
                stream.gate.clear()
                self._frozen.setdefault(rule, set()).add(stream)
            case Cut():
                stream.transport.abort()
            case _:
                pass

    def _match(self, request: Request) -> Rule | None:
        for rule in reversed(self.rules):
            if rule.times != 0 and rule.predicate(request):
                rule.hits += 1
                if rule.times is not None:
                    rule.times -= 1
                return rule
        return None

    # Serving

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        request = Request(method=incoming.method, path=incoming.path, query=dict(incoming.query))
        body = await incoming.read()
        rule = self._match(request)
        match rule.effect if rule else None:
            case None | Freeze():
                pass
            case Delay(by=by):
                await asyncio.sleep(by.total_seconds())
            case Cut():
                _transport(incoming).abort()
                raise web.HTTPBadGateway
            case NeverAnswer():
                async with self._upstream(incoming, body) as answer:
                    await answer.read()
                await self._is_closing.wait()
                raise web.HTTPBadGateway
            case effect:
                assert_never(effect)
        return await self._forward(incoming, request, body, rule)

    async def _forward(
        self, incoming: web.BaseRequest, request: Request, body: bytes, rule: Rule | None
    ) -> web.StreamResponse:
        stream = _Stream(request, _transport(incoming), asyncio.Event())
        stream.gate.set()
        self._streams.add(stream)
        try:
            async with self._upstream(incoming, body) as answer:
                if rule is not None and not rule.over.is_set():
                    self._reach(rule, stream)
                headers = {
                    key: value
                    for key, value in answer.headers.items()
                    if key.lower() not in HOP_BY_HOP
                }
                response = web.StreamResponse(status=answer.status, headers=headers)
                await stream.gate.wait()
                await response.prepare(incoming)
                async for chunk in answer.content.iter_any():
                    await stream.gate.wait()
                    with suppress(ConnectionResetError):
                        await response.write(chunk)
                return response
        except aiohttp.ClientError as away:
            # What the operator should see of a restarting API server is a broken connection.
            stream.transport.abort()
            raise web.HTTPBadGateway from away
        finally:
            self._streams.discard(stream)

    def _upstream(
        self, incoming: web.BaseRequest, body: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._client is None:
            raise RuntimeError("use `async with FaultProxy(...)`")
        headers = {
            key: value for key, value in incoming.headers.items() if key.lower() not in HOP_BY_HOP
        }
        return self._client.request(
            incoming.method, incoming.rel_url, data=body or None, headers=headers
        )


def _transport(incoming: web.BaseRequest) -> asyncio.Transport:
    transport = incoming.transport
    if transport is None:
        raise ConnectionResetError("the operator has gone")
    return transport
