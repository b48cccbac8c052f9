"""The operator's flags and variables, and the configuration that follows from them.

Flags are declared in the order of the help. A flag beats a variable, a variable beats a default.
Which combinations are refused is decided in `checks`, how words become values in `grammar`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    LIST,
    LONG_SPAN,
    TEXT,
    Flag,
    fill_fields,
    flag,
    map_flags,
    parse_arguments,
)
from rollout_operator.model.lease import LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD, Times
from rollout_operator.model.names import FIELD_MANAGER, ConfigError
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import quote

UNLIMITED: Final = timedelta.max
"""The limit for `-kubernetes.client-timeout=0`."""
_TIMEOUT: Final = replace(DURATION, parse=lambda text: DURATION.parse(text) or UNLIMITED)

ACTIVE: Final = "active"
SHADOW: Final = "shadow"
REGISTRY: Final = "registry"
KUBERIK: Final = "kuberik"
BY_VERSION: Final = "version"
AS_ANNOUNCED: Final = "announced"

# The headings of the help.
_KUBERNETES: Final = "Kubernetes API server"
_ROLLOUTS: Final = "Rollouts"
_RELEASES: Final = "Releases"
_LOGGING: Final = "Logging"
_SERVER: Final = "HTTP server for metrics and readiness"
_VALIDATION: Final = "Cluster validation of HTTP requests"
_WEBHOOKS: Final = "Webhooks"
_CERTIFICATES: Final = "Certificates of the webhooks"
_PODS: Final = "Requests to pods"
_TRACKER: Final = "Zone tracker"
_BUDGETS: Final = "Disruption budgets"
_REPLICAS: Final = "Several replicas"


WATCH_NAMESPACE: Final = "WATCH_NAMESPACE"
LOG_LEVEL: Final = "LOG_LEVEL"
OPERATOR_NAME: Final = "OPERATOR_NAME"
METRICS_PORT: Final = "METRICS_PORT"
POD_NAMESPACE: Final = "POD_NAMESPACE"

_DEFAULT_LEVEL: Final = Severity.INFO.value
DEFAULT_PORT: Final = 8080
_PORTS: Final = range(1024, 65536)
# Also the pattern of a DNS label, which a namespace and a name of the operator have to be.
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_WITHOUT_EFFECT: Final = ("zpdb.pod-ready-annotation-patch-timeout",)


# fmt: off
# What is compared and shown is a `Config`: its methods cost milliseconds at each start.
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OperatorFlags:
    namespace: str = flag(
        "kubernetes.namespace", TEXT, "", _KUBERNETES,
        "Namespace whose rollout groups the operator manages. Required.",
        alias="kubernetes-namespace",
    )
    api_url: str = flag(
        "kubernetes.api-url", TEXT, "", _KUBERNETES,
        "URL of the API server. Together with -kubernetes.config-file or not at all; without"
        " both, the operator uses the service account of the pod.",
    )
    config_file: str = flag(
        "kubernetes.config-file", TEXT, "", _KUBERNETES,
        "Path of a kubeconfig file. Together with -kubernetes.api-url or not at all.",
    )
    client_timeout: timedelta = flag(
        "kubernetes.client-timeout", _TIMEOUT, timedelta(minutes=5), _KUBERNETES,
        "Longest time of one request, and the age at which the operator opens a watch anew, 5s at"
        " least. The operator has shorter limits of its own for single requests; 0 leaves only"
        " those.",
    )
    client_qps: float = flag(
        "kubernetes.client-qps", FLOAT, 50.0, _KUBERNETES,
        "Requests a second of the whole process for each API group, on average, not counting"
        " watches. Deletes go before what reviews wait for, and those before live reads and"
        " lists. 0 or less turns limiting off.",
    )
    client_burst: int = flag(
        "kubernetes.client-burst", INT, 100, _KUBERNETES,
        "Requests for each API group that the whole process may send at once. At least 1 when"
        " -kubernetes.client-qps is above 0.",
    )
    reconcile_interval: timedelta = flag(
        "reconcile.interval", DURATION, timedelta(seconds=5), _ROLLOUTS,
        "Longest time until the operator reconciles a group again after an error. Must be"
        " positive. Without errors the operator acts on changes as they happen, and waits for"
        " no interval.",
    )
    multi_az_rollouts: bool = flag(
        "multi-az-rollouts.enabled", BOOL, False, _ROLLOUTS,
        "Obey MultiAZRollouts. Also on where the environment has one of the variables"
        " WATCH_NAMESPACE, LOG_LEVEL, OPERATOR_NAME and METRICS_PORT. Without effect in shadow"
        " mode.",
    )
    allowed_urls: tuple[str, ...] = flag(
        "health-checks.allowed-urls", LIST, (), _ROLLOUTS,
        "Patterns of the URLs that RolloutHealthChecks may name, separated by commas, such as"
        " https://*.example.com:*; a * stands for any text within scheme, host, port or path, and"
        " a single * for any URL. Empty: only Services of the namespaces that the operator"
        " watches.",
    )
    mode: str = flag(
        "mode", TEXT, ACTIVE, _ROLLOUTS,
        "active, or shadow: decide, report in log, metrics and status page what the operator"
        " would do, and count where another operator does otherwise. In shadow mode the"
        " operator writes nothing, calls no pod and answers no webhook; rights to read are"
        " enough.",
    )
    releases: bool = flag(
        "releases.enabled", BOOL, False, _RELEASES,
        "Make the Rollouts of kuberik.com happen. Without effect in shadow mode.",
    )
    release_compat: str = flag(
        "releases.compat", TEXT, "", _RELEASES,
        "kuberik: decide as kuberik's own controller does about the order of versions, those that"
        " failed or follow a superseded release, windows over midnight, schedules without a"
        " namespaceSelector, and bakes and HealthChecks while Flux is busy or fails.",
        is_rare=True,
    )
    release_order: str = flag(
        "releases.order", TEXT, BY_VERSION, _RELEASES,
        "version: of two versions the one is newer that the image policy takes for newer;"
        " announced: the one that was announced later.",
        is_rare=True,
    )
    keeps_to_namespace: bool = flag(
        "releases.no-cross-namespace-refs", BOOL, False, _RELEASES,
        "Refuse image policies, their ImageRepositories, and what HealthChecks look at, where these"
        " are in another namespace than the object that names them.",
    )
    verifies_wanted: bool = flag(
        "releases.verify-wanted-version", BOOL, False, _RELEASES,
        "Hold a wantedVersion until the registry has said that it is there.",
    )
    release_metadata: str = flag(
        "releases.metadata", TEXT, REGISTRY, _RELEASES,
        "registry: registries say what releases are; none: no registry, and no Secret is read.",
    )
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
        is_rare=True,
    )
    cluster_validation_soft: bool = flag(
        "server.cluster-validation.http.soft-validation", BOOL, False, _VALIDATION,
        "Only log and count such requests. Needs -server.cluster-validation.http.enabled.",
        is_rare=True,
    )
    cluster_validation_excluded_paths: tuple[str, ...] = flag(
        "server.cluster-validation.http.excluded-paths", LIST, (), _VALIDATION,
        "Parts of paths that the operator does not check, separated by commas. By default the"
        " admission routes; the operator never checks metrics, health and status pages.",
        is_rare=True,
    )
    cluster_validation_excluded_user_agents: tuple[str, ...] = flag(
        "server.cluster-validation.http.excluded-user-agents", LIST, (), _VALIDATION,
        "User agents that the operator does not check: regular expressions (RE2), separated"
        " by commas.",
        is_rare=True,
    )
    webhooks_enabled: bool = flag(
        "server-tls.enabled", BOOL, False, _WEBHOOKS,
        "Serve the admission webhooks over TLS.",
    )
    webhooks_port: int = flag(
        "server-tls.port", INT, 8443, _WEBHOOKS,
        "TCP port of the webhooks, on all addresses. 0 takes any free port.",
    )
    request_timeout: timedelta = flag(
        "server-tls.request-timeout", DURATION, timedelta(seconds=10), _WEBHOOKS,
        "Time of one request. The operator answers a review after 90 % of it at the latest,"
        " or of the time-out that the API server names. Must be positive.",
    )
    client_ca_file: str = flag(
        "server-tls.client-ca-file", TEXT, "", _WEBHOOKS,
        "Path of PEM certificates: the operator serves only clients with a certificate of one"
        " of these CAs. Empty: it serves every client.",
    )
    client_name: str = flag(
        "server-tls.client-name", TEXT, "", _WEBHOOKS,
        "Common name that such a certificate must have. Empty: any. Needs"
        " -server-tls.client-ca-file.",
    )
    fails_closed: bool = flag(
        "no-downscale.fail-closed", BOOL, False, _WEBHOOKS,
        "Let no-downscale refuse, to be tried again, what it cannot read at the moment or"
        " cannot understand. By default it allows such requests with a warning.",
    )
    updates_bundle: bool = flag(
        "webhooks.update-ca-bundle", BOOL, True, _WEBHOOKS,
        "Write the CA into the webhook configurations that carry the labels for it. Needs"
        " -server-tls.self-signed-cert.enabled.",
    )
    bundle_names: tuple[str, ...] = flag(
        "webhooks.ca-bundle-names", LIST, (), _WEBHOOKS,
        "Names of the only webhook configurations to look at, separated by commas, so that"
        " the ClusterRole can name them. Empty: all that carry the labels.",
    )
    self_signed: bool = flag(
        "server-tls.self-signed-cert.enabled", BOOL, True, _CERTIFICATES,
        "Issue the certificate, and keep it in a Secret.",
    )
    secret_name: str = flag(
        "server-tls.self-signed-cert.secret-name",
        TEXT, "rollout-operator-self-signed-certificate", _CERTIFICATES,
        "Name of that Secret. The operator never writes one with the data of another"
        " application: it stays unready and says so.",
    )
    dns_name: str = flag(
        "server-tls.self-signed-cert.dns-name", TEXT, "", _CERTIFICATES,
        "DNS name that the certificate is for. Empty: rollout-operator.NAMESPACE.svc.",
    )
    organisation: str = flag(
        "server-tls.self-signed-cert.org", TEXT, "Grafana Labs", _CERTIFICATES,
        "Organisation in the certificate.",
    )
    expiration: timedelta = flag(
        "server-tls.self-signed-cert.expiration", LONG_SPAN, timedelta(days=365), _CERTIFICATES,
        "How long the certificate lasts, as a Prometheus duration. The operator renews it,"
        " without a restart, when a third of that is left.",
    )
    cert_file: str = flag(
        "server-tls.cert-file", TEXT, "", _CERTIFICATES,
        "Path of a certificate chain (PEM), instead of a self-signed one. The operator reads"
        " it again when it changes.",
    )
    key_file: str = flag(
        "server-tls.key-file", TEXT, "", _CERTIFICATES,
        "Path of its key (PEM).",
    )
    pods_timeout: timedelta = flag(
        "pods.client-timeout", DURATION, timedelta(seconds=5), _PODS,
        "Time of one request to a pod. Must be positive.",
    )
    cluster_domain: str = flag(
        "kubernetes.cluster-domain", TEXT, "cluster.local.", _PODS,
        "DNS domain of the cluster, for the names by which the operator calls pods.",
    )
    use_zone_tracker: bool = flag(
        "use-zone-tracker", BOOL, False, _TRACKER,
        "Keep the times of downscales in a ConfigMap, and not in annotations of StatefulSets.",
    )
    zone_tracker_name: str = flag(
        "zone-tracker.config-map-name", TEXT, "rollout-operator-zone-tracker", _TRACKER,
        "Name of that ConfigMap, in the namespace of -kubernetes.namespace. Where there is"
        " none, the operator creates it, and each zone counts as just scaled down.",
    )
    patch_timeout: timedelta = flag(
        "zpdb.pod-ready-annotation-patch-timeout", DURATION, timedelta(seconds=5), _BUDGETS,
        "Has no effect: the operator reads since when a pod is ready from the pod's status,"
        " and writes nothing for it. Must be positive.",
        is_rare=True,
    )
    election_enabled: bool = flag(
        "leader-election.enabled", BOOL, True, _REPLICAS,
        "Act only as the holder of a Lease, so that several replicas may run. Where the role"
        " does not allow Leases, the operator says so once and acts: only one replica may run"
        " then.",
    )
    lease_name: str = flag(
        "leader-election.lease-name", TEXT, "rollout-operator", _REPLICAS,
        "Name of that Lease, in the namespace of -kubernetes.namespace: the same in all"
        " operators that manage it.",
    )
    lease_duration: timedelta = flag(
        "leader-election.lease-duration", DURATION, LEASE_DURATION, _REPLICAS,
        "How long the Lease stays as it is before another replica takes it, or as long as its"
        " holder has this flag set, if that is longer. From 1s to 10m.",
    )
    renew_deadline: timedelta = flag(
        "leader-election.renew-deadline", DURATION, RENEW_DEADLINE, _REPLICAS,
        "How long the holder acts without having renewed the Lease. Less than"
        " -leader-election.lease-duration: what is between both is for clocks that run at"
        " different rates, and for writes that are on their way.",
    )
    retry_period: timedelta = flag(
        "leader-election.retry-period", DURATION, RETRY_PERIOD, _REPLICAS,
        "How often the holder renews the Lease; the others read it twice as often. At least"
        " 100ms, and 1.2 times of it are less than -leader-election.renew-deadline.",
    )
    pod_name: str = flag(
        "kubernetes.pod-name", TEXT, "", _REPLICAS,
        "Name of the operator's pod, with which the holder of the Lease begins. Empty: the"
        " variable POD_NAME, then the name of the host.",
    )
    peer_port: int = flag(
        "server-tls.peer-port", INT, 8444, _REPLICAS,
        "TCP port, on all addresses, on which the replica that holds the Lease answers"
        " reviews of the other replicas. It serves only replicas with a certificate of its own"
        " CA. Needs POD_IP in the environment. With 0 the other replicas refuse such reviews,"
        " to be tried again.",
    )
    shutdown_delay: timedelta = flag(
        "server-tls.shutdown-delay", DURATION, timedelta(seconds=5), _REPLICAS,
        "How long the operator answers webhooks after SIGTERM, until API servers call the"
        " other replicas. It releases the Lease before that, as soon as the work underway has"
        " ended; the next replica that acts then decides what no other may. At most 10s.",
    )
# fmt: on


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the variables, and where the operator itself runs."""

    is_given: bool = False
    """Whether any of the variables is given: the others have their own defaults then."""
    watched: tuple[str, ...] | None = None
    """The namespaces to watch, all if empty; None leaves that to the flag."""
    log_level: str = ""
    operator_name: str = FIELD_MANAGER
    metrics_port: int = 0
    """A second port with `/metrics`; 0 for none."""
    is_port_chosen: bool = False
    """Whether a variable names the port: a port that is taken is an error then."""
    own_namespace: str = ""
    warnings: tuple[str, ...] = ()


