"""A TLS server of the tests to which an API server posts reviews; how it answers is its heirs'."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from datetime import timedelta
from types import TracebackType
from typing import Final, NoReturn, Self

import msgspec
from aiohttp import web

from tests.world.api import Json
from tests.world.pki import Pki

CLOSE_LIMIT: Final = timedelta(seconds=1)


class ReviewServer(ABC):
    """Listens on a free port of loopback, for every path. Use with `async with`."""

    def __init__(self, pki: Pki) -> None:
        self.port = 0
        self._pki = pki
        self._over = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @abstractmethod
    async def answer(self, request: web.Request) -> web.Response:
        """Return the answer to one review."""

    async def stay_silent(self) -> NoReturn:
        """Say nothing until the server ends."""
        await self._over.wait()
        raise web.HTTPServiceUnavailable

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/{tail:.*}", self.answer)
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


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One review that came in."""

    path: str
    request: Json

    @property
    def replicas(self) -> tuple[int, int]:
        """Return the counts before and after."""
        old, new = self.request["oldObject"]["spec"], self.request["object"]["spec"]
        return old.get("replicas", 0), new.get("replicas", 0)


class Reviewer(ReviewServer):
    """Says yes to everything, and keeps what came in. Use with `async with`."""

    def __init__(self, pki: Pki) -> None:
        super().__init__(pki)
        self.seen: list[Seen] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Record a review and allow it."""
        review: Json = msgspec.json.decode(await request.read())
        self.seen.append(Seen(path=request.path, request=review["request"]))
        response = {"uid": review["request"]["uid"], "allowed": True}
        body = {key: review[key] for key in ("apiVersion", "kind")} | {"response": response}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")
