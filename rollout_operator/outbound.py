"""Call HTTP servers that tenants name: registries, Prometheus and what a health check looks at.

Such a server is a stranger: every byte of its answer is bounded, and so is the time; nothing is
unpacked or kept as a cookie, redirects are the caller's, and no error quotes a credential or the
query of a URL. Which servers may be called, and with which credentials, is left to callers.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import Final, Literal
from weakref import WeakValueDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from rollout_operator import __version__
from rollout_operator.model.names import OperatorError
from rollout_operator.model.units import format_duration
from rollout_operator.telemetry.logs import log

# Names of stores below a CDN are signed in a header of a redirect: two or three kilobytes of it.
_LONGEST_HEADER: Final = 16 * 1024
_MOST_HEADERS: Final = 96
_READ_BUFFER: Final = 64 * 1024
# An error is a line of JSON; the rest of a longer answer is left unread.
_LONGEST_ERROR: Final = 16 * 1024
_CONNECT_LIMIT: Final = timedelta(seconds=5)

# Python encodes names of hosts itself, and refuses labels that DNS does.
_LOST: Final = (aiohttp.ClientError, TimeoutError, OSError, UnicodeError)

# A name server may be a stranger, too, and a look-up cannot be cancelled.
_LOOK_UPS: Final = 4

# Where clouds serve the credentials of a machine, beside the link-local one.
_METADATA: Final = frozenset(
    map(ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16"))
)

# Bodies are up to some megabytes each, and a container has 200.
AT_MOST: Final = 4
# A registry that hangs must leave turns for the others.
AT_MOST_PER_HOST: Final = 2


class NoAnswer(OperatorError):
    """A request had no answer. The text says why."""

    def __init__(self, problem: str, *, is_without_tls: bool = False) -> None:
        """`is_without_tls`: the server, if there is one, may not speak TLS."""
        super().__init__(problem)
        self.is_without_tls = is_without_tls


class BadAnswer(OperatorError):
    """An answer that is not to be used. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How hosts are reached: which certificates are trusted, and through which proxy."""

    trust: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    url: URL = field(repr=False)
    method: Literal["GET", "HEAD", "POST"] = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    route: Route = field(default_factory=Route)
    longest: int | None
    """How many bytes the body of a success may have; None leaves all bodies unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    status: int
    headers: CIMultiDictProxy[str] = field(
        default_factory=lambda: CIMultiDictProxy(CIMultiDict()), repr=False
    )
    body: bytes = field(default=b"", repr=False)


class _OwnAddressError(OSError):
    """A name leads to the machine itself."""


class _Resolver(AbstractResolver):
    """Looks up names in its own threads: those of the loop are for names that are ours."""

    def __init__(self, *, may_be_own: bool) -> None:
        self._may_be_own = may_be_own
        self._threads = ThreadPoolExecutor(_LOOK_UPS, thread_name_prefix="names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        look_up = partial(
            socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
        )
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        if not self._may_be_own and any(_is_own(f"{place[0]}") for *_, place in found):
            raise _OwnAddressError
        return [
            ResolveResult(
                hostname=host,
                host=f"{place[0]}",
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, place in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_own(text: str) -> bool:
    """Return whether an address is of the machine or its network: there are its credentials."""
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    is_near = address.is_loopback or address.is_link_local or address.is_unspecified
    return is_near or address in _METADATA


def _open_session(resolver: AbstractResolver) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, ssl=ssl.create_default_context(), resolver=resolver
        ),
        headers={
            "User-Agent": f"rollout-operator/{__version__}",
            # What is compressed may be a thousand times as long, and would be another digest.
            "Accept-Encoding": "identity",
        },
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_LIMIT.total_seconds()),
        # It would read passwords from a file in the home folder, too.
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=_READ_BUFFER,
        max_headers=_MOST_HEADERS,
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
    )


async def _exchange(session: aiohttp.ClientSession, request: Request) -> HttpAnswer:
    async with session.request(
        request.method,
        request.url,
        headers=request.headers,
        data=request.form,
        allow_redirects=False,
        ssl=request.route.trust or True,
        proxy=request.route.proxy,
    ) as response:
        try:
            body = await _read(response, request)
        finally:
            # Released, the rest of it might be read in the background to its end.
            if not response.content.is_eof():
                response.close()
        return HttpAnswer(status=response.status, headers=response.headers, body=body)


