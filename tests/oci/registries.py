"""A registry of the tests, over TLS or not: it holds images, wants credentials, and lies on demand.

async with FakeRegistry() as registry:
    registry.push("1.0.0", manifest(annotations={...}))
    registry.at["/v2/team/app/manifests/1.0.0"] = hang
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from ssl import SSLContext, create_default_context
from typing import Any, Self

from aiohttp import web

from rollout_operator.aio.clock import LoopClock
from rollout_operator.outbound import Route
from rollout_operator.pki.certificates import issue_ca, issue_leaf
from rollout_operator.pki.serving import server_context
from rollout_operator.planning.certificate import Wanted
from rollout_operator.releases.model.releases import ImageReference, Repository
from rollout_operator.releases.registry import (
    Keyring,
    RegistryAccess,
    RegistryClient,
    RegistryExchange,
    decode_pull_secret,
)

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

NAME = "team/app"
OCI = "application/vnd.oci.image"
MANIFEST = f"{OCI}.manifest.v1+json"
INDEX = f"{OCI}.index.v1+json"
CONFIG = f"{OCI}.config.v1+json"
DAY = timedelta(days=1)


@cache
def issue_tls() -> tuple[SSLContext, SSLContext]:
    """Return what a server on localhost serves with, and what trusts it."""
    wanted = Wanted(names=("localhost",), organisation="", expiration=30 * DAY, ca_life=90 * DAY)
    born = datetime.now(UTC)
    ca = issue_ca(wanted, born)
    return server_context(issue_leaf(ca, wanted, born)), create_default_context(
        cadata=ca.cert.decode()
    )


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def labels(**values: str) -> Mapping[str, str]:
    """Return annotations: `labels(version="1")`."""
    return {f"org.opencontainers.image.{name}": value for name, value in values.items()}


@dataclass
class Stored:
    """A manifest or blob as it is kept."""

    body: bytes
    kind: str


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def shown(self) -> str | None:
        return self.headers.get("Authorization")


@dataclass
class FakeRegistry:
    """Serves on a port of its own. `at` has answers of other kinds by path."""

    is_secure: bool = True
    at: dict[str, Answer] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    stored: dict[str, Stored] = field(default_factory=dict)
    guard: Callable[[web.Request], web.Response | None] = lambda request: None
    port: int = 0

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._underway: set[asyncio.Task[Any]] = set()
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        tls = issue_tls()[0] if self.is_secure else None
        site = web.TCPSite(self._runner, "localhost", 0, ssl_context=tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *raised: Any) -> None:
        for task in self._underway:
            task.cancel()
        await self._runner.cleanup()
        await asyncio.gather(*self._underway, return_exceptions=True)
        # The tasks of connections end after those of their requests.
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.is_secure else 'http'}://{self.host}"

    def image(self, tag: str | None = "1.0.0", digest: str | None = None) -> ImageReference:
        return ImageReference(Repository(self.host, NAME), tag=tag, digest=digest)

    def push(self, tag: str, document: Mapping[str, object], kind: str = MANIFEST) -> str:
        """Keep a manifest under a tag and its digest, which is returned."""
        body = json.dumps(document).encode()
        digest = digest_of(body)
        for reference in (tag, digest):
            self.stored[f"/v2/{NAME}/manifests/{reference}"] = Stored(body, kind)
        return digest

    def push_blob(self, document: Mapping[str, object]) -> str:
        """Keep a blob, and return its digest."""
        body = json.dumps(document).encode()
        path = f"/v2/{NAME}/blobs/{digest_of(body)}"
        self.stored[path] = Stored(body, "application/octet-stream")
        return digest_of(body)

    def paths(self) -> list[str]:
        """Return what was read, in short: `HEAD manifests/1.0.0`."""
        return [f"{seen.method} {seen.path.removeprefix(f'/v2/{NAME}/')}" for seen in self.seen]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._underway.add(task)
        task.add_done_callback(self._underway.discard)
        self.seen.append(
            Seen(request.method, request.path, dict(request.query), dict(request.headers))
        )
        if (answer := self.at.get(request.path)) is not None:
            return await answer(request)
        if (refusal := self.guard(request)) is not None:
            return refusal
        if (found := self.stored.get(request.path)) is None:
            return refuse(404, "MANIFEST_UNKNOWN")
        headers = {"Content-Type": found.kind, "Docker-Content-Digest": digest_of(found.body)}
        return web.Response(body=found.body, headers=headers)


def refuse(status: int, code: str, **headers: str) -> web.Response:
    """Return an error as registries write it; the message is not to be shown."""
    body = {"errors": [{"code": code, "message": "hidden"}]}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.json_response(body, status=status, headers=named)


def reply(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    """Answer always the same."""

    async def answer(request: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return answer


async def hang(request: web.Request) -> web.StreamResponse:
    """Answer nothing until the caller goes away."""
    await asyncio.sleep(3600)
    raise AssertionError


def endless(sent: list[int]) -> Answer:
    """Answer chunks until the client stops reading; put the number of bytes into `sent`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": MANIFEST})
        await response.prepare(request)
        sent.append(0)
        while True:
            await response.write(b" " * 65536)
            sent[-1] += 65536
            # Else no call would learn that the connection has gone, and all would be kept for it.
            await asyncio.sleep(0)

    return answer


@dataclass
class Reader:
    """A client as the operator would have it, on a clock of the loop."""

    client: RegistryClient
    exchange: RegistryExchange
    results: list[str]


def open_reader(
    limit: timedelta = timedelta(seconds=20),
    total: timedelta = timedelta(seconds=60),
    clock: Any = None,
) -> Reader:
    results: list[str] = []
    clock = clock or LoopClock()
    exchange = RegistryExchange(clock, limit)
    return Reader(RegistryClient(exchange, clock, results.append, total), exchange, results)


def keys(**auths: Mapping[str, object]) -> Keyring:
    """Return the keyring of a pull secret."""
    return decode_pull_secret({".dockerconfigjson": json.dumps({"auths": auths}).encode()})


def access(
    registry: FakeRegistry, entry: Mapping[str, object] | None = None, *, is_insecure: bool = False
) -> RegistryAccess:
    """Return access to a registry with one entry of a pull secret, anew as for each look-up."""
    keyring = keys(**{registry.host: entry}) if entry is not None else Keyring()
    trust = create_default_context(cadata=issue_tls()[1].get_ca_certs(binary_form=True)[0])
    route = Route(trust=trust)
    return RegistryAccess(keyring=keyring, is_insecure=is_insecure, proof="ca", route=route)
