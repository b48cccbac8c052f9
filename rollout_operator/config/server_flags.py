"""Flags of the log, and of the HTTP server for metrics and readiness."""

from dataclasses import dataclass
from typing import Final

from rollout_operator.config.grammar import BOOL, INT, LIST, TEXT, flag

_LOGGING: Final = "Logging"
_SERVER: Final = "HTTP server for metrics and readiness"
_VALIDATION: Final = "Cluster validation of HTTP requests"


# fmt: off
@dataclass(frozen=True, kw_only=True)
class ServerFlags:
    """What is logged, and served over HTTP."""

    log_format: str = flag(
        "log.format", TEXT, "logfmt", _LOGGING,
        "Format of the lines on stderr: logfmt or json.",
    )
    log_level: str = flag(
        "log.level", TEXT, "debug", _LOGGING,
        "Lowest level that the operator writes: debug, info, warn or error.",
    )
    server_port: int = flag(
        "server.port", INT, 8001, _SERVER,
        "TCP port of /metrics, /ready, /livez and /status, on all addresses. 0 takes any free"
        " port.",
    )
    cluster_validation_enabled: bool = flag(
        "server.cluster-validation.http.enabled", BOOL, False, _VALIDATION,
        "Answer 511 to requests whose X-Cluster header is not the namespace.",
    )
    cluster_validation_soft: bool = flag(
        "server.cluster-validation.http.soft-validation", BOOL, False, _VALIDATION,
        "Only log and count such requests. Needs -server.cluster-validation.http.enabled.",
    )
    cluster_validation_excluded_paths: tuple[str, ...] = flag(
        "server.cluster-validation.http.excluded-paths", LIST, (), _VALIDATION,
        "Parts of paths that the operator does not check, separated by commas. By default the"
        " admission routes; the operator never checks metrics, health and status pages.",
    )
    cluster_validation_excluded_user_agents: tuple[str, ...] = flag(
        "server.cluster-validation.http.excluded-user-agents", LIST, (), _VALIDATION,
        "User agents that the operator does not check: regular expressions (RE2), separated"
        " by commas.",
    )
# fmt: on
