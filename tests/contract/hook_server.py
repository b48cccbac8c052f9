"""A TLS server on loopback that answers the reviews of all sequences, by path."""

import asyncio
import base64
import ssl
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import msgspec
from aiohttp import web

from tests.contract.reviews import answer_review
from tests.contract.sides import Decide, Garbage, Silence
from tests.world.plane import ControlPlane

CLOSE_LIMIT: Final = timedelta(seconds=1)


class HookServer:
    """Answers the reviews of all sequences, by path. Use with `async with`."""

    def __init__(self, plane: ControlPlane) -> None:
        self.decisions: dict[str, Decide] = {}
        self.bundle = base64.b64encode(plane.pki.ca.read_bytes()).decode()
        self.port = 0
        self._pki = plane.pki
        self._over = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/{tail:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=CLOSE_LIMIT.total_seconds()
        )
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._pki.cert, self._pki.key)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        verdict = await self.decisions[request.path](msgspec.json.decode(body)["request"])
        match verdict:
            case Silence():
                await self._over.wait()
                raise web.HTTPServiceUnavailable
            case Garbage(body=garbage, status=status):
                return web.Response(status=status, body=garbage, content_type="application/json")
            case _:
                answered = answer_review(body, verdict)
                return web.Response(body=answered, content_type="application/json")
