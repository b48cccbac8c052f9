"""Cluster validation: a request for another cluster's operator is turned away.

Decides by the header that every operator sends along. Paths whose callers never send it (the API
server, the kubelet, Prometheus, people) are exempt; given exclusions replace only the admission
paths, never our own pages.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from rollout_operator.model.errors import ConfigError, InvalidInput
from rollout_operator.model.names import CLUSTER_HEADER
from rollout_operator.model.pattern import compile_search
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.http.metrics import get_route

REJECTED: Final = 511
ADMISSION_PATHS: Final = (
    "admission/no-downscale",
    "admission/prepare-downscale",
    "admission/pod-eviction",
    "admission/zpdb-validation",
)
# A path is exempt where one of these follows a slash anywhere in it, as users' exclusions are.
_OWN_FRAGMENTS: Final = ("metrics", "ready", "livez", "debug/pprof", "status", "reasons", "ui")
_ROOT: Final = "/"

# Senders choose the label: so many different labels are shown in the metric, the rest under one.
MAX_LABELS: Final = 100
_OTHER_LABELS: Final = "other"
# The longest name of a namespace.
_MAX_LABEL: Final = 63


class ClusterRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests must name which cluster."""

    namespace: str
    """Of the operator: the one right value of the header."""
    enabled: bool = False
    soft: bool = False
    """Count and log only."""
    excluded_paths: Sequence[str] = ()
    """Literal parts of paths; empty stands for all admission paths."""
    excluded_user_agents: Sequence[str] = ()
    """RE2 patterns, searched for anywhere in the header."""


def validate_cluster(rules: ClusterRules, metrics: Metrics) -> Middleware:
    """Return the middleware that checks the header. Raises ConfigError for a bad pattern."""
    check = ClusterCheck(rules, metrics)

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        rejection = check.assess(request, get_route(request))
        return await handler(request) if rejection is None else rejection

    return middleware


class ClusterCheck:
    """The compiled rules, and the labels seen so far."""

    def __init__(self, rules: ClusterRules, metrics: Metrics) -> None:
        """Compile the patterns. Raises ConfigError for a bad pattern."""
        self._rules = rules
        self._counter = metrics.server_invalid_cluster
        paths = rules.excluded_paths or ADMISSION_PATHS
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
    return web.Response(status=REJECTED, body=body, content_type="application/json")


def _compile(pattern: str) -> Callable[[str], bool]:
    try:
        return compile_search(pattern)
    except InvalidInput as error:
        flag = "-server.cluster-validation.http.excluded-user-agents"
        raise ConfigError(f"{flag}: {pattern}: {error}") from error


def clean_header(value: str) -> str:
    """Return a header's value without the lone surrogates that stand for bytes not UTF-8.

    They cannot be written to a log, a metric or a response.
    """
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
