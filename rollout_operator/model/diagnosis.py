"""What `rollout-operator doctor` reads of a namespace, and what it finds.

`planning.doctor` decides, and `planning/findings.txt` explains each code. What could not be read is
named in `unread`, and never taken for absent.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.budget import Budget, FlawedBudget, PlacedSet
from rollout_operator.model.lease import LEASE_DURATION, Lease
from rollout_operator.model.names import HEALTH_CHECK, InvalidInput
from rollout_operator.model.objects import LabelSelector, StatefulSet
from rollout_operator.model.outcome import Severity
from rollout_operator.model.policy import Policy, RefusedPolicy
from rollout_operator.model.units import parse_rfc3339


@unique
class FindingCode(StrEnum):
    """What can be wrong with an installation. Scripts compare these: never renamed."""

    # the namespace and its operator
    NAMESPACE_MISSING = "namespace_missing"
    OPERATOR_MISSING = "operator_missing"
    OPERATOR_NOT_READY = "operator_not_ready"
    TWO_OPERATORS = "two_operators"
    RIGHT_MISSING = "right_missing"
    OPTIONAL_RIGHT_MISSING = "optional_right_missing"
    # webhooks as they are registered
    WEBHOOKS_MISSING = "webhooks_missing"
    WEBHOOK_OF_OTHERS = "webhook_of_others"
    WEBHOOK_CA_MISSING = "webhook_ca_missing"
    WEBHOOK_CA_BROKEN = "webhook_ca_broken"
    WEBHOOK_CA_EXPIRED = "webhook_ca_expired"
    WEBHOOK_CA_DIFFERS = "webhook_ca_differs"
    CERTIFICATE_MISSING = "certificate_missing"
    WEBHOOK_IGNORES_FAILURE = "webhook_ignores_failure"
    GUARD_WITHOUT_WEBHOOK = "guard_without_webhook"
    # webhooks as the API server reaches them
    WEBHOOK_TIMED_OUT = "webhook_timed_out"
    WEBHOOK_UNREACHABLE = "webhook_unreachable"
    WEBHOOK_NOT_CALLED = "webhook_not_called"
    # groups
    SINGLE_ZONE = "single_zone"
    GROUP_SHARED = "group_shared"
    NOT_ON_DELETE = "not_on_delete"
    ODD_VALUE = "odd_value"
    KEY_UNKNOWN = "key_unknown"
    KEY_MISPLACED = "key_misplaced"
    PREPARE_INCOMPLETE = "prepare_incomplete"
    LEADING_ZONE_UNKNOWN = "leading_zone_unknown"
    # objects of other kinds
    KIND_OUTDATED = "kind_outdated"
    BAD_HEALTH_CHECK = "bad_health_check"
    POLICY_KIND_MISSING = "policy_kind_missing"
    POLICIES_NOT_OBEYED = "policies_not_obeyed"
    POLICY_REFUSED = "policy_refused"
    POLICY_SELECTS_NOTHING = "policy_selects_nothing"
    RELEASE_KIND_MISSING = "release_kind_missing"
    RELEASES_NOT_MADE = "releases_not_made"
    RELEASES_MADE_TWICE = "releases_made_twice"
    RELEASE_REFUSED = "release_refused"
    RELEASE_OBJECT_UNREADABLE = "release_object_unreadable"
    SCHEDULE_INVALID = "schedule_invalid"
    ZONE_BUDGET_INVALID = "zone_budget_invalid"
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
KUBERIK: Final = "rollout-controller"
PART_OF: Final = "app.kubernetes.io/part-of"
STATUS_PORT: Final = 8001
METRICS_PORT: Final = "http-metrics"
NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_DOWNSCALE_PATH: Final = "/admission/prepare-downscale"
EVICTION_PATH: Final = "/admission/pod-eviction"
BUDGET_PATH: Final = "/admission/zpdb-validation"
HEALTH_CHECK_PATH: Final = "/admission/rollout-health-check-validation"
# Webhooks of rollout operators are recognised by these.
ADMISSION_PATHS: Final = (
    *(NO_DOWNSCALE_PATH, PREPARE_DOWNSCALE_PATH, EVICTION_PATH, BUDGET_PATH),
    HEALTH_CHECK_PATH,
)

POLICIES_FLAG: Final = "multi-az-rollouts.enabled"
RELEASES_FLAG: Final = "releases.enabled"
LEASE_FLAG: Final = "leader-election.lease-name"
_NAMESPACE_FLAGS: Final = ("kubernetes.namespace", "kubernetes-namespace")
_WATCHED: Final = "WATCH_NAMESPACE"
_NAME: Final = "OPERATOR_NAME"
_VARIABLES: Final = (_WATCHED, _NAME, "LOG_LEVEL", "METRICS_PORT")
# A value that refers to a variable or an object: it is not known here.
_ELSEWHERE: Final = "$("
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})


@unique
class Source(StrEnum):
    """A part of the snapshot."""

    NAMESPACE = "namespace"
    DEPLOYMENTS = "deployments"
    STATEFULSETS = "statefulsets"
    WEBHOOKS = "webhook configurations"
    LEASE = "lease"
    ZONE_BUDGETS = "zoneawarepoddisruptionbudgets"
    RIGHTS = "rights of the operator"
    CLUSTER_RIGHTS = "rights of the operator in the cluster"
    REACH = "dry runs that webhooks answer"
    POD_TRIALS = "dry runs of pods"
    POLICIES = "multiazrollouts"
    GATES = "rollouthealthchecks"
    DEFINITIONS = "customresourcedefinitions"
    RELEASES = "rollouts of releases"
    FLUX = "objects of Flux"


class OperatorDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment that runs an operator, ours or grafana's, of any version."""

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

    @property
    def is_acting(self) -> bool:
        """Return whether it may act: shadows and Deployments without replicas do not."""
        return self.replicas > 0 and self.find("mode") != "shadow"

    def find(self, *flags: str) -> str | None:
        """Return the value that one of the flags was given last, None where none was given."""
        values = [value for name, value in self._list_flags() if name in flags]
        return values[-1] if values else None

    def is_on(self, flag: str, *, default: bool = False) -> bool:
        value = self.find(flag)
        return default if value is None else value in _TRUE

    def list_watched(self, home: str) -> tuple[str, ...]:
        """Return the namespaces that it watches, `home` where they are not known."""
        text = "" if self.find(*_NAMESPACE_FLAGS) else self._get(_WATCHED)
        names = filter(None, map(str.strip, text.split(",")))
        return tuple(dict.fromkeys(names)) or (home,)

    def watches(self, namespace: str) -> bool:
        """Return whether it looks after the namespace of the installation."""
        named = self.find(*_NAMESPACE_FLAGS) or self.variables.get(_WATCHED)
        if named is None or _ELSEWHERE in named:
            return not self.namespace  # its own, as the shipped Deployment says
        return not named.strip() or namespace in map(str.strip, named.split(","))

    def _list_flags(self) -> Iterator[tuple[str, str]]:
        """Yield flags with their values; one that stands alone is `true`."""
        variables = [name for name in _VARIABLES if self.variables.get(name, "").strip()]
        if variables or _WATCHED in self.variables:  # all namespaces, where that one is empty
            yield POLICIES_FLAG, "true"
            yield LEASE_FLAG, self._get(_NAME) or OPERATOR
        for place, word in enumerate(self.arguments):
            if word.startswith("-"):
                name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
                following = self.arguments[place + 1] if place + 1 < len(self.arguments) else "-"
                if not equals:
                    value = "true" if following.startswith("-") else following
                yield name, value

    def _get(self, name: str) -> str:
        text = self.variables.get(name, "").strip()
        return "" if _ELSEWHERE in text else text


