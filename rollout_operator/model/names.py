"""Names of labels, annotations and headers that we read or write; errors and exit codes."""

from datetime import timedelta
from enum import IntEnum, unique
from typing import Final, NewType, Self

# Value of the group label; empty is a group like any other.
GroupName = NewType("GroupName", str)

Uid = NewType("Uid", str)
# Name of a ControllerRevision, as in a pod's hash label and a StatefulSet's status.
Revision = NewType("Revision", str)

# Our name in `managedFields`, from the User-Agent.
FIELD_MANAGER: Final = "rollout-operator"

# Of an object, in characters: a DNS subdomain.
LONGEST_NAME: Final = 253

# Both form groups; the first wins.
GROUP_LABEL: Final = "rollout-group"
GROUP_LABEL_LONG: Final = "grafana.com/rollout-group"

REVISION_LABEL: Final = "controller-revision-hash"

MAX_UNAVAILABLE: Final = "rollout-max-unavailable"
PAUSED: Final = "grafana.com/rollout-paused"
# How long the other zones must have been whole before a zone is begun.
ZONE_SOAK: Final = "grafana.com/rollout-zone-soak"
# The RolloutHealthCheck that must pass before a zone is begun, and until when that is waived.
HEALTH_CHECK: Final = "grafana.com/rollout-health-check"
HEALTH_CHECK_BYPASS: Final = "grafana.com/rollout-health-check-bypass-until"

# Labels that switch a review on.
NO_DOWNSCALE: Final = "grafana.com/no-downscale"
PREPARE_DOWNSCALE: Final = "grafana.com/prepare-downscale"
PREPARE_PATH: Final = "grafana.com/prepare-downscale-http-path"
PREPARE_PORT: Final = "grafana.com/prepare-downscale-http-port"
# Label or annotation; on one object the annotation wins.
MIN_TIME_BETWEEN_DOWNSCALES: Final = "grafana.com/min-time-between-zones-downscale"
LAST_DOWNSCALE: Final = "grafana.com/last-downscale"

# Annotations by which replica counts move through the zones.
LEADING_ZONE: Final = "grafana.com/rollout-downscale-leader"
UPSCALE_WHEN_READY: Final = "grafana.com/rollout-upscale-only-when-leader-ready"
FORCE_REPLICAS: Final = "grafana.com/rollout-force-replicas"
MIRROR_NAME: Final = "grafana.com/rollout-mirror-replicas-from-resource-name"
MIRROR_KIND: Final = "grafana.com/rollout-mirror-replicas-from-resource-kind"
MIRROR_API_VERSION: Final = "grafana.com/rollout-mirror-replicas-from-resource-api-version"
MIRROR_WRITE_BACK: Final = "grafana.com/rollout-mirror-replicas-from-resource-write-back"
DOWNSCALE_DELAY: Final = "grafana.com/rollout-delayed-downscale"
DOWNSCALE_DELAY_URL: Final = "grafana.com/rollout-prepare-delayed-downscale-url"
# Written by us: an announced downscale, see `planning.requests`.
DOWNSCALE_INTENT: Final = "grafana.com/rollout-operator-downscale-intent"
SCALING_ANNOTATIONS: Final = frozenset(
    {
        LEADING_ZONE,
        UPSCALE_WHEN_READY,
        FORCE_REPLICAS,
        MIRROR_NAME,
        MIRROR_KIND,
        MIRROR_API_VERSION,
        MIRROR_WRITE_BACK,
        DOWNSCALE_DELAY,
        DOWNSCALE_DELAY_URL,
        DOWNSCALE_INTENT,
    }
)

# On pods: the downscale underway, a `model.objects.DownscaleRecord`.
DOWNSCALE_RECORD: Final = "grafana.com/rollout-operator-downscale"

# On pods: the grant to disrupt them, a `model.budget.Record`.
DISRUPTION_RECORD: Final = "grafana.com/rollout-operator-disruption"
# On pods, by earlier releases: since when they are ready. Only read.
READY_TIME: Final = "grafana.com/ready-time"
# On budgets that count by partition: with `gone` a zone scaled below a partition has handed over
# its data; otherwise its missing pod counts as unknown.
ABSENT_PEERS: Final = "grafana.com/rollout-operator-absent-peers"

# On webhook configurations: whether, and by which operator, the CA is injected.
INJECT_CA_LABEL: Final = "grafana.com/inject-rollout-operator-ca"
NAMESPACE_LABEL: Final = "grafana.com/namespace"

# On the Lease: where its holder answers other replicas, as IP:port.
ADDRESS: Final = "grafana.com/rollout-operator-address"

# On the Secret of the certificate, `true`: the operator made it.
CERTIFICATE_LABEL: Final = "grafana.com/rollout-operator-certificate"

# Kept in the cache. The labels that switch reviews on are kept as annotations to report them there.
STATEFULSET_ANNOTATIONS: Final = frozenset(
    {
        MAX_UNAVAILABLE,
        PAUSED,
        ZONE_SOAK,
        HEALTH_CHECK,
        HEALTH_CHECK_BYPASS,
        NO_DOWNSCALE,
        PREPARE_DOWNSCALE,
        PREPARE_PATH,
        PREPARE_PORT,
        MIN_TIME_BETWEEN_DOWNSCALES,
        LAST_DOWNSCALE,
        *SCALING_ANNOTATIONS,
    }
)
# Labels of nodes that name their zone, the current one first.
TOPOLOGY_KEYS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")

