"""The one shared way to the API server: session, TLS, credential, headers of every request.

Made by `connect`, used by every `kube.client.client.Client`. The library's own session is replaced
because of what it may not receive: see `_session`.

The proxy is chosen from the environment by the rules of Go programs. Python's own reading of
NO_PROXY knows no networks: `10.0.0.0/8`, which operators write so that calls inside of the cluster
stay there, would be ignored and those calls sent to the proxy.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock, ServerClock
from rollout_operator.kube.call import Call
from rollout_operator.kube.connection.credential import Credential
from rollout_operator.kube.connection.lean import (
    LibraryClient,
    LibraryConfiguration,
    new_api_client,
)
from rollout_operator.model.errors import ConfigError
from rollout_operator.model.names import CLUSTER_HEADER, FIELD_MANAGER
from rollout_operator.telemetry.logs import log

# Reading pauses at twice this much of an unread answer: enough for one page of a list in few steps,
# and little beside the memory we may use.
_READ_BUFFER: Final = 256 * 1024

# What made objects large may be gone: a page may grow again, twice as large each time.
SMALL_PAGES_LAST: Final = timedelta(hours=1)

_PROXY_SCHEMES: Final = ("http://", "https://")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_Address = IPv4Address | IPv6Address


class NotRepeated(aiohttp.ClientError):
    """The connection broke after a request was sent: aiohttp must not send it a second time.

    A write may have been done, and a read would pass our rate limits.
    """


class Redirected(aiohttp.ClientError):
    """The server redirects, which no API server does: another must not see our credential."""


class _PageSize(msgspec.Struct, frozen=True):
    most: int
    since: timedelta


class PageSizes:
    """How many objects of a collection fit into one page: fewer where they are large.

    An answer is held in memory as a whole, so that it is bounded. A page that was too long once is
    too long the next time as well: the next request is for half as many objects, by every client of
    the process, down to one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sizes: dict[str, _PageSize] = {}
        """By path. Only what did not fit is remembered, until it has grown back."""

    def choose(self, call: Call, limit: int) -> int:
        """Return how many objects to request, at most `limit`."""
        size = self._sizes.get(call.path)
        if size is None:
            return limit
        now = self._clock.elapsed()
        if now - size.since >= SMALL_PAGES_LAST:
            size = self._sizes[call.path] = _PageSize(size.most * 2, now)
        if size.most >= limit > 1:
            del self._sizes[call.path]
        return min(limit, size.most)

    def halve(self, call: Call, requested: int) -> str:
        """Request half as many from now on; return what was wrong, and what comes next."""
        if requested <= 1:
            return "a page of one object is too long"
        most = requested // 2
        self._sizes[call.path] = _PageSize(most, self._clock.elapsed())
        log.warn(
            "Requesting smaller pages", call=call.text, objects_from=requested, objects_to=most
        )
        return f"a page of {requested} objects is too long, requesting {most} at a time"


class Transport(msgspec.Struct, frozen=True):
    """What clients share. Close it last."""

    api: LibraryClient
    credential: Credential | None
    namespace: str
    clock: Clock
    server_clock: ServerClock
    """One for all clients: each knows the time by the answers to the others."""
    page_sizes: PageSizes
    """One for all clients: a live read needs no attempt of its own to learn what a cache has."""
    log_in: str = ""
    """What a person can do where the API server refuses our credentials."""

    async def close(self) -> None:
        """Close all connections."""
        await self.api.close()


