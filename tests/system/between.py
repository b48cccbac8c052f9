"""A proxy that notes what the operator sends and can change objects on their way to it.

A real API server stores no object that breaks its kind's schema; a newer or older one may send
what this operator cannot read, and so may anything in between.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec
from aiohttp import web

from tests.world.api import Json
from tests.world.faults import Request
from tests.world.plane import ControlPlane

Rewrite = Callable[[str, Json], None]
"""Takes the plural of a resource and one object of it, and may change the object."""

HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "date"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request of the operator."""

    request: Request
    headers: Mapping[str, str]


def leave(resource: str, found: Json) -> None:
    """Change nothing."""


class Between:
    """Listens on loopback with a certificate of the test CA. Use with `async with`."""

    def __init__(self, plane: ControlPlane, port: int = 0) -> None:
        self.plane = plane
        self.port = port
        self.sent: list[Sent] = []
        self.rewrite: Rewrite = leave
        """In force for every object that comes, on open watches too."""
        self._open: set[asyncio.BaseTransport] = set()
        self._client: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Return the address that the operator should take for the API server's."""
        return f"https://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._client = aiohttp.ClientSession(
            base_url=self.plane.url,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            connector=aiohttp.TCPConnector(ssl=self.plane.context(), limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=2**20,
        )
        server = web.Server(self._serve, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.plane.pki.cert, self.plane.pki.key)
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Nobody else ends the watches: they would go on after the server is closed.
        for transport in self._open:
            transport.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._client is not None:
            await self._client.close()

    async def _serve(self, incoming: web.BaseRequest) -> web.StreamResponse:
        assert self._client is not None
        request = Request(method=incoming.method, path=incoming.path, query=dict(incoming.query))
        if incoming.transport is not None:
            self._open.add(incoming.transport)
        self.sent.append(Sent(request=request, headers=dict(incoming.headers)))
        kept = {key: one for key, one in incoming.headers.items() if key.lower() not in HOP_BY_HOP}
        body = await incoming.read()
        async with self._client.request(
            incoming.method, incoming.rel_url, data=body or None, headers=kept
        ) as answer:
            headers = {
                key: one for key, one in answer.headers.items() if key.lower() not in HOP_BY_HOP
            }
            if request.is_watch and answer.status == 200:
                response = web.StreamResponse(status=answer.status, headers=headers)
                await response.prepare(incoming)
                with suppress(ConnectionResetError):
                    await self._pump(request, answer, response)
                return response
            content = self._rewrite_answer(request, answer.status, await answer.read())
            return web.Response(status=answer.status, headers=headers, body=content)

    async def _pump(
        self, request: Request, answer: aiohttp.ClientResponse, response: web.StreamResponse
    ) -> None:
        rest = b""
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in filter(None, lines):
                event = msgspec.json.decode(line)
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    self.rewrite(request.resource, event["object"])
                await response.write(msgspec.json.encode(event) + b"\n")

    def _rewrite_answer(self, request: Request, status: int, content: bytes) -> bytes:
        if status != 200 or request.verb not in ("get", "list"):
            return content
        found = msgspec.json.decode(content)
        for one in found["items"] if request.verb == "list" else [found]:
            self.rewrite(request.resource, one)
        return msgspec.json.encode(found)
