"""The HTTP session towards pods: what it may do, and what its failures are called.

A pod is a stranger: nothing that it answers is followed, kept, unpacked or believed beyond its
status and, where it is asked for a time, that time; and nothing is sent to it that tells who we
are but our namespace (SEC-11, SEC-12). Which requests are made is decided in `client`.
"""

import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import aiohttp
from aiohttp.abc import AbstractResolver

from rollout_operator import __version__
from rollout_operator.model.names import CLUSTER_HEADER

# Reading pauses at twice this much of a body; most are closed unread once their head is there.
_READ_BUFFER: Final = 32 * 1024
# Servers send about ten headers, meshes add as many; together at most 128 KiB are taken.
_MOST_HEADERS: Final = 64
_LONGEST_HEADER: Final = 2 * 1024


class _Broken(aiohttp.ClientError):
    """The connection broke after the request was sent: it must not be sent a second time."""


def open_session(namespace: str, trust: ssl.SSLContext | None = None) -> aiohttp.ClientSession:
    """Return a session without limits of its own in number and time; needs a running loop.

    `trust` judges the certificates of pods; None: the CAs of the system do.
    """
    connector = aiohttp.TCPConnector(
        resolver=_NoResolver(),
        use_dns_cache=False,
        force_close=True,
        limit=0,
        ssl=trust or True,
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers={
            "User-Agent": f"rollout-operator/{__version__}",
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            CLUSTER_HEADER: namespace,
        },
        timeout=aiohttp.ClientTimeout(total=None),
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=_READ_BUFFER,
        max_headers=_MOST_HEADERS,
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
        middlewares=(_send_once,),
    )


def describe(error: Exception) -> str:
    """Return what went wrong in words of our own: those of aiohttp quote what the pod sent."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = error.certificate_error
        told = why.verify_message if isinstance(why, ssl.SSLCertVerificationError) else ""
        return f"certificate not accepted: {told}" if told else "certificate not accepted"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "no TLS connection"
    if isinstance(error, aiohttp.ClientConnectorError):
        code = error.os_error.errno
        return f"no connection: {os.strerror(code).lower()}" if code else "no connection"
    if isinstance(error, aiohttp.ClientResponseError):
        return "no valid HTTP answer, or too long headers"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer broke off"
    if isinstance(error, _Broken):
        return "connection closed without an answer"
    return f"no answer: {type(error).__name__}"


class _NoResolver(AbstractResolver):
    """Looks nothing up: addresses need it not, and a name has slipped past all checks."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> NoReturn:
        raise OSError(f"{host!r} is no address")

    async def close(self) -> None:
        """Nothing is held."""


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
        raise _Broken from error
