"""One review in, one answer out, in time.

Hooks decide the verdict. This module decides when the answer must be out, refuses where a hook is
late or fails, writes the answer byte for byte as Go's encoder does, and passes reviews on to the
elected replica. That replica is found by the Lease, which other clients may edit: nothing is sent
before the other side has shown a certificate of our CA for the name of our Service. A review that
cannot be passed on is refused for now.
"""

import asyncio
import base64
import math
import ssl
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum, unique
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import parse_qs

import aiohttp
import msgspec
from msgspec.structs import replace
from yarl import URL

from rollout_operator.aio.clock import Clock
from rollout_operator.model.decode.review import KIND, decode_allowed
from rollout_operator.model.decode.wire import clip
from rollout_operator.model.lease import Lease
from rollout_operator.model.names import DecodeError, InvalidInput, OperatorError
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version
from rollout_operator.model.units import format_duration, parse_duration
from rollout_operator.planning.requests import RETRY, refuse
from rollout_operator.pods import NoResolver, make_session
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.spans import Attribute, SpanRole, tracing

# What clients show of a warning; the API server cuts longer warnings, and drops warnings beyond its
# total.
MAX_WARNINGS: Final = 10
MAX_WARNING: Final = 256
# Texts may quote what tenants wrote, which may be 256 KiB.
MAX_MESSAGE: Final = 4096
_SCALE: Final = "Scale"
_PATCHABLE: Final = frozenset({"CREATE", "UPDATE"})
# Go escapes these inside of strings, so that JSON may stand inside of HTML and JavaScript; they
# occur nowhere else in JSON.
_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
_HEADS: Final = {
    version: b'{"kind":"%s","apiVersion":"%s","response":{"uid":'
    % (KIND.encode(), version.value.encode())
    for version in Version
}
# The API server stops waiting at its own limit; the answer has a tenth of the time for its way.
SHARE: Final = 0.9
_BUG: Final = "the review failed by a bug; see the operator's log"
# On each path. More would take more connections and, with 128 KiB of each review, more memory; a
# drain of a thousand pods evicts one after another.
MOST: Final = 32
# Those about objects that the cache does not confirm: any client can make them up, and the
# elected replica lets them wait for a read.
MOST_UNCONFIRMED: Final = 4
# A message of 4 KiB, ten warnings and a patch, each character escaped.
MOST_ANSWER: Final = 64 << 10
# A pod that is gone answers nothing at all, and a handshake takes milliseconds.
_CONNECT_LIMIT: Final = timedelta(seconds=2)
# Before the answer must be out: for our refusal, where no answer has come; and by how much earlier
# the other replica has to give its own.
_RETURN: Final = timedelta(milliseconds=100)
_HEAD_START: Final = timedelta(milliseconds=150)
# Idle connections are closed by this side first: a server closes them after three minutes.
_KEEP_WARM: Final = timedelta(minutes=1)
# Clients of Kubernetes repeat a request ten times by themselves: longer than it takes until another
# replica leads.
_AGAIN: Final = timedelta(seconds=2)
_MILLISECOND: Final = timedelta(milliseconds=1)


class ReviewHook(Protocol):
    async def review(self, review: Review, until: timedelta) -> Verdict | bytes:
        """Return the verdict, or the body of another replica's answer, before `until`.

        `until` is on `clock.elapsed()`. It is cancelled then, or when the client has gone: either
        way the request does not go through by this review.
        """
        ...


class Deadline(msgspec.Struct, frozen=True):
    """When an answer must be out, on `clock.elapsed()`, and how long that is after the request."""

    until: timedelta
    span: timedelta


