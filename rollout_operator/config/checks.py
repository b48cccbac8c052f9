"""Check flags together, in a fixed order, reporting the first problem; and render them as help."""

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from rollout_operator.config.flags import (
    ACTIVE,
    AS_ANNOUNCED,
    BY_VERSION,
    FLAGS,
    KUBERIK,
    METRICS_PORT,
    NOTHING,
    POD_NAMESPACE,
    REGISTRY,
    SHADOW,
    Config,
    Environment,
    is_label,
    read_arguments,
)
from rollout_operator.config.grammar import BOOL, HELP_ALL, Flag
from rollout_operator.model.lease import LONGEST_LEASE, Times
from rollout_operator.model.names import ConfigError, InvalidInput
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import (
    compile_search,
    compile_url_pattern,
    format_duration,
    format_prometheus_duration,
    quote,
)

_MODES: Final = (ACTIVE, SHADOW)
COMPATS: Final = ("", KUBERIK)
_METADATA_SOURCES: Final = (REGISTRY, "none")
ORDERS: Final = (BY_VERSION, AS_ANNOUNCED)
_LOG_FORMATS: Final = ("logfmt", "json")
_HIGHEST_PORT: Final = 65535
_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?")
_SHORTEST_RETRY: Final = timedelta(milliseconds=100)
# As much as client-go's jitter lengthens it.
_RETRIES: Final = 1.2
# The longest name of an object, and of a host.
_LONGEST_NAME: Final = 253
# What has come by then has to be answered still, before the kubelet kills the pod.
_LONGEST_DELAY: Final = timedelta(seconds=10)
# The expiry of a certificate is written with a year of four digits.
_LONGEST_EXPIRATION: Final = timedelta(days=365 * 100)


_WIDTH: Final = 92
_INDENT: Final = " " * 6

_HEAD: Final = """\
Replaces the pods of StatefulSets that use the OnDelete strategy, one zone of a rollout group at a
time and only while all pods of the other zones are ready.

Flags take one dash or two; -name=value and -name value are the same, but a bool takes its value
only through '='. A duration is a number with unit, such as 300ms, 1.5h or 1h30m. The last of
several counts.
"""

_FOOT: Final = """\
Signals:
  SIGTERM and SIGINT stop the operator after the work at hand; a second one stops it at once.

Exit codes:
  0 after a clean stop, 1 if it cannot start or a part of it fails, 2 if the command line is wrong.
  Commands may also end with 3 if their time is over, and with 4 if a person has to act.
"""

_MORE: Final = f"-{HELP_ALL} also shows flags that exist for compatibility or have no effect.\n"


def read_config(argv: Sequence[str], environment: Environment = NOTHING) -> Config:
    """Return the configuration that the words after the program's name make, and the environment.

    Raises ConfigError with the exit code, or HelpRequested.
    """
    config = read_arguments(argv, environment)
    problem = next(_list_problems(config), None)
    if problem is not None:
        raise ConfigError(problem)
    return config


def is_namespace_name(text: str) -> bool:
    return is_label(text)


def _list_problems(config: Config) -> Iterator[str]:
    if not config.cluster_domain:
        yield "-kubernetes.cluster-domain cannot be an empty string"
    if not _is_dns_name(config.cluster_domain):
        yield f"-kubernetes.cluster-domain: {quote(config.cluster_domain)} is not a DNS name"
    yield from _check_api_server(config)
    yield from _check_spans(config)
    yield from _check_validation(config)
    yield from _check_port("server.port", config.server_port)
    if config.extra_port and config.extra_port in config.review_ports:
        yield f"{METRICS_PORT}: port {config.extra_port} is one of the webhooks"
    if config.mode not in _MODES:
        yield _unknown("mode", config.mode, "mode", _MODES)
    yield from _check_releases(config)
    if config.log_format not in _LOG_FORMATS:
        yield _unknown("log format", config.log_format, "log.format", _LOG_FORMATS)
    if config.log_level not in tuple(Severity):
        yield _unknown("log level", config.log_level, "log.level", tuple(Severity))
    yield from _check_urls(config)
    yield from _check_webhooks(config)


