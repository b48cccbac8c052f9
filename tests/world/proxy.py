"""A reverse proxy between the operator and the API server that can be made to misbehave.

Rules are added and removed while requests run. The newest rule that matches a request decides how
it is answered; `Cut` also reaches watches that are open already.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiohttp import web

from tests.world.plane import ControlPlane

HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host"}
)
CONNECT_LIMIT: Final = timedelta(seconds=10)


class Delay(msgspec.Struct, frozen=True):
    """Forward after a time."""

    by: timedelta


class Freeze(msgspec.Struct, frozen=True):
    """Hold the answer back while the rule is in force, then let it flow."""


class Cut(msgspec.Struct, frozen=True):
    """Break the connection off."""


class NeverAnswer(msgspec.Struct, frozen=True):
    """Forward at once and keep the answer; the connection stays open."""


Effect = Delay | Freeze | Cut | NeverAnswer
Predicate = Callable[[str, str], bool]
"""By the verb, and the plural with its subresource: `pods`, `statefulsets/status`."""


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
    return lambda verb, of: verb == "watch" and resource in ("", of)


def lists(resource: str = "") -> Predicate:
    return lambda verb, of: verb == "list" and resource in ("", of)


def verbs(verb: str, resource: str) -> Predicate:
    return lambda one, of: (one, of) == (verb, resource)


def read_target(method: str, path: str, query: Mapping[str, str]) -> tuple[str, str]:
    """Return the verb as Kubernetes names it, and the resource."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    is_collection = len(rest) == 1
    if method == "GET" and query.get("watch", "") in ("1", "true"):
        method = "WATCH"
    verb = {
        "GET": "list" if is_collection else "get",
        "POST": "create",
        "PUT": "update",
        "DELETE": "deletecollection" if is_collection else "delete",
    }.get(method, method.lower())
    return verb, "/".join([*rest[:1], *rest[2:]])


class FaultProxy:
    """Listens on loopback with a certificate of the test CA. Use with `async with`."""

    def __init__(self, plane: ControlPlane, port: int = 0) -> None:
        self.plane = plane
        self.port = port
        self.rules: list[Rule] = []
        self._watches: list[tuple[asyncio.Transport, str]] = []
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
        for transport, _ in self._watches:
            transport.abort()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()

    # Rules

    def add(self, predicate: Predicate, effect: Effect, *, times: int | None = None) -> Rule:
        """Put a rule in force, and break off open watches where that is its effect."""
        rule = Rule(predicate, effect, times)
        self.rules.append(rule)
        for transport, resource in list(self._watches):
            if effect == Cut() and predicate("watch", resource):
                rule.hits += 1
                transport.abort()
        return rule

    def remove(self, rule: Rule) -> None:
        """End a rule; what it froze flows on. Ending it twice does no harm."""
        if rule in self.rules:
            self.rules.remove(rule)
        rule.over.set()

    @contextmanager
    def during(self, predicate: Predicate, effect: Effect) -> Iterator[None]:
        rule = self.add(predicate, effect)
        try:
            yield
        finally:
            self.remove(rule)

    def _match(self, verb: str, resource: str) -> Rule | None:
        for rule in reversed(self.rules):
            if rule.times != 0 and rule.predicate(verb, resource):
                rule.hits += 1
                if rule.times is not None:
                    rule.times -= 1
                return rule
        return None

    # Serving

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        verb, resource = read_target(incoming.method, incoming.path, incoming.query)
        transport = incoming.transport
        if transport is None:
            raise ConnectionResetError("the operator has gone")
        body = await incoming.read()
        rule = self._match(verb, resource)
        effect = rule.effect if rule else None
        if isinstance(effect, Cut):
            transport.abort()
            raise web.HTTPBadGateway
        if isinstance(effect, Delay):
            await asyncio.sleep(effect.by.total_seconds())
        watch = (transport, resource)
        if verb == "watch":
            self._watches.append(watch)
        try:
            async with self._upstream(incoming, body) as answer:
                if isinstance(effect, NeverAnswer):
                    await answer.read()
                    await self._is_closing.wait()
                    raise web.HTTPBadGateway
                if rule is not None and isinstance(effect, Freeze):
                    await rule.over.wait()
                return await _copy(answer, incoming)
        except aiohttp.ClientError as away:
            # What the operator should see of a restarting API server is a broken connection.
            transport.abort()
            raise web.HTTPBadGateway from away
        finally:
            if watch in self._watches:
                self._watches.remove(watch)

    def _upstream(
        self, incoming: web.BaseRequest, body: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._client is None:
            raise RuntimeError("use `async with FaultProxy(...)`")
        headers = _pass_on(incoming.headers)
        return self._client.request(
            incoming.method, incoming.rel_url, data=body or None, headers=headers
        )


async def _copy(answer: aiohttp.ClientResponse, incoming: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=_pass_on(answer.headers))
    await response.prepare(incoming)
    async for chunk in answer.content.iter_any():
        with suppress(ConnectionResetError):
            await response.write(chunk)
    return response


def _pass_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key.lower() not in HOP_BY_HOP}
