"""Find the API server and open the one transport to it: session, TLS, credential, proxy, headers.

The operator's flags name both URL and kubeconfig, or neither; then it is the cluster we run in.
No path has to be writable there. Certificates embedded in a kubeconfig are in temporary files for a
moment, because OpenSSL reads files only.

Proxies follow the rules of Go programs: Python's NO_PROXY knows no networks, and would send calls
to `10.0.0.0/8` through the proxy.
"""

import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
from msgspec.structs import replace

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock, ServerClock
from rollout_operator.kube.api import Call
from rollout_operator.kube.kubeconfig import (
    PROXY_SCHEMES,
    Credential,
    KubeconfigChoice,
    Pem,
    UserCredentials,
    read_kubeconfig,
    run_login,
    token_file,
)
from rollout_operator.kube.lean import (
    Configuration,
    config_exception,
    load_incluster,
    new_connector,
)
from rollout_operator.model.names import CLUSTER_HEADER, FIELD_MANAGER, ConfigError
from rollout_operator.model.units import find_url_problem, quote
from rollout_operator.telemetry.logs import log

# Reading pauses at twice this much of an unread answer: enough for one page of a list in few steps,
# and little beside the memory we may use.
_READ_BUFFER: Final = 256 * 1024

# What made objects large may be gone: a page may grow again, twice as large each time.
SMALL_PAGES_LAST: Final = timedelta(hours=1)

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_Address = IPv4Address | IPv6Address


SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# The token of a pod is bound to the very ServiceAccount that it was made for.
_IN_POD: Final = "restart the pod where its ServiceAccount was deleted and created again"
_BY_KUBECONFIG: Final = "log in again, or fix the user of the kubeconfig"

_SERVICE: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


class NotRepeated(aiohttp.ClientError):
    """The connection broke after a request was sent: aiohttp must not send it a second time.

    A write may have been done, and a read would pass our rate limits.
    """


class _Redirected(aiohttp.ClientError):
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
        if requested <= 1:
            return "a page of one object is too long"
        most = requested // 2
        self._sizes[call.path] = _PageSize(most, self._clock.elapsed())
        log.warn(
            "Requesting smaller pages", call=call.text, objects_from=requested, objects_to=most
        )
        return f"a page of {requested} objects is too long, requesting {most} at a time"


class Transport(msgspec.Struct, frozen=True, kw_only=True):
    """What clients share. Close it last."""

    session: aiohttp.ClientSession
    host: str
    """The URL before each path."""
    headers: dict[str, str]
    credential: Credential | None
    namespace: str
    clock: Clock
    server_clock: ServerClock
    """One for all clients: each knows the time by the answers to the others."""
    page_sizes: PageSizes
    """One for all clients: a live read needs no attempt of its own to learn what a cache has."""
    log_in: str = ""
    """What a person can do where the API server refuses our credentials."""
    proxy: str | None = None
    server_name: str | None = None
    """The name in the server's certificate, where that is not the one in `host`."""

    async def close(self) -> None:
        await self.session.close()


def open_transport(
    configuration: Configuration,
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
    proxy = configuration.proxy or choose_proxy(configuration.host, environ)
    if proxy and (problem := find_url_problem(proxy, PROXY_SCHEMES)):
        scheme = configuration.host.partition(":")[0].upper()
        raise ConfigError(f"environment variable {scheme}_PROXY {problem}")
    try:
        connector = new_connector(configuration)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"certificates for {configuration.host}: {error}") from error
    return Transport(
        session=_open_session(connector, headers),
        host=configuration.host,
        headers=_headers(namespace),
        credential=credential,
        namespace=namespace,
        clock=clock,
        server_clock=ServerClock(clock),
        page_sizes=PageSizes(clock),
        proxy=proxy,
        server_name=configuration.tls_server_name,
    )


def _render_agent(name: str) -> str:
    """Return the agent that requests name; what stands before its slash is the field manager."""
    return f"{name}/{__version__}"


def _headers(namespace: str) -> dict[str, str]:
    return {
        "User-Agent": _render_agent(FIELD_MANAGER),
        CLUSTER_HEADER: namespace,
        "Accept": "application/json",
        # Networks inside of a cluster are fast: packing and unpacking 5 MB would cost both sides
        # more time than sending it, and ours would be spent on the loop.
        "Accept-Encoding": "identity",
    }


