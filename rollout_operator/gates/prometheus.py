"""Ask Prometheus, or whatever answers like it, for one number, and see whether a URL answers.

A tenant names the server: which one may be called is decided here, before anything is sent. Without
`-health-checks.allowed-urls` it must be a Service of a watched namespace. Credentials come from the
Secret that the health check names, and go to its `prometheusURL` only: not to an `http` check, nor
where a redirect leads, for none is followed.

What an answer means is decided in `plan`. NaN counts as no data: `scalar()` of nothing is NaN, and
so is a ratio without traffic.
"""

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from math import isnan
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from yarl import URL

from rollout_operator.config.flags import Config
from rollout_operator.gates.model import Answer, HealthCheck, NoData, Number, QueryError
from rollout_operator.model.decode.objects import decode_secret
from rollout_operator.model.decode.wire import clip, one_line
from rollout_operator.model.names import ApiError, InvalidInput
from rollout_operator.model.units import compile_url_pattern
from rollout_operator.outbound import BadAnswer, HttpAnswer, NoAnswer, Outbound, Request, Route

LIMIT: Final = timedelta(seconds=10)
"""Of a request, its answer included."""
# Answers are small, and some servers that hang must leave turns for the others.
AT_MOST: Final = 32
# One sample has a hundred bytes, its labels a few kilobytes.
_LONGEST: Final = 64 << 10
# Each look has three questions, and hundreds of groups may look at once.
_KEPT: Final = timedelta(seconds=10)
_LONGEST_CA: Final = 256 << 10
# Of what a server says of its error, for people.
_LONGEST_ERROR: Final = 200
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|Inf)|NaN")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PATH: Final = "api/v1/query"
# Of a Secret. What is printable cannot begin another header.
_TEXT: Final = re.compile(r"[\x20-\x7e]{1,16384}")