NOTHING: Final = Environment()


def read_environment(variables: Mapping[str, str], mounted_namespace: str = "") -> Environment:
    """Return the settings of the variables. Raises ConfigError that names variable and value.

    `mounted_namespace` is that of the service account, as the kubelet writes it.
    """
    is_given = WATCH_NAMESPACE in variables or any(
        variables.get(name, "").strip() for name in (LOG_LEVEL, OPERATOR_NAME, METRICS_PORT)
    )
    own = variables.get(POD_NAMESPACE, "").strip() or mounted_namespace.strip()
    if not is_given:
        return replace(NOTHING, own_namespace=own)
    level, warnings = _read_level(variables.get(LOG_LEVEL, "").strip())
    port = variables.get(METRICS_PORT, "").strip()
    return Environment(
        is_given=True,
        watched=_read_namespaces(variables.get(WATCH_NAMESPACE, "")),
        log_level=level,
        operator_name=_read_name(variables.get(OPERATOR_NAME, "").strip()),
        metrics_port=_read_port(port) if port else DEFAULT_PORT,
        is_port_chosen=bool(port),
        own_namespace=own,
        warnings=warnings,
    )


def is_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def _read_namespaces(text: str) -> tuple[str, ...]:
    """Return each name once, in the order given."""
    names = tuple(dict.fromkeys(name for name in map(str.strip, text.split(",")) if name))
    for name in names:
        if not is_label(name):
            raise ConfigError(f"{WATCH_NAMESPACE}: {quote(name)} is not a name of a namespace")
    return names


