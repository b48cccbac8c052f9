"""Every label, annotation and API path segment that we read or write, once.

The error tree: a class says what the caller should do.

The exit codes of all commands: what a script learns without reading a word.
"""

from datetime import timedelta
from enum import IntEnum, unique
from typing import Final, NewType, Self

GroupName = NewType("GroupName", str)
"""Value of the group label. Empty is a group like any other."""

Uid = NewType("Uid", str)
Revision = NewType("Revision", str)
"""Name of a ControllerRevision, as a pod's hash label and a StatefulSet's status carry it."""

# What the API server calls us in `managedFields`: the product of our User-Agent.
FIELD_MANAGER: Final = "rollout-operator"

LONGEST_NAME: Final = 253
"""Of an object, in characters."""

# Both spellings form groups; where both are present the first wins.
GROUP_LABEL: Final = "rollout-group"
GROUP_LABEL_LONG: Final = "grafana.com/rollout-group"

REVISION_LABEL: Final = "controller-revision-hash"

MAX_UNAVAILABLE: Final = "rollout-max-unavailable"
PAUSED: Final = "grafana.com/rollout-paused"

# Labels that switch a review on; the value must be exactly `true`.
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
# Written by us: that we are about to scale a set down. See `planning.requests`. It keeps
# its group among those that are scaled until it is removed.
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

# On pods: which downscale is underway. See `model.objects.DownscaleRecord`.
DOWNSCALE_RECORD: Final = "grafana.com/rollout-operator-downscale"

# On pods: that they may go, and who said so when. See `model.budget.Record`.
DISRUPTION_RECORD: Final = "grafana.com/rollout-operator-disruption"
# On pods, written by earlier releases: since when they are ready. Only read.
READY_TIME: Final = "grafana.com/ready-time"
# On budgets that count by partition: `gone` where a zone that is scaled below a partition has
# handed its data over; anything else counts its missing pod as unknown.
ABSENT_PEERS: Final = "grafana.com/rollout-operator-absent-peers"

# On webhook configurations: whether and by which operator the CA is written into them.
INJECT_CA_LABEL: Final = "grafana.com/inject-rollout-operator-ca"
NAMESPACE_LABEL: Final = "grafana.com/namespace"

# On the Lease: where the process that holds it answers other replicas, as IP:port.
ADDRESS: Final = "grafana.com/rollout-operator-address"

# On the Secret of the certificate, with the value `true`: that the operator made it.
CERTIFICATE_LABEL: Final = "grafana.com/rollout-operator-certificate"

# What the cache keeps of a StatefulSet; all else is dropped when decoding. The labels that switch
# reviews on are kept as annotations too: to report a label in the wrong place.
STATEFULSET_ANNOTATIONS: Final = frozenset(
    {
        MAX_UNAVAILABLE,
        PAUSED,
        NO_DOWNSCALE,
        PREPARE_DOWNSCALE,
        PREPARE_PATH,
        PREPARE_PORT,
        MIN_TIME_BETWEEN_DOWNSCALES,
        LAST_DOWNSCALE,
        *SCALING_ANNOTATIONS,
    }
)
# The labels of nodes that name their zone, today's first.
TOPOLOGY_KEYS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")

ON_DELETE: Final = "OnDelete"
# The pod management policy that creates all absent pods at once; every other policy is ordered.
PARALLEL: Final = "Parallel"
CLUSTER_HEADER: Final = "X-Cluster"

