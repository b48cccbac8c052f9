"""What a namespace looks like to a person, as data: one description for every outlet.

Status page, JSON, command line, Events and budget status show this tree and word nothing themselves
(D-75). `planning.describe_*` make it from snapshots; times are absolute. The field names are those
of `/status.json`: fields are added freely, but none is renamed or removed without a new
`SCHEMA_VERSION`.
"""

from enum import StrEnum, unique
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from rollout_operator.model.budget import ConditionDescription, Time
from rollout_operator.model.outcome import Code, Severity


@unique
class ReleasePhase(StrEnum):
    """The worst comes last."""

    DEPLOYED = "deployed"
    """The current version is through, and none that is newer waits."""
    BAKING = "baking"
    DEPLOYING = "deploying"
    """The current version is written, and Flux or health is waited for."""
    WAITING = "waiting"
    """Gates, health or time hold the next version back."""
    HELD = "held"
    """A person must change something."""
    FAILED = "failed"
    """The health of the current version was found wanting."""


class ReleaseWait(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a Rollout does not go on."""

    reason: str
    """As in the condition or Event."""
    text: str
    remedy: str = ""
    """What a person can do; empty to wait."""


class GateDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    is_passing: bool
    text: str
    """Why it is closed, or what it lets through."""
    allowed: tuple[str, ...] | None = None
    """The only tags that it lets through, at most 20; None for all."""
    schedule: str = ""
    """The schedule that keeps it, by kind, namespace and name."""
    schedule_problem: str = ""
    """Why that schedule does not open it by itself."""
    opens: Time | None = None
    """When its schedule opens it."""


class TargetDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a Flux object that carries the tag."""

    kind: str
    name: str
    variable: str = ""
    """Substituted by a Kustomization."""
    tag: str | None = None
    waiting_for: str = ""
    """What Flux must still do before the tag runs."""


class DeploymentDescription(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a Rollout's history."""

    tag: str
    id: int | None = None
    version: str = ""
    """From the image, as is `revision`."""
    revision: str = ""
    began: Time | None = None
    status: str = ""
    """Of the bake: `Deploying`, `InProgress`, `Succeeded`, `Failed` or `Cancelled`."""
    text: str = ""
    """What the bake waits for, or how it ended."""
    message: str = ""
    by: str = ""
    """Who requested it, unverified."""
    bake_began: Time | None = None
    bake_ended: Time | None = None
    failed_checks: tuple[str, ...] = ()
    """The HealthChecks that failed it, with their messages."""
    retries: int = 0


class SelectedCheckDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A HealthCheck that a Rollout selects."""

    name: str
    """Namespace and name."""
    status: str
    """`Healthy`, `Unhealthy` or `Pending`; empty if not evaluated yet."""
    text: str = ""


class ReleaseDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str
    phase: ReleasePhase
    headline: str
    """Why it does not go on, or what is deployed: the sentence to read first."""
    reason: str = ""
    """Of the headline."""
    tag: str = ""
    """The deployed version."""
    wanted: str = ""
    """Pinned by `spec.wantedVersion`."""
    next: str = ""
    """The version deployed as soon as nothing holds it back."""
    candidates: tuple[str, ...] = ()
    """Newer tags, newest first; at most 20."""
    announced: str = ""
    """The tag announced last."""
    policy: str = ""
    """The image policy, by namespace and name."""
    is_suspended: bool = False
    requests: tuple[str, ...] = ()
    """Annotations that request something and had no effect yet, with their values."""
    is_retry_requested: bool = False
    gates: tuple[GateDescription, ...] = ()
    checks: tuple[SelectedCheckDescription, ...] = ()
    targets: tuple[TargetDescription, ...] = ()
    bake_ends: Time | None = None
    """When the running bake is over, if nothing fails."""
    deadline: Time | None = None
    """When the bake must have started."""
    history: tuple[DeploymentDescription, ...] = ()
    """Newest first; at most 5."""
    waits: tuple[ReleaseWait, ...] = ()
    """The first is the headline."""
    conditions: tuple[ConditionDescription, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


class ScheduleDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A RolloutSchedule or, without a namespace, a ClusterRolloutSchedule."""

    kind: str
    name: str
    namespace: str = ""
    is_open: bool
    """Whether its gates pass now."""
    text: str
    """Why it is invalid, or until when it is open or closed, and by which rules."""
    reason: str = ""
    """Of its condition `Ready`."""
    is_active: bool = False
    """Whether one of its rules matches now."""
    action: str = ""
    """`Allow` or `Deny`; empty if it is invalid."""
    active_rules: tuple[str, ...] = ()
    changes: Time | None = None
    """When its gates open or close next."""
    time_zone: str = ""
    rollouts: int = 0
    """Number of Rollouts it applies to."""
    gates: tuple[str, ...] = ()
    """At most 50."""
    conditions: tuple[ConditionDescription, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"


class HealthCheckDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str
    status: str
    """`Healthy`, `Unhealthy` or `Pending`; empty if not evaluated yet."""
    text: str = ""
    check_class: str = ""
    """What writes its status; empty for anything outside."""
    object: str = ""
    """What it looks at, as in its annotation."""
    changed: Time | None = None
    """When the status changed."""
    failed: Time | None = None
    """When the newest failure happened."""
    rollouts: tuple[str, ...] = ()
    """Those that select it, by namespace and name."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


SCHEMA_VERSION: Final = 1
# The part that says which process acts.
ELECTION_PART: Final = "election"


@unique
class Phase(StrEnum):
    """What a group is doing; the worst comes last."""

    ROLLED_OUT = "rolled out"
    """All pods are ready at the update revision, and nothing is due."""
    ROLLING_OUT = "rolling out"
    """Pods are being replaced, or will be as soon as those that start are ready."""
    SCALING = "scaling"
    """Pods of a downscale or an upscale come or go, and nothing is outdated."""
    WAITING = "waiting"
    """Time or the cluster will change it."""
    HELD = "held"
    """A person must change something."""


@unique
class PodState(StrEnum):
    READY = "ready"
    STARTING = "starting"
    NOT_READY = "not ready"
    GOING = "going"
    """It is terminating, or was allowed to go and does not show it yet."""
    MISSING = "missing"
    """The zone wants it, and it does not exist."""
    UNREADABLE = "unreadable"


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why something does not go on, or is odd."""

    code: Code
    text: str
    severity: Severity = Severity.INFO
    zone: str = ""
    """Its StatefulSet; empty where it is about the group."""
    remedy: str = ""
    """What a person can do; empty to wait."""
    link: str = ""
    """Where the documents explain the code."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is done now, or next."""

    code: Code
    text: str
    zone: str = ""
    pod: str = ""
    """Empty where it is about the zone."""
    is_waiting: bool = False
    """Whether something must happen first."""


class PodDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One desired ordinal of a zone."""

    name: str
    ordinal: int
    state: PodState
    revision: str = ""
    is_updated: bool = False
    why: str = ""
    """Why it is not ready."""
    since: Time | None = None
    """Since when it is ready, or is not; absent where that is not known."""


class ZoneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One StatefulSet of a group."""

    name: str
    desired: int
    ready: int
    """Proven ready."""
    updated: int
    """At the update revision, ready or not."""
    outdated: int
    """At another revision, terminating or not."""
    max_unavailable: int
    is_paused: bool = False
    current_revision: str = ""
    update_revision: str = ""
    is_busy: bool = False
    """Whether it is this zone's turn."""
    pods: tuple[PodDescription, ...] = ()
    """The lowest ordinals, as many as `planning.describe_groups.share_pods` allows."""


class DownscaleDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale that was allowed or is being prepared, and has not happened."""

    zone: str
    text: str


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str = ""
    """Empty where one namespace is watched."""
    phase: Phase
    headline: str
    """Why it does not go on, or what it does: the sentence to read first."""
    code: Code | None = None
    """Of the headline."""
    since: Time | None = None
    """Since when the leading reason is the same."""
    looked: Time
    """When this was decided."""
    desired: int
    ready: int
    updated: int
    began: Time | None = None
    """When the first pod was replaced, as far as the pods show."""
    expected_end: Time | None = None
    """When all pods will be ready at the pace so far."""
    zones: tuple[ZoneDescription, ...] = ()
    underway_since: Time | None = None
    """Since when the steps are being carried out here."""
    steps: tuple[Step, ...] = ()
    """At most `planning.describe_groups.MOST_STEPS`."""
    waits: tuple[Waiting, ...] = ()
    problems: tuple[Waiting, ...] = ()
    downscale: DownscaleDescription | None = None
    policy: str | UnsetType = UNSET
    """The MultiAZRollout that replaces its pods, by namespace and name."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one pod or StatefulSet may move now, and what must happen first."""

    name: str
    answer: str
    code: Code
    """Of the answer."""
    may_go: bool = False
    """Whether it is deleted now, or a pod of it."""
    conditions: tuple[Waiting, ...] = ()
    """What must happen first, in order."""


class BudgetDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str = ""
    """Empty where one namespace is watched."""
    is_valid: bool
    maximum: str
    """`1` or `20%`, as written."""
    zones: int
    """Number of selected StatefulSets."""
    pods: int
    unavailable: int
    """Number of pods that count as down."""
    allowed: int
    """How many more pods may be disrupted now, at most."""
    text: str
    """Of the first of `waits`, if any."""
    waits: tuple[Waiting, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class PolicySetDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet of a MultiAZRollout."""

    name: str
    source: str
    """What gives its zone, such as `Label`."""
    desired: int
    updated: int
    outdated: int
    unavailable: int


class PolicyZoneDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    order: int
    """From 1."""
    state: str
    """`Pending`, `Updating`, `Updated` or `Blocked`."""
    sets: tuple[PolicySetDescription, ...] = ()
    """In update order."""


class BatchDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that a MultiAZRollout replaces together."""

    number: int
    zone: str
    stateful_set: str
    pods: tuple[str, ...]
    began: Time | None = None
    completed: Time | None = None
    """None while it is open."""


class PolicyDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str
    phase: str
    """Of its status; empty before the first decision."""
    headline: str
    """Why it does not go on, or what it does: the sentence to read first."""
    code: Code | None = None
    """Of the headline; None if it is refused, or only its status is known."""
    reason: str = ""
    """Of its condition `Ready`."""
    desired: int = 0
    updated: int = 0
    ready: int = 0
    began: Time | None = None
    """Of the current or last rollout."""
    completed: Time | None = None
    """None while it runs."""
    groups: tuple[str, ...] = ()
    """The rollout groups whose pods it replaces."""
    zones: tuple[PolicyZoneDescription, ...] = ()
    """In update order."""
    unknown_zones: tuple[str, ...] = ()
    """Zones in `azOrder` without a StatefulSet."""
    batch: BatchDescription | None = None
    """The last batch, open or complete."""
    next_batch: Time | None = None
    """When the current pause is over."""
    is_paused: bool = False
    waits: tuple[Waiting, ...] = ()
    conditions: tuple[ConditionDescription, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


class NamespaceDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One of several watched namespaces."""

    name: str
    is_ready: bool
    is_acting: bool
    """Whether this replica acts there."""
    missing: tuple[str, ...] = ()
    """What it lacks to be ready; the others go on without it."""


class PartReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a part of the process reports."""

    name: str
    """Such as `election`, or `pods watch`."""
    text: str

    @property
    def line(self) -> str:
        return f"{self.name}: {self.text}"


class OperatorDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The process that answers; absent where the objects were read without one."""

    version: str
    is_ready: bool
    is_acting: bool
    """Whether this replica acts."""
    missing: tuple[str, ...] = ()
    """What it lacks to be ready."""
    parts: tuple[str, ...] = ()
    """Reports of watches, election, certificates, API client."""
    reports: tuple[PartReport, ...] = ()
    """The same, by part."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace at one moment, or all that a process watches."""

    schema_version: int = SCHEMA_VERSION
    namespace: str
    """The operator's own where several are watched."""
    now: Time
    operator: OperatorDescription | None = None
    groups: tuple[GroupDescription, ...] = ()
    budgets: tuple[BudgetDescription, ...] = ()
    namespaces: tuple[NamespaceDescription, ...] = ()
    """Empty where one is watched."""
    policies: tuple[PolicyDescription, ...] | UnsetType = UNSET
    """Absent where MultiAZRollouts are not obeyed."""
    releases: tuple[ReleaseDescription, ...] | UnsetType = UNSET
    """Rollouts of `kuberik.com`; absent, as the next two, where releases are off."""
    schedules: tuple[ScheduleDescription, ...] | UnsetType = UNSET
    health_checks: tuple[HealthCheckDescription, ...] | UnsetType = UNSET

    def list_policies(self) -> tuple[PolicyDescription, ...]:
        return () if isinstance(self.policies, UnsetType) else self.policies

    def list_releases(self) -> tuple[ReleaseDescription, ...]:
        return () if isinstance(self.releases, UnsetType) else self.releases

    def list_schedules(self) -> tuple[ScheduleDescription, ...]:
        return () if isinstance(self.schedules, UnsetType) else self.schedules

    def list_checks(self) -> tuple[HealthCheckDescription, ...]:
        return () if isinstance(self.health_checks, UnsetType) else self.health_checks