def _read_level(text: str) -> tuple[str, tuple[str, ...]]:
    level = text.lower() or _DEFAULT_LEVEL
    if level in tuple(Severity):
        return level, ()
    levels = ", ".join(Severity)
    return _DEFAULT_LEVEL, (
        f"{LOG_LEVEL}: {quote(text)} is none of {levels}: {_DEFAULT_LEVEL} is used",
    )


def _read_name(text: str) -> str:
    name = text or FIELD_MANAGER
    if not is_label(name):
        raise ConfigError(
            f"{OPERATOR_NAME}: {quote(name)} is not a DNS label: at most 63 characters, a-z, 0-9"
            " and -, neither first nor last a -"
        )
    return name


def _read_port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= len("65535") else 0
    if port not in _PORTS:
        raise ConfigError(
            f"{METRICS_PORT}: {quote(text)} is not a port from {_PORTS[0]} to {_PORTS[-1]}"
        )
    return port


@dataclass(frozen=True, kw_only=True)
class Config(OperatorFlags):
    """The configuration by the words after the program's name, checked by `checks.read_config`."""

    leftovers: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()
    """Names of flags that were given and mean nothing any more."""
    watched: tuple[str, ...] | None = None
    """The namespaces that the environment names, all if empty; None leaves that to the flag."""
    environment: Environment = NOTHING

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.namespace,) if self.watched is None else self.watched

    @property
    def watches_all(self) -> bool:
        return not self.namespaces

    @property
    def watches_several(self) -> bool:
        return self.watches_all or len(self.namespaces) > 1

    @property
    def operator_name(self) -> str:
        return self.environment.operator_name

    @property
    def extra_port(self) -> int:
        port = self.environment.metrics_port
        is_taken = not self.environment.is_port_chosen and port in self.review_ports
        return 0 if port == self.server_port or is_taken else port

    @property
    def review_ports(self) -> tuple[int, ...]:
        return (self.webhooks_port, self.forwarding_port) if self.answers_reviews else ()

    @property
    def zone_tracker(self) -> str:
        return self.zone_tracker_name if self.use_zone_tracker else ""

    @property
    def lease(self) -> str:
        return self.lease_name if self.election_enabled and not self.is_shadow else ""

    @property
    def election_times(self) -> Times:
        return Times(
            lease=self.lease_duration, deadline=self.renew_deadline, retry=self.retry_period
        )

    @property
    def is_shadow(self) -> bool:
        return self.mode == SHADOW

    @property
    def drives_policies(self) -> bool:
        return self.multi_az_rollouts and not self.is_shadow

    @property
    def drives_releases(self) -> bool:
        return self.releases and not self.is_shadow

    @property
    def answers_reviews(self) -> bool:
        return self.webhooks_enabled and not self.is_shadow

    @property
    def forwarding_port(self) -> int:
        """Return the port for reviews of other replicas; 0 where none are passed on.

        Certificates from files are not ours: their CA is unknown, and whether it signs others.
        """
        is_possible = self.answers_reviews and self.self_signed and self.election_enabled
        return self.peer_port if is_possible else 0

    @property
    def service_name(self) -> str:
        return self.dns_name or f"rollout-operator.{self.namespace}.svc"


