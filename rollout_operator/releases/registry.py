"""Read registries: which digest a tag names, and what the image says of itself.

The digest comes first: the image that it names never changes, so it is read once. The first text
that is not empty counts: annotations of the manifest, then of its config's descriptor, then labels
of the config. An index counts before the manifest of its first platform. When a registry is read is
left to callers.

A registry is a stranger named by a tenant, see `outbound`. A credential goes to the registry that
the image names and never to another host, scheme or port; a redirect from TLS to none is refused. A
token is requested for pulling from one repository only; a password goes to the token server that
the registry names, over TLS unless the registry itself has none. Pull secrets are matched as the
kubelet does.
"""

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec
from yarl import URL

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import Recent
from rollout_operator.model.names import InvalidInput, OperatorError
from rollout_operator.model.units import Confidential, format_duration, parse_rfc3339, quote
from rollout_operator.outbound import BadAnswer, HttpAnswer, NoAnswer, Outbound, Request, Route
from rollout_operator.releases.model.releases import (
    DOCKER_HUB,
    DOCKER_HUB_ALIASES,
    ImageReference,
    ReleaseMetadata,
    Repository,
    check_digest,
)

# No label of a host is longer; a pattern that is would only cost time.
_LONGEST_LABEL: Final = 63
_API_PATHS: Final = ("/v1", "/v2")

_DOCKER_CONFIG_JSON: Final = ".dockerconfigjson"
_DOCKER_CFG: Final = ".dockercfg"

# Registries send one or two challenges; more is an attempt to keep us busy.
_MOST_CHALLENGES: Final = 8
_LONGEST_CHALLENGE: Final = 8 * 1024
_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# A parameter, the scheme of the next challenge, or else such as the single value of Negotiate.
_CHALLENGE: Final = re.compile(
    rf'(?P<name>{_WORD})[ \t]*=[ \t]*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>{_WORD}))'
    rf"|(?P<scheme>{_WORD})(?=[ \t]|,|$)|[^ \t,]+"
)

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
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


# Registries take manifests of up to 4 MiB; configs are smaller.
_LONGEST_MANIFEST: Final = 4 * 1024 * 1024
_LONGEST_CONFIG: Final = 4 * 1024 * 1024
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT: Final = ", ".join((*_INDEXES, *_MANIFESTS))
# Configs of charts and other artifacts have no labels.
_IMAGE_CONFIGS: Final = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
# Longest text that goes into the status of a Rollout.
_LONGEST_TEXT: Final = 1024
# Reproducible builds write 1970, or 1980 for the sake of zip files.
_OLDEST: Final = datetime(1981, 1, 1, tzinfo=UTC)
_PREFIX: Final = "org.opencontainers.image."
# Errors of decoding a body that is broken.
_BROKEN: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

# For all requests of a look-up, to token servers and blob stores as well.
_LOOK_UP_LIMIT: Final = timedelta(seconds=60)
# Most take a kilobyte or less, the largest seven.
_MOST_CACHED: Final = 1000
_DIGEST_HEADER: Final = "Docker-Content-Digest"
# Statuses of registries and proxies that do not serve HEAD.
_WITHOUT_HEAD: Final = frozenset({400, 405, 501})

# A registry that asks us to wait a year must not silence us for a year.
_LONGEST_WAIT: Final = timedelta(hours=1)
# Only codes are shown: messages are free text, which may repeat credentials that we sent.
_CODE: Final = re.compile(r"[A-Z_]{1,40}")


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


RESULTS: Final[Mapping[type[RegistryError], str]] = {
    ReleaseNotFound: "not_found",
    RegistryDenied: "denied",
    RegistryBusy: "busy",
    RegistryUnreachable: "unreachable",
    RegistryDistrusted: "distrusted",
}
"""The names of outcomes of look-ups, beside `ok`, `invalid` and `cancelled`."""


class _NotAccepted(Exception):
    """A server does not accept the credential, or requires another."""