def _check_releases(config: Config) -> Iterator[str]:
    if config.release_compat not in COMPATS:
        yield _unknown("system", config.release_compat, "releases.compat", COMPATS[1:])
    if config.release_metadata not in _METADATA_SOURCES:
        name = "releases.metadata"
        yield _unknown("source", config.release_metadata, name, _METADATA_SOURCES)
    if config.release_order not in ORDERS:
        yield _unknown("order", config.release_order, "releases.order", ORDERS)
    if config.verifies_wanted and config.release_metadata != REGISTRY:
        yield (
            f"-releases.verify-wanted-version needs -releases.metadata={REGISTRY}: no registry"
            " would ever say that a wantedVersion is there"
        )


def _check_api_server(config: Config) -> Iterator[str]:
    if not config.namespace and config.watches_all:
        yield (
            f"all namespaces are to be watched, and {POD_NAMESPACE} does not say which of them the"
            " operator's own is"
        )
    if not config.namespace:
        yield "-kubernetes.namespace has not been specified"
    # Also met as `$(POD_NAMESPACE)`, where the variable is not defined.
    if not is_namespace_name(config.namespace):
        yield f"-kubernetes.namespace: {quote(config.namespace)} is not a name of a namespace"
    if bool(config.api_url) != bool(config.config_file):
        empty = "config-file" if config.api_url else "api-url"
        yield (
            "-kubernetes.api-url and -kubernetes.config-file must be given together or not at all:"
            f" -kubernetes.{empty} is empty"
        )
    if config.use_zone_tracker:
        name = config.zone_tracker_name
        if not name:
            yield "-use-zone-tracker needs -zone-tracker.config-map-name, which is empty"
        yield from _check_object_name("zone-tracker.config-map-name", name, "a ConfigMap")
    if config.election_enabled:
        if not config.lease_name:
            yield "-leader-election.lease-name is empty; -leader-election.enabled=false needs none"
        yield from _check_object_name("leader-election.lease-name", config.lease_name, "a Lease")
        yield from _check_election_times(config.election_times)
    if config.pod_name:
        yield from _check_object_name("kubernetes.pod-name", config.pod_name, "a pod")
    qps, burst = config.client_qps, config.client_burst
    if qps > 0 and burst < 1:
        yield (
            "-kubernetes.client-burst must be at least 1 when -kubernetes.client-qps is above 0:"
            f" {burst}"
        )
    if not math.isfinite(qps):
        yield f"-kubernetes.client-qps must be a finite number: {qps}"


def _check_election_times(times: Times) -> Iterator[str]:
    """Yield as client-go refuses them, with the bounds of what a Lease says and a server bears."""
    lease, deadline, retry = map(format_duration, (times.lease, times.deadline, times.retry))
    if not timedelta(seconds=1) <= times.lease <= LONGEST_LEASE:
        yield f"-leader-election.lease-duration must be from 1s to 10m: {lease}"
    if times.retry < _SHORTEST_RETRY:
        yield f"-leader-election.retry-period must be at least 100ms: {retry}"
    if times.lease <= times.deadline:
        yield (
            "-leader-election.lease-duration must be more than -leader-election.renew-deadline:"
            f" {lease} and {deadline}"
        )
    if times.deadline <= _RETRIES * times.retry:
        yield (
            f"-leader-election.renew-deadline must be more than {_RETRIES} times"
            f" -leader-election.retry-period: {deadline} and {retry}"
        )


def _check_spans(config: Config) -> Iterator[str]:
    yield from _check_positive("server-tls.request-timeout", config.request_timeout)
    yield from _check_positive("pods.client-timeout", config.pods_timeout)
    yield from _check_positive("reconcile.interval", config.reconcile_interval)
    if config.client_timeout < timedelta(0):
        span = format_duration(config.client_timeout)
        yield f"-kubernetes.client-timeout must not be negative: {span}"
    yield from _check_positive("zpdb.pod-ready-annotation-patch-timeout", config.patch_timeout)


def _check_validation(config: Config) -> Iterator[str]:
    if config.cluster_validation_soft and not config.cluster_validation_enabled:
        yield (
            "http: soft validation can be enabled only if cluster validation is enabled:"
            " -server.cluster-validation.http.soft-validation needs"
            " -server.cluster-validation.http.enabled"
        )
    for pattern in config.cluster_validation_excluded_user_agents:
        try:
            compile_search(pattern)
        except InvalidInput as error:
            flag = "-server.cluster-validation.http.excluded-user-agents"
            yield f"{flag}: pattern {quote(pattern)}: {error}"


