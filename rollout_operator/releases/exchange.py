"""Send requests to registries: which credential goes where, over which redirects.

A registry is a stranger named by a tenant: every byte of its answer is bounded, nothing is unpacked
or kept as a cookie, and no error quotes a credential or the query of a URL. A credential goes to
the registry that the image names and never to another host, scheme or port; a redirect from TLS to
none is refused. A token is requested for pulling from one repository only; a password goes to the
token server that the registry names, over TLS unless the registry itself has none. Pull secrets are
matched as the kubelet does.
"""

import asyncio
import base64
import binascii
import os
import re
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeVar
from weakref import WeakValueDictionary

import aiohttp
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock
from rollout_operator.model.names import InvalidInput, OperatorError
from rollout_operator.model.units import Confidential, format_duration, quote
from rollout_operator.releases.model.releases import DOCKER_HUB, DOCKER_HUB_ALIASES, Repository
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

# No label of a host is longer; a pattern that is would only cost time.
_LONGEST_LABEL: Final = 63
_API_PATHS: Final = ("/v1", "/v2")

_DOCKER_CONFIG_JSON: Final = ".dockerconfigjson"
_DOCKER_CFG: Final = ".dockercfg"

_ENTRIES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

# Registries send one or two; more is an attempt to keep us busy.
_MOST: Final = 8
_LONGEST: Final = 8 * 1024

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))')
_SCHEME: Final = re.compile(rf"({_WORD})(?=[ \t]|,|$)")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_ELSE: Final = re.compile(r"[^ \t,]+")

# Some are signed lists of all rights, of several kilobytes.
_LONGEST_ANSWER: Final = 64 * 1024
_LONGEST_TOKEN: Final = 32 * 1024
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
# A token without a time is good for a minute, and none for less, by the protocol.
_SHORTEST_LIFE: Final = timedelta(seconds=60)
_LONGEST_LIFE: Final = timedelta(hours=1)
# So that it does not end on its way.
_MARGIN: Final = timedelta(seconds=10)
_MOST_KEPT: Final = 1000
_CLIENT_ID: Final = "rollout-operator"
# A registry may know the repository by another name than ours. Any right beyond pull is not ours.
_PULL_ONLY: Final = re.compile(r"repository:[a-z0-9._/:-]{1,300}:pull")

