"""Readers of the events of a status page, and a proxy before it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec
from aiohttp import ClientSession, web

from tests.web.served import ServedAdmin, listening

LIMIT_S = 20.0
KEPT = ("Content-Type", "Content-Security-Policy")
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


class Event(msgspec.Struct):
    """What has changed on a page."""

    order: list[str]
    changed: dict[str, str]


@dataclass(slots=True)
class Stream:
    """One reader of events."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: str = ""

    async def next_event(self) -> Event:
        """Return the next news of sections."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                kind = (await self.reader.readline()).decode().strip()
                if kind == "event: sections":
                    data = (await self.reader.readline()).removeprefix(b"data: ")
                    return msgspec.json.decode(data, type=Event)
                if not kind and self.reader.at_eof():
                    raise EOFError

    async def wait_end(self) -> None:
        """Read until the server ends the stream."""
        async with asyncio.timeout(LIMIT_S):
            while await self.reader.read(1 << 16):
                pass


@asynccontextmanager
async def following(shown: ServedAdmin, path: str = "/status/events") -> AsyncIterator[Stream]:
    """Open a stream of events."""
    port = shown.server.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n".encode())
    stream = Stream(reader, writer)
    try:
        async with asyncio.timeout(LIMIT_S):
            stream.head = (await reader.readuntil(b"\r\n\r\n")).decode()
        yield stream
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def behind_prefix(port: int, prefix: str) -> AsyncIterator[int]:
    """Serve the pages of a port below a path, as the API server's proxy does; give its port."""
    async with ClientSession() as client:

        async def forward(request: web.Request) -> web.StreamResponse:
            path = request.raw_path.removeprefix(prefix)
            headers = {"Accept": request.headers.get("Accept", "*/*")}
            async with client.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer:
                kept = {key: answer.headers[key] for key in KEPT if key in answer.headers}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                return response

        app = web.Application()
        app.router.add_get(prefix + "/{path:.*}", forward)
        async with listening(app) as own:
            yield own