def _check_urls(config: Config) -> Iterator[str]:
    for pattern in config.allowed_urls:
        try:
            compile_url_pattern(pattern)
        except InvalidInput as error:
            yield f"-health-checks.allowed-urls: {error}"


def _check_webhooks(config: Config) -> Iterator[str]:
    yield from _check_port("server-tls.port", config.webhooks_port)
    yield from _check_port("server-tls.peer-port", config.peer_port)
    if not timedelta(0) <= config.shutdown_delay <= _LONGEST_DELAY:
        span = format_duration(config.shutdown_delay)
        yield f"-server-tls.shutdown-delay must be from 0s to 10s: {span}"
    if config.client_name and not config.client_ca_file:
        yield "-server-tls.client-name needs -server-tls.client-ca-file"
    for name in config.bundle_names:
        yield from _check_object_name("webhooks.ca-bundle-names", name, "a webhook configuration")
    if not config.webhooks_enabled:
        return
    if config.self_signed:
        yield from _check_own_certificate(config)
        return
    for name, path in (("cert", config.cert_file), ("key", config.key_file)):
        if not path:
            yield (
                f"-server-tls.{name}-file is needed where -server-tls.self-signed-cert.enabled is"
                " false"
            )
    if config.updates_bundle:
        yield (
            "-webhooks.update-ca-bundle needs -server-tls.self-signed-cert.enabled:"
            " with certificates from files give -webhooks.update-ca-bundle=false"
        )


def _check_own_certificate(config: Config) -> Iterator[str]:
    flag = "server-tls.self-signed-cert"
    yield from _check_object_name(f"{flag}.secret-name", config.secret_name, "a Secret")
    if not _is_dns_name(config.service_name):
        yield f"-{flag}.dns-name: {quote(config.dns_name)} is not a DNS name"
    if not timedelta(0) < config.expiration <= _LONGEST_EXPIRATION:
        span = format_prometheus_duration(config.expiration)
        yield f"-{flag}.expiration must be positive and at most 100y: {span}"


def _check_positive(flag: str, span: timedelta) -> Iterator[str]:
    if span <= timedelta(0):
        yield f"-{flag} must be positive: {format_duration(span)}"


def _unknown(what: str, word: str, flag: str, words: Sequence[str]) -> str:
    return f"unknown {what}: {word}: -{flag} must be one of {', '.join(words)}"


def _check_port(flag: str, port: int) -> Iterator[str]:
    if not 0 <= port <= _HIGHEST_PORT:
        yield f"-{flag} must be from 0 to {_HIGHEST_PORT}: {port}"


def _check_object_name(flag: str, name: str, kind: str) -> Iterator[str]:
    if not _is_dns_name(name) or name.endswith("."):
        yield f"-{flag}: {quote(name)} is not a name of {kind}"


def _is_dns_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _DNS_NAME.fullmatch(name) is not None


def render_flags(*, is_full: bool = False) -> str:
    """Return the purpose of the operator and its flags, no line longer than 100 columns."""
    parts = [_HEAD]
    shown = [flag for flag in FLAGS if is_full or not flag.is_rare]
    for group in dict.fromkeys(flag.group for flag in shown):
        flags = (flag for flag in shown if flag.group == group)
        parts.append(f"{group}:\n{''.join(render_entries(flags))}")
    return "\n".join([*parts, _FOOT] if is_full else [*parts, _FOOT, _MORE])


def render_entries(flags: Iterable[Flag[Any]]) -> Iterator[str]:
    for flag in flags:
        default = flag.kind.show(flag.default)
        text = f"{flag.help} (default {default})" if default else flag.help
        # As for Go: a bool is shown without type, because it takes no separate value.
        word = "" if flag.kind is BOOL else f" {flag.kind.word}"
        body = textwrap.fill(
            text,
            _WIDTH,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_on_hyphens=False,
            break_long_words=False,
        )
        yield f"  -{flag.name}{word}\n{body}\n"


def render_flag_table() -> str:
    lines = ["| Flag | Default | Meaning |", "| --- | --- | --- |"]
    for flag in FLAGS:
        default = flag.kind.show(flag.default)
        shown = f"`{default}`" if default else "empty"
        mark = f" Shown by `-{HELP_ALL}` only." if flag.is_rare else ""
        lines.append(f"| `-{flag.name}` {flag.kind.word} | {shown} | {flag.help}{mark} |")
    return "\n".join(lines) + "\n"