# From a registry to its store, and there perhaps to another region.
_MOST_REDIRECTS: Final = 5
# Bodies are up to some megabytes each, and a container has 200.
AT_MOST: Final = 4
# A registry that hangs must leave turns for the others.
AT_MOST_PER_HOST: Final = 2
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class RegistryError(OperatorError):
    """A registry was not read. `retry_after` is how long it wants no further request."""

    def __init__(self, text: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class ReleaseNotFound(RegistryError):
    """There is no such tag or no such repository: a person pushes it or corrects its name."""


class RegistryDenied(RegistryError):
    """The registry wants other credentials: a person names or renews a pull secret."""


class RegistryBusy(RegistryError):
    """The registry refuses more requests for now, until `retry_after` where it says so."""


class RegistryUnreachable(RegistryError):
    """No useful answer in time: back off."""


class RegistryDistrusted(RegistryError):
    """The answer is wrong or out of all bounds: read again later, and report it to a person."""


class NoAnswer(OperatorError):
    """Within this package: a request had no answer. The text says why."""

    def __init__(self, problem: str, *, is_without_tls: bool = False) -> None:
        """`is_without_tls`: the server, if there is one, may not speak TLS."""
        super().__init__(problem)
        self.is_without_tls = is_without_tls


class BadAnswer(OperatorError):
    """Within this package: an answer that is not to be used. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How hosts are reached: which certificates are trusted, and through which proxy."""

    trust: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RegistryRequest:
    url: URL = field(repr=False)
    method: Literal["GET", "HEAD", "POST"] = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    form: Mapping[str, str] | None = field(default=None, repr=False)
    route: Route = field(default_factory=Route)
    longest: int
    """How many bytes the body of a success may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAnswer:
    status: int
    headers: CIMultiDictProxy[str] = field(
        default_factory=lambda: CIMultiDictProxy(CIMultiDict()), repr=False
    )
    body: bytes = field(default=b"", repr=False)


class RegistrySender:
    """Sends requests, each once. The first request opens the session that all share."""

    def __init__(self, limit: timedelta) -> None:
        """`limit` is the time of one request, its whole answer included."""
        self._limit = limit
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def send(self, request: _RegistryRequest) -> RegistryAnswer:
        """Return the answer. Raises NoAnswer and BadAnswer.

        The library's errors hold the request with all its headers. So ours are raised where no
        such error is in hand any more, and none of them is its cause.
        """
        if self._is_closed:
            raise NoAnswer("the operator is stopping")
        if self._session is None:
            self._session = _open_session()
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

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()


def _open_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
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


async def _exchange(session: aiohttp.ClientSession, request: _RegistryRequest) -> RegistryAnswer:
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
        return RegistryAnswer(status=response.status, headers=response.headers, body=body)


async def _read(response: aiohttp.ClientResponse, request: _RegistryRequest) -> bytes:
    if request.method == "HEAD":
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


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCredential:
    """A credential for a registry. Its texts stand in no log and no repr."""

    key: str
    """The key of its entry in the pull secret, for people."""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """For tokens of the registry's token server, without a password."""
    registry_token: str = field(default="", repr=False)


class KeyringEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a pull secret: a credential, or what is wrong with it."""

    host: str
    """With its port; a pattern."""
    path: str
    """How the repository begins; empty for all."""
    credential: RegistryCredential | None
    problem: str = ""

    def matches(self, host: str, name: str) -> bool:
        # A prefix of the text, as the kubelet has it: `team` is also for `team-b`.
        return f"/{name}".startswith(self.path) and _match_host(self.host, host)


class Keyring(msgspec.Struct, frozen=True):
    """All entries of a pull secret.

    A key is a host, perhaps with a port and the beginning of a path; `*`, `?` and `[a-z]` match
    within one label. Scheme and `/v1/` or `/v2/` do not count.
    """

    entries: tuple[KeyringEntry, ...] = ()

    def choose(self, repository: Repository) -> RegistryCredential | None:
        """Return the credential for a repository, None for none: the most specific one.

        Raises InvalidInput, which names its key, where the credential cannot be read.
        """
        # As the kubelet sorts: hosts before patterns, long before short. Of equals the first.
        matches = self._list_matches(repository)
        best = max(matches, key=lambda entry: f"{entry.host}{entry.path}", default=None)
        if best is None:
            return None
        if best.problem:
            raise InvalidInput(best.problem)
        return best.credential

    def _list_matches(self, repository: Repository) -> Iterator[KeyringEntry]:
        of_hub = repository.registry == DOCKER_HUB
        hosts = DOCKER_HUB_ALIASES if of_hub else (repository.registry,)
        for entry in self.entries:
            if any(entry.matches(host, repository.name) for host in hosts):
                yield entry


def _split_key(key: str) -> tuple[str, str]:
    """Return host and path of a key: `https://index.docker.io/v1/` is the host alone."""
    for scheme in ("https://", "http://"):
        key = key.removeprefix(scheme)
    host, slash, rest = key.partition("/")
    path = f"{slash}{rest}"
    for api in _API_PATHS:
        if path == api or path.startswith(f"{api}/"):
            path = path.removeprefix(api)
    return host.lower(), "" if path == "/" else path


def _match_host(pattern: str, host: str) -> bool:
    pattern_name, pattern_port = _split_port(pattern)
    host_name, host_port = _split_port(host)
    patterns, labels = pattern_name.split("."), host_name.split(".")
    return (
        pattern_port == host_port
        and len(patterns) == len(labels)
        and all(_match_label(*pair) for pair in zip(patterns, labels, strict=True))
    )


def _match_label(pattern: str, label: str) -> bool:
    if pattern == label:
        return True
    # Go negates a class by `^`.
    return len(pattern) <= _LONGEST_LABEL and fnmatchcase(label, pattern.replace("[^", "[!"))


def _split_port(host: str) -> tuple[str, str]:
    # Of `[::1]` the brackets belong to the address.
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and not port.endswith("]") else (host, "")


class _KeyringEntry(Confidential, msgspec.Struct):
    username: str | None = None
    password: str | None = None
    auth: str | None = None
    identitytoken: str | None = None
    registrytoken: str | None = None


class _Config(msgspec.Struct):
    auths: dict[str, msgspec.Raw] | None = None


_CONFIG: Final = msgspec.json.Decoder(_Config)
_ENTRY: Final = msgspec.json.Decoder(_KeyringEntry)


def decode_pull_secret(data: Mapping[str, bytes]) -> Keyring:
    """Return the credentials in the data of a Secret, its values no longer in base64.

    A Secret with neither key has none, and is no error: registries are read without credentials
    (REL-38). Raises InvalidInput where a key is there and does not hold what it should.
    """
    if _DOCKER_CONFIG_JSON in data:
        config = _decode(_CONFIG, data[_DOCKER_CONFIG_JSON])
        entries = None if config is None else config.auths or {}
    else:
        entries = _decode(_ENTRIES, data[_DOCKER_CFG]) if _DOCKER_CFG in data else {}
    if entries is None:
        key = _DOCKER_CONFIG_JSON if _DOCKER_CONFIG_JSON in data else _DOCKER_CFG
        raise InvalidInput(f"data[{key}] of the pull secret is no JSON of Docker's credentials")
    read = (_read_entry(key, entry) for key, entry in entries.items())
    return Keyring(tuple(entry for entry in read if entry is not None))


def _decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T | None:
    """Return the decoded data, None where malformed: errors of the library may quote it."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _read_entry(key: str, data: msgspec.Raw) -> KeyringEntry | None:
    """Return an entry, None for an entry that says nothing, as those of credential helpers do."""
    host, path = _split_key(key)
    shown = f"the pull secret's entry {quote(key)}"
    entry = _decode(_ENTRY, data)
    if entry is None:
        problem = f"{shown} is no JSON object of texts"
        return KeyringEntry(host=host, path=path, credential=None, problem=problem)
    username, password = entry.username or "", entry.password or ""
    if entry.auth:
        pair = _split_auth(entry.auth)
        if pair is None:
            problem = f"{shown}: auth is not `username:password` in base64"
            return KeyringEntry(host=host, path=path, credential=None, problem=problem)
        username, password = pair
    credential = RegistryCredential(
        key=key,
        username=username,
        password=password,
        identity_token=entry.identitytoken or "",
        registry_token=entry.registrytoken or "",
    )
    if credential == RegistryCredential(key=key):
        return None
    return KeyringEntry(host=host, path=path, credential=credential)


def _split_auth(text: str) -> tuple[str, str] | None:
    """Return the two halves, None for what has none. It may lack the padding of base64."""
    plain = text.strip().rstrip("=")
    try:
        decoded = base64.b64decode(f"{plain}{'=' * (-len(plain) % 4)}", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    username, colon, password = decoded.partition(":")
    # Old Docker clients filled it up with zeros.
    return (username, password.strip("\x00")) if colon else None


Send = Callable[[_RegistryRequest], Awaitable[RegistryAnswer]]


class Challenge(msgspec.Struct, frozen=True):
    """One way to authenticate that a server offers."""

    scheme: str
    parameters: Mapping[str, str] = {}
    """Names in small letters; of a name that is given twice, the first."""


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """Return the challenges of all headers in their order, the first `_MOST` of them."""
    challenges: list[Challenge] = []
    for header in headers:
        challenges += _read_header(header[:_LONGEST])
    return challenges[:_MOST]


def _read_header(header: str) -> Iterator[Challenge]:
    scheme = ""
    parameters: dict[str, str] = {}
    at = 0
    while (at := _skip(header, at)) < len(header):
        if parameter := _PARAMETER.match(header, at):
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(name.lower(), value)
            at = parameter.end()
        elif start := _SCHEME.match(header, at):
            if scheme:
                yield Challenge(scheme, parameters)
            scheme, parameters = start[1].lower(), {}
            at = start.end()
        else:
            # Such as the single value of Negotiate.
            rest = _ELSE.match(header, at)
            at = rest.end() if rest else len(header)
    if scheme:
        yield Challenge(scheme, parameters)


def _skip(header: str, at: int) -> int:
    between = _BETWEEN.match(header, at)
    return between.end() if between else at


class _TokenAnswer(Confidential, msgspec.Struct):
    token: str = ""
    access_token: str = ""
    expires_in: int | float | None = None


_ANSWER: Final = msgspec.json.Decoder(_TokenAnswer)


class NotAccepted(Exception):
    """Within this package: a server does not accept the credential, or requires another."""


class _Holder(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a token is: what proves which account it is of, and what it is for."""

    origin: str
    name: str
    credential: RegistryCredential | None
    route: Route = msgspec.field(default_factory=Route)

    @property
    def is_plain(self) -> bool:
        return self.origin.startswith("http://")


class _Tokens:
    """The values of `Authorization` that registries accept, until they expire."""

    def __init__(self, send: Send, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._kept: OrderedDict[_Holder, tuple[str, timedelta]] = OrderedDict()

    def find(self, holder: _Holder) -> str | None:
        """Return the value accepted last, None where there is none or it has expired."""
        value, until = self._kept.get(holder, ("", timedelta(0)))
        return value if self._clock.elapsed() < until else None

    def forget(self, holder: _Holder) -> None:
        self._kept.pop(holder, None)

    async def obtain(self, holder: _Holder, challenges: Sequence[Challenge]) -> str:
        """Return the value that answers one of the challenges: a token before a password.

        Raises NotAccepted, and NoAnswer and BadAnswer of the token server.
        """
        by_scheme = {challenge.scheme: challenge for challenge in reversed(challenges)}
        if (bearer := by_scheme.get("bearer")) is not None:
            value, life = await self._obtain_token(holder, bearer)
        elif "basic" in by_scheme and (basic := _render_basic(holder.credential)):
            value, life = basic, _LONGEST_LIFE
        else:
            raise NotAccepted
        self._keep(holder, value, life)
        return value

    def _keep(self, holder: _Holder, value: str, life: timedelta) -> None:
        self._kept[holder] = (value, self._clock.elapsed() + life - _MARGIN)
        self._kept.move_to_end(holder)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    async def _obtain_token(self, holder: _Holder, bearer: Challenge) -> tuple[str, timedelta]:
        credential = holder.credential
        if credential is not None and credential.registry_token:
            return f"Bearer {credential.registry_token}", _LONGEST_LIFE
        answer = await self._send(_make_request(holder, bearer))
        if answer.status in {400, 401, 403}:
            raise NotAccepted
        if not 200 <= answer.status < 300:
            raise BadAnswer(f"its token server answered with HTTP status {answer.status}")
        return _read_token(answer.body)


def _make_request(holder: _Holder, bearer: Challenge) -> _RegistryRequest:
    realm = _read_realm(bearer.parameters.get("realm", ""), may_be_plain=holder.is_plain)
    scope = bearer.parameters.get("scope", "")
    query = {"scope": scope if _PULL_ONLY.fullmatch(scope) else f"repository:{holder.name}:pull"}
    if service := bearer.parameters.get("service"):
        query["service"] = service
    credential = holder.credential
    if credential is not None and credential.identity_token:
        form = {
            **query,
            "grant_type": "refresh_token",
            "client_id": _CLIENT_ID,
            "refresh_token": credential.identity_token,
        }
        return _RegistryRequest(
            url=realm, method="POST", form=form, route=holder.route, longest=_LONGEST_ANSWER
        )
    basic = _render_basic(credential)
    return _RegistryRequest(
        url=realm.update_query(query),
        headers={"Authorization": basic} if basic else {},
        route=holder.route,
        longest=_LONGEST_ANSWER,
    )


def _read_realm(text: str, *, may_be_plain: bool) -> URL:
    try:
        url = URL(text)
        host = url.host
    except ValueError:
        host = None
    if not host or url.scheme not in {"https", "http"} or url.user or url.password:
        raise BadAnswer("the realm of its challenge is no URL of a token server")
    if url.scheme == "http" and not may_be_plain:
        raise BadAnswer("the realm of its challenge is a token server without TLS")
    return url


def _render_basic(credential: RegistryCredential | None) -> str:
    if credential is None or not credential.username:
        return ""
    pair = f"{credential.username}:{credential.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _read_token(body: bytes) -> tuple[str, timedelta]:
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        answer = None
    if answer is None:
        raise BadAnswer("its token server answered with no JSON object of a token")
    token = answer.token or answer.access_token
    if not _TOKEN.fullmatch(token) or len(token) > _LONGEST_TOKEN:
        raise BadAnswer("its token server answered with no token")
    seconds = min(max(answer.expires_in or 0, 0), _LONGEST_LIFE.total_seconds())
    return f"Bearer {token}", max(timedelta(seconds=seconds), _SHORTEST_LIFE)


_ChooseProxy = Callable[[str], str | None]
"""Returns the URL of the proxy for a URL, None for a direct connection."""


class LookUp(msgspec.Struct, kw_only=True):
    repository: Repository
    credential: RegistryCredential | None
    is_insecure: bool = False
    route: Route = msgspec.field(default_factory=Route)
    scheme: Literal["https", "http"] = "https"
    """Becomes http where that is allowed and the registry does not speak TLS."""

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.repository.host}"

    @property
    def holder(self) -> _Holder:
        return _Holder(
            origin=self.origin,
            name=self.repository.name,
            credential=self.credential,
            route=self.route,
        )


class RegistryQuestion(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    """Below `/v2/NAME/`, with its query."""
    method: Literal["GET", "HEAD"] = "GET"
    accept: str = ""
    longest: int = 0


class RegistryExchange:
    """Requests to all registries, some at a time."""

    def __init__(
        self,
        sender: RegistrySender,
        clock: Clock,
        choose_proxy: _ChooseProxy = lambda url: None,
    ) -> None:
        self._sender = sender
        self._choose_proxy = choose_proxy
        self._tokens = _Tokens(self._send, clock)
        self._turns = asyncio.Semaphore(AT_MOST)
        self._host_turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def fetch(self, look_up: LookUp, question: RegistryQuestion) -> RegistryAnswer:
        """Return the answer, whatever its status.

        Raises NoAnswer, BadAnswer, and NotAccepted for a 401 that no credential turns into
        something else. Sends two requests at most.
        """
        answer, is_its_own = await self._follow(look_up, question)
        if answer.status != 401:
            return answer
        # Another host gets no credential, whatever it requires.
        if not is_its_own:
            raise NotAccepted
        self._tokens.forget(look_up.holder)
        challenges = parse_challenges(answer.headers.getall("WWW-Authenticate", ()))
        await self._tokens.obtain(look_up.holder, challenges)
        answer, _ = await self._follow(look_up, question)
        if answer.status == 401:
            self._tokens.forget(look_up.holder)
            raise NotAccepted
        return answer

    async def _follow(
        self, look_up: LookUp, question: RegistryQuestion
    ) -> tuple[RegistryAnswer, bool]:
        """Return the answer at the end of all redirects, and whether the registry gave it."""
        answer, url = await self._begin(look_up, question)
        origin = url.origin()
        for _ in range(_MOST_REDIRECTS):
            if answer.status not in _REDIRECTS:
                return answer, url.origin() == origin
            url = _read_location(url, answer.headers.get("Location", ""))
            answer = await self._fetch_from(
                url, look_up, question, is_its_own=url.origin() == origin
            )
        if answer.status in _REDIRECTS:
            raise BadAnswer(f"more than {_MOST_REDIRECTS} redirects")
        return answer, url.origin() == origin

    async def _begin(
        self, look_up: LookUp, question: RegistryQuestion
    ) -> tuple[RegistryAnswer, URL]:
        below = f"/v2/{look_up.repository.name}/{question.path}"
        url = URL(f"{look_up.origin}{below}", encoded=True)
        try:
            return await self._fetch_from(url, look_up, question, is_its_own=True), url
        except NoAnswer as error:
            is_over = look_up.scheme == "http" or not look_up.is_insecure
            if is_over or not error.is_without_tls:
                raise
        look_up.scheme = "http"
        url = url.with_scheme("http")
        return await self._fetch_from(url, look_up, question, is_its_own=True), url

    async def _fetch_from(
        self, url: URL, look_up: LookUp, question: RegistryQuestion, *, is_its_own: bool
    ) -> RegistryAnswer:
        headers = {"Accept": question.accept} if question.accept else {}
        if is_its_own and (shown := self._tokens.find(look_up.holder)):
            headers["Authorization"] = shown
        request = _RegistryRequest(
            url=url,
            method=question.method,
            headers=headers,
            route=look_up.route,
            longest=question.longest,
        )
        return await self._send(request)

    async def _send(self, request: _RegistryRequest) -> RegistryAnswer:
        host = request.url.authority
        if request.route.proxy is None and (proxy := self._choose_proxy(f"{request.url}")):
            request = replace(request, route=replace(request.route, proxy=proxy))
        turns = self._host_turns.setdefault(host, asyncio.Semaphore(AT_MOST_PER_HOST))
        async with turns, self._turns:
            # The path may hold what only its finder may fetch, and the query a signature.
            log.debug("Calling registry", host=host, method=request.method)
            return await self._sender.send(request)


def _read_location(url: URL, text: str) -> URL:
    """Return where a redirect leads. Raises BadAnswer where no request may go there."""
    try:
        target = url.join(URL(text, encoded=True)) if text else None
        is_url = target is not None and bool(target.host) and not target.user
    except ValueError:
        target, is_url = None, False
    if target is None or not is_url or target.scheme not in {"https", "http"}:
        raise BadAnswer("a redirect to no URL of a server")
    if url.scheme == "https" and target.scheme == "http":
        raise BadAnswer("a redirect from TLS to a server without it")
    return target
