"""What the operator is told at its start: every flag once, on the field that its value goes to.

Decides which flags exist and what they mean. Which combinations are refused is decided in `checks`,
how words become values in `grammar`, how all of it looks as help in `usage`. What is not among the
arguments is as `environment` has it, else at its default.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from rollout_operator.config.environment import NOTHING, Environment
from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    LIST,
    LONG_SPAN,
    TEXT,
    Flag,
    FlagKind,
    parse_arguments,
)

T = TypeVar("T")

ACTIVE: Final = "active"
SHADOW: Final = "shadow"
REGISTRY: Final = "registry"
KUBERIK: Final = "kuberik"
UNLIMITED: Final = timedelta.max
"""What `-kubernetes.client-timeout=0` stands for."""
TIMEOUT: Final = replace(DURATION, parse=lambda text: DURATION.parse(text) or UNLIMITED)

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


def flag(name: str, kind: FlagKind[T], default: T, group: str, help: str, *, alias: str = "") -> T:
    """Return a field of a dataclass that a flag fills."""
    declared = Flag(name=name, kind=kind, default=default, group=group, help=help, alias=alias)
    made: T = field(default=default, metadata={"flag": declared})
    return made


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the words after the program's name ask for, checked by `checks.read_config`."""

    namespace: str = flag(
        "kubernetes.namespace", TEXT, "", _KUBERNETES,
        "Namespace whose rollout groups are looked after. Required.",
        alias="kubernetes-namespace",
    )
    api_url: str = flag(
        "kubernetes.api-url", TEXT, "", _KUBERNETES,
        "URL of the API server. Together with -kubernetes.config-file or not at all; without"
        " both, the service account of the pod is used.",
    )
    config_file: str = flag(
        "kubernetes.config-file", TEXT, "", _KUBERNETES,
        "Path of a kubeconfig file. Together with -kubernetes.api-url or not at all.",
    )
    client_timeout: timedelta = flag(
        "kubernetes.client-timeout", TIMEOUT, timedelta(minutes=5), _KUBERNETES,
        "Longest time of one request, and the age at which a watch is opened anew. The"
        " operator has shorter limits of its own for single requests; 0 leaves only those.",
    )
    client_qps: float = flag(
        "kubernetes.client-qps", FLOAT, 5.0, _KUBERNETES,
        "Requests a second of the whole process for each API group, on average, watches not"
        " counted. Deletes go before what reviews wait for, and those before live reads and"
        " lists. 0 or less turns limiting off.",
    )
    client_burst: int = flag(
        "kubernetes.client-burst", INT, 10, _KUBERNETES,
        "Requests of the whole process for each API group that may be sent at once. At least"
        " 1 when -kubernetes.client-qps is above 0.",
    )
    reconcile_interval: timedelta = flag(
        "reconcile.interval", DURATION, timedelta(seconds=5), _ROLLOUTS,
        "Longest time until a group is reconciled again after an error. Must be positive."
        " Without errors changes are acted upon as they happen, and nothing waits for this"
        " interval.",
    )
    multi_az_rollouts: bool = flag(
        "multi-az-rollouts.enabled", BOOL, False, _ROLLOUTS,
        "Obey MultiAZRollouts. Also on where one of the environment variables WATCH_NAMESPACE,"
        " LOG_LEVEL, OPERATOR_NAME and METRICS_PORT is set. Without effect in shadow mode.",
    )
    releases: bool = flag(
        "releases.enabled", BOOL, False, _RELEASES,
        "Make the Rollouts of kuberik.com happen. Without effect in shadow mode.",
    )
    release_compat: str = flag(
        "releases.compat", TEXT, "", _RELEASES,
        "kuberik: decide in all cases as kuberik's own controller does.",
    )
    verifies_wanted: bool = flag(
        "releases.verify-wanted-version", BOOL, False, _RELEASES,
        "Hold a wantedVersion that the registry does not have.",
    )
    release_metadata: str = flag(
        "releases.metadata", TEXT, REGISTRY, _RELEASES,
        "registry: ask registries what releases are; none: no registry, and no Secret is read.",
    )
    mode: str = flag(
        "mode", TEXT, ACTIVE, _ROLLOUTS,
        "active, or shadow: decide and tell in log, metrics and status page what would be done,"
        " and count where another operator does otherwise. Nothing is written, no pod is called,"
        " no webhook is answered; rights to read are enough.",
    )
    log_format: str = flag(
        "log.format", TEXT, "logfmt", _LOGGING,
        "Format of the lines on stderr: logfmt or json.",
    )
    log_level: str = flag(
        "log.level", TEXT, "debug", _LOGGING,
        "Lowest level that is written: debug, info, warn or error.",
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
        "Parts of paths that are not checked, separated by commas. Without it, the admission"
        " routes; metrics, health and status pages are never checked.",
    )
    cluster_validation_excluded_user_agents: tuple[str, ...] = flag(
        "server.cluster-validation.http.excluded-user-agents", LIST, (), _VALIDATION,
        "User agents that are not checked: regular expressions (RE2), separated by commas.",
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
        "Time of one request; a review is answered after 90 % of it at the latest, or of the"
        " time-out that the API server names. Must be positive.",
    )
    client_ca_file: str = flag(
        "server-tls.client-ca-file", TEXT, "", _WEBHOOKS,
        "Path of PEM certificates: only clients with a certificate of one of these CAs are"
        " served. Empty: anyone is.",
    )
    client_name: str = flag(
        "server-tls.client-name", TEXT, "", _WEBHOOKS,
        "Common name that such a certificate must have. Empty: any. Needs"
        " -server-tls.client-ca-file.",
    )
    fails_closed: bool = flag(
        "no-downscale.fail-closed", BOOL, False, _WEBHOOKS,
        "Let no-downscale refuse, to be tried again, what it cannot read at the moment or"
        " cannot understand. By default such requests are allowed with a warning.",
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
        "Issue the certificate ourselves, and keep it in a Secret.",
    )
    secret_name: str = flag(
        "server-tls.self-signed-cert.secret-name",
        TEXT, "rollout-operator-self-signed-certificate", _CERTIFICATES,
        "Name of that Secret. One with the data of another application is never written: the"
        " operator stays unready and says so.",
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
        "How long the certificate lasts, as a Prometheus duration. It is renewed, without a"
        " restart, when a third of that is left.",
    )
    cert_file: str = flag(
        "server-tls.cert-file", TEXT, "", _CERTIFICATES,
        "Path of a certificate chain (PEM), where it is not self-signed. Read again when it"
        " changes.",
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
        "DNS domain of the cluster, for the names by which pods are called.",
    )
    use_zone_tracker: bool = flag(
        "use-zone-tracker", BOOL, False, _TRACKER,
        "Keep the times of downscales in a ConfigMap, and not in annotations of StatefulSets.",
    )
    zone_tracker_name: str = flag(
        "zone-tracker.config-map-name", TEXT, "rollout-operator-zone-tracker", _TRACKER,
        "Name of that ConfigMap, in the namespace of -kubernetes.namespace. Where there is"
        " none it is created, and then each zone counts as just scaled down.",
    )
    patch_timeout: timedelta = flag(
        "zpdb.pod-ready-annotation-patch-timeout", DURATION, timedelta(seconds=5), _BUDGETS,
        "Has no effect: since when a pod is ready is read from its own status, and nothing is"
        " written for it. Must be positive.",
    )
    election_enabled: bool = flag(
        "leader-election.enabled", BOOL, True, _REPLICAS,
        "Act only as the holder of a Lease, so that several replicas may run. Where the role"
        " does not permit Leases, the operator says so once and acts: only one may run then.",
    )
    lease_name: str = flag(
        "leader-election.lease-name", TEXT, "rollout-operator", _REPLICAS,
        "Name of that Lease, in the namespace of -kubernetes.namespace: the same in all"
        " operators that look after it.",
    )
    peer_port: int = flag(
        "server-tls.peer-port", INT, 8444, _REPLICAS,
        "TCP port on which the replica that holds the Lease answers reviews that others pass on"
        " to it, on all addresses. Only replicas with a certificate of our own CA are served."
        " Needs POD_IP in the environment. 0: none are passed on, and the others refuse them, to"
        " be tried again.",
    )
    shutdown_delay: timedelta = flag(
        "server-tls.shutdown-delay", DURATION, timedelta(seconds=5), _REPLICAS,
        "How long webhooks are answered after SIGTERM, by which time API servers ask the other"
        " replicas. The Lease is released before that, as soon as what is underway has ended; what"
        " the replica that acts has to decide is passed on to the next one. At most 10s.",
    )
    leftovers: tuple[str, ...] = ()
    """Words after the flags, which mean nothing."""
    without_effect: tuple[str, ...] = ()
    """Names of flags that were given and mean nothing any more."""
    watched: tuple[str, ...] | None = None
    """The namespaces that the environment asks for; none of them: all. None: that of the flag."""
    environment: Environment = NOTHING

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return what is watched; none: all. `namespace` is then that of the operator itself."""
        return (self.namespace,) if self.watched is None else self.watched

    @property
    def watches_all(self) -> bool:
        """Return whether all namespaces are watched."""
        return not self.namespaces

    @property
    def watches_several(self) -> bool:
        """Tell whether more namespaces than one may be watched: series and lines name them then."""
        return self.watches_all or len(self.namespaces) > 1

    @property
    def operator_name(self) -> str:
        """Return what its writes, Events and Lease are known by."""
        return self.environment.operator_name

    @property
    def extra_port(self) -> int:
        """Return the second port with `/metrics`; 0: there is none."""
        port = self.environment.metrics_port
        return 0 if port == self.server_port else port

    @property
    def zone_tracker(self) -> str:
        """Return the name of the ConfigMap with the times of downscales; empty: annotations."""
        return self.zone_tracker_name if self.use_zone_tracker else ""

    @property
    def lease(self) -> str:
        """Return the name of the Lease that is held to act; empty: none is needed."""
        return self.lease_name if self.election_enabled and not self.is_shadow else ""

    @property
    def is_shadow(self) -> bool:
        """Return whether nothing is written, and no webhook answered."""
        return self.mode == SHADOW

    @property
    def drives_policies(self) -> bool:
        """Return whether MultiAZRollouts are obeyed."""
        return self.multi_az_rollouts and not self.is_shadow

    @property
    def drives_releases(self) -> bool:
        """Return whether Rollouts of releases are made to happen."""
        return self.releases and not self.is_shadow

    @property
    def answers_reviews(self) -> bool:
        """Return whether webhooks are served."""
        return self.webhooks_enabled and not self.is_shadow

    @property
    def forwarding_port(self) -> int:
        """Return the port for reviews of other replicas; 0: none are passed on.

        Certificates from files are not ours: nothing tells their CA, nor whether it signs others.
        """
        is_possible = self.answers_reviews and self.self_signed and self.election_enabled
        return self.peer_port if is_possible else 0

    @property
    def service_name(self) -> str:
        """Return the DNS name that our own certificate is for."""
        return self.dns_name or f"rollout-operator.{self.namespace}.svc"

# fmt: on

FLAGS: Final[tuple[Flag[Any], ...]] = tuple(
    each.metadata["flag"] for each in fields(Config) if each.metadata
)
_WITHOUT_EFFECT: Final = ("zpdb.pod-ready-annotation-patch-timeout",)


def get_flag(name: str) -> Flag[Any]:
    """Return the flag of this name, which there must be."""
    return next(each for each in FLAGS if each.name == name)


def read_arguments(argv: Sequence[str], environment: Environment = NOTHING) -> Config:
    """Return what the words after the program's name ask for, unchecked.

    What they leave open is as the environment has it. Raises UsageError where they do not follow
    the grammar, or HelpRequested.
    """
    arguments = parse_arguments(FLAGS, argv)
    values: dict[str, Any] = {
        each.name: arguments.value(each.metadata["flag"])
        for each in fields(Config)
        if each.metadata
    }
    if environment.is_given:
        standing_in = _stand_in(environment)
        values |= {
            each.name: standing_in[each.name]
            for each in fields(Config)
            if each.name in standing_in and not arguments.has(each.metadata["flag"])
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
    """Return, by field, what counts where the flag of that field is not given."""
    first = (*(environment.watched or ()), "")[0]
    return {
        "namespace": environment.own_namespace or first,
        "log_level": environment.log_level,
        "lease_name": environment.operator_name,
        "multi_az_rollouts": True,
    }