def open_transport(
    configuration: LibraryConfiguration,
    credential: Credential | None,
    namespace: str,
    clock: Clock,
    environ: Mapping[str, str],
    headers: Sequence[tuple[str, str]] = (),
) -> Transport:
    """Return a transport to the server that `configuration` names; needs a running loop.

    `headers` are sent with each request, those of one name beside each other.

    Raises ConfigError where certificates cannot be read or the proxy is of an unknown kind.
    """
    # Go programs, and so every other client of the cluster, accept a CA without the extensions that
    # OpenSSL is strict about from Python 3.13 on; several providers' CAs lack them.
    configuration.disable_strict_ssl_verification = True
    # Each watch keeps a connection: those of thirty namespaces would be all that the library has by
    # default, with none left to act. What is in flight is bounded by the rate limits.
    configuration.connection_pool_maxsize = 0
    if credential is not None:
        configuration.api_key["BearerToken"] = credential.value
        configuration.refresh_api_key_hook = credential.show_current
    proxy = configuration.proxy or choose_proxy(configuration.host, environ)
    if proxy and not proxy.startswith(_PROXY_SCHEMES):
        scheme = proxy.partition(":")[0]
        raise ConfigError(f"proxy to {configuration.host}: scheme {scheme!r} is not http or https")
    try:
        api = new_api_client(configuration)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"certificates for {configuration.host}: {error}") from error
    api.rest_client.proxy = proxy
    api.rest_client.pool_manager = _session(api.rest_client.pool_manager, headers)
    api.default_headers.update(_headers(namespace))
    return Transport(api, credential, namespace, clock, ServerClock(clock), PageSizes(clock))


def render_agent(name: str) -> str:
    """Return the agent that requests name; what stands before its slash is the field manager."""
    return f"{name}/{__version__}"


def _headers(namespace: str) -> dict[str, str]:
    return {
        "User-Agent": render_agent(FIELD_MANAGER),
        CLUSTER_HEADER: namespace,
        "Accept": "application/json",
        # Networks inside of a cluster are fast: packing and unpacking 5 MB would cost both sides
        # more time than sending it, and ours would be spent on the loop.
        "Accept-Encoding": "identity",
    }


def _session(
    libs: aiohttp.ClientSession, headers: Sequence[tuple[str, str]]
) -> aiohttp.ClientSession:
    """Return a session over the connector, and so the TLS context, of the library's session.

    The library's session reads the environment and ~/.netrc for each request, in threads: two
    hand-overs before every call, and a netrc entry that matches makes every call fail. It also
    follows redirects and silently repeats a GET, DELETE or PUT whose connection broke.
    """
    connector = libs.connector
    libs.detach()
    return aiohttp.ClientSession(
        connector=connector,
        headers=headers,
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
        raise NotRepeated(f"{error}") from error
    if response.status in _REDIRECTS:
        response.close()
        raise Redirected(f"answered with a redirect, HTTP status {response.status}")
    return response


def choose_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for requests to `url`, None for a direct connection.

    HTTPS_PROXY and HTTP_PROXY by the scheme, NO_PROXY for exceptions, in capitals or small letters.
    Loopback addresses are always reached directly.
    """
    target = urlsplit(url)
    host = (target.hostname or "").rstrip(".")
    port = target.port or (443 if target.scheme == "https" else 80)
    proxy = _read(environ, f"{target.scheme}_proxy")
    if not proxy or host == "localhost":
        return None
    address = _address(host)
    if address is not None and address.is_loopback:
        return None
    exceptions = _read(environ, "no_proxy").split(",")
    if any(_matches(entry.strip().lower(), host, address, port) for entry in exceptions):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _read(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name.upper()) or environ.get(name) or "").strip()


def _matches(entry: str, host: str, address: _Address | None, port: int) -> bool:
    """Return whether one entry of NO_PROXY covers a host: all, network, address or domain."""
    if entry in {"", "*"}:
        return entry == "*"
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, only_port = _split_port(entry)
    if only_port not in {None, port}:
        return False
    excepted = _address(name)
    if excepted is not None or address is not None:
        return excepted == address
    # `example.org` covers itself and what lies below, `.example.org` only what lies below.
    domain = name.removeprefix("*").removeprefix(".")
    return host.endswith(f".{domain}") or host == name


def _split_port(entry: str) -> tuple[str, int | None]:
    """Return host and port of an entry; an IPv6 address without brackets has no port."""
    name, colon, digits = entry.rpartition(":")
    if colon and digits.isascii() and digits.isdigit() and (":" not in name or name[0] == "["):
        return name.strip("[]"), int(digits)
    return entry.strip("[]"), None


def _address(text: str) -> _Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
