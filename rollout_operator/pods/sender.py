"""The real door to pods: one HTTP request over a connection of its own.

What a connection may do is decided in `session`; how long a request may take, and what its status
means, in `client`.
"""

from typing import Final

import aiohttp

from rollout_operator.model.downscale import Endpoint
from rollout_operator.pods.client import Method, is_success
from rollout_operator.pods.session import open_session
from rollout_operator.telemetry.logs import log

_LONGEST_EXCERPT: Final = 200


class HttpSender:
    """Implements `client.Sender`. The first call opens what all of them share."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def send(self, method: Method, endpoint: Endpoint) -> int:
        """Return the status; all that follows it is left unread."""
        url = render_url(endpoint)
        log.debug("Calling pod", pod=endpoint.pod, method=method, url=url)
        if self._is_closed:
            raise aiohttp.ClientConnectionError("the operator is stopping")
        if self._session is None:
            self._session = open_session(self._namespace)
        async with self._session.request(
            method,
            url,
            headers={"Host": f"{endpoint.host}:{endpoint.port}"},
            allow_redirects=False,
        ) as response:
            status = response.status
            if not is_success(status):
                log.debug("Pod refused", pod=endpoint.pod, body=_excerpt(response))
            # Released, it would be read to its end in the background to use the connection again.
            response.close()
            return status

    async def close(self) -> None:
        """Close all connections; see `client.Sender`."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()


def render_url(endpoint: Endpoint) -> str:
    """Return where to connect: the address itself, so that no name decides whom we talk to."""
    host = f"[{endpoint.ip}]" if ":" in endpoint.ip else endpoint.ip
    return f"http://{host}:{endpoint.port}/{endpoint.path}"


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
