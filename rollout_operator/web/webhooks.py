"""The webhook server on -server-tls.port: one review in, one verdict out, in time.

Decides what is a request worth asking a hook, when the answer must be out, and what is answered
where a hook is late or breaks: always a refusal. What a verdict says is decided by the hooks, how
it reads in `review`, who may connect in `listener`, how much may be sent in `body`.
"""

import asyncio
import ssl
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Final, Protocol, cast
from urllib.parse import parse_qs

from aiohttp import hdrs, web

from rollout_operator.aio.clock import Clock
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review, Scalable, Unusable
from rollout_operator.model.units import format_duration, parse_duration
from rollout_operator.planning.admission import RETRY, refuse
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.body import Bodies, Rejected
from rollout_operator.web.cluster import ClusterCheck, ClusterRules
from rollout_operator.web.connection import WRITE_LIMIT
from rollout_operator.web.listener import Limits, Listener
from rollout_operator.web.meter import Meter
from rollout_operator.web.peer import Peer, Peers
from rollout_operator.web.review import render_answer
from rollout_operator.web.routes import (
    UNMATCHED,
    clean_header,
    name_method,
    name_route,
    name_websocket,
)

JSON: Final = "application/json"
# The API server stops waiting at its own limit; the answer has a tenth of the time for its way.
SHARE: Final = 0.9
STOP_LIMIT: Final = timedelta(seconds=1)
# nginx's number for it: the asker went away before the answer.
GONE: Final = 499

