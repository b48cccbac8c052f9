"""What the operator is told at its start: every flag once, and the checks across them.

Decides which flags exist, what they mean, and which combinations are refused. How words become
values is decided in `grammar`; how the table looks as help, in `config.usage`. The environment is
not read: what is not among the arguments is at its default.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self

from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    LIST,
    TEXT,
    Flag,
    Words,
    parse_words,
)
from rollout_operator.config.webhook_flags import (
    CLUSTER_DOMAIN,
    PODS_TIMEOUT,
    WEBHOOK_FLAGS,
    WebhookConfig,
    check_cluster_domain,
    check_webhook_spans,
    check_webhooks,
    is_object_name,
    read_webhooks,
)
from rollout_operator.model.errors import ConfigError
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import format_duration, quote

UNLIMITED: Final = timedelta.max
"""What `-kubernetes.client-timeout=0` stands for."""

LOG_FORMATS: Final = ("logfmt", "json")
_HIGHEST_PORT: Final = 65535
_NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_KUBERNETES: Final = "Kubernetes API server"
_ROLLOUTS: Final = "Rollouts"
_LOGGING: Final = "Logging"
_SERVER: Final = "HTTP server for metrics and readiness"
_VALIDATION: Final = "Cluster validation of HTTP requests"
_TRACKER: Final = "Zone tracker"
_BUDGETS: Final = "Disruption budgets"

NAMESPACE: Final = Flag(
    name="kubernetes.namespace",
    alias="kubernetes-namespace",
    kind=TEXT,
    default="",
    group=_KUBERNETES,
    help="Namespace whose rollout groups are looked after. Required.",
)
API_URL: Final = Flag(
    name="kubernetes.api-url",
    kind=TEXT,
    default="",
    group=_KUBERNETES,
    help="URL of the API server. Together with -kubernetes.config-file or not at all; without"
    " both, the service account of the pod is used.",
)
CONFIG_FILE: Final = Flag(
    name="kubernetes.config-file",
    kind=TEXT,
    default="",
    group=_KUBERNETES,
    help="Path of a kubeconfig file. Together with -kubernetes.api-url or not at all.",
)
CLIENT_TIMEOUT: Final = Flag(
    name="kubernetes.client-timeout",
    kind=DURATION,
    default=timedelta(minutes=5),
    group=_KUBERNETES,
    help="Longest time of one request, and the age at which a watch is opened anew. The operator"
    " has shorter limits of its own for single requests; 0 leaves only those.",
)
CLIENT_QPS: Final = Flag(
    name="kubernetes.client-qps",
    kind=FLOAT,
    default=5.0,
    group=_KUBERNETES,
    help="Requests a second of the whole process for each API group, on average, watches not"
    " counted. Deletes go before what reviews wait for, and those before live reads and lists. 0 or"
    " less turns limiting off.",
)
CLIENT_BURST: Final = Flag(
    name="kubernetes.client-burst",
    kind=INT,
    default=10,
    group=_KUBERNETES,
    help="Requests of the whole process for each API group that may be sent at once. At least 1"
    " when -kubernetes.client-qps is above 0.",
)
RECONCILE_INTERVAL: Final = Flag(
    name="reconcile.interval",
    kind=DURATION,
    default=timedelta(seconds=5),
    group=_ROLLOUTS,
    help="Longest time until a group is looked at again after an error. Must be positive. Without"
    " errors changes are acted upon as they happen, and nothing waits for this interval.",
)
LOG_FORMAT: Final = Flag(
    name="log.format",
    kind=TEXT,
    default="logfmt",
    group=_LOGGING,
    help="Format of the lines on stderr: logfmt or json.",
)
LOG_LEVEL: Final = Flag(
    name="log.level",
    kind=TEXT,
    default=str(Severity.DEBUG),
    group=_LOGGING,
    help="Lowest level that is written: debug, info, warn or error.",
)
SERVER_PORT: Final = Flag(
    name="server.port",
    kind=INT,
    default=8001,
    group=_SERVER,
    help="TCP port of /metrics, /ready and /livez, on all addresses. 0 takes any free port.",
)
VALIDATION_ENABLED: Final = Flag(
    name="server.cluster-validation.http.enabled",
    kind=BOOL,
    default=False,
    group=_VALIDATION,
    help="Answer 511 to requests whose X-Cluster header is not the namespace.",
)
VALIDATION_SOFT: Final = Flag(
    name="server.cluster-validation.http.soft-validation",
    kind=BOOL,
    default=False,
    group=_VALIDATION,
    help="Only log and count such requests. Needs -server.cluster-validation.http.enabled.",
)
VALIDATION_PATHS: Final = Flag(
    name="server.cluster-validation.http.excluded-paths",
    kind=LIST,
    default=(),
    group=_VALIDATION,
    help="Parts of paths that are not checked, separated by commas. Without it, the admission"
    " routes; metrics, health and status pages are never checked.",
)
VALIDATION_AGENTS: Final = Flag(
    name="server.cluster-validation.http.excluded-user-agents",
    kind=LIST,
    default=(),
    group=_VALIDATION,
    help="User agents that are not checked: regular expressions (RE2), separated by commas.",
)
USE_TRACKER: Final = Flag(
    name="use-zone-tracker",
    kind=BOOL,
    default=False,
    group=_TRACKER,
    help="Keep the times of downscales in a ConfigMap, and not in annotations of StatefulSets.",
)
TRACKER_NAME: Final = Flag(
    name="zone-tracker.config-map-name",
    kind=TEXT,
    default="rollout-operator-zone-tracker",
    group=_TRACKER,
    help="Name of that ConfigMap, in the namespace of -kubernetes.namespace. Where there is none it"
    " is created, and then each zone counts as just scaled down.",
)
PATCH_TIMEOUT: Final = Flag(
    name="zpdb.pod-ready-annotation-patch-timeout",
    kind=DURATION,
    default=timedelta(seconds=5),
    group=_BUDGETS,
    help="Has no effect: since when a pod is ready is read from its own status, and nothing is"
    " written for it. Must be positive.",
)

FLAGS: Final[tuple[Flag[Any], ...]] = (
    NAMESPACE,
    API_URL,
    CONFIG_FILE,
    CLIENT_TIMEOUT,
    CLIENT_QPS,
    CLIENT_BURST,
    RECONCILE_INTERVAL,
    LOG_FORMAT,
    LOG_LEVEL,
    SERVER_PORT,
    VALIDATION_ENABLED,
    VALIDATION_SOFT,
    VALIDATION_PATHS,
    VALIDATION_AGENTS,
    *WEBHOOK_FLAGS,
    USE_TRACKER,
    TRACKER_NAME,
    PATCH_TIMEOUT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the flags ask for, checked."""

    namespace: str
    api_url: str = API_URL.default
    config_file: str = CONFIG_FILE.default
    client_timeout: timedelta = CLIENT_TIMEOUT.default
    client_qps: float = CLIENT_QPS.default
    """Zero or less: not limited."""
    client_burst: int = CLIENT_BURST.default
    reconcile_interval: timedelta = RECONCILE_INTERVAL.default
    log_format: str = LOG_FORMAT.default
    log_level: Severity = Severity.DEBUG
    server_port: int = SERVER_PORT.default
    cluster_validation_enabled: bool = VALIDATION_ENABLED.default
    cluster_validation_soft: bool = VALIDATION_SOFT.default
    cluster_validation_excluded_paths: tuple[str, ...] = VALIDATION_PATHS.default
    cluster_validation_excluded_user_agents: tuple[str, ...] = VALIDATION_AGENTS.default
    zone_tracker: str = ""
    """Name of the ConfigMap with the times of downscales; empty where annotations hold them."""
    pods_timeout: timedelta = PODS_TIMEOUT.default
    cluster_domain: str = CLUSTER_DOMAIN.default
    webhooks: WebhookConfig | None = None
    """None where no webhooks are served."""
    leftovers: tuple[str, ...] = ()
    """Words after the flags, which mean nothing."""
    without_effect: tuple[str, ...] = ()
    """Names of flags that were given and mean nothing any more."""

    @classmethod
    def from_args(cls, argv: Sequence[str]) -> Self:
        """Return the configuration that the words after the program's name make.

        Raises ConfigError with the exit code, or HelpRequested.
        """
        words = parse_words(FLAGS, argv)
        problem = next(_find_problems(words), None)
        if problem is not None:
            raise ConfigError(problem)
        return cls(
            namespace=words.value(NAMESPACE),
            api_url=words.value(API_URL),
            config_file=words.value(CONFIG_FILE),
            client_timeout=words.value(CLIENT_TIMEOUT) or UNLIMITED,
            client_qps=words.value(CLIENT_QPS),
            client_burst=words.value(CLIENT_BURST),
            reconcile_interval=words.value(RECONCILE_INTERVAL),
            log_format=words.value(LOG_FORMAT),
            log_level=Severity(words.value(LOG_LEVEL)),
            server_port=words.value(SERVER_PORT),
            cluster_validation_enabled=words.value(VALIDATION_ENABLED),
            cluster_validation_soft=words.value(VALIDATION_SOFT),
            cluster_validation_excluded_paths=words.value(VALIDATION_PATHS),
            cluster_validation_excluded_user_agents=words.value(VALIDATION_AGENTS),
            zone_tracker=words.value(TRACKER_NAME) if words.value(USE_TRACKER) else "",
            pods_timeout=words.value(PODS_TIMEOUT),
            cluster_domain=words.value(CLUSTER_DOMAIN),
            webhooks=read_webhooks(words, words.value(NAMESPACE)),
            leftovers=words.leftovers,
            without_effect=(PATCH_TIMEOUT.name,) if words.has(PATCH_TIMEOUT) else (),
        )