class _Unsuccessful(Exception):
    """The registry answered with an error."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(f"HTTP status {answer.status}")
        self.answer = answer


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


class _DockerConfig(msgspec.Struct):
    auths: dict[str, msgspec.Raw] | None = None


_DOCKER_CONFIG: Final = msgspec.json.Decoder(_DockerConfig)
_ENTRIES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY: Final = msgspec.json.Decoder(_KeyringEntry)


def decode_pull_secret(data: Mapping[str, bytes]) -> Keyring:
    """Return the credentials in the data of a Secret, its values no longer in base64.

    A Secret with neither key has none, and is no error: registries are read without credentials
    (REL-38). Raises InvalidInput where a key is there and does not hold what it should.
    """
    if _DOCKER_CONFIG_JSON in data:
        config = _decode(_DOCKER_CONFIG, data[_DOCKER_CONFIG_JSON])
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


class Challenge(NamedTuple):
    """One way to authenticate that a server offers."""

    scheme: str
    parameters: Mapping[str, str]
    """Names in small letters; of a name that is given twice, the first."""


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """Return the challenges of all headers in their order, the first `_MOST_CHALLENGES` of them."""
    found: list[Challenge] = []
    for header in headers:
        found += _read_header(header[:_LONGEST_CHALLENGE])
    return found[:_MOST_CHALLENGES]


def _read_header(header: str) -> Iterator[Challenge]:
    scheme = ""
    parameters: dict[str, str] = {}
    for part in _CHALLENGE.finditer(header):
        if name := part["name"]:
            quoted = part["quoted"]
            value = part["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(name.lower(), value)
        elif part["scheme"]:
            if scheme:
                yield Challenge(scheme, parameters)
            scheme, parameters = part["scheme"].lower(), {}
    if scheme:
        yield Challenge(scheme, parameters)


class RegistryAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How a registry may be read, as its ImageRepository says."""

    keyring: Keyring = msgspec.field(default_factory=Keyring)
    is_insecure: bool = False
    """Whether a registry without TLS is read all the same. No bad certificate is accepted."""
    proof: str = ""
    """Equal where the certificates of `route` are, which is made anew for each look-up."""
    route: Route = msgspec.field(default_factory=Route)


class _LookUp(msgspec.Struct, kw_only=True):
    repository: Repository
    access: RegistryAccess
    credential: RegistryCredential | None
    scheme: Literal["https", "http"] = "https"
    """Becomes http where that is allowed and the registry does not speak TLS."""

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.repository.host}"

    @property
    def holder(self) -> tuple[object, ...]:
        """Return for whom a token is: what proves which account it is of, and what it is for."""
        access = self.access
        proofs = (self.credential, access.proof, access.route.proxy)
        # Without the trust itself, which has a megabyte of certificates.
        return self.origin, self.repository.name, *proofs


class _TokenAnswer(Confidential, msgspec.Struct):
    token: str = ""
    access_token: str = ""
    expires_in: int | float | None = None


_ANSWER: Final = msgspec.json.Decoder(_TokenAnswer)


