"""The real way to pods: one HTTP request over a connection of its own.

What a connection may do is decided in `session`; how long a request may take, and what its status
means, in `client`.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from yarl import URL

from rollout_operator.model.decode.pod_answer import LONGEST_BODY
from rollout_operator.model.downscale import Endpoint
from rollout_operator.pods.client import Method, is_success
from rollout_operator.pods.session import open_session
from rollout_operator.telemetry.logs import log

_LONGEST_EXCERPT: Final = 200


class HttpSender:
    """Implements `client.Sender`. The first call opens what all of them share."""

    def __init__(self, namespace: str, *, trust: ssl.SSLContext | None = None) -> None:
        """`trust` judges the certificates of pods; None: the CAs of the system do."""
        self._namespace = namespace
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def send(self, method: Method, endpoint: Endpoint) -> int:
        """Return the status; all that follows it is left unread."""
        async with self._open(method, endpoint) as response:
            return response.status

    async def ask(self, endpoint: Endpoint) -> tuple[int, bytes]:
        """Return the status and the body of a success, as far as `client.Sender.ask` says."""
        async with self._open("POST", endpoint) as response:
            is_read = is_success(response.status)
            return response.status, await _read(response) if is_read else b""

    @asynccontextmanager
    async def _open(
        self, method: Method, endpoint: Endpoint
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = render_url(endpoint)
        # Of a query nobody knows what is secret.
        log.debug("Calling pod", pod=endpoint.pod, method=method, url=url.partition("?")[0])
        if self._is_closed:
            raise aiohttp.ClientConnectionError("the operator is stopping")
        if self._session is None:
            self._session = open_session(self._namespace, self._trust)
        async with self._session.request(
            method,
            # As it was written: what is escaped in it stays so, and what is not, too.
            URL(url, encoded=True),
            headers={"Host": endpoint.authority},
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
    """Return where to connect: the address itself, so that no name decides whom we talk to."""
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