def render_flag_table() -> str:
    """Return all flags as a Markdown table, one line each, for the README."""
    lines = ["| Flag | Default | Meaning |", "| --- | --- | --- |"]
    for flag in FLAGS:
        default = flag.kind.show(flag.default)
        shown = f"`{default}`" if default else "empty"
        lines.append(f"| `-{flag.name}` {flag.kind.word} | {shown} | {flag.help} |")
    return "\n".join(lines) + "\n"


def _find_problems(words: Words) -> Iterator[str]:
    """Yield what is wrong, in the order in which it is told; only the first is."""
    yield from check_cluster_domain(words)
    yield from _check_api_server(words)
    yield from check_webhook_spans(words)
    yield from _check_spans(words)
    yield from _check_validation(words)
    yield from _check_process(words)
    yield from check_webhooks(words)


def _check_api_server(words: Words) -> Iterator[str]:
    namespace = words.value(NAMESPACE)
    if not namespace:
        yield f"-{NAMESPACE.name} has not been specified"
    # Also met as `$(POD_NAMESPACE)`, where the variable is not defined.
    if not _NAMESPACE_NAME.fullmatch(namespace):
        yield f"-{NAMESPACE.name}: {quote(namespace)} is not a name of a namespace"
    if bool(words.value(API_URL)) != bool(words.value(CONFIG_FILE)):
        empty = CONFIG_FILE if words.value(API_URL) else API_URL
        yield (
            f"-{API_URL.name} and -{CONFIG_FILE.name} must be given together or not at all:"
            f" -{empty.name} is empty"
        )
    if words.value(USE_TRACKER):
        yield from _check_tracker(words)
    qps, burst = words.value(CLIENT_QPS), words.value(CLIENT_BURST)
    if qps > 0 and burst < 1:
        yield f"-{CLIENT_BURST.name} must be at least 1 when -{CLIENT_QPS.name} is above 0: {burst}"
    if not math.isfinite(qps):
        yield f"-{CLIENT_QPS.name} must be a finite number: {qps}"