def _make_token_request(look_up: _LookUp, bearer: Challenge) -> Request:
    may_be_plain = look_up.scheme == "http"
    realm = _read_realm(bearer.parameters.get("realm", ""), may_be_plain=may_be_plain)
    scope, name = bearer.parameters.get("scope", ""), look_up.repository.name
    query = {"scope": scope if _PULL_ONLY.fullmatch(scope) else f"repository:{name}:pull"}
    if service := bearer.parameters.get("service"):
        query["service"] = service
    credential, route = look_up.credential, look_up.access.route
    if credential is not None and credential.identity_token:
        form = {
            **query,
            "grant_type": "refresh_token",
            "client_id": _CLIENT_ID,
            "refresh_token": credential.identity_token,
        }
        return Request(url=realm, method="POST", form=form, route=route, longest=_LONGEST_ANSWER)
    basic = _render_basic(credential)
    return Request(
        url=realm.update_query(query),
        headers={"Authorization": basic} if basic else {},
        route=route,
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


class RegistryExchange(Outbound):
    """Requests to all registries."""

    def __init__(
        self,
        clock: Clock,
        limit: timedelta,
        choose_proxy: Callable[[str], str | None] = lambda url: None,
    ) -> None:
        super().__init__(limit, choose_proxy)
        self._clock = clock
        self._accepted: Recent[tuple[object, ...], tuple[str, timedelta]] = Recent(_MOST_KEPT)
        """The values of `Authorization` that registries accept, until they expire."""

    async def fetch(
        self,
        look_up: _LookUp,
        path: str,
        *,
        method: Literal["GET", "HEAD"] = "GET",
        accept: str = "",
        longest: int = 0,
    ) -> HttpAnswer:
        """Return the answer, whatever its status; `path` is below `/v2/NAME/`.

        Raises NoAnswer, BadAnswer, and _NotAccepted for a 401 that no credential turns into
        something else. Sends two requests at most.
        """
        request = Request(
            url=URL(f"{look_up.origin}/v2/{look_up.repository.name}/{path}", encoded=True),
            method=method,
            headers={"Accept": accept} if accept else {},
            route=look_up.access.route,
            longest=longest,
        )
        answer, is_its_own = await self._follow(look_up, request)
        if answer.status != 401:
            return answer
        # Another host gets no credential, whatever it requires.
        if not is_its_own:
            raise _NotAccepted
        self._accepted.pop(look_up.holder, None)
        challenges = parse_challenges(answer.headers.getall("WWW-Authenticate", ()))
        value, life = await self._obtain(look_up, challenges)
        self._accepted.put(look_up.holder, (value, self._clock.elapsed() + life - _MARGIN))
        answer, _ = await self._follow(look_up, request)
        if answer.status == 401:
            self._accepted.pop(look_up.holder, None)
            raise _NotAccepted
        return answer

    async def _obtain(
        self, look_up: _LookUp, challenges: Sequence[Challenge]
    ) -> tuple[str, timedelta]:
        """Return the value that answers one of the challenges: a token before a password."""
        by_scheme = {challenge.scheme: challenge for challenge in reversed(challenges)}
        credential, bearer = look_up.credential, by_scheme.get("bearer")
        if bearer is None:
            basic = _render_basic(credential) if "basic" in by_scheme else ""
            if not basic:
                raise _NotAccepted
            return basic, _LONGEST_LIFE
        if credential is not None and credential.registry_token:
            return f"Bearer {credential.registry_token}", _LONGEST_LIFE
        answer = await self.send(_make_token_request(look_up, bearer))
        if answer.status in {400, 401, 403}:
            raise _NotAccepted
        if not 200 <= answer.status < 300:
            raise BadAnswer(f"its token server answered with HTTP status {answer.status}")
        return _read_token(answer.body)

    async def _follow(self, look_up: _LookUp, request: Request) -> tuple[HttpAnswer, bool]:
        """Return the answer at the end of all redirects, and whether the registry gave it."""
        answer, request = await self._begin(look_up, request)
        origin, url = request.url.origin(), request.url
        for _ in range(_MOST_REDIRECTS):
            if answer.status not in _REDIRECTS:
                break
            url = _read_location(url, answer.headers.get("Location", ""))
            shown = look_up if url.origin() == origin else None
            answer = await self._fetch_from(shown, replace(request, url=url))
        if answer.status in _REDIRECTS:
            raise BadAnswer(f"more than {_MOST_REDIRECTS} redirects")
        return answer, url.origin() == origin

    async def _begin(self, look_up: _LookUp, request: Request) -> tuple[HttpAnswer, Request]:
        request = replace(request, url=request.url.with_scheme(look_up.scheme))
        try:
            return await self._fetch_from(look_up, request), request
        except NoAnswer as error:
            is_over = look_up.scheme == "http" or not look_up.access.is_insecure
            if is_over or not error.is_without_tls:
                raise
        look_up.scheme = "http"
        request = replace(request, url=request.url.with_scheme("http"))
        return await self._fetch_from(look_up, request), request

    async def _fetch_from(self, look_up: _LookUp | None, request: Request) -> HttpAnswer:
        """Send a request, with what is accepted of a look-up."""
        if look_up is not None:
            value, until = self._accepted.get(look_up.holder, ("", timedelta(0)))
            if self._clock.elapsed() < until:
                headers = {**request.headers, "Authorization": value}
                request = replace(request, headers=headers)
        return await self.send(request)


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


class Labels(msgspec.Struct, frozen=True):
    version: str | None = msgspec.field(default=None, name=f"{_PREFIX}version")
    revision: str | None = msgspec.field(default=None, name=f"{_PREFIX}revision")
    source: str | None = msgspec.field(default=None, name=f"{_PREFIX}source")
    title: str | None = msgspec.field(default=None, name=f"{_PREFIX}title")
    description: str | None = msgspec.field(default=None, name=f"{_PREFIX}description")
    created: str | None = msgspec.field(default=None, name=f"{_PREFIX}created")


class _Platform(msgspec.Struct, frozen=True):
    architecture: str | None = None
    os: str | None = None


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """What a manifest refers to."""

    digest: str = ""
    media_type: str = ""
    annotations: Labels | None = None
    platform: _Platform | None = None

    @property
    def is_image_config(self) -> bool:
        return self.media_type in _IMAGE_CONFIGS


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """A manifest, or an index of those of several platforms."""

    media_type: str = ""
    artifact_type: str | None = None
    annotations: Labels | None = None
    config: Descriptor | None = None
    manifests: tuple[Descriptor, ...] | None = None

    @property
    def labels(self) -> list[Labels]:
        """Return its own labels, in the order in which they count."""
        of_config = self.config.annotations if self.config is not None else None
        return [labels for labels in (self.annotations, of_config) if labels is not None]


class _ImageSettings(msgspec.Struct, frozen=True):
    labels: Labels | None = msgspec.field(default=None, name="Labels")


class _Config(msgspec.Struct, frozen=True):
    config: _ImageSettings | None = None
    created: str | None = None


_MANIFEST: Final = msgspec.json.Decoder(Manifest)
_CONFIG: Final = msgspec.json.Decoder(_Config)


def _verify_digest(digest: str, body: bytes) -> None:
    """Raise BadAnswer unless these are the bytes that the digest names."""
    algorithm = digest.partition(":")[0]
    if _compute_digest(body, algorithm) != digest:
        raise BadAnswer(f"what it sent as {digest} is something else")


def _compute_digest(body: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def _decode_manifest(body: bytes, content_type: str) -> Manifest:
    """Return a manifest or an index. Raises BadAnswer for a body that is neither, or both."""
    try:
        manifest = _MANIFEST.decode(body)
    except _BROKEN:
        manifest = None
    if manifest is None:
        raise BadAnswer("its manifest is no JSON of a manifest")
    # The field was optional once: then the header counts. A body that does not fit its kind is
    # refused below, since container engines may read it either way.
    kind = manifest.media_type or content_type
    if kind not in (*_INDEXES, *_MANIFESTS):
        raise BadAnswer("its manifest is of no kind that is known")
    is_index = kind in _INDEXES
    if (manifest.manifests is not None) != is_index or (manifest.config is None) != is_index:
        raise BadAnswer("its manifest is not of the kind that it says")
    return msgspec.structs.replace(manifest, media_type=kind)


def _choose_platform(index: Manifest) -> Descriptor | None:
    """Return the manifest of the first platform of an index, None where it names no platform.

    Attestations have the platform `unknown`; an index within an index is not read.
    """
    for descriptor in index.manifests or ():
        platform = descriptor.platform
        if descriptor.media_type in _MANIFESTS and not (platform and platform.os == "unknown"):
            return _checked(descriptor)
    return None


def _choose_config(manifest: Manifest) -> Descriptor | None:
    config = manifest.config
    return _checked(config) if config is not None and config.is_image_config else None


def _decode_config(body: bytes) -> Labels:
    """Return the labels of a config, and when its image was made. Raises BadAnswer."""
    try:
        config = _CONFIG.decode(body)
    except _BROKEN:
        config = None
    if config is None:
        raise BadAnswer("its config is no JSON of a config")
    labels = (config.config and config.config.labels) or Labels()
    if _read_time(labels.created) is not None:
        return labels
    made = _read_time(config.created)
    return msgspec.structs.replace(labels, created=config.created if made else None)


def _is_complete(sources: Sequence[Labels]) -> bool:
    return all(_choose(sources, name) for name in Labels.__struct_fields__)


def _make_metadata(digest: str, manifest: Manifest, sources: Sequence[Labels]) -> ReleaseMetadata:
    """Return what all sources together say, the first of them before the others."""
    config_type = manifest.config.media_type if manifest.config is not None else ""
    times = (_read_time(labels.created) for labels in sources)
    return ReleaseMetadata(
        digest=digest,
        artifact_type=_cut(manifest.artifact_type or config_type or manifest.media_type),
        version=_choose(sources, "version"),
        revision=_choose(sources, "revision"),
        source=_choose(sources, "source"),
        title=_choose(sources, "title"),
        description=_choose(sources, "description"),
        created=next((time for time in times if time is not None), None),
    )


def _checked(descriptor: Descriptor) -> Descriptor:
    try:
        check_digest(descriptor.digest)
    except InvalidInput as error:
        raise BadAnswer(f"its manifest refers to what is no digest: {error}") from error
    return descriptor


def _choose(sources: Sequence[Labels], name: str) -> str:
    return _cut(next((text for labels in sources if (text := getattr(labels, name))), ""))


def _cut(text: str) -> str:
    return text[:_LONGEST_TEXT]


def _read_time(text: str | None) -> datetime | None:
    try:
        time = parse_rfc3339(text or "")
    except InvalidInput:
        return None
    return time if time >= _OLDEST else None


class RegistryClient:
    """Look-ups in all registries; every method raises InvalidInput and RegistryError only."""

    def __init__(
        self,
        exchange: RegistryExchange,
        clock: Clock,
        count: Callable[[str], object] = lambda result: None,
        limit: timedelta = _LOOK_UP_LIMIT,
    ) -> None:
        """`count` is called with the name of the outcome of each look-up."""
        self._exchange = exchange
        self._clock = clock
        self._count = count
        self._limit = limit
        self._cache: Recent[tuple[Repository, str], ReleaseMetadata] = Recent(_MOST_CACHED)

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        """Return what an image says of itself; without tag and digest it is the tag `latest`.

        The digest is requested from the registry each time, even if the rest is cached, so that
        the cache shows no image to a person who may not read it.
        """
        with self._counted():
            repository = image.repository
            credential = access.keyring.choose(repository)
            look_up = _LookUp(repository=repository, access=access, credential=credential)
            shown = image.digest or f"tag {image.tag or 'latest'}"
            subject = f"cannot read {shown} of {repository.name} in registry {repository.registry}"
            try:
                async with asyncio.timeout(self._limit.total_seconds()):
                    return await self._read_release(look_up, image)
            except _Unsuccessful as error:
                answer, now = error.answer, self._clock.now()
                raise _error_of(subject, answer, credential, now) from error
            except _NotAccepted as error:
                raise _deny(subject, repository.registry, credential) from error
            except NoAnswer as error:
                text = f"{subject}: {error}; it is called again later"
                raise RegistryUnreachable(text) from error
            except BadAnswer as error:
                text = f"{subject}: {error}; its answer is not used: mend the registry or the image"
                raise RegistryDistrusted(text) from error
            except TimeoutError as error:
                limit = format_duration(self._limit)
                text = f"{subject}: it took longer than {limit}; it is called again later"
                raise RegistryUnreachable(text) from error

    @contextmanager
    def _counted(self) -> Iterator[None]:
        result = "cancelled"
        try:
            yield
            result = "ok"
        except InvalidInput:
            result = "invalid"
            raise
        except RegistryError as error:
            result = RESULTS[type(error)]
            raise
        finally:
            self._count(result)

    async def _read_release(self, look_up: _LookUp, image: ImageReference) -> ReleaseMetadata:
        digest = await self._fetch_digest(look_up, image)
        if digest and (cached := self._cache.get((look_up.repository, digest))) is not None:
            self._cache.move_to_end((look_up.repository, digest))
            return cached
        reference = digest or image.tag or "latest"
        manifest, digest = await self._read_manifest(look_up, reference, digest)
        sources = await self._list_sources(look_up, manifest)
        metadata = _make_metadata(digest, manifest, sources)
        self._cache.put((look_up.repository, digest), metadata)
        return metadata

    async def _fetch_digest(self, look_up: _LookUp, image: ImageReference) -> str | None:
        """Return the digest of an image, None if the registry does not send it for a HEAD."""
        path = f"manifests/{image.digest or image.tag or 'latest'}"
        answer = await self._exchange.fetch(look_up, path, method="HEAD", accept=_ACCEPT)
        if answer.status in _WITHOUT_HEAD:
            return image.digest
        _check(answer)
        return image.digest or _read_digest(answer)

    async def _read_manifest(
        self, look_up: _LookUp, reference: str, digest: str | None
    ) -> tuple[Manifest, str]:
        path, longest = f"manifests/{reference}", _LONGEST_MANIFEST
        answer = _check(await self._exchange.fetch(look_up, path, accept=_ACCEPT, longest=longest))
        digest = digest or _read_digest(answer) or _compute_digest(answer.body)
        _verify_digest(digest, answer.body)
        content_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        return _decode_manifest(answer.body, content_type), digest

    async def _list_sources(self, look_up: _LookUp, manifest: Manifest) -> list[Labels]:
        """Return the labels of an image, fetching only as much as is still missing."""
        sources = list(manifest.labels)
        try:
            if not _is_complete(sources) and (platform := _choose_platform(manifest)) is not None:
                digest = platform.digest
                manifest, _ = await self._read_manifest(look_up, digest, digest)
                sources += manifest.labels
            if not _is_complete(sources) and (config := _choose_config(manifest)) is not None:
                sources.append(await self._read_config(look_up, config.digest))
        except _Unsuccessful as error:
            # A mirror may lack platforms that its index names.
            if error.answer.status != 404:
                raise
        return sources

    async def _read_config(self, look_up: _LookUp, digest: str) -> Labels:
        path = f"blobs/{digest}"
        answer = _check(await self._exchange.fetch(look_up, path, longest=_LONGEST_CONFIG))
        _verify_digest(digest, answer.body)
        return _decode_config(answer.body)


def _check(answer: HttpAnswer) -> HttpAnswer:
    if not 200 <= answer.status < 300:
        raise _Unsuccessful(answer)
    return answer


def _read_digest(answer: HttpAnswer) -> str | None:
    try:
        return check_digest(answer.headers.get(_DIGEST_HEADER, ""))
    except InvalidInput:
        return None


class _RegistryRefusal(msgspec.Struct):
    code: str = ""


class _Refusals(msgspec.Struct):
    errors: list[_RegistryRefusal] | None = None


_REFUSALS: Final = msgspec.json.Decoder(_Refusals)


def _deny(subject: str, host: str, credential: RegistryCredential | None) -> RegistryDenied:
    """Return the error for a registry that wants credentials, or others than it got."""
    if credential is None:
        return RegistryDenied(
            f"{subject}: it wants credentials, or there is no such repository; name a pull secret "
            f"with an entry for {host} in the ImageRepository's spec.secretRef"
        )
    return RegistryDenied(
        f"{subject}: it does not accept the pull secret's entry {quote(credential.key)}; renew "
        "that entry, or give it the right to pull"
    )


def _error_of(
    subject: str, answer: HttpAnswer, credential: RegistryCredential | None, now: datetime
) -> RegistryError:
    """Return the error for an answer without success; `subject` begins its sentence."""
    shown = ", ".join(filter(None, (f"HTTP status {answer.status}", _read_code(answer.body))))
    if answer.status == 404:
        return ReleaseNotFound(
            f"{subject}: there is no such tag or repository ({shown}); push it, or correct its name"
        )
    if answer.status == 403:
        whose = (
            f"the pull secret's entry {quote(credential.key)}"
            if credential
            else "clients without credentials"
        )
        return RegistryDenied(
            f"{subject}: it does not let {whose} pull ({shown}); change the rights there"
        )
    wait = parse_retry_after(answer.headers, now)
    if answer.status == 429:
        return RegistryBusy(
            f"{subject}: too many requests ({shown}); it is called again later, and less often"
            " with a longer spec.releaseUpdateInterval",
            retry_after=wait,
        )
    return RegistryUnreachable(
        f"{subject}: it answered with {shown}; it is called again later", retry_after=wait
    )


def parse_retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return how long to wait, at most an hour; None where the registry does not say."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        wait = timedelta(seconds=int(text)) if len(text) < 8 else _LONGEST_WAIT
    else:
        try:
            time = parsedate_to_datetime(text)
            wait = (time if time.tzinfo else time.replace(tzinfo=UTC)) - now
        except (ValueError, OverflowError):
            return None
    return min(wait, _LONGEST_WAIT) if wait > timedelta(0) else None


def _read_code(body: bytes) -> str:
    try:
        errors = _REFUSALS.decode(body).errors or []
    except _BROKEN:
        return ""
    return next((error.code for error in errors if _CODE.fullmatch(error.code)), "")