class Reviewer(msgspec.Struct, frozen=True, kw_only=True):
    """Answers the reviews of one operator."""

    hooks: Mapping[str, ReviewHook]
    request_timeout: timedelta
    clock: Clock
    keeps: Callable[[str], bool] = lambda path: False
    """Whether reviews on a path keep their body, to be passed on."""
    may_patch: Callable[[str], bool] = lambda path: False
    """Whether the webhook of a path is a mutating one."""
    on_verdict: Callable[[str, Review, Verdict], None] = lambda path, review, verdict: None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.hooks)

    def set_deadline(self, begin: timedelta, query: str) -> Deadline:
        """Return the deadline of a request with this query that began then."""
        span = _read_span(query, self.request_timeout)
        return Deadline(begin + span, span)

    async def answer(
        self,
        path: str,
        review: Review,
        deadline: Deadline,
        keep_trace: Callable[[Mapping[str, str]], None] = lambda keys: None,
    ) -> bytes:
        """Return the body of the answer, in time; `keep_trace` gets the keys of its trace."""
        with tracing.spans.begin("review", SpanRole.SERVER) as span:
            verdict = await self._review(path, review, deadline)
            if span.is_recorded:
                span.set_attributes(_describe_review(path, review, verdict))
                keep_trace(span.log_keys)
        if isinstance(verdict, bytes):
            return verdict  # logged and counted by the replica that has decided
        _log_verdict(path, review, verdict, span.log_keys)
        self.on_verdict(path, review, verdict)
        # Only where there is something to patch: it searches all configurations.
        may_patch = bool(verdict.annotations) and self.may_patch(path)
        return render_answer(review, verdict, may_patch=may_patch)

    async def _review(self, path: str, review: Review, deadline: Deadline) -> Verdict | bytes:
        left = deadline.until - self.clock.elapsed()
        try:
            async with asyncio.timeout(left.total_seconds()):
                return await self._review_guarded(path, review, deadline.until)
        except TimeoutError:
            text = f"no answer within {format_duration(deadline.span)}"
            return refuse(Code.REVIEW_TIMED_OUT, text, status=RETRY)

    async def _review_guarded(self, path: str, review: Review, until: timedelta) -> Verdict | bytes:
        try:
            return await self.hooks[path].review(review, until)
        except Exception as error:
            # A bug in a hook costs this review, and fails closed; the process has others to answer.
            stack = "".join(traceback.format_exception(error))
            log.error(
                "Review failed by a bug",
                hook=path, uid=review.uid, user=review.user, err=error, stack=stack,
            )  # fmt: skip
            return refuse(Code.CANNOT_CHECK, _BUG, status=503)


def render_answer(review: Review, verdict: Verdict, *, may_patch: bool = False) -> bytes:
    parts = [
        _HEADS[review.version],
        _json(review.uid),
        b',"allowed":true' if verdict.is_allowed else b',"allowed":false',
    ]
    parts.extend(_render_status(verdict))
    if may_patch and verdict.is_allowed and verdict.annotations:
        parts.extend(_render_patch(review, verdict))
    if verdict.warnings:
        warnings = b",".join(
            _json(clip(text, MAX_WARNING)) for text in verdict.warnings[:MAX_WARNINGS]
        )
        parts.append(b',"warnings":[%s]' % warnings)
    parts.append(b"}}")
    return b"".join(parts)


def _render_status(verdict: Verdict) -> Iterable[bytes]:
    text = verdict.reason.text
    if verdict.is_allowed and not text and not verdict.code:
        return
    yield b',"status":{"metadata":{}'
    if not text and not verdict.is_allowed:
        text = f"refused: {verdict.reason.code.value}"
    if text:
        yield b',"message":' + _json(clip(text, MAX_MESSAGE))
    if verdict.retry_after is not None and not verdict.is_allowed:
        seconds = max(math.ceil(verdict.retry_after.total_seconds()), 1)
        yield b',"details":{"retryAfterSeconds":%d}' % seconds
    if verdict.code:
        yield b',"code":%d' % verdict.code
    yield b"}"


def _render_patch(review: Review, verdict: Verdict) -> Iterable[bytes]:
    if not isinstance(review.new, Scalable) or review.new.kind == _SCALE:
        return
    if review.operation not in _PATCHABLE:
        return
    patch = msgspec.json.encode(_plan_steps(review.new, verdict))
    yield b',"patch":"%s","patchType":"JSONPatch"' % base64.b64encode(patch)


def _plan_steps(new: Scalable, verdict: Verdict) -> list[dict[str, object]]:
    root = "/metadata/annotations"
    if not new.has_annotations:
        # Adding to a map that is not there is an error.
        return [{"op": "add", "path": root, "value": dict(verdict.annotations)}]
    return [
        {"op": "add", "path": f"{root}/{key.replace('~', '~0').replace('/', '~1')}", "value": value}
        for key, value in verdict.annotations.items()
    ]


def _json(text: str) -> bytes:
    try:
        encoded = msgspec.json.encode(text)
    except UnicodeEncodeError:  # half a character, from bytes that are no UTF-8
        encoded = msgspec.json.encode(text.encode("utf-8", "replace").decode())
    for char, escape in _ESCAPES:
        if char in encoded:
            encoded = encoded.replace(char, escape)
    return encoded


@lru_cache(maxsize=32)
def _read_span(query: str, most: timedelta) -> timedelta:
    """Return the time for an answer, by the `timeout` that the API server appends to the path."""
    try:
        wanted = parse_duration(parse_qs(query, max_num_fields=16).get("timeout", [""])[0])
    except (InvalidInput, ValueError):
        wanted = most
    return (wanted if timedelta(0) < wanted < most else most) * SHARE


