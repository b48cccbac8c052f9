"""What `rollout-operator doctor` finds: frozen data that the command renders and never words.

Which findings follow from what was read is decided in `planning.diagnosis`; what each code means,
and what to do about it, stands in `planning.doctor_remedies` and in `docs/commands.md`.

What `rollout-operator doctor` has read of one namespace: the frozen snapshot that checks judge.

Only what a check reads is kept. What could not be read is named in `unread`, and is never taken
for absent.
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
    # MultiAZRollouts
    POLICY_KIND_MISSING = "policy_kind_missing"
    POLICY_KIND_OUTDATED = "policy_kind_outdated"
    POLICIES_NOT_OBEYED = "policies_not_obeyed"
    POLICY_REFUSED = "policy_refused"
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
    """One thing that is wrong. The text is lower case and without a full stop."""

    code: FindingCode
    severity: Severity
    """`ERROR`: something does not work, or will not. `WARN`: it may be meant."""
    object: str
    """Kind and name."""
    text: str
    remedy: str


class SkippedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check for which something could not be read."""

    check: str
    why: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All that one examination of an installation found."""

    namespace: str
    findings: tuple[Finding, ...] = ()
    skipped: tuple[SkippedCheck, ...] = ()
    passed: int = 0
    """How many checks were made and found nothing."""

    def count(self, severity: Severity) -> int:
        """Return how many findings have this severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def has(self, code: FindingCode) -> bool:
        """Return whether there is such a finding."""
        return any(finding.code is code for finding in self.findings)


# The operator reads this module too, and nothing of releases unless they are enabled.

OPERATOR: Final = "rollout-operator"
PART_OF: Final = "app.kubernetes.io/part-of"
STATUS_PORT: Final = 8001
METRICS_PORT: Final = "http-metrics"
NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_DOWNSCALE_PATH: Final = "/admission/prepare-downscale"
EVICTION_PATH: Final = "/admission/pod-eviction"
BUDGET_PATH: Final = "/admission/zpdb-validation"
ADMISSION_PATHS: Final = (NO_DOWNSCALE_PATH, PREPARE_DOWNSCALE_PATH, EVICTION_PATH, BUDGET_PATH)
"""By which webhooks of rollout operators are recognised."""


@unique
class Source(StrEnum):
    """Where a part of the snapshot comes from."""

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
    """Empty: that of the installation."""
    account: str
    """Its ServiceAccount."""
    arguments: tuple[str, ...] = ()
    """Command and arguments of the operator's container."""
    variables: Mapping[str, str] = {}
    """Of its environment, by name; a value from elsewhere is written as `$(NAME)`."""
    replicas: int = 1
    ready: int = 0

    @property
    def title(self) -> str:
        """Return how findings name it."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"Deployment {name}"


class ZoneSet(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet with all its keys, the misspelt keys too."""

    sts: StatefulSet
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    pod_labels: Mapping[str, str]
    """Of its template."""
    placed: PlacedSet | None = None
    """What says in which zone its pods run."""


class LabelledPod(msgspec.Struct, frozen=True, kw_only=True):
    """What selectors read of a pod."""

    name: str
    labels: Mapping[str, str] = {}
    is_ready: bool = False


class CallableService(msgspec.Struct, frozen=True, kw_only=True):
    """A Service, as far as webhooks, or the status page, are called through it."""

    name: str
    labels: Mapping[str, str] = {}
    ports: tuple[int, ...] = ()
    named_ports: Mapping[str, int] = {}
    has_endpoints: bool = True
    """Whether endpoints stand behind it: not where it only is another name."""

    @property
    def status_port(self) -> int:
        """Return the port of the status page of an operator; 0 where it is none of an operator.

        Charts name the Service after their release, and label it after themselves: ours and
        grafana's, under an alias, as a dependency, with `nameOverride` and `fullnameOverride`.
        """
        named = self.labels.get("app.kubernetes.io/name"), self.labels.get(PART_OF)
        is_operators = OPERATOR in named or OPERATOR in self.name
        is_operators |= self.labels.get("helm.sh/chart", "").startswith(f"{OPERATOR}-")
        if not is_operators:
            return 0
        return STATUS_PORT if STATUS_PORT in self.ports else self.named_ports.get(METRICS_PORT, 0)


class BundleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a `caBundle` holds."""

    problem: str = ""
    """Why it holds nothing that can be used; empty where it does."""
    ends: datetime | None = None
    """When the last of its certificates expires."""
    vouches: bool | None = None
    """Whether it has signed the certificate in the operator's Secret; None: that is not known."""


class HookRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of one configuration whose path is that of a rollout operator."""

    configuration: str
    """Kind and name."""
    name: str
    owner: str
    """The namespace that the label of the configuration names; empty: none."""
    path: str
    service_namespace: str = ""
    service: str = ""
    """Empty where a URL is called."""
    port: int = 443
    failure_policy: str = "Fail"
    timeout: timedelta = timedelta(seconds=10)
    selects: LabelSelector = LabelSelector()
    """Of namespaces."""
    bundle: BundleFacts | None = None
    """None where there is no `caBundle`."""


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    """The Lease of the operators of a namespace."""

    name: str
    holder: str
    """Empty: it was released."""
    renewed: datetime | None = None
    """By the clock of its holder; None where that is not known."""


class NativeBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget of Kubernetes' own."""

    name: str
    selector: LabelSelector | None = None
    """None selects nothing."""
    max_unavailable: str = ""
    """As it is written, `1` or `20%`; empty: not set. The same for the next field."""
    min_available: str = ""

    def takes(self, labels: Mapping[str, str]) -> bool:
        return self.selector is not None and self.selector.takes(labels)


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the operator has to be allowed to do."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    """Of the only object that it is about; empty: of all."""
    is_namespaced: bool = True
    is_of_process: bool = False
    """Whether it is needed in the operator's own namespace alone."""
    is_optional: bool = False
    """Whether the operator rolls out and answers reviews without it."""
    purpose: str
    """What does not work without it."""


class RightAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server says of a right."""

    account: str
    namespace: str = ""
    """Where the operator needs it; empty: in its own namespace, or in the cluster."""
    right: Right
    is_granted: bool


class ReachAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How the API server answered a dry run that webhooks review."""

    request: str
    """In words."""
    paths: tuple[str, ...]
    """Of the webhooks that it must have brought in."""
    error: str = ""
    """Empty where it was accepted."""
    must_be_refused: bool = False
    """Whether the request can only pass where the API server did not call the operator."""
    is_answered: bool = True
    """Whether the API server answered at all."""


class PodTrial(msgspec.Struct, frozen=True, kw_only=True):
    """How the API server answered a dry run that creates a pod of a StatefulSet."""

    set_name: str
    error: str = ""


class PathQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send one pod of a StatefulSet a GET that shows whether it can be prepared."""

    set_name: str
    target: Target
    pod: str = ""
    """Empty: none is ready."""


class PathAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a question."""

    question: PathQuestion
    status: int = 0
    """Of the pod's own answer; 0: it gave none."""
    problem: str = ""
    """What came instead."""
    is_lost: bool = False
    """Whether the API server did not get an answer of the pod."""


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the API server knows MultiAZRollouts."""

    is_served: bool = True
    """In the version that the operator reads."""
    versions: tuple[str, ...] = ()
    """That are served in its place; none: there is no definition, or it may not be read."""
    missing: tuple[str, ...] = ()
    """Fields of `status` that the definition lacks, such as `status.phase`."""


def _make_no_releases() -> "ReleaseObjects":
    from rollout_operator.model.release_plan import ReleaseObjects

    return ReleaseObjects()


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace, and what the cluster has for it."""

    namespace: str
    now: datetime
    unread: Mapping[Source, str] = {}
    """Why a part could not be read."""
    namespace_labels: Mapping[str, str] | None = None
    """None: there is no such namespace."""
    operators: tuple[OperatorDeployment, ...] = ()
    sets: tuple[ZoneSet, ...] = ()
    pods: tuple[LabelledPod, ...] = ()
    services: tuple[CallableService, ...] = ()
    ready_endpoints: Mapping[str, int] = {}
    """How many stand behind each Service."""
    hooks: tuple[HookRegistration, ...] = ()
    """Of the whole cluster."""
    lease: HeldLease | None = None
    native_budgets: tuple[NativeBudget, ...] = ()
    zone_budgets: tuple[Budget | FlawedBudget, ...] = ()
    policies: tuple[Policy | RefusedPolicy, ...] = ()
    unobeyed: frozenset[str] = frozenset()
    """Names of the policies that no operator has written a status of, for longer than it takes."""
    policy_kind: PolicyKind = PolicyKind()
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
        """Return the webhooks that are labelled for this namespace, or call a Service in it."""
        return tuple(hook for hook in self.hooks if self.is_own(hook))

    def is_own(self, hook: HookRegistration) -> bool:
        """Return whether a webhook is that of the operator of this namespace."""
        owners = {hook.owner, hook.service_namespace}
        if self.namespace in owners:
            return True
        # The API server also calls an operator elsewhere that looks after this namespace.
        homes = {operator.namespace for operator in self.operators if operator.namespace}
        return bool(homes & owners) and hook.selects.takes(self.all_labels)

    @property
    def all_labels(self) -> Mapping[str, str]:
        """Return the labels of the namespace, with that which the API server gives to each."""
        return {"kubernetes.io/metadata.name": self.namespace, **(self.namespace_labels or {})}

    @property
    def members(self) -> tuple[ZoneSet, ...]:
        """Return the StatefulSets that belong to a rollout group."""
        return tuple(sts for sts in self.sets if sts.sts.group is not None)