async def _read(response: aiohttp.ClientResponse, request: Request) -> bytes:
    if request.method == "HEAD" or request.longest is None:
        return b""
    if not 200 <= response.status < 300:
        return b"" if response.status < 400 else await _read_some(response, _LONGEST_ERROR)
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise BadAnswer("the answer is compressed, which was not requested")
    if (response.content_length or 0) <= request.longest:
        body = await _read_some(response, request.longest + 1)
        if len(body) <= request.longest:
            return body
    raise BadAnswer(f"the answer is longer than {request.longest} bytes")


async def _read_some(response: aiohttp.ClientResponse, longest: int) -> bytes:
    body = bytearray()
    while len(body) < longest and (piece := await response.content.read(longest - len(body))):
        body += piece
    return bytes(body)


def _translate(error: Exception) -> NoAnswer:
    """Return the problem in our own words: those of the library quote URLs and servers."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = error.certificate_error
        message = why.verify_message if isinstance(why, ssl.SSLCertVerificationError) else ""
        return NoAnswer(": ".join(filter(None, ("certificate not accepted", message))))
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return NoAnswer("no TLS connection", is_without_tls=True)
    if isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError):
        return NoAnswer("no connection through the proxy")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        if isinstance(error.os_error, _OwnAddressError):
            return NoAnswer("its name leads to an address of the machine")
        return NoAnswer("no address is known for its name")
    if isinstance(error, aiohttp.ClientConnectorError):
        code = error.os_error.errno or 0
        why_not = f": {os.strerror(code).lower()}" if code > 0 else ""
        return NoAnswer(f"no connection{why_not}", is_without_tls=True)
    if isinstance(error, aiohttp.ServerTimeoutError):
        limit = format_duration(_CONNECT_LIMIT)
        return NoAnswer(f"no connection within {limit}", is_without_tls=True)
    if isinstance(error, aiohttp.ClientResponseError):
        return NoAnswer("no valid HTTP answer, or too long headers")
    if isinstance(error, aiohttp.ClientPayloadError):
        return NoAnswer("the answer broke off")
    return NoAnswer("the connection broke")


class Outbound:
    """Requests to all such servers, some at a time. The first opens the session that all share."""

    def __init__(
        self,
        limit: timedelta,
        choose_proxy: Callable[[str], str | None] = lambda url: None,
        *,
        at_most: int = AT_MOST,
        may_be_own: bool = True,
    ) -> None:
        """`limit` is the time of one request, its whole answer included; `at_most` go at a time.

        Without `may_be_own` no name may lead to an address of the machine itself.

        `choose_proxy` returns the URL of the proxy for a URL, None for a direct connection.
        """
        self._limit, self._choose_proxy = limit, choose_proxy
        self._resolver = _Resolver(may_be_own=may_be_own)
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False
        self._turns = asyncio.Semaphore(at_most)
        self._host_turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()

    async def send(self, request: Request) -> HttpAnswer:
        """Return the answer, whatever its status. Raises NoAnswer and BadAnswer."""
        host = f"{request.url.raw_host}:{request.url.port}"
        if request.route.proxy is None and (proxy := self._choose_proxy(f"{request.url}")):
            request = replace(request, route=replace(request.route, proxy=proxy))
        turns = self._host_turns.setdefault(host, asyncio.Semaphore(AT_MOST_PER_HOST))
        async with turns, self._turns:
            # The path may hold what only its finder may fetch, and the query a signature.
            log.debug("Calling a server", host=host, method=request.method)
            return await self._send_now(request)

    async def _send_now(self, request: Request) -> HttpAnswer:
        """Do what `send` does, when it is this request's turn.

        The library's errors hold the request with all its headers. So ours are raised where no
        such error is in hand any more, and none of them is its cause.
        """
        if self._is_closed:
            raise NoAnswer("the operator is stopping")
        if self._session is None:
            self._session = _open_session(self._resolver)
        try:
            async with asyncio.timeout(self._limit.total_seconds()) as limit:
                return await _exchange(self._session, request)
        except _LOST as error:
            lost = (
                NoAnswer(f"no answer within {format_duration(self._limit)}")
                if limit.expired()
                else _translate(error)
            )
        raise lost
