"""Middlewares of both servers: request metrics and cluster validation.

A hot route keeps its meter: finding a metric by its labels costs as much as counting does. A
request for another cluster's operator is turned away by the header that every operator sends. Paths
whose callers never send it (the API server, the kubelet, Prometheus, people) are exempt; configured
exclusions replace only those of the admission paths.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Final

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from rollout_operator.model.names import CLUSTER_HEADER, ConfigError, InvalidInput
from rollout_operator.model.units import compile_search
from rollout_operator.telemetry.exposition import Histogram
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.connection import send_all

UNMATCHED: Final = "other"
# The trace that a request belongs to, by which a duration names an example.
TRACE: Final = web.RequestKey("trace", dict[str, str])
# A client may send any word as method; a label must have few values.
_METHODS: Final = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}
)
_VARIABLE: Final = re.compile(r"\{[^}]*\}")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")
_REJECTED: Final = 511
_ADMISSION_PATHS: Final = (
    "admission/no-downscale",
    "admission/prepare-downscale",
    "admission/pod-eviction",
    "admission/zpdb-validation",
    "admission/rollout-health-check-validation",
)
# A path is exempt where one of these follows a slash anywhere in it, as users' exclusions are.
_OWN_FRAGMENTS: Final = ("metrics", "ready", "livez", "debug/pprof", "status", "reasons", "ui")
_ROOT: Final = "/"
# Senders choose the label: so many different labels are shown in the metric, the rest under one.
MAX_LABELS: Final = 100
_OTHER_LABELS: Final = "other"
# The longest name of a namespace.
_MAX_LABEL: Final = 63


@lru_cache(maxsize=64)
def name_route(template: str) -> str:
    """Return the name of a path template: `/admission/no-downscale` → `admission_no_downscale`."""
    plain = _VARIABLE.sub("", template).lower()
    return _NOT_IN_NAMES.sub("_", plain).strip("_") or "root"


def _get_route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return UNMATCHED if resource is None else name_route(resource.canonical)


def name_method(request: web.BaseRequest) -> str:
    return request.method if request.method in _METHODS else UNMATCHED


class Meter:
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
        self._inflight.inc()

    def end(self, request: web.BaseRequest, status: int, seconds: float) -> None:
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
        self._sent.observe(size)


def measure(metrics: Metrics, *, write_limit: timedelta) -> Middleware:
    """Return the outermost middleware; an answer must be taken within `write_limit`.

    The answer is sent here, so that the time includes the client's reading.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        meter = Meter(metrics, name_method(request), _get_route(request))
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


class ClusterRules(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    """The operator's: the only right value of the header."""
    enabled: bool = False
    soft: bool = False
    """Only count and log."""
    excluded_paths: Sequence[str] = ()
    """Literal parts of paths; empty stands for all admission paths."""
    excluded_user_agents: Sequence[str] = ()
    """RE2 patterns, searched for anywhere in the header."""


def validate_cluster(rules: ClusterRules, metrics: Metrics) -> Middleware:
    """Return the middleware that checks the header. Raises ConfigError for a bad pattern."""
    check = ClusterCheck(rules, metrics)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        rejection = check.assess(request, _get_route(request))
        return await handler(request) if rejection is None else rejection

    return middleware


class ClusterCheck:
    def __init__(self, rules: ClusterRules, metrics: Metrics) -> None:
        """Raises ConfigError for a bad pattern."""
        self._rules = rules
        self._counter = metrics.server_invalid_cluster
        paths = rules.excluded_paths or _ADMISSION_PATHS
        self._fragments = tuple(f"/{path.lstrip('/')}" for path in (*_OWN_FRAGMENTS, *paths))
        self._agents = tuple(_compile(pattern) for pattern in rules.excluded_user_agents)
        self._labels: set[str] = set()

    def assess(self, request: web.BaseRequest, route: str) -> web.Response | None:
        """Return the answer that turns the request away, None to let it pass."""
        if not self._rules.enabled:
            return None
        values = request.headers.getall(CLUSTER_HEADER, [])
        if values == [self._rules.namespace] or self._is_exempt(request):
            return None
        label = clean_header(", ".join(values))
        error = self._get_label(label)
        shown = self._bound(label)
        self._counter.labels("http", route, self._rules.namespace, shown).inc()
        log.warn(
            "Request carries a wrong cluster validation label",
            route=route, label=label, peer=request.remote, rejected=not self._rules.soft, err=error,
        )  # fmt: skip
        return None if self._rules.soft else _reject(error, route)

    def _is_exempt(self, request: web.BaseRequest) -> bool:
        path = request.path
        if path == _ROOT or any(fragment in path for fragment in self._fragments):
            return True
        agent = clean_header(request.headers.get(hdrs.USER_AGENT, ""))
        return any(finds(agent) for finds in self._agents)

    def _get_label(self, label: str) -> str:
        what = "wrong" if label else "empty"
        named = f' "{label}"' if label else ""
        return (
            f"rejected request with {what} cluster validation label{named}"
            f" - it should be one of [{self._rules.namespace}]"
        )

    def _bound(self, label: str) -> str:
        if label in self._labels:
            return label
        if len(label) > _MAX_LABEL or len(self._labels) >= MAX_LABELS:
            return _OTHER_LABELS
        self._labels.add(label)
        return label


def _reject(error: str, route: str) -> web.Response:
    answer = {"cluster_validation_error_message": error, "route": route}
    body = json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()
    return web.Response(status=_REJECTED, body=body, content_type="application/json")


def _compile(pattern: str) -> Callable[[str], bool]:
    try:
        return compile_search(pattern)
    except InvalidInput as error:
        flag = "-server.cluster-validation.http.excluded-user-agents"
        raise ConfigError(f"{flag}: {pattern}: {error}") from error


def clean_header(value: str) -> str:
    """Return a header's value without lone surrogates, which no log or response can hold."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
