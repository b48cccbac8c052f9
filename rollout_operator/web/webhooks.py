"""The webhook server on -server-tls.port: one request in, one answer out.

Decides which requests are worth a review. How a review is answered, and when at the latest, is
decided in `web.reviews.dispatch`, which clients may connect in `web.http.listener`, how much may be
sent in `web.http.bodies`.
"""

import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, cast

import msgspec
from aiohttp import hdrs, web

from rollout_operator.aio.clock import Clock
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.http.bodies import Bodies, Rejected
from rollout_operator.web.http.cluster import ClusterCheck, ClusterRules, clean_header
from rollout_operator.web.http.connection import SERVER, WRITE_LIMIT, Connections, ReviewConnection
from rollout_operator.web.http.listener import FLAG, ConnectionLimits, ConnectionListener
from rollout_operator.web.http.metrics import TRACE, UNMATCHED, Meter, name_method, name_route
from rollout_operator.web.reviews.dispatch import Deadline, Reviewer

JSON: Final = "application/json"
STOP_LIMIT: Final = timedelta(seconds=1)
# nginx's number for a client that went away before the answer.
GONE: Final = 499

_ANSWER: Final = {hdrs.CONTENT_TYPE: JSON, hdrs.SERVER: SERVER}
_TEXT: Final = {
    hdrs.CONTENT_TYPE: "text/plain; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    hdrs.SERVER: SERVER,
}


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that most servers leave at their defaults."""

    client_name: str = ""
    """Common name that a client's certificate must have; empty: any, or none at all."""
    client_host: str = ""
    """DNS name that a client's certificate must be for; empty: any, or none at all."""
    flag: str = FLAG
    """The flag that sets the port."""
    write_limit: timedelta = WRITE_LIMIT
    limits: ConnectionLimits = msgspec.field(default_factory=ConnectionLimits)


class WebhookServer:
    """The TLS server of one operator."""

    def __init__(
        self,
        port: int,
        *,
        reviewer: Reviewer,
        certificate: Callable[[], ssl.SSLContext],
        metrics: Metrics,
        cluster: ClusterRules,
        clock: Clock,
        options: ServerOptions | None = None,
    ) -> None:
        """Build the server; port 0 takes a free one.

        `certificate` is read for each new connection. Raises ConfigError where `cluster` holds a
        bad pattern.
        """
        self._wanted_port = port
        self._options = options or ServerOptions()
        self._reviewer = reviewer
        self._metrics = metrics
        self._clock = clock
        self._cluster = ClusterCheck(cluster, metrics)
        self._bodies = Bodies(clock)
        self._meters = {
            path: Meter(metrics, hdrs.METH_POST, name_route(path)) for path in reviewer.paths
        }
        self._listener = ConnectionListener(
            self._make_connection, certificate, clock, self._options.limits
        )
        self._server: web.Server | None = None

    @property
    def port(self) -> int:
        """Return the port that is listened on. Only between `start` and `stop`."""
        return self._listener.port

    @property
    def is_serving(self) -> bool:
        """Return whether new connections are accepted: False before `start` and after a fault."""
        return self._listener.is_accepting

    async def start(self) -> None:
        """Listen; when this returns, reviews are answered. Raises ConfigError for a bad port."""
        self._server = web.Server(self._answer, handler_cancellation=True)
        await self._listener.start(self._wanted_port, flag=self._options.flag)

    def leave(self) -> None:
        """End each connection with its next answer, which says so; others are still accepted.

        A connection that is closed while it waits may just be used for the next review: that fails
        then, as a client does not send a POST twice.
        """
        self._listener.connections.is_leaving = True

    async def drain(self, limit: timedelta) -> None:
        """Accept nothing more, answer all requests that came, and close each connection after that.

        A request that is not answered within `limit` is cancelled.
        """
        await self._listener.stop()
        await self._listener.connections.leave(limit)

    async def stop(self) -> None:
        """Drain within a second and end."""
        await self.drain(STOP_LIMIT)
        if self._server is not None:
            await self._server.shutdown(STOP_LIMIT.total_seconds())
            self._server = None
        self._bodies.close()

    def _make_connection(self, connections: Connections) -> ReviewConnection:
        assert self._server is not None, "start first"
        limits = self._options.limits
        return ReviewConnection(
            self._server,
            connections,
            idle_limit=limits.idle,
            head_limit=limits.head,
            client_name=self._options.client_name,
            client_host=self._options.client_host,
        )

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, measured; it is sent here, so that its time counts."""
        connection = cast(ReviewConnection, request.protocol)
        connection.begin(request.content)
        begin = self._clock.elapsed()
        path, _, query = request.raw_path.partition("?")
        meter = self._choose_meter(request, path)
        meter.begin()
        status = GONE
        try:
            deadline = self._reviewer.set_deadline(begin, query)
            response = await self._decide(request, path, meter.route, deadline)
            if connection.is_leaving:
                response.force_close()
            await self._send(request, response)
            status = response.status
            meter.sent(response.content_length or 0)
            return response
        finally:
            meter.end(request, status, (self._clock.elapsed() - begin).total_seconds())
            connection.end()

    def _choose_meter(self, request: web.BaseRequest, path: str) -> Meter:
        meter = self._meters.get(path)
        if meter is not None and request.method == hdrs.METH_POST:
            return meter
        return Meter(
            self._metrics, name_method(request), UNMATCHED if meter is None else meter.route
        )

    async def _decide(
        self, request: web.BaseRequest, path: str, route: str, deadline: Deadline
    ) -> web.Response:
        if (rejection := self._cluster.assess(request, route)) is not None:
            rejection.headers[hdrs.SERVER] = SERVER
            return rejection
        if path not in self._meters:
            return _reject(404, "no such path")
        try:
            _check(request)
            keeps = self._reviewer.keeps(path)
            review = await self._bodies.read(request, deadline.until, keeps=keeps)
        except Rejected as error:
            log.debug(
                "Rejecting request", hook=path, status=error.status, peer=request.remote,
                agent=clean_header(request.headers.get(hdrs.USER_AGENT, "")), err=error,
            )  # fmt: skip
            return _reject(error.status, str(error), closes=error.closes)
        cast(ReviewConnection, request.protocol).begin_review()
        body = await self._reviewer.answer(path, review, deadline, partial(_keep_trace, request))
        return web.Response(body=body, headers=_ANSWER)

    async def _send(self, request: web.BaseRequest, response: web.Response) -> None:
        """Send the answer; a client that does not take it in time is cut."""
        cast(ReviewConnection, request.protocol).begin_answer(self._options.write_limit)
        try:
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            return  # the client has gone; the server sees the same and cleans up


def _keep_trace(request: web.BaseRequest, keys: Mapping[str, str]) -> None:
    request[TRACE] = dict(keys)


def _check(request: web.BaseRequest) -> None:
    """Raise Rejected where a request is not of a webhook."""
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