def _describe_review(
    path: str, review: Review, verdict: Verdict | bytes
) -> Mapping[str, Attribute]:
    attributes: dict[str, Attribute] = {
        "hook": path,
        "operation": review.operation,
        "resource": _name_resource(review),
        "namespace": review.namespace,
        "name": review.name,
        "dry_run": review.dry_run,
    }
    if isinstance(verdict, bytes):
        return {**attributes, "forwarded": True}
    reason = verdict.reason
    text = reason.text or "; ".join(verdict.warnings)
    return {**attributes, "allowed": verdict.is_allowed, "reason": reason.code.value, "why": text}


def _name_resource(review: Review) -> str:
    return f"{review.resource}/{review.subresource}" if review.subresource else review.resource


def _log_verdict(path: str, review: Review, verdict: Verdict, keys: Mapping[str, str]) -> None:
    is_news = verdict.reason.code is Code.PODS_PREPARED or bool(verdict.warnings)
    write = log.debug if verdict.is_allowed and not is_news else log.info
    write(
        "Allowing change" if verdict.is_allowed else "Refusing change",
        hook=path,
        operation=review.operation,
        resource=_name_resource(review),
        namespace=review.namespace,
        name=review.name,
        replicas_from=_replicas(review.old),
        replicas_to=_replicas(review.new),
        dry_run=review.dry_run,
        user=review.user,
        reason=verdict.reason.code,
        why=verdict.reason.text or "; ".join(verdict.warnings),
        **keys,
    )


def _replicas(scaled: Scalable | Unusable) -> int | None:
    return scaled.replicas if isinstance(scaled, Scalable) else None


@unique
class ForwardOutcome(StrEnum):
    ANSWERED = "answered"
    UNREACHABLE = "unreachable"
    """No connection, a broken one, or a certificate that is not ours."""
    LATE = "late"
    UNUSABLE = "unusable"
    """The body is no answer to the review."""
    TOO_MANY = "too_many"


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """The other replicas, as far as they are known."""

    find_leader: Callable[[], Lease | None]
    """Returns the Lease of the elected replica; its address may be empty."""
    trust: Callable[[], ssl.SSLContext | None]
    """Returns the context that judges the other certificate and shows ours; None without ours."""
    host: str
    """The name that such a certificate must be for."""
    namespace: str


class _NotPassedOnError(OperatorError):
    def __init__(self, outcome: ForwardOutcome, why: str, *, was_sent: bool = True) -> None:
        super().__init__(why)
        self.outcome = outcome
        self.was_sent = was_sent