FLAGS: Final[tuple[Flag[Any], ...]] = tuple(map_flags(Config).values())


def get_flag(name: str) -> Flag[Any]:
    return next(each for each in FLAGS if each.name == name)


def read_arguments(argv: Sequence[str], environment: Environment = NOTHING) -> Config:
    """Return the configuration by the words after the program's name, unchecked.

    Fields that they leave open come from the environment. Raises UsageError where they do not
    follow the grammar, or HelpRequested.
    """
    arguments = parse_arguments(FLAGS, argv)
    values = fill_fields(Config, arguments)
    if environment.is_given:
        standing_in = _stand_in(environment)
        values |= {
            name: standing_in[name]
            for name, flag in map_flags(Config).items()
            if name in standing_in and not arguments.has(flag)
        }
    by_flag = arguments.has(get_flag("kubernetes.namespace"))
    return Config(
        **values,
        leftovers=arguments.leftovers,
        without_effect=tuple(name for name in _WITHOUT_EFFECT if arguments.has(get_flag(name))),
        watched=None if by_flag else environment.watched,
        environment=environment,
    )


def _stand_in(environment: Environment) -> dict[str, object]:
    """Return, by field, the value that counts where the flag of that field is not given."""
    first = (*(environment.watched or ()), "")[0]
    return {
        "namespace": environment.own_namespace or first,
        "log_level": environment.log_level,
        "lease_name": environment.operator_name,
        "multi_az_rollouts": True,
    }