_TEXT: Final = {hdrs.CONTENT_TYPE: "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
_ANSWER: Final = {hdrs.CONTENT_TYPE: JSON, hdrs.SERVER: "rollout-operator"}
_BUG: Final = "the review failed by a bug; see the operator's log"


class Hook(Protocol):
    """Answers the reviews of one path."""

    async def review(self, review: Review, until: timedelta) -> Verdict:
        """Return the verdict before `until`, on `clock.elapsed()`.

        Cancelled at that time, and where the asker has gone: in both cases what was asked for does
        not happen by this review.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What most users of a server leave as it is."""

    may_patch: Callable[[str], bool] = lambda path: False
    """Tells whether who asks on a path takes patches: a mutating webhook does."""
    client_name: str = ""
    """Common name that a client's certificate must have; empty: any, or none at all."""
    on_verdict: Callable[[str, Verdict], None] = lambda path, verdict: None
    """Called with the path for each verdict that is answered."""
    write_limit: timedelta = WRITE_LIMIT
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    path: str
    hook: Hook
    meter: Meter


@dataclass(frozen=True, slots=True)
class _Deadline:
    until: timedelta
    span: timedelta


class WebhookServer:
    """The TLS server of one operator."""

    def __init__(
        self,
        port: int,
        *,
        hooks: Mapping[str, Hook],
        certificate: Callable[[], ssl.SSLContext],
        request_timeout: timedelta,
        metrics: Metrics,
        cluster: ClusterRules,
        clock: Clock,
        options: Options | None = None,
    ) -> None:
        """Build the server; port 0 takes a free one. `hooks` are by path.

        `certificate` is asked for each new connection. Raises ConfigError where `cluster` holds a
        bad pattern.
        """
        self._wanted_port = port
        self._options = options or Options()
        self._request_timeout = request_timeout
        self._metrics = metrics
        self._clock = clock
        self._cluster = ClusterCheck(cluster, metrics) if cluster.enabled else None
        self._bodies = Bodies(clock)
        self._routes = {
            path: _Route(
                path=path, hook=hook, meter=Meter(metrics, hdrs.METH_POST, name_route(path))
            )
            for path, hook in hooks.items()
        }
        self._listener = Listener(self._make_peer, certificate, clock, self._options.limits)
        self._server: web.Server | None = None

    @property
    def port(self) -> int:
        """Return the port that is listened on. Only between `start` and `stop`."""
        return self._listener.port

    @property
    def is_serving(self) -> bool:
        """Tell whether new connections are accepted: False before `start` and after a fault."""
        return self._listener.is_accepting

    async def start(self) -> None:
        """Listen; when this returns, reviews are answered. Raises ConfigError for a bad port."""
        self._server = web.Server(self._answer, handler_cancellation=True)
        await self._listener.start(self._wanted_port)

    async def drain(self, limit: timedelta) -> None:
        """Accept nothing more, answer what has been asked, and close each connection after that.

        What is not answered within `limit` is cancelled.
        """
        await self._listener.stop()
        await self._listener.peers.leave(limit)

    async def stop(self) -> None:
        """Drain within a second and end."""
        await self.drain(STOP_LIMIT)
        if self._server is not None:
            await self._server.shutdown(STOP_LIMIT.total_seconds())
            self._server = None

    def _make_peer(self, peers: Peers) -> Peer:
        assert self._server is not None, "start first"
        limits = self._options.limits
        return Peer(
            self._server,
            peers,
            idle_limit=limits.idle,
            head_limit=limits.head,
            client_name=self._options.client_name,
        )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, measured; it is sent here, so that its time counts."""
        peer = cast(Peer, request.protocol)
        peer.begin(request.content)
        begin = self._clock.elapsed()
        path, _, query = request.raw_path.partition("?")
        route = self._routes.get(path)
        meter = self._choose_meter(request, route)
        meter.begin()
        status = GONE
        try:
            span = self._span(query)
            response = await self._decide(request, route, _Deadline(begin + span, span))
            if peer.is_leaving:
                response.force_close()
            await self._send(request, response)
            status = response.status
            meter.sent(response.content_length or 0)
            return response
        finally:
            took = self._clock.elapsed() - begin
            meter.end(status, name_websocket(request), took, request.content.total_bytes)
            peer.end()

    def _choose_meter(self, request: web.BaseRequest, route: _Route | None) -> Meter:
        if route is not None and request.method == hdrs.METH_POST:
            return route.meter
        name = UNMATCHED if route is None else route.meter.route
        return Meter(self._metrics, name_method(request), name)

    def _span(self, query: str) -> timedelta:
        """Return how long the answer may take."""
        asked = _read_timeout(query) if query else None
        if asked is None or asked > self._request_timeout:
            return self._request_timeout * SHARE
        return asked * SHARE

    async def _decide(
        self, request: web.BaseRequest, route: _Route | None, deadline: _Deadline
    ) -> web.Response:
        if self._cluster is not None:
            name = UNMATCHED if route is None else route.meter.route
            if (rejection := self._cluster.assess(request, name)) is not None:
                return rejection
        if route is None:
            return _reject(404, "no such path")
        try:
            _check(request)
            review = await self._bodies.read(request, deadline.until)
        except Rejected as error:
            log.debug(
                "Rejecting request", hook=route.path, status=error.status, peer=request.remote,
                agent=clean_header(request.headers.get(hdrs.USER_AGENT, "")), err=error,
            )  # fmt: skip
            return _reject(error.status, str(error), closes=error.closes)
        cast(Peer, request.protocol).begin_review()
        verdict = await self._ask(route, review, deadline)
        _tell(route.path, review, verdict)
        self._options.on_verdict(route.path, verdict)
        # Only where there is something to patch: it looks through all configurations.
        may_patch = bool(verdict.annotations) and self._options.may_patch(route.path)
        return web.Response(
            body=render_answer(review, verdict, may_patch=may_patch), headers=_ANSWER
        )

    async def _ask(self, route: _Route, review: Review, deadline: _Deadline) -> Verdict:
        left = deadline.until - self._clock.elapsed()
        try:
            async with asyncio.timeout(left.total_seconds()):
                return await _ask_guarded(route, review, deadline.until)
        except TimeoutError:
            text = f"no answer within {format_duration(deadline.span)}"
            return refuse(Code.REVIEW_TIMED_OUT, text, status=RETRY)

    async def _send(self, request: web.BaseRequest, response: web.Response) -> None:
        """Send the answer; who does not take it in time is cut."""
        cast(Peer, request.protocol).begin_answer(self._options.write_limit)
        try:
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            return  # the asker has gone; the server sees the same and cleans up


async def _ask_guarded(route: _Route, review: Review, until: timedelta) -> Verdict:
    try:
        return await route.hook.review(review, until)
    except Exception as error:
        # A bug in a hook costs this review, and fails closed; the process has others to answer.
        stack = "".join(traceback.format_exception(error))
        log.error("Review failed by a bug", hook=route.path, uid=review.uid, err=error, stack=stack)
        return refuse(Code.CANNOT_CHECK, _BUG, status=503)


def _check(request: web.BaseRequest) -> None:
    """Raise Rejected where a request is none of a webhook."""
    if request.method != hdrs.METH_POST:
        raise Rejected(405, "method not allowed")
    if request.headers.getall(hdrs.CONTENT_TYPE, ()) != [JSON]:
        raise Rejected(400, "wrong content type")


def _reject(status: int, text: str, *, closes: bool = False) -> web.Response:
    response = web.Response(
        status=status, body=f"{text}\n".encode("utf-8", "replace"), headers=_TEXT
    )
    if status == 405:
        response.headers[hdrs.ALLOW] = hdrs.METH_POST
    if closes:
        response.force_close()
    return response


@lru_cache(maxsize=32)
def _read_timeout(query: str) -> timedelta | None:
    """Return the `timeout` that the API server appends to the path, None where there is none."""
    try:
        span = parse_duration(parse_qs(query, max_num_fields=16).get("timeout", [""])[0])
    except (InvalidInput, ValueError):
        return None
    return span if span > timedelta(0) else None


def _tell(path: str, review: Review, verdict: Verdict) -> None:
    """Log one decision."""
    is_news = verdict.reason.code is Code.PODS_PREPARED or bool(verdict.warnings)
    tell = log.debug if verdict.is_allowed and not is_news else log.info
    resource = review.resource
    tell(
        "Allowing change" if verdict.is_allowed else "Refusing change",
        hook=path,
        operation=review.operation,
        resource=f"{resource}/{review.subresource}" if review.subresource else resource,
        namespace=review.namespace,
        name=review.name,
        replicas_from=_replicas(review.old),
        replicas_to=_replicas(review.new),
        dry_run=review.dry_run,
        reason=verdict.reason.code,
        text=verdict.reason.text or "; ".join(verdict.warnings),
    )


def _replicas(view: Scalable | Unusable) -> int | None:
    return view.replicas if isinstance(view, Scalable) else None