FetchSecret = Callable[[str, str], Awaitable[bytes]]
"""Returns a Secret by namespace and name, as JSON. Raises ApiError."""


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Reply(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""


class _Sample(msgspec.Struct):
    value: tuple[float, str] | None = None
    """None for a histogram."""


_REPLY: Final = msgspec.json.Decoder(_Reply)
_SCALAR: Final = msgspec.json.Decoder(tuple[float, str])
_VECTOR: Final = msgspec.json.Decoder(list[_Sample])
_BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class AllowedUrls:
    """Which servers may be called: those that a pattern fits, or else Services."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._fits = [compile_url_pattern(pattern) for pattern in config.allowed_urls]
        self._domain = config.cluster_domain.strip(".")

    def check(self, text: str, namespace: str) -> URL:
        """Return where to call for a health check of `namespace`. Raises InvalidInput."""
        try:
            url = URL(text)
        except ValueError as error:
            raise InvalidInput(f"not a valid URL: {error}") from error
        # With its slashes escaped, `..` is still there, and some servers obey it.
        is_straight = ".." not in url.path.replace("\\", "/").split("/")
        if is_straight and any(fits(f"{url}") for fits in self._fits):
            return url
        # As it is sent: some texts have no other form.
        sent = url.raw_host or ""
        if not self._fits and (host := self._find_service(sent, namespace)):
            return url.with_host(host)
        place = f"{url.origin()}"
        if self._fits:
            raise InvalidInput(f"{place} is not in -health-checks.allowed-urls")
        raise InvalidInput(
            f"{place} is no Service of a watched namespace, such as http://prometheus.{namespace}"
            ".svc:9090; other servers need -health-checks.allowed-urls"
        )

    def _find_service(self, host: str, namespace: str) -> str:
        """Return the name of a Service up to its `svc`, empty for any other host.

        Shorter names are not left to the resolver: there may be a domain with the name of a
        namespace, such as `dev`.
        """
        whole = host.rstrip(".")
        short = whole.removesuffix(f".{self._domain}")
        name, *rest = short.split(".")
        place = rest[0] if rest else namespace
        forms = [[], [place], [place, "svc"]] if short == whole else [[place, "svc"]]
        is_watched = self._config.watches_all or place in self._config.namespaces
        if rest not in forms or not _LABEL.fullmatch(name) or not is_watched:
            return ""
        return f"{name}.{place}.svc" if short == whole else whole


class Asker:
    """All questions of one process."""

    def __init__(self, outbound: Outbound, fetch_secret: FetchSecret, allowed: AllowedUrls) -> None:
        self._outbound, self._fetch_secret, self._allowed = outbound, fetch_secret, allowed
        self._reading: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._secrets: dict[tuple[str, str], tuple[float, Mapping[str, bytes]]] = {}
        """By namespace and name, with when each is read again."""

    async def ask(self, check: HealthCheck, query: str, at: datetime) -> Answer:
        """Return the result of an instant query at a time."""
        if not query:
            return QueryError("with the names of all pods it is longer than 512 KiB")
        try:
            url = self._allowed.check(check.prometheus_url, check.head.namespace) / _PATH
            secret = await self._read_secret(check)
            headers = _authorize(secret)
            request = Request(
                url=url,
                method="POST",
                headers={"Accept": "application/json", **headers},
                form={"query": query, "time": f"{at.timestamp():.3f}"},
                route=Route(trust=_trust(secret)),
                longest=_LONGEST,
            )
            answer = await self._outbound.send(request)
            pair = headers.get("Authorization", "").rpartition(" ")[2].rstrip("=")
            return _read_answer(answer, [pair, *secret.values()])
        except (InvalidInput, NoAnswer, BadAnswer) as error:
            return QueryError(f"{error}")

    async def probe(self, check: HealthCheck, url: str) -> Answer:
        """Return the HTTP status with which a URL answers; its body is left unread."""
        try:
            allowed = self._allowed.check(url, check.head.namespace)
            answer = await self._outbound.send(Request(url=allowed, longest=None))
            return Number(answer.status)
        except (InvalidInput, NoAnswer, BadAnswer) as error:
            return QueryError(f"{error}")

    async def _read_secret(self, check: HealthCheck) -> Mapping[str, str]:
        """Return the credentials. Raises InvalidInput that quotes none of them."""
        if check.secret is None:
            return {}
        where = f"Secret {check.secret}"
        try:
            data = await self._fetch_data(check.head.namespace, check.secret)
        except ApiError as error:
            raise InvalidInput(f"{where}: {error}") from error
        found: dict[str, str] = {}
        for key in ("token", "username", "password", "ca.crt", "tenant"):
            # A file that somebody made a Secret of ends with a newline.
            text = data.get(key, b"").decode("utf-8", "replace").strip()
            if text and key != "ca.crt" and not _TEXT.fullmatch(text):
                raise InvalidInput(f"{where}: {key} is no single line of ASCII")
            found[key] = text
        if found["token"] and found["username"]:
            raise InvalidInput(f"{where}: it has a token and a username; one must go")
        return found

    async def _fetch_data(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return the data of a Secret, which is read once for all questions of some seconds."""
        key, time = (namespace, name), asyncio.get_running_loop().time
        async with self._reading.setdefault(key, asyncio.Lock()):
            self._secrets = {one: kept for one, kept in self._secrets.items() if time() < kept[0]}
            if key not in self._secrets:
                data = decode_secret(await self._fetch_secret(namespace, name))
                self._secrets[key] = time() + _KEPT.total_seconds(), data
            return self._secrets[key][1]


def _authorize(secret: Mapping[str, str]) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    if token := secret.get("token"):
        headers["Authorization"] = f"Bearer {token}"
    if user := secret.get("username"):
        pair = f"{user}:{secret['password']}".encode()
        headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
    if tenant := secret.get("tenant"):
        headers["X-Scope-OrgID"] = tenant
    return headers


def _trust(secret: Mapping[str, str]) -> ssl.SSLContext | None:
    if not (ca := secret.get("ca.crt")):
        return None
    if (context := _load_ca(ca)) is None:
        raise InvalidInput("ca.crt of its Secret holds no certificates in PEM, or over 256 KiB")
    return context


# To read those of the image takes 20 ms of the event loop, and two thirds of a megabyte.
@lru_cache(maxsize=16)
def _load_ca(ca: str) -> ssl.SSLContext | None:
    if len(ca) > _LONGEST_CA:
        return None
    try:
        # Comments may be of other letters.
        context = ssl.create_default_context(cadata=ca.encode("ascii", "replace").decode())
    except (ssl.SSLError, ValueError):
        return None
    context.load_default_certs()
    return context


def _read_answer(answer: HttpAnswer, hidden: Iterable[str]) -> Answer:
    """Return what an answer says; of an error nothing that is hidden."""
    if 300 <= answer.status < 400:
        return QueryError(f"HTTP status {answer.status}: redirects are not followed")
    try:
        reply = _REPLY.decode(answer.body)
    except _BROKEN:
        reply = None
    if not 200 <= answer.status < 300 or (reply and reply.status != "success"):
        said = "" if reply is None else f": {reply.error_type}: {reply.error}"
        # It may repeat what was sent, and is shown to many.
        if any(text and text in said for text in hidden):
            said = ""
        return QueryError(clip(f"HTTP status {answer.status}{said}", _LONGEST_ERROR))
    if reply is None or reply.data is None:
        return QueryError("its answer is no JSON of a result")
    try:
        return _read_result(reply.data)
    except _BROKEN:
        return QueryError(f"its {_name(reply.data)} is no JSON of one")


def _read_result(data: _Data) -> Answer:
    if data.result_type == "scalar":
        return _read_number(_SCALAR.decode(data.result)[1])
    if data.result_type != "vector":
        return QueryError(f"its answer is a {_name(data)}, not a scalar or a vector")
    samples = _VECTOR.decode(data.result)
    if not samples:
        return NoData()
    if len(samples) > 1:
        return QueryError(f"its vector has {len(samples)} samples, not one")
    if samples[0].value is None:
        return QueryError("its sample is a histogram, not a number")
    return _read_number(samples[0].value[1])


def _read_number(text: str) -> Answer:
    if not _NUMBER.fullmatch(text):
        return QueryError("its sample is no number")
    value = float(text)
    return NoData() if isnan(value) else Number(value)


def _name(data: _Data) -> str:
    return clip(one_line(data.result_type), 20)