def _open_session(
    connector: aiohttp.BaseConnector, headers: Sequence[tuple[str, str]]
) -> aiohttp.ClientSession:
    """Return a session of our own over the library's connector.

    The library's session reads the environment and ~/.netrc for each request, in threads: two
    hand-overs before every call, and a netrc entry that matches makes every call fail. It also
    follows redirects and silently repeats a GET, DELETE or PUT whose connection broke.
    """
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
        raise _Redirected(f"answered with a redirect, HTTP status {response.status}")
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


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is; with no file at all it is that of the cluster we run in."""

    namespace: str
    """Ours: sent with each request as the name of our cluster."""
    name: str = FIELD_MANAGER
    api_url: str = ""
    config_file: str = ""
    """With `api_url` in the place of its server."""
    kubeconfig: KubeconfigChoice | None = None
    """Instead of these two: the kubeconfig that a command found."""
    service_account: Path = SERVICE_ACCOUNT
    """Folder with the files that the kubelet gives each pod: `token` and `ca.crt`."""
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)


async def connect(access: Access, clock: Clock) -> Transport:
    """Return a transport to the API server; nothing is sent to the server yet.

    Raises ConfigError, in one line naming the flag, file or variable that is wrong.
    """
    choice = access.kubeconfig
    if choice is None and access.config_file:
        choice = KubeconfigChoice(files=(Path(access.config_file),), server=access.api_url)
    if choice is not None:
        transport = await _by_kubeconfig(choice, access, clock)
    else:
        configuration = Configuration()
        credential = _in_cluster(configuration, access, clock)
        transport = open_transport(
            configuration, credential, access.namespace, clock, access.environ
        )
    transport.headers["User-Agent"] = _render_agent(access.name)
    return replace(transport, log_in=_IN_POD if choice is None else _BY_KUBECONFIG)


def _in_cluster(configuration: Configuration, access: Access, clock: Clock) -> Credential:
    for name in _SERVICE:
        if not access.environ.get(name):
            raise ConfigError(
                f"not in a cluster: environment variable {name} is not set; outside of a cluster"
                " set both -kubernetes.api-url and -kubernetes.config-file"
            )
    token = access.service_account / "token"
    if not token.exists():
        raise ConfigError(
            f"token file {token}: there is none: automountServiceAccountToken is false in the"
            " ServiceAccount, and the pod does not set it to true"
        )
    host, port = map(access.environ.__getitem__, _SERVICE)
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    if problem := find_url_problem(server):
        raise ConfigError(
            f"environment variables {' and '.join(_SERVICE)}: {quote(server)} {problem}"
        )
    credential = token_file(token, clock)
    ca = access.service_account / "ca.crt"
    try:
        load_incluster(configuration, token, ca, access.environ)
    except (config_exception(), OSError, ValueError) as error:
        why = " ".join(f"{error}".split()) or type(error).__name__
        raise ConfigError(f"service account: {ca}: {why}") from error
    return credential


async def _by_kubeconfig(choice: KubeconfigChoice, access: Access, clock: Clock) -> Transport:
    kubeconfig = read_kubeconfig(choice)
    if kubeconfig.is_insecure:
        log.warn(
            "Not verifying the certificate of the API server, as the kubeconfig says",
            file=choice.names,
        )
    configuration = Configuration()
    configuration.host = kubeconfig.server
    configuration.verify_ssl = not kubeconfig.is_insecure
    configuration.tls_server_name = kubeconfig.server_name or None
    configuration.proxy = kubeconfig.proxy or None
    user = await _log_in(kubeconfig.user)

    async def load() -> str:
        again = await _log_in(read_kubeconfig(choice).user)
        if not again.authorization:
            raise ConfigError(f"{kubeconfig.label}: there is no token any more")
        return again.authorization

    credential = None
    if user.token_file is not None:
        credential = token_file(user.token_file, clock, otherwise=user.authorization)
    elif user.authorization:
        credential = Credential(user.authorization, load, clock)
    # OpenSSL reads files only, and has read them once the transport is open.
    with ExitStack() as files:
        try:
            configuration.ssl_ca_cert = files.enter_context(_file_with(kubeconfig.authority))
            configuration.cert_file = files.enter_context(_file_with(user.certificate))
            configuration.key_file = files.enter_context(_file_with(user.key))
        except OSError as error:
            raise ConfigError(f"{kubeconfig.label}: no temporary file: {error}") from error
        if configuration.cert_file:
            _check_pair(user.where, configuration.cert_file, configuration.key_file)
        return open_transport(
            configuration, credential, access.namespace, clock, access.environ, user.headers
        )


async def _log_in(user: UserCredentials) -> UserCredentials:
    if user.program is None:
        return user
    made = await run_login(user.program)
    return replace(
        user,
        authorization=f"Bearer {made.token}" if made.token else "",
        certificate=made.client_certificate_data.encode() or None,
        key=made.client_key_data.encode() or None,
    )


@contextmanager
def _file_with(pem: Pem | None) -> Iterator[str | None]:
    """Yield the name of a file with this content."""
    if not isinstance(pem, bytes):
        yield None if pem is None else str(pem)
        return
    with NamedTemporaryFile(prefix="rollout-operator-") as file:
        file.write(pem)
        file.flush()
        yield file.name


def _check_pair(where: str, certificate: str, key: str | None) -> None:
    """Raise ConfigError if the certificate and key do not fit together."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        why = "one of them cannot be read"
        if error.reason == "KEY_VALUES_MISMATCH":
            why = "the key is not that of the certificate"
        raise ConfigError(f"{where}: client certificate and key: {why}") from error
