"""The one shared way to the API server: session, TLS, credential, headers of every request.

Made by `connect`, used by every `kube.client.client.Client`. The library's own session is replaced
because of what it may not be told: see `_session`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock
from rollout_operator.kube.connection.credential import Credential
from rollout_operator.kube.connection.lean import (
    LibraryClient,
    LibraryConfiguration,
    new_api_client,
)
from rollout_operator.kube.connection.proxy import choose_proxy
from rollout_operator.kube.connection.server_clock import ServerClock
from rollout_operator.kube.page_sizes import PageSizes
from rollout_operator.model.errors import ConfigError
from rollout_operator.model.names import CLUSTER_HEADER, FIELD_MANAGER

# Reading pauses at twice this much of an unread answer: enough for one page of a list in few steps,
# and little beside the memory we may use.
_READ_BUFFER: Final = 256 * 1024

_PROXY_SCHEMES: Final = ("http://", "https://")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class NotRepeated(aiohttp.ClientError):
    """The connection broke after a write was sent: it must not be sent a second time unasked."""


class Redirected(aiohttp.ClientError):
    """An API server does not redirect: whoever answered must not see our credential."""


@dataclass(frozen=True, slots=True)
class Transport:
    """What clients share. Close it last."""

    api: LibraryClient
    credential: Credential | None
    namespace: str
    clock: Clock
    server_clock: ServerClock
    """One for all clients: who has not asked yet knows the time by the answers to others."""
    page_sizes: PageSizes
    """One for all clients: a live look needs no attempt of its own to learn what a cache has."""

    async def close(self) -> None:
        """Close all connections."""
        await self.api.close()


def open_transport(
    configuration: LibraryConfiguration,
    credential: Credential | None,
    namespace: str,
    clock: Clock,
    environ: Mapping[str, str],
) -> Transport:
    """Return a transport to the server that `configuration` names; needs a running loop.

    Raises ConfigError where certificates cannot be read or the proxy is of an unknown kind.
    """
    # Go programs, and so every other client of the cluster, accept a CA without the extensions that
    # OpenSSL is strict about from Python 3.13 on; several providers' CAs lack them.
    configuration.disable_strict_ssl_verification = True
    if credential is not None:
        configuration.api_key["BearerToken"] = credential.value
        configuration.refresh_api_key_hook = credential.refresh
    proxy = configuration.proxy or choose_proxy(configuration.host, environ)
    if proxy and not proxy.startswith(_PROXY_SCHEMES):
        scheme = proxy.partition(":")[0]
        raise ConfigError(f"proxy to {configuration.host}: scheme {scheme!r} is not http or https")
    try:
        api = new_api_client(configuration)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"certificates for {configuration.host}: {error}") from error
    api.rest_client.proxy = proxy
    api.rest_client.pool_manager = _session(api.rest_client.pool_manager)
    api.default_headers.update(_headers(namespace))
    return Transport(api, credential, namespace, clock, ServerClock(clock), PageSizes(clock))


def _headers(namespace: str) -> dict[str, str]:
    return {
        "User-Agent": f"{FIELD_MANAGER}/{__version__}",
        CLUSTER_HEADER: namespace,
        "Accept": "application/json",
        # Networks inside of a cluster are fast: packing and unpacking 5 MB would cost both sides
        # more time than sending it, and ours would be spent on the loop.
        "Accept-Encoding": "identity",
    }


def _session(libs: aiohttp.ClientSession) -> aiohttp.ClientSession:
    """Return a session over the connector, and so the TLS context, of the library's session.

    That one reads the environment and ~/.netrc for each request, in threads: two hand-overs before
    every call, and a netrc entry that matches makes every call fail. It also follows redirects
    and silently repeats a DELETE or PUT whose connection broke.
    """
    connector = libs.connector
    libs.detach()
    return aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_READ_BUFFER,
        middlewares=(_send_once,),
    )


async def _send_once(
    request: aiohttp.ClientRequest,
    send: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]],
) -> aiohttp.ClientResponse:
    try:
        response = await send(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method == "GET":
            raise
        raise NotRepeated(f"{error}") from error
    if response.status in _REDIRECTS:
        response.close()
        raise Redirected(f"answered with a redirect, HTTP status {response.status}")
    return response