def _check_tracker(words: Words) -> Iterator[str]:
    name = words.value(TRACKER_NAME)
    if not name:
        yield f"-{USE_TRACKER.name} needs -{TRACKER_NAME.name}, which is empty"
    if not is_object_name(name):
        yield f"-{TRACKER_NAME.name}: {quote(name)} is not a name of a ConfigMap"


def _check_spans(words: Words) -> Iterator[str]:
    span = words.value(RECONCILE_INTERVAL)
    if span <= timedelta(0):
        yield f"-{RECONCILE_INTERVAL.name} must be positive: {format_duration(span)}"
    span = words.value(CLIENT_TIMEOUT)
    if span < timedelta(0):
        yield f"-{CLIENT_TIMEOUT.name} must not be negative: {format_duration(span)}"
    span = words.value(PATCH_TIMEOUT)
    if span <= timedelta(0):
        yield f"-{PATCH_TIMEOUT.name} must be positive: {format_duration(span)}"


def _check_validation(words: Words) -> Iterator[str]:
    if words.value(VALIDATION_SOFT) and not words.value(VALIDATION_ENABLED):
        yield (
            "http: soft validation can be enabled only if cluster validation is enabled:"
            f" -{VALIDATION_SOFT.name} needs -{VALIDATION_ENABLED.name}"
        )
    patterns = words.value(VALIDATION_AGENTS)
    if patterns:
        yield from _check_patterns(patterns)


def _check_patterns(patterns: tuple[str, ...]) -> Iterator[str]:
    import re2  # a library of several MiB that hardly anyone needs

    options = re2.Options()
    options.log_errors = False  # it would write to stderr by itself
    for pattern in patterns:
        try:
            re2.compile(pattern, options)
        except re2.error as error:
            why = error.args[0] if error.args else ""
            text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
            yield f"-{VALIDATION_AGENTS.name}: pattern {quote(pattern)}: {text}"


def _check_process(words: Words) -> Iterator[str]:
    port = words.value(SERVER_PORT)
    if not 0 <= port <= _HIGHEST_PORT:
        yield f"-{SERVER_PORT.name} must be from 0 to {_HIGHEST_PORT}: {port}"
    if words.value(LOG_FORMAT) not in LOG_FORMATS:
        yield f"unknown log format: {words.value(LOG_FORMAT)}"
    if words.value(LOG_LEVEL) not in tuple(Severity):
        yield f"unknown log level: {words.value(LOG_LEVEL)}"
