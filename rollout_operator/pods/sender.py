"""The real way to pods: one HTTP request over a connection of its own.

A pod is a stranger: nothing that it answers is followed, kept, unpacked or believed beyond its
status and, where it is called for a time, that time; and nothing is sent to it that shows who we
are but our namespace and, where we trace, the number of the trace (SEC-11, SEC-12). Which requests
are made, how long a request may take and what its status means is decided in `client`.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from rollout_operator import __version__
from rollout_operator.model.decode.pod_answer import LONGEST_BODY
from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.names import CLUSTER_HEADER
from rollout_operator.pods.client import ConnectionBroken, Method, is_success
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.spans import tracing

# Reading pauses at twice this much of a body; most are closed unread once their head is there.
_READ_BUFFER: Final = 32 * 1024
# Servers send about ten headers, meshes add as many; together at most 128 KiB are taken.
_MOST_HEADERS: Final = 64
_LONGEST_HEADER: Final = 2 * 1024
_LONGEST_EXCERPT: Final = 200


class HttpSender:
    """Implements `client.Sender`. The first call opens what all of them share."""

    def __init__(self, namespace: str, *, trust: ssl.SSLContext | None = None) -> None:
        """`trust` judges the certificates of pods; None trusts the CAs of the system."""
        self._namespace = namespace
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def send(self, method: Method, endpoint: Endpoint) -> int:
        """Return the status; all that follows it is left unread."""
        async with self._open(method, endpoint) as response:
            return response.status

    async def post(self, endpoint: Endpoint) -> tuple[int, bytes]:
        """Return the status and the body of a success, as far as `client.Sender.post` says."""
        async with self._open("POST", endpoint) as response:
            is_read = is_success(response.status)
            return response.status, await _read(response) if is_read else b""

    @asynccontextmanager
    async def _open(
        self, method: Method, endpoint: Endpoint
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = render_url(endpoint)
        # A query may hold secrets.
        log.debug("Calling pod", pod=endpoint.pod, method=method, url=url.partition("?")[0])
        if self._is_closed:
            raise aiohttp.ClientConnectionError("the operator is stopping")
        if self._session is None:
            self._session = open_session(self._namespace, self._trust)
        async with self._session.request(
            method,
            # As it was written: what is escaped in it stays so, and what is not, too.
            URL(url, encoded=True),
            headers={"Host": endpoint.authority, **tracing.spans.make_headers()},
            allow_redirects=False,
            server_hostname=endpoint.host.removesuffix("."),
        ) as response:
            if not is_success(response.status):
                log.debug("Pod refused", pod=endpoint.pod, body=_excerpt(response))
            try:
                yield response
            finally:
                # Released, it would be read to its end in the background to use the connection
                # again.
                response.close()

    async def close(self) -> None:
        """Close all connections; see `client.Sender`."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()


def render_url(endpoint: Endpoint) -> str:
    """Return where to connect: the address itself, so that no name decides where we connect."""
    host = f"[{endpoint.ip}]" if ":" in endpoint.ip else endpoint.ip
    query = f"?{endpoint.query}" if endpoint.query else ""
    return f"{endpoint.scheme}://{host}:{endpoint.port}/{endpoint.path}{query}"


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return a body, cut where it is too long by a byte."""
    body = bytearray()
    while piece := await response.content.read(LONGEST_BODY + 1 - len(body)):
        body += piece
    return bytes(body)


def _excerpt(response: aiohttp.ClientResponse) -> str:
    """Return the beginning of a body on one printable line, as far as it came with the head.

    Waiting for more would let a pod that never ends delay what its refusal must stop.
    """
    if response.content.exception() is not None:
        return ""
    text = response.content.read_nowait(_LONGEST_EXCERPT).decode("utf-8", "replace")
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    return escaped[:_LONGEST_EXCERPT]


def open_session(namespace: str, trust: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """Return a session without limits of its own in number and time; needs a running loop.

    `trust` judges the certificates of pods; None trusts the CAs of the system.
    """
    connector = aiohttp.TCPConnector(
        resolver=NoResolver(),
        use_dns_cache=False,
        force_close=True,
        limit=0,
        ssl=trust or True,
    )
    return make_session(
        namespace,
        connector,
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=_READ_BUFFER,
        max_headers=_MOST_HEADERS,
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
        middlewares=(_send_once,),
    )


def make_session(
    namespace: str, connector: aiohttp.BaseConnector, **limits: Any
) -> aiohttp.ClientSession:
    """Return a session that sends who we are and nothing of this machine, and takes no cookies."""
    return aiohttp.ClientSession(
        connector=connector,
        headers={
            "User-Agent": f"rollout-operator/{__version__}",
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            CLUSTER_HEADER: namespace,
        },
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        **limits,
    )


class NoResolver(AbstractResolver):
    """Looks nothing up: no address needs it, and a name has slipped past all checks."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> NoReturn:
        raise OSError(f"{host!r} is no address")

    async def close(self) -> None:
        """Do nothing: it holds no connection."""


async def _send_once(
    request: aiohttp.ClientRequest,
    send: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]],
) -> aiohttp.ClientResponse:
    """Hide a broken connection from aiohttp, which would send a DELETE a second time."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionBroken from error