ON_DELETE: Final = "OnDelete"
# The only pod management policy that is not ordered.
PARALLEL: Final = "Parallel"
CLUSTER_HEADER: Final = "X-Cluster"

# On Rollouts: one-time requests.
FORCE_DEPLOY: Final = "rollout.kuberik.com/force-deploy"
BYPASS_GATES: Final = "rollout.kuberik.com/bypass-gates"
UNBLOCK_FAILED: Final = "rollout.kuberik.com/unblock-failed"
RETRY: Final = "rollout.kuberik.com/retry"
DEPLOY_MESSAGE: Final = "rollout.kuberik.com/deploy-message"
# The same in kuberik's documents.
DEPLOYMENT_MESSAGE: Final = "rollout.kuberik.com/deployment-message"
DEPLOY_USER: Final = "rollout.kuberik.com/deploy-user"
WAIT_FOR_FLUX: Final = "rollout.kuberik.com/wait-for-flux"
# On OCIRepositories and Kustomizations: the Rollout that writes the tag, or a variable.
TAG_FROM: Final = "rollout.kuberik.com/rollout"
# Followed by the name of a variable and `.from`.
SUBSTITUTE: Final = "rollout.kuberik.com/substitute."
# On HealthChecks: what they look at, how often, and how long a failure is tolerated.
CHECKED_KUSTOMIZATION: Final = "healthcheck.kuberik.com/kustomization"
CHECKED_GROUP: Final = "healthcheck.kuberik.com/rollout-group"
CHECKED_POLICY: Final = "healthcheck.kuberik.com/multi-az-rollout"
CHECK_INTERVAL: Final = "healthcheck.kuberik.com/requeue-interval"
FAILURE_GRACE: Final = "healthcheck.kuberik.com/failure-grace"
# On schedules, and copied to their gates for display.
PRETTY_NAME: Final = "gate.kuberik.com/pretty-name"
GATE_DESCRIPTION: Final = "gate.kuberik.com/description"
# Labels on gates that a schedule keeps.
SCHEDULE_NAME: Final = "gate.kuberik.com/schedule-name"
SCHEDULE_NAMESPACE: Final = "gate.kuberik.com/schedule-namespace"
SCHEDULE_KIND: Final = "gate.kuberik.com/schedule-kind"
GATED_ROLLOUT: Final = "gate.kuberik.com/rollout-name"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"


class OperatorError(Exception):
    """Base of all errors that we raise."""


class InvalidInput(OperatorError):
    """A person must change something: report it, do not retry."""


class ConfigError(InvalidInput):
    """Invalid flags or files; the process ends with `exit_code`."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class DecodeError(InvalidInput):
    """An API object is not shaped as its kind promises. Names the field."""


class ApiError(OperatorError):
    """A call to the API server failed.

    `call` reads like `list pods in namespace prod`; `status` is 0 without an answer; `problem` is
    the message without the call.
    """

    def __init__(self, message: str, *, call: str = "", status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.call = call
        self.status = status
        self.reason = reason
        self.problem = message

    @classmethod
    def of(cls, call: str, problem: str, *, status: int = 0, reason: str = "") -> Self:
        error = cls(f"cannot {call}: {problem}", call=call, status=status, reason=reason)
        error.problem = problem
        return error


class NotFound(ApiError):
    """The object does not exist: look again, it may have been replaced."""


class Conflict(ApiError):
    """Someone wrote first, or a precondition failed: read again, plan again."""


class Gone(ApiError):
    """The version or list token is too old: list again."""


class Denied(ApiError):
    """Not authorised (401, or 403 by RBAC): a person must change the role it names."""

    @property
    def is_by_role(self) -> bool:
        """Return whether nothing but the role is wrong: a credential may be renewed any moment."""
        return self.status != 401


class Refused(ApiError):
    """The API server refuses this object (admission, validation): try another."""


class TooManyRequests(ApiError):
    """The server refuses calls for now: call again after `retry_after`, if set."""

    def __init__(
        self,
        message: str,
        *,
        call: str = "",
        status: int = 429,
        reason: str = "",
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message, call=call, status=status, reason=reason)
        self.retry_after = retry_after


class Throttled(ApiError):
    """Our own rate limiter would exceed the deadline: nothing was sent."""


class NotElected(ApiError):
    """This replica does not lead, or cannot be sure of it: nothing was sent."""


class DeadlinePassed(ApiError):
    """Our own time ran out before an answer came, sent or not: decide again."""


class Unreachable(ApiError):
    """No useful answer (connection refused, 5xx, time-out of a read): back off."""


class UnknownOutcome(ApiError):
    """A write got no answer: it may be stored now, later or never. Read back."""


@unique
class ExitCode(IntEnum):
    """How a command ended; see `docs/commands.md`."""

    DONE = 0
    FAILED = 1
    """The command could not begin, or not complete what was requested; stderr says why."""
    BAD_COMMAND_LINE = 2
    """Nothing was tried."""
    TIMED_OUT = 3
    """What it waited for has not come yet."""
    NEEDS_A_PERSON = 4
    """What it waited for, or looked at, will not come by itself."""
    BOUND_CROSSED = 5
    """`simulate`: more would be down at a time than a rollout may take down."""
    UNREACHED = 124
    """`doctor`: the API server does not reach a webhook in time; as `timeout` of a shell ends."""
    # As shells count a process that a signal ended.
    INTERRUPTED = 130
    UNREAD = 141