class Forwarder:
    """Passes reviews on, over one session that the first of them opens."""

    def __init__(
        self, peers: Peers, clock: Clock, count: Callable[[str, ForwardOutcome], None]
    ) -> None:
        self._peers = peers
        self._clock = clock
        self._count = count
        self._in_flight: Counter[tuple[str, bool]] = Counter()
        """By path, and whether the cache confirms the object under review."""
        self._failing = ""
        """The Lease holder that failed last, until one answers."""
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    def find_leader(self) -> Lease | None:
        """Return the Lease of the elected replica if it holds an address."""
        lease = self._peers.find_leader()
        is_known = lease is not None and lease.address and self._peers.trust() is not None
        return lease if is_known else None

    async def request(
        self,
        leader: Lease,
        path: str,
        review: Review,
        until: timedelta,
        *,
        is_confirmed: bool = True,
    ) -> Verdict | bytes:
        """Return the body of that replica's answer, or a refusal, before `until`.

        `is_confirmed` says whether the cache shows the object under review.
        """
        log.debug("Passing review on", hook=path, uid=review.uid, leader=leader.holder)
        try:
            with self._count_in_flight(path, is_confirmed=is_confirmed):
                answer = await self._send(leader, path, review, until)
        except _NotPassedOnError as error:
            self._count(path, error.outcome)
            self._record_failure(leader, error)
            text = f"this replica does not decide that, and {leader.holder}, which does,"
            return _refuse_unelected(f"{text} {error}; try again")
        self._count(path, ForwardOutcome.ANSWERED)
        if self._failing:
            self._failing = ""
            log.info("Reviews are answered by the replica that leads again", leader=leader.holder)
        return answer

    async def close(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def _send(self, leader: Lease, path: str, review: Review, until: timedelta) -> bytes:
        left = until - _RETURN - self._clock.elapsed()
        wanted = (left - _HEAD_START) / SHARE
        if wanted < _MILLISECOND:
            why = "cannot be called in the time that is left"
            raise _NotPassedOnError(ForwardOutcome.LATE, why, was_sent=False)
        query = f"timeout={wanted // _MILLISECOND}ms"
        try:
            async with asyncio.timeout(left.total_seconds()):
                status, body = await self._post(f"{leader.address}{path}?{query}", review.sent)
        except aiohttp.ClientError as error:
            raise _NotPassedOnError(ForwardOutcome.UNREACHABLE, _render(error)) from error
        except TimeoutError as error:
            why = f"did not answer within {left.total_seconds():.1f}s"
            raise _NotPassedOnError(ForwardOutcome.LATE, why) from error
        except OSError as error:
            raise _NotPassedOnError(ForwardOutcome.UNREACHABLE, _render(error)) from error
        if status != HTTPStatus.OK:
            raise _NotPassedOnError(ForwardOutcome.UNUSABLE, f"answered with status {status}")
        try:
            decode_allowed(body, review)
        except DecodeError as error:
            raise _NotPassedOnError(ForwardOutcome.UNUSABLE, "gave no answer to it") from error
        return body

    async def _post(self, where: str, content: bytes) -> tuple[int, bytes]:
        """Return status and body, an empty body if it is too long."""
        trust = self._peers.trust()
        if trust is None or self._is_closed:
            raise aiohttp.ClientConnectionError("no certificate to show, or stopping")
        if self._session is None:
            self._session = _open_session(self._peers.namespace)
        async with self._session.post(
            URL(f"https://{where}", encoded=True),
            data=content,
            ssl=trust,
            server_hostname=self._peers.host,
            allow_redirects=False,
        ) as response:
            body = bytearray()
            while piece := await response.content.read(MOST_ANSWER + 1 - len(body)):
                body += piece
            if len(body) > MOST_ANSWER:
                response.close()
                body.clear()
            return response.status, bytes(body)

    @contextmanager
    def _count_in_flight(self, path: str, *, is_confirmed: bool) -> Iterator[None]:
        kind, most = (path, is_confirmed), MOST if is_confirmed else MOST_UNCONFIRMED
        if self._in_flight[kind] >= most:
            about = "" if is_confirmed else " about objects that are not known here"
            why = f"has {most} reviews{about} already"
            raise _NotPassedOnError(ForwardOutcome.TOO_MANY, why, was_sent=False)
        self._in_flight[kind] += 1
        try:
            yield
        finally:
            self._in_flight[kind] -= 1

    def _record_failure(self, leader: Lease, error: _NotPassedOnError) -> None:
        """Log a failure, as a warning once for each replica until one answers."""
        is_new = self._failing != leader.holder and error.was_sent
        if is_new:
            self._failing = leader.holder
        write = log.warn if is_new else log.debug
        write(
            "Replica that leads does not answer reviews", leader=leader.holder,
            address=leader.address, why=str(error), err=error.__cause__,
        )  # fmt: skip


def _refuse_unelected(text: str) -> Verdict:
    return replace(refuse(Code.NOT_ELECTED, text, status=RETRY), retry_after=_AGAIN)


def _open_session(namespace: str) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        resolver=NoResolver(),
        use_dns_cache=False,
        limit=0,  # by `MOST`
        keepalive_timeout=_KEEP_WARM.total_seconds(),
    )
    return make_session(
        namespace,
        connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_LIMIT.total_seconds()),
        read_bufsize=MOST_ANSWER,
    )


def _render(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "did not prove to be one of ours"
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return "could not be reached"
        case _:
            return "ended the connection"


class LeaderOnly(msgspec.Struct, frozen=True, kw_only=True):
    """Answers where this process is elected; elsewhere the review is passed on or refused.

    For hooks whose answer needs the memory of one process.
    """

    path: str
    hook: ReviewHook
    is_leading: Callable[[], bool]
    describe: Callable[[], str]
    """Says which process is elected."""
    assess: Callable[[Review], Verdict | None] = lambda review: None
    """Returns the verdict if the review alone decides, so that any process can give it."""
    confirms: Callable[[Review], bool] = lambda review: True
    """Says whether the cache shows the object under review."""
    forwarder: Forwarder | None = None
    """None where reviews are not passed on."""

    @property
    def forwards(self) -> bool:
        forwarder = None if self.is_leading() else self.forwarder
        return forwarder is not None and forwarder.find_leader() is not None

    async def review(self, review: Review, until: timedelta) -> Verdict | bytes:
        if self.is_leading():
            return await self.hook.review(review, until)
        if (verdict := self.assess(review)) is not None:
            return verdict
        leader = None if self.forwarder is None else self.forwarder.find_leader()
        if self.forwarder is not None and leader is not None and review.sent:
            is_confirmed = self.confirms(review)
            return await self.forwarder.request(
                leader, self.path, review, until, is_confirmed=is_confirmed
            )
        text = f"this replica does not decide that; try again (who does: {self.describe()})"
        return _refuse_unelected(text)
