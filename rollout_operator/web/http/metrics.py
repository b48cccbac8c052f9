"""Request metrics: the names that they show, and how requests are counted and timed.

A route that is hot keeps its meter: looking a metric up by its labels costs as much as counting
does. Metrics and buckets are in `telemetry.metrics`.
"""

import asyncio
import re
from datetime import timedelta
from functools import lru_cache
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from rollout_operator.telemetry.families import Histogram
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.http.sending import send_all

UNMATCHED: Final = "other"
# The trace that a request belongs to, by which a duration names an example.
TRACE: Final = web.RequestKey("trace", dict[str, str])

# A client may send any word as method; a label must have few values.
_METHODS: Final = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}
)
_VARIABLE: Final = re.compile(r"\{[^}]*\}")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=64)
def name_route(template: str) -> str:
    """Return the name of a path template: `/admission/no-downscale` → `admission_no_downscale`."""
    plain = _VARIABLE.sub("", template).lower()
    return _NOT_IN_NAMES.sub("_", plain).strip("_") or "root"


def get_route(request: web.Request) -> str:
    """Return the name of the route that answers a request, `other` where none does."""
    resource = request.match_info.route.resource
    return UNMATCHED if resource is None else name_route(resource.canonical)


def name_method(request: web.BaseRequest) -> str:
    """Return the method, `other` for a method that is not of HTTP."""
    return request.method if request.method in _METHODS else UNMATCHED


class Meter:
    """Counts requests of one method on one route."""

    __slots__ = ("_durations", "_inflight", "_received", "_sent", "method", "metrics", "route")

    def __init__(self, metrics: Metrics, method: str, route: str) -> None:
        self.metrics = metrics
        self.method = method
        self.route = route
        self._inflight = metrics.http_inflight.labels(method, route)
        self._received = metrics.http_request_bytes.labels(method, route)
        self._sent = metrics.http_response_bytes.labels(method, route)
        self._durations: dict[tuple[int, str], Histogram] = {}

    def begin(self) -> None:
        """Count a request that has come."""
        self._inflight.inc()

    def end(self, request: web.BaseRequest, status: int, seconds: float) -> None:
        """Count a request that is over, and the bytes of its body."""
        self._inflight.dec()
        self._received.observe(request.content.total_bytes)
        upgrade = request.headers.get(hdrs.UPGRADE, "").lower()
        key = (status, "true" if upgrade == "websocket" else "false")
        duration = self._durations.get(key)
        if duration is None:
            duration = self._durations[key] = self.metrics.http_request_duration.labels(
                self.method, self.route, str(status), key[1]
            )
        duration.observe(seconds, request.get(TRACE))

    def sent(self, size: int) -> None:
        """Count an answer that was sent, and the bytes of its body."""
        self._sent.observe(size)


def measure(metrics: Metrics, *, write_limit: timedelta) -> Middleware:
    """Return the outermost middleware; answers not taken within `write_limit` end the connection.

    The answer is sent in here, so that the time includes the client's reading. Answers raised as
    web.HTTPException are sent like others.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        meter = Meter(metrics, name_method(request), get_route(request))
        loop = asyncio.get_running_loop()
        begin = loop.time()
        status = 500  # what the server answers where the handler raises
        meter.begin()
        try:
            response = await _answer(request, handler)
            status = response.status
            await _send(request, response, write_limit)
            is_head = request.method == hdrs.METH_HEAD
            meter.sent(0 if is_head else response.content_length or 0)
            return response
        finally:
            meter.end(request, status, loop.time() - begin)

    return middleware


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as answer:
        # Without the class of the exception: aiohttp deprecates returning it.
        response = web.Response(status=answer.status, text=f"{answer.reason.lower()}\n")
        if isinstance(answer, web.HTTPMethodNotAllowed):
            response.headers[hdrs.ALLOW] = answer.headers[hdrs.ALLOW]
        return response


async def _send(request: web.Request, response: web.StreamResponse, limit: timedelta) -> None:
    transport = request.transport
    if transport is None:
        return  # the client has gone; the server will notice
    # Sending then waits until the kernel has taken all: nothing is left to hold for a slow reader.
    transport.set_write_buffer_limits(high=0)
    try:
        async with asyncio.timeout(limit.total_seconds()):
            await send_all(request, response)
    except TimeoutError:
        transport.abort()
    except ConnectionError:
        return  # the client has gone; the server sees the same and cleans up
