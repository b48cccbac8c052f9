"""What `rollout-operator doctor` reads of a namespace, and what it finds.

`planning.doctor*` decide; `planning.doctor_remedies` and `docs/commands.md` explain each code. What
could not be read is named in `unread`, and never taken for absent.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Final

import msgspec

from rollout_operator.model.budget import Budget, FlawedBudget, PlacedSet
from rollout_operator.model.lease import LEASE_DURATION
from rollout_operator.model.objects import LabelSelector, StatefulSet, Target
from rollout_operator.model.outcome import Severity
from rollout_operator.model.policy import Policy, RefusedPolicy

if TYPE_CHECKING:
    from rollout_operator.model.release_plan import ReleaseObjects


@unique
class FindingCode(StrEnum):
    """What can be wrong with an installation. Scripts compare these: never renamed."""

    # the namespace and its operator
    NAMESPACE_MISSING = "namespace_missing"
    OPERATOR_MISSING = "operator_missing"
    OPERATOR_NOT_READY = "operator_not_ready"
    TWO_OPERATORS = "two_operators"
    LEASE_HOLDER_UNKNOWN = "lease_holder_unknown"
    OTHER_NAMESPACE_WATCHED = "other_namespace_watched"
    BUNDLE_NAME_EMPTY = "bundle_name_empty"
    VARIABLE_OVERRULED = "variable_overruled"
    RIGHT_MISSING = "right_missing"
    OPTIONAL_RIGHT_MISSING = "optional_right_missing"
    # webhooks as they are registered
    WEBHOOKS_MISSING = "webhooks_missing"
    WEBHOOKS_NOT_SERVED = "webhooks_not_served"
    WEBHOOK_OF_OTHERS = "webhook_of_others"
    WEBHOOK_SERVICE_MISSING = "webhook_service_missing"
    WEBHOOK_PORT_MISSING = "webhook_port_missing"
    WEBHOOK_WITHOUT_ENDPOINTS = "webhook_without_endpoints"
    WEBHOOK_CA_MISSING = "webhook_ca_missing"
    WEBHOOK_CA_BROKEN = "webhook_ca_broken"
    WEBHOOK_CA_EXPIRED = "webhook_ca_expired"
    WEBHOOK_CA_DIFFERS = "webhook_ca_differs"
    WEBHOOK_IGNORES_FAILURE = "webhook_ignores_failure"
    WEBHOOK_TIMEOUT_SHORT = "webhook_timeout_short"
    GUARD_WITHOUT_WEBHOOK = "guard_without_webhook"
    # webhooks as the API server reaches them
    WEBHOOK_TIMED_OUT = "webhook_timed_out"
    WEBHOOK_UNREACHABLE = "webhook_unreachable"
    WEBHOOK_NOT_CALLED = "webhook_not_called"
    # groups
    SINGLE_ZONE = "single_zone"
    GROUP_SHARED = "group_shared"
    NOT_ON_DELETE = "not_on_delete"
    ZONE_ORDER = "zone_order"
    ODD_VALUE = "odd_value"
    KEY_UNKNOWN = "key_unknown"
    KEY_MISPLACED = "key_misplaced"
    PREPARE_INCOMPLETE = "prepare_incomplete"
    PREPARE_WITHOUT_LABEL = "prepare_without_label"
    PREPARE_PATH_UNKNOWN = "prepare_path_unknown"
    PREPARE_UNANSWERED = "prepare_unanswered"
    LEADING_ZONE_UNKNOWN = "leading_zone_unknown"
    # kinds of the operator
    KIND_OUTDATED = "kind_outdated"
    # MultiAZRollouts
    POLICY_KIND_MISSING = "policy_kind_missing"
    POLICIES_NOT_OBEYED = "policies_not_obeyed"
    POLICY_REFUSED = "policy_refused"
    POLICY_SELECTS_NOTHING = "policy_selects_nothing"
    # releases
    RELEASE_KIND_MISSING = "release_kind_missing"
    RELEASES_NOT_MADE = "releases_not_made"
    RELEASES_MADE_TWICE = "releases_made_twice"
    FLUX_KIND_MISSING = "flux_kind_missing"
    RELEASE_REFUSED = "release_refused"
    RELEASE_OBJECT_UNREADABLE = "release_object_unreadable"
    IMAGE_POLICY_MISSING = "image_policy_missing"
    IMAGE_POLICY_EMPTY = "image_policy_empty"
    RELEASE_WRITES_NOTHING = "release_writes_nothing"
    RELEASE_UNCHECKED = "release_unchecked"
    ROLLOUT_UNKNOWN = "rollout_unknown"
    SCHEDULE_INVALID = "schedule_invalid"
    SCHEDULE_SELECTS_NOTHING = "schedule_selects_nothing"
    # budgets
    NATIVE_BUDGET_REFUSES = "native_budget_refuses"
    NATIVE_BUDGET_PROTECTS_NOTHING = "native_budget_protects_nothing"
    NATIVE_BUDGETS_OVERLAP = "native_budgets_overlap"
    BUDGETS_OF_TWO_KINDS = "budgets_of_two_kinds"
    ZONE_BUDGET_INVALID = "zone_budget_invalid"
    ZONE_BUDGET_SELECTS_NOTHING = "zone_budget_selects_nothing"
    ZONE_BUDGETS_OVERLAP = "zone_budgets_overlap"
    # pods that are to come
    POD_SECURITY_VIOLATED = "pod_security_violated"
    POD_REFUSED = "pod_refused"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The text is lower case, without a full stop."""

    code: FindingCode
    severity: Severity
    """`ERROR`: something does not work, or will not. `WARN`: it may be intended."""
    object: str
    """Kind and name."""
    text: str
    remedy: str


class SkippedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check for which something could not be read."""

    check: str
    why: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    findings: tuple[Finding, ...] = ()
    skipped: tuple[SkippedCheck, ...] = ()
    passed: int = 0
    """Number of checks that found nothing."""
    unneeded: int = 0
    """Number of checks of objects that may not be read, and that no operator here looks after."""

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    def has(self, code: FindingCode) -> bool:
        return any(finding.code is code for finding in self.findings)


OPERATOR: Final = "rollout-operator"
PART_OF: Final = "app.kubernetes.io/part-of"
STATUS_PORT: Final = 8001
METRICS_PORT: Final = "http-metrics"
NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_DOWNSCALE_PATH: Final = "/admission/prepare-downscale"
EVICTION_PATH: Final = "/admission/pod-eviction"
BUDGET_PATH: Final = "/admission/zpdb-validation"
# Webhooks of rollout operators are recognised by these.
ADMISSION_PATHS: Final = (NO_DOWNSCALE_PATH, PREPARE_DOWNSCALE_PATH, EVICTION_PATH, BUDGET_PATH)


@unique
class Source(StrEnum):
    """A part of the snapshot."""

    NAMESPACE = "namespace"
    DEPLOYMENTS = "deployments"
    STATEFULSETS = "statefulsets"
    PODS = "pods"
    SERVICES = "services"
    ENDPOINTS = "endpointslices"
    WEBHOOKS = "webhook configurations"
    LEASE = "lease"
    NATIVE_BUDGETS = "poddisruptionbudgets"
    ZONE_BUDGETS = "zoneawarepoddisruptionbudgets"
    RIGHTS = "rights of the operator"
    CLUSTER_RIGHTS = "rights of the operator in the cluster"
    REACH = "dry runs that webhooks answer"
    POD_TRIALS = "dry runs of pods"
    PREPARE_PATHS = "paths on which pods are prepared"
    POLICIES = "multiazrollouts"
    DEFINITIONS = "customresourcedefinitions"
    RELEASES = "rollouts of releases"
    FLUX = "objects of Flux"


class OperatorDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment that runs an operator, ours or grafana's."""

    name: str
    namespace: str = ""
    """Empty for that of the installation."""
    account: str
    """Its ServiceAccount."""
    arguments: tuple[str, ...] = ()
    """Command and arguments of the operator's container."""
    variables: Mapping[str, str] = {}
    """Its environment; a value from elsewhere is `$(NAME)`."""
    replicas: int = 1
    ready: int = 0

    @property
    def title(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"Deployment {name}"


class ZoneSet(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet with all its labels and annotations, misspelt ones included."""

    sts: StatefulSet
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    pod_labels: Mapping[str, str]
    """Of its template."""
    placed: PlacedSet | None = None


class LabelledPod(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    labels: Mapping[str, str] = {}
    is_ready: bool = False


class CallableService(msgspec.Struct, frozen=True, kw_only=True):
    """A Service through which webhooks or the status page are called."""

    name: str
    labels: Mapping[str, str] = {}
    ports: tuple[int, ...] = ()
    named_ports: Mapping[str, int] = {}
    has_endpoints: bool = True
    """False for an ExternalName."""

    @property
    def status_port(self) -> int:
        """Return the port of an operator's status page, 0 if this is none of an operator.

        Charts name the Service after their release and label it after themselves: ours and
        grafana's, under an alias, as a dependency, with `nameOverride` and `fullnameOverride`.
        """
        named = self.labels.get("app.kubernetes.io/name"), self.labels.get(PART_OF)
        is_operators = OPERATOR in named or OPERATOR in self.name
        is_operators |= self.labels.get("helm.sh/chart", "").startswith(f"{OPERATOR}-")
        if not is_operators:
            return 0
        return STATUS_PORT if STATUS_PORT in self.ports else self.named_ports.get(METRICS_PORT, 0)


class BundleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a `caBundle`."""

    problem: str = ""
    """Why it cannot be used."""
    ends: datetime | None = None
    """When its last certificate expires."""
    vouches: bool | None = None
    """Whether it signed the certificate in the operator's Secret; None if unknown."""


class HookRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook whose path is that of a rollout operator."""

    configuration: str
    """Kind and name."""
    name: str
    owner: str
    """The namespace in the label of the configuration."""
    path: str
    service_namespace: str = ""
    service: str = ""
    """Empty where a URL is called."""
    port: int = 443
    failure_policy: str = "Fail"
    timeout: timedelta = timedelta(seconds=10)
    selects: LabelSelector = LabelSelector()
    """Namespaces."""
    bundle: BundleFacts | None = None


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    holder: str
    """Empty if it was released."""
    renewed: datetime | None = None
    """By the clock of its holder."""


class NativeBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget of Kubernetes."""

    name: str
    selector: LabelSelector | None = None
    """None selects nothing."""
    max_unavailable: str = ""
    """`1` or `20%`; empty if not set, as the next field."""
    min_available: str = ""

    def takes(self, labels: Mapping[str, str]) -> bool:
        return self.selector is not None and self.selector.takes(labels)


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """A permission that the operator needs."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    """Of the only object that it is for; empty for all."""
    is_namespaced: bool = True
    is_of_process: bool = False
    """Whether it is needed only in the operator's own namespace."""
    is_optional: bool = False
    """Whether the operator rolls out and answers reviews without it."""
    purpose: str
    """What does not work without it."""


class RightAnswer(msgspec.Struct, frozen=True, kw_only=True):
    account: str
    namespace: str = ""
    """Where it is needed; empty for the operator's own namespace, or the cluster."""
    right: Right
    is_granted: bool


class ReachAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's answer to a dry run that webhooks review."""

    request: str
    """In words."""
    paths: tuple[str, ...]
    """Of the webhooks that it must have called."""
    error: str = ""
    """Empty if it was accepted."""
    must_be_refused: bool = False
    """Whether it can only pass if the operator was not called."""
    is_answered: bool = True


class PodTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's answer to a dry run that creates a pod of a StatefulSet."""

    set_name: str
    error: str = ""


class PathQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Where a GET to one pod of a StatefulSet shows whether it can be prepared."""

    set_name: str
    target: Target
    pod: str = ""
    """Empty if none is ready."""


class PathAnswer(msgspec.Struct, frozen=True, kw_only=True):
    question: PathQuestion
    status: int = 0
    """Of the pod's own answer; 0 without one."""
    problem: str = ""
    """What came instead."""
    is_lost: bool = False
    """Whether the API server got no answer from the pod."""


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the API server serves MultiAZRollouts."""

    is_served: bool = True
    """In the version that the operator reads."""
    versions: tuple[str, ...] = ()
    """Served in its place; empty if there is no definition, or it may not be read."""


def _make_no_releases() -> "ReleaseObjects":
    # Lazy: the operator reads this module too, and releases may be off.
    from rollout_operator.model.release_plan import ReleaseObjects

    return ReleaseObjects()


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace, and what the cluster has for it."""

    namespace: str
    now: datetime
    unread: Mapping[Source, str] = {}
    """Why a part could not be read."""
    unneeded: frozenset[Source] = frozenset()
    """Parts that could not be read either, and that no operator here looks after."""
    namespace_labels: Mapping[str, str] | None = None
    """None if there is no such namespace."""
    operators: tuple[OperatorDeployment, ...] = ()
    sets: tuple[ZoneSet, ...] = ()
    pods: tuple[LabelledPod, ...] = ()
    services: tuple[CallableService, ...] = ()
    ready_endpoints: Mapping[str, int] = {}
    """By Service."""
    hooks: tuple[HookRegistration, ...] = ()
    """Of the whole cluster."""
    lease: HeldLease | None = None
    native_budgets: tuple[NativeBudget, ...] = ()
    zone_budgets: tuple[Budget | FlawedBudget, ...] = ()
    policies: tuple[Policy | RefusedPolicy, ...] = ()
    unobeyed: frozenset[str] = frozenset()
    """Policies whose status no operator has written for too long."""
    policy_kind: PolicyKind = PolicyKind()
    missing_fields: Mapping[str, tuple[str, ...]] = {}
    """By kind, what its CustomResourceDefinition lacks, such as `status.phase`."""
    releases: "ReleaseObjects" = msgspec.field(default_factory=_make_no_releases)
    kuberik: tuple[str, ...] = ()
    """Deployments of kuberik's controller, by namespace and name."""
    rights: tuple[RightAnswer, ...] = ()
    reach: tuple[ReachAnswer, ...] = ()
    pod_trials: tuple[PodTrial, ...] = ()
    path_answers: tuple[PathAnswer, ...] = ()

    @property
    def has_live_lease(self) -> bool:
        """Return whether some process acts for the namespace, wherever it runs."""
        lease = self.lease
        if lease is None or not lease.holder or lease.renewed is None:
            return False
        # Two clocks are compared here.
        return self.now - lease.renewed <= 2 * LEASE_DURATION

    @property
    def own_hooks(self) -> tuple[HookRegistration, ...]:
        """Return the webhooks labelled for this namespace, or calling a Service in it."""
        return tuple(hook for hook in self.hooks if self.is_own(hook))

    def is_own(self, hook: HookRegistration) -> bool:
        owners = {hook.owner, hook.service_namespace}
        if self.namespace in owners:
            return True
        # The API server also calls an operator elsewhere that looks after this namespace.
        homes = {operator.namespace for operator in self.operators if operator.namespace}
        return bool(homes & owners) and hook.selects.takes(self.all_labels)

    @property
    def all_labels(self) -> Mapping[str, str]:
        """Return the labels of the namespace, including the one that the API server adds."""
        return {"kubernetes.io/metadata.name": self.namespace, **(self.namespace_labels or {})}

    @property
    def members(self) -> tuple[ZoneSet, ...]:
        """Return the StatefulSets in rollout groups."""
        return tuple(sts for sts in self.sets if sts.sts.group is not None)