class ZoneSet(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet with all its labels and annotations, misspelt ones included."""

    sts: StatefulSet
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    pod_labels: Mapping[str, str]
    """Of its template."""
    placed: PlacedSet | None = None
    pod: dict[str, object] = {}
    """A pod as it would create one, under another name; empty if there is no template."""

    @property
    def title(self) -> str:
        return f"StatefulSet {self.sts.name}"


class CallableService(msgspec.Struct, frozen=True, kw_only=True):
    """A Service through which the status page may be called."""

    name: str
    labels: Mapping[str, str] = {}
    ports: tuple[int, ...] = ()
    named_ports: Mapping[str, int] = {}

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
    """Empty where a URL is called."""
    failure_policy: str = "Fail"
    selects: LabelSelector = LabelSelector()
    """Namespaces."""
    bundle: BundleFacts | None = None


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """A permission that the operator needs."""

    verb: str
    group: str
    resource: str
    """With its subresource, as a rule of a Role names it."""
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


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the API server serves MultiAZRollouts."""

    is_served: bool = True
    """In the version that the operator reads."""
    versions: tuple[str, ...] = ()
    """Served in its place; empty if there is no definition, or it may not be read."""


class ReleaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What `doctor` looks at of releases; the operator reads this module where they are off."""

    rollouts: tuple[str, ...] = ()
    """Names, last those of Rollouts that cannot be read."""
    absent: tuple[str, ...] = ()
    """Kinds of `kuberik.com` that the API server does not know."""
    problems: tuple[tuple[FindingCode, str, str], ...] = ()
    """Objects that are not obeyed: code, title and why."""
    needs: frozenset[str] = frozenset()
    """Components of rights that these objects ask for."""


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
    hooks: tuple[HookRegistration, ...] = ()
    """Of the whole cluster."""
    lease: Lease | None = None
    """Read where no Deployment acts."""
    missing_secret: str = ""
    """Name of the Secret that the first operator here serves from, where there is none."""
    zone_budgets: tuple[Budget | FlawedBudget, ...] = ()
    policies: tuple[Policy | RefusedPolicy, ...] = ()
    unobeyed: frozenset[str] = frozenset()
    """Policies whose status no operator has written for too long."""
    policy_kind: PolicyKind = PolicyKind()
    missing_fields: Mapping[str, tuple[str, ...]] = {}
    """By kind, what its CustomResourceDefinition lacks, such as `status.phase`."""
    releases: ReleaseFacts = ReleaseFacts()
    kuberik: tuple[str, ...] = ()
    """Deployments of kuberik's controller, by namespace and name."""
    broken_gates: Mapping[str, str] = {}
    """By StatefulSet, why the RolloutHealthCheck that it names cannot be obeyed."""
    rights: tuple[RightAnswer, ...] = ()
    reach: tuple[ReachAnswer, ...] = ()
    pod_trials: tuple[PodTrial, ...] = ()

    @property
    def gated(self) -> tuple[ZoneSet, ...]:
        """Return what names a RolloutHealthCheck."""
        return tuple(each for each in self.sets if each.annotations.get(HEALTH_CHECK, "").strip())

    @property
    def acting(self) -> tuple[OperatorDeployment, ...]:
        return tuple(operator for operator in self.operators if operator.is_acting)

    def are_any_on(self, flag: str) -> bool:
        """Return whether an operator here is started with a flag."""
        return any(operator.is_on(flag) for operator in self.acting)

    @property
    def has_live_lease(self) -> bool:
        """Return whether some process acts for the namespace, wherever it runs."""
        if self.lease is None or not self.lease.holder:
            return False
        try:
            renewed = parse_rfc3339(self.lease.renewed)
        except InvalidInput:
            return False
        return self.now - renewed <= 2 * LEASE_DURATION  # two clocks are compared here

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
    def groups(self) -> Mapping[str, list[ZoneSet]]:
        """Return the StatefulSets in rollout groups, by name."""
        groups: dict[str, list[ZoneSet]] = {}
        for each in sorted(self.members, key=lambda each: (each.sts.group or "", each.sts.name)):
            groups.setdefault(f"{each.sts.group}", []).append(each)
        return groups

    @property
    def members(self) -> tuple[ZoneSet, ...]:
        return tuple(each for each in self.sets if each.sts.group is not None)