# On Rollouts: what a person requests once, each with a tag, a text or `true`.
FORCE_DEPLOY: Final = "rollout.kuberik.com/force-deploy"
BYPASS_GATES: Final = "rollout.kuberik.com/bypass-gates"
UNBLOCK_FAILED: Final = "rollout.kuberik.com/unblock-failed"
RETRY: Final = "rollout.kuberik.com/retry"
DEPLOY_MESSAGE: Final = "rollout.kuberik.com/deploy-message"
# What kuberik's documents call it.
DEPLOYMENT_MESSAGE: Final = "rollout.kuberik.com/deployment-message"
DEPLOY_USER: Final = "rollout.kuberik.com/deploy-user"
WAIT_FOR_FLUX: Final = "rollout.kuberik.com/wait-for-flux"
# On OCIRepositories and Kustomizations of Flux: the Rollout that writes the tag, or a variable.
TAG_FROM: Final = "rollout.kuberik.com/rollout"
SUBSTITUTE: Final = "rollout.kuberik.com/substitute."
"""Followed by the name of a variable and `.from`."""
# On HealthChecks: what they look at, how often, and how long a failure may pass by itself.
CHECKED_KUSTOMIZATION: Final = "healthcheck.kuberik.com/kustomization"
CHECKED_GROUP: Final = "healthcheck.kuberik.com/rollout-group"
CHECKED_POLICY: Final = "healthcheck.kuberik.com/multi-az-rollout"
CHECK_INTERVAL: Final = "healthcheck.kuberik.com/requeue-interval"
FAILURE_GRACE: Final = "healthcheck.kuberik.com/failure-grace"
# On schedules, and copied to their gates: for display alone.
PRETTY_NAME: Final = "gate.kuberik.com/pretty-name"
GATE_DESCRIPTION: Final = "gate.kuberik.com/description"
# On gates that a schedule keeps: labels that say whose they are.
SCHEDULE_NAME: Final = "gate.kuberik.com/schedule-name"
SCHEDULE_NAMESPACE: Final = "gate.kuberik.com/schedule-namespace"
SCHEDULE_KIND: Final = "gate.kuberik.com/schedule-kind"
GATED_ROLLOUT: Final = "gate.kuberik.com/rollout-name"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"


class OperatorError(Exception):
    """Root of all errors that we raise on purpose."""


class InvalidInput(OperatorError):
    """A person must change something: report it, do not retry."""


class ConfigError(InvalidInput):
    """Flags or files do not make a configuration. The process ends with `exit_code`."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class DecodeError(InvalidInput):
    """An API object does not have the shape that its kind promises. Names the field."""


class ApiError(OperatorError):
    """A call to the API server did not succeed.

    `call` reads like `list pods in namespace prod`; `status` is the HTTP status, 0 where none came.
    `problem` is the message without the call that it names.
    """

    def __init__(self, message: str, *, call: str = "", status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.call = call
        self.status = status
        self.reason = reason
        self.problem = message

    @classmethod
    def of(cls, call: str, problem: str, *, status: int = 0, reason: str = "") -> Self:
        """Return the error of a call that did not succeed since there is a problem."""
        error = cls(f"cannot {call}: {problem}", call=call, status=status, reason=reason)
        error.problem = problem
        return error


class NotFound(ApiError):
    """The object does not exist: look again, it may have been replaced."""


class Conflict(ApiError):
    """Another client wrote first, or a precondition failed: read again, plan again."""


class Gone(ApiError):
    """The version or list token is too old: list again."""


class Denied(ApiError):
    """Not authorised (401, or 403 by RBAC): a person must change the role it names."""


class Refused(ApiError):
    """The API server understood and will not do it (admission, validation): try another object."""


class TooManyRequests(ApiError):
    """The server refuses calls for now: call again after `retry_after`, where it names a time."""

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
    """Our own rate limiter would not send the request before its deadline: nothing was sent."""


class NotElected(ApiError):
    """This replica does not lead, or cannot be sure of it: nothing was sent."""


class DeadlinePassed(ApiError):
    """Our own time for a decision ended before the answer came, sent or not: decide again."""


class Unreachable(ApiError):
    """No useful answer (connection refused, 5xx, time-out of a read): back off."""


class UnknownOutcome(ApiError):
    """A write was sent and not answered: it may be committed now, later or never. Read back."""


@unique
class ExitCode(IntEnum):
    """How a command ended. `docs/commands.md` has the table."""

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
