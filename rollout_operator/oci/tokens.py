"""What a registry is shown: nothing at first, then what its challenge requires, within bounds.

Reads `WWW-Authenticate` with several challenges in one header, several headers, and quoted values
with escapes, as RFC 9110 has them; what is no challenge is skipped. Decides which challenge is
answered with which credential, and for how long a token is used again. A token is requested for the
right to pull from one repository and no other right, whatever the registry would like; a password
goes to the token server that the registry names, and there over TLS only, unless the registry
itself has none. Which requests carry what comes out is decided in `exchange`.
"""

import base64
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from yarl import URL

from rollout_operator.aio.clock import Clock
from rollout_operator.model.units import Confidential
from rollout_operator.oci.errors import BadAnswer
from rollout_operator.oci.keyring import RegistryCredential
from rollout_operator.oci.sender import RegistryAnswer, RegistryRequest, Route

# Registries send one or two; more is an attempt to keep us busy.
_MOST: Final = 8
_LONGEST: Final = 8 * 1024

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))')
_SCHEME: Final = re.compile(rf"({_WORD})(?=[ \t]|,|$)")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_ELSE: Final = re.compile(r"[^ \t,]+")

# Some are signed lists of all rights, of several kilobytes.
LONGEST_ANSWER: Final = 64 * 1024
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

Send = Callable[[RegistryRequest], Awaitable[RegistryAnswer]]


class Challenge(msgspec.Struct, frozen=True):
    """One way to authenticate that a server offers."""

    scheme: str
    """In small letters."""
    parameters: Mapping[str, str] = {}
    """Names in small letters; of a name that is given twice, the first."""


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """Return the challenges of all headers in their order, the first `_MOST` of them."""
    challenges: list[Challenge] = []
    for header in headers:
        challenges += _read(header[:_LONGEST])
    return challenges[:_MOST]


def _read(header: str) -> Iterator[Challenge]:
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


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a token is: what proves which account it is of, and what it is for."""

    origin: str
    """Scheme and host of the registry."""
    name: str
    """Of the repository."""
    credential: RegistryCredential | None
    route: Route = msgspec.field(default_factory=Route)

    @property
    def is_plain(self) -> bool:
        """Return whether the registry is read without TLS."""
        return self.origin.startswith("http://")


class Tokens:
    """The values of `Authorization` that registries accept, until they expire."""

    def __init__(self, send: Send, clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._kept: OrderedDict[Holder, tuple[str, timedelta]] = OrderedDict()

    def find(self, holder: Holder) -> str | None:
        """Return the value accepted last, None where there is none or it has expired."""
        value, until = self._kept.get(holder, ("", timedelta(0)))
        return value if self._clock.elapsed() < until else None

    def forget(self, holder: Holder) -> None:
        """Drop the value that the registry does not accept any more."""
        self._kept.pop(holder, None)

    async def obtain(self, holder: Holder, challenges: Sequence[Challenge]) -> str:
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

    def _keep(self, holder: Holder, value: str, life: timedelta) -> None:
        self._kept[holder] = (value, self._clock.elapsed() + life - _MARGIN)
        self._kept.move_to_end(holder)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)

    async def _obtain_token(self, holder: Holder, bearer: Challenge) -> tuple[str, timedelta]:
        credential = holder.credential
        if credential is not None and credential.registry_token:
            return f"Bearer {credential.registry_token}", _LONGEST_LIFE
        answer = await self._send(_make_request(holder, bearer))
        if answer.status in {400, 401, 403}:
            raise NotAccepted
        if not 200 <= answer.status < 300:
            raise BadAnswer(f"its token server answered with HTTP status {answer.status}")
        return _read_token(answer.body)


def _make_request(holder: Holder, bearer: Challenge) -> RegistryRequest:
    """Return the request for a token. Raises BadAnswer where no request may go to the realm."""
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
        return RegistryRequest(
            url=realm, method="POST", form=form, route=holder.route, longest=LONGEST_ANSWER
        )
    basic = _render_basic(credential)
    return RegistryRequest(
        url=realm.update_query(query),
        headers={"Authorization": basic} if basic else {},
        route=holder.route,
        longest=LONGEST_ANSWER,
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
    """Return the header of a user and a password; empty where there is none."""
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
