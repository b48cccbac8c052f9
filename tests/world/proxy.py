"""A reverse proxy between the operator and the API server that can be made to misbehave.

Rules are added and removed while requests run. The newest rule that matches a request decides how
it is answered; `Freeze`, `Drop`, `Cut` and `Expire` also reach watches that are open already.

Objects may be changed on their way to the operator: a real API server stores none that breaks its
kind's schema; a newer or older one may send what this operator cannot read.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, assert_never

import aiohttp
import msgspec
from aiohttp import web

from tests.world.api import Json
from tests.world.faults import (
    Answer,
    CommitLate,
    Cut,
    Delay,
    Drop,
    Effect,
    Expire,
    Freeze,
    NeverAnswer,
    Predicate,
    Request,
    Rule,
    Truncate,
    expired,
    status,
)
from tests.world.plane import ControlPlane

HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host"}
)
CONNECT_LIMIT: Final = timedelta(seconds=10)
Rewrite = Callable[[str, Json], None]
"""Takes the plural of a resource and one object of it, and may change the object."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the operator."""

    request: Request
    headers: Mapping[str, str]


def leave(resource: str, found: Json) -> None:
    """Change nothing."""


@dataclass(slots=True, eq=False)
class _Stream:
    """An answer on its way to the operator."""

    request: Request
    transport: asyncio.Transport
    gate: asyncio.Event
    is_dropped: bool = False
    is_expired: asyncio.Event = field(default_factory=asyncio.Event)


class FaultProxy:
    """Listens on loopback with a certificate of the test CA. Use with `async with`."""

    def __init__(self, plane: ControlPlane, port: int = 0) -> None:
        self.plane = plane
        self.port = port
        self.sent: list[Sent] = []
        self.rewrite: Rewrite = leave
        """In force for answers, and for events of watches that were opened under another."""
        self.rules: list[Rule] = []
        self._streams: set[_Stream] = set()
        self._frozen: dict[Rule, set[_Stream]] = {}
        self._client: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self._late = asyncio.TaskGroup()
        self._late_tasks: set[asyncio.Task[None]] = set()
        self._is_closing = asyncio.Event()

    @property
    def url(self) -> str:
        """Return the address that the operator should take for the API server's."""
        return f"https://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self._late.__aenter__()
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closing.set()
        self.clear()
        for task in self._late_tasks:
            task.cancel()
        for stream in self._streams:
            stream.transport.abort()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()
        await self._late.__aexit__(kind, error, trace)

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

    def clear(self) -> None:
        """End all rules."""
        for rule in list(self.rules):
            self.remove(rule)

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
            case Drop():
                stream.is_dropped = True
            case Cut():
                stream.transport.abort()
            case Expire():
                stream.is_expired.set()
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
        self.sent.append(Sent(request=request, headers=dict(incoming.headers)))
        body = await incoming.read()
        rule = self._match(request)
        match rule.effect if rule else None:
            case None | Freeze() | Drop() | Truncate():
                pass
            case Delay(by=by):
                await asyncio.sleep(by.total_seconds())
            case Answer() as answer:
                return _refusal(answer)
            case Expire() if not request.is_watch:
                return _refusal(Answer(410))
            case Expire():
                return web.Response(body=expired(), content_type="application/json")
            case Cut():
                _transport(incoming).abort()
                raise web.HTTPBadGateway
            case CommitLate(after=after):
                task = self._late.create_task(
                    self._commit(incoming, body, after), name="proxy-commit-late"
                )
                self._late_tasks.add(task)
                task.add_done_callback(self._late_tasks.discard)
                _transport(incoming).abort()
                raise web.HTTPBadGateway
            case NeverAnswer():
                await self._commit(incoming, body, timedelta(0))
                await self._is_closing.wait()
                raise web.HTTPBadGateway
            case effect:
                assert_never(effect)
        return await self._forward(incoming, request, body, rule)

    async def _commit(self, incoming: web.BaseRequest, body: bytes, after: timedelta) -> None:
        await asyncio.sleep(after.total_seconds())
        async with self._upstream(incoming, body) as answer:
            await answer.read()

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
                if self.rewrite is not leave and request.verb in ("get", "list"):
                    headers.pop("Content-Length", None)
                    content = self._rewrite_answer(request, answer.status, await answer.read())
                    return web.Response(status=answer.status, headers=headers, body=content)
                response = web.StreamResponse(status=answer.status, headers=headers)
                await stream.gate.wait()
                if stream.is_dropped:
                    await self._is_closing.wait()
                await response.prepare(incoming)
                left = rule.effect.after if rule and isinstance(rule.effect, Truncate) else None
                await self._pump(stream, answer, response, left)
                return response
        except aiohttp.ClientError as away:
            # What the operator should see of a restarting API server is a broken connection.
            stream.transport.abort()
            raise web.HTTPBadGateway from away
        finally:
            self._streams.discard(stream)

    async def _pump(
        self,
        stream: _Stream,
        answer: aiohttp.ClientResponse,
        response: web.StreamResponse,
        left: int | None,
    ) -> None:
        chunks = _until(answer.content, stream.is_expired)
        if stream.request.is_watch and self.rewrite is not leave:
            chunks = self._rewrite_events(stream.request, chunks)
        async for chunk in chunks:
            await stream.gate.wait()
            if stream.is_dropped:
                continue
            if left is not None and len(chunk) >= left:
                await response.write(chunk[:left])
                stream.transport.abort()
                return
            left = None if left is None else left - len(chunk)
            with suppress(ConnectionResetError):
                await response.write(chunk)
        if stream.is_dropped:
            await self._is_closing.wait()
        if stream.is_expired.is_set():
            await response.write(expired())

    def _rewrite_answer(self, request: Request, status: int, content: bytes) -> bytes:
        if status != 200:
            return content
        found = msgspec.json.decode(content)
        for one in found["items"] if request.verb == "list" else [found]:
            self.rewrite(request.resource, one)
        return msgspec.json.encode(found)

    async def _rewrite_events(
        self, request: Request, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                event = msgspec.json.decode(line)
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    self.rewrite(request.resource, event["object"])
                yield msgspec.json.encode(event) + b"\n"

    def _upstream(
        self, incoming: web.BaseRequest, body: bytes
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if self._client is None:
            raise RuntimeError("use `async with FaultProxy(...)`")
        headers = {
            key: value for key, value in incoming.headers.items() if key.lower() not in HOP_BY_HOP
        }
        if self.rewrite is not leave:
            headers.pop("Accept-Encoding", None)
        return self._client.request(
            incoming.method, incoming.rel_url, data=body or None, headers=headers
        )


async def _until(content: aiohttp.StreamReader, stop: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield what arrives, until the end or until `stop` is set."""
    stopping = asyncio.ensure_future(stop.wait())
    reading: asyncio.Future[bytes] | None = None
    try:
        while True:
            reading = asyncio.ensure_future(content.readany())
            await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() or not (chunk := reading.result()):
                return
            yield chunk
    finally:
        for each in (stopping, reading):
            if each is not None and not each.done():
                each.cancel()
                await asyncio.wait([each])


def _transport(incoming: web.BaseRequest) -> asyncio.Transport:
    transport = incoming.transport
    if transport is None:
        raise ConnectionResetError("the operator has gone")
    return transport


def _refusal(answer: Answer) -> web.Response:
    headers = {}
    if answer.retry_after is not None:
        headers["Retry-After"] = str(int(answer.retry_after.total_seconds()))
    return web.Response(
        status=answer.code,
        body=msgspec.json.encode(status(answer.code, "by a rule of the test")),
        content_type="application/json",
        headers=headers,
    )
