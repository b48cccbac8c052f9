"""What a namespace looks like to a person, as data: the one description that every outlet renders.

The status page, its JSON, the command line, Events and the status of budgets show this tree and
word nothing themselves (D-75). It is made by `planning.description` from snapshots; times are
absolute, so that each outlet shows them as it likes. The field names are those of `/status.json`:
fields are added freely, and none is renamed or removed without a new `SCHEMA_VERSION`.

What Rollouts of `kuberik.com`, their schedules and HealthChecks look like to a person, as data.

A part of `model.description`, under the same promise: fields are added freely, and none is renamed
or removed. Reasons are those of conditions and Events, and the texts are theirs.

What is foreseen of Rollouts of `kuberik.com`: which version comes when, and what holds it.

A command prints these as JSON: fields are added freely, and none is renamed or removed.
"""

from enum import StrEnum, unique
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from rollout_operator.model.budget import ConditionDescription, Time
from rollout_operator.model.outcome import Code, Severity


@unique
class ReleasePhase(StrEnum):
    """What a Rollout is doing, in one word. What is worst comes last."""

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
    """That of the condition or the Event that says the same."""
    text: str
    remedy: str = ""
    """What a person can do; empty where there is nothing to do but to wait."""


class GateDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One RolloutGate of a Rollout."""

    name: str
    is_passing: bool
    text: str
    """Why it is closed, or what it lets through."""
    allowed: tuple[str, ...] | None = None
    """The only tags that it lets through, at most 20; None for all."""
    schedule: str = ""
    """The schedule that keeps it, by kind, namespace and name; empty where none does."""
    schedule_problem: str = ""
    """Why that schedule does not open it by itself; empty where it does."""
    opens: Time | None = None
    """When its schedule opens it; None where that is not known."""


class TargetDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One place of an object of Flux that carries the tag."""

    kind: str
    name: str
    variable: str = ""
    """Of a Kustomization: what is substituted."""
    tag: str | None = None
    """What stands there now."""
    waiting_for: str = ""
    """What Flux has yet to do until the tag runs; empty where it is through."""


class DeploymentDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a Rollout's history."""

    tag: str
    id: int | None = None
    version: str = ""
    """What the image says of itself; so `revision`."""
    revision: str = ""
    began: Time | None = None
    status: str = ""
    """That of the bake: `Deploying`, `InProgress`, `Succeeded`, `Failed` or `Cancelled`."""
    text: str = ""
    """What the bake waits for, or how it ended."""
    message: str = ""
    """What was said of the deployment."""
    by: str = ""
    """What requested it: a claim, and no proof."""
    bake_began: Time | None = None
    bake_ended: Time | None = None
    failed_checks: tuple[str, ...] = ()
    """The HealthChecks for which it failed, with what each said."""
    retries: int = 0


class SelectedCheckDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One HealthCheck, as a Rollout that selects it sees it."""

    name: str
    """Namespace and name."""
    status: str
    """`Healthy`, `Unhealthy` or `Pending`; empty where it was not evaluated yet."""
    text: str = ""


class ReleaseDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One Rollout."""

    name: str
    namespace: str
    phase: ReleasePhase
    headline: str
    """Why it does not go on, or what is in place: the one sentence to read first."""
    reason: str = ""
    """Of the headline."""
    tag: str = ""
    """The version that is deployed; empty where none is."""
    wanted: str = ""
    """The version that `spec.wantedVersion` pins."""
    next: str = ""
    """The version that is deployed as soon as nothing holds it back; empty where there is none."""
    candidates: tuple[str, ...] = ()
    """Tags newer than the deployed tag, the newest first; at most 20."""
    announced: str = ""
    """The tag that was announced last."""
    policy: str = ""
    """The image policy, by namespace and name."""
    is_suspended: bool = False
    requests: tuple[str, ...] = ()
    """Annotations that request something and have had no effect yet, with their values."""
    is_retry_requested: bool = False
    """Whether one of them requests that a deployment is tried again."""
    gates: tuple[GateDescription, ...] = ()
    checks: tuple[SelectedCheckDescription, ...] = ()
    """Those that it selects."""
    targets: tuple[TargetDescription, ...] = ()
    bake_ends: Time | None = None
    """When the bake that runs is over, if nothing fails."""
    deadline: Time | None = None
    """By when the bake has to start."""
    history: tuple[DeploymentDescription, ...] = ()
    """The newest first; at most 5."""
    waits: tuple[ReleaseWait, ...] = ()
    """The first is the headline."""
    conditions: tuple[ConditionDescription, ...] = ()

    @property
    def title(self) -> str:
        """Return its namespace and name."""
        return f"{self.namespace}/{self.name}"


class ScheduleDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One RolloutSchedule or, without a namespace, one ClusterRolloutSchedule."""

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
    """`Allow` or `Deny`; empty where it is invalid."""
    active_rules: tuple[str, ...] = ()
    changes: Time | None = None
    """When its gates open or close next; None where they stay as they are."""
    time_zone: str = ""
    rollouts: int = 0
    """How many Rollouts it concerns."""
    gates: tuple[str, ...] = ()
    """The gates that it keeps, at most 50."""
    conditions: tuple[ConditionDescription, ...] = ()

    @property
    def title(self) -> str:
        """Return its kind, its namespace where it has one, and its name."""
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}"


class HealthCheckDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One HealthCheck."""

    name: str
    namespace: str
    status: str
    """`Healthy`, `Unhealthy` or `Pending`; empty where it was not evaluated yet."""
    text: str = ""
    check_class: str = ""
    """By what its status is written; empty for anything outside."""
    object: str = ""
    """What it looks at, as its annotation names it."""
    changed: Time | None = None
    """When the status became another."""
    failed: Time | None = None
    """When the newest failure that was seen happened."""
    rollouts: tuple[str, ...] = ()
    """Those that select it, by namespace and name."""

    @property
    def title(self) -> str:
        """Return its namespace and name."""
        return f"{self.namespace}/{self.name}"


SCHEMA_VERSION: Final = 1
# The part that says which process acts.
ELECTION_PART: Final = "election"


@unique
class Phase(StrEnum):
    """What a group is doing, in one word. What is worst comes last."""

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
    """What a pod is, in one word; the revision stands beside it."""

    READY = "ready"
    STARTING = "starting"
    NOT_READY = "not ready"
    GOING = "going"
    """It is terminating, or was allowed to go and does not show it yet."""
    MISSING = "missing"
    """The zone wants it, and it does not exist."""
    UNREADABLE = "unreadable"


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why something does not go on, or is odd."""

    code: Code
    text: str
    severity: Severity = Severity.INFO
    zone: str = ""
    """Name of the StatefulSet that it is about; empty where it is about the group."""
    remedy: str = ""
    """What a person can do; empty where there is nothing to do but to wait."""
    link: str = ""
    """Where the documents explain the code."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What is done now, or goes next."""

    code: Code
    text: str
    zone: str = ""
    pod: str = ""
    """Name of the pod that it is about; empty where it is about the zone."""
    is_waiting: bool = False
    """Whether it goes next, and something has to happen first."""


class PodDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One desired ordinal of a zone."""

    name: str
    ordinal: int
    state: PodState
    revision: str = ""
    """Empty where it is not known."""
    is_updated: bool = False
    why: str = ""
    """Why it is not ready; empty where it is."""
    since: Time | None = None
    """Since when it is ready, or exists; None where neither is known."""


class ZoneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One StatefulSet of a group."""

    name: str
    desired: int
    ready: int
    """Desired pods that are proven ready."""
    updated: int
    """Desired pods that exist at the update revision, ready or not."""
    outdated: int
    """Desired pods that exist at another revision, also those on their way out."""
    max_unavailable: int
    is_paused: bool = False
    current_revision: str = ""
    update_revision: str = ""
    is_busy: bool = False
    """Whether it is this zone's turn."""
    pods: tuple[PodDescription, ...] = ()
    """The lowest desired ordinals, as many as `planning.describe_groups.share_pods` gives it."""


class DownscaleDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A downscale that was allowed, or for which pods are prepared, and that has not happened."""

    zone: str
    text: str


class GroupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout group."""

    name: str
    namespace: str = ""
    """Empty where one namespace is watched."""
    phase: Phase
    headline: str
    """Why it does not go on, or what it does: the one sentence to read first."""
    code: Code | None = None
    """Of the headline; None where nothing has been decided."""
    since: Time | None = None
    """Since when the leading reason is the same; None where that is not known."""
    looked: Time
    """When the decision below was made."""
    desired: int
    ready: int
    updated: int
    began: Time | None = None
    """When the first pod of this rollout was replaced, as far as the pods show it."""
    expected_end: Time | None = None
    """When all pods will be ready at the pace so far; None where it is unknown."""
    zones: tuple[ZoneDescription, ...] = ()
    underway_since: Time | None = None
    """Since when the steps are being carried out; None where they are not yet, or not here."""
    steps: tuple[Step, ...] = ()
    """At most `planning.describe_groups.MOST_STEPS`."""
    waits: tuple[Waiting, ...] = ()
    problems: tuple[Waiting, ...] = ()
    downscale: DownscaleDescription | None = None
    policy: str | UnsetType = UNSET
    """The MultiAZRollout that replaces its pods, by namespace and name; absent where none does."""

    @property
    def title(self) -> str:
        """Return its name, after that of its namespace where there are several."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one pod or StatefulSet may move now, and what has to happen first."""

    name: str
    answer: str
    code: Code
    """Of the answer."""
    may_go: bool = False
    """Whether it is deleted now, or a pod of it."""
    conditions: tuple[Waiting, ...] = ()
    """What has to happen first, in the order in which it does; empty where nothing has to."""


class BudgetDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One ZoneAwarePodDisruptionBudget."""

    name: str
    namespace: str = ""
    """Empty where one namespace is watched."""
    is_valid: bool
    maximum: str
    """As a person wrote it: `1` or `20%`; `by partition` stands in `text`."""
    zones: int
    """StatefulSets that it selects."""
    pods: int
    unavailable: int
    """Of them, those that count as down."""
    allowed: int
    """How many more pods may be disrupted now, at most."""
    text: str
    """That of the first of `waits`, where there are any."""
    waits: tuple[Waiting, ...] = ()

    @property
    def title(self) -> str:
        """Return its name, after that of its namespace where there are several."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class PolicySetDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One StatefulSet of a MultiAZRollout."""

    name: str
    source: str
    """What says its zone, such as `Label`."""
    desired: int
    updated: int
    outdated: int
    unavailable: int


class PolicyZoneDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One zone of a MultiAZRollout."""

    name: str
    order: int
    """Its place among the zones, from 1."""
    state: str
    """`Pending`, `Updating`, `Updated` or `Blocked`."""
    sets: tuple[PolicySetDescription, ...] = ()
    """In the order of their updates."""


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
    """One MultiAZRollout."""

    name: str
    namespace: str
    phase: str
    """That of its status; empty where nothing has been decided."""
    headline: str
    """Why it does not go on, or what it does: the one sentence to read first."""
    code: Code | None = None
    """Of the headline; None where it is refused, or only its status is known."""
    reason: str = ""
    """Of its condition `Ready`."""
    desired: int = 0
    updated: int = 0
    ready: int = 0
    began: Time | None = None
    """When the rollout began that runs, or ran last."""
    completed: Time | None = None
    """None while it runs."""
    groups: tuple[str, ...] = ()
    """The rollout groups whose pods it replaces."""
    zones: tuple[PolicyZoneDescription, ...] = ()
    """In the order of their updates."""
    unknown_zones: tuple[str, ...] = ()
    """Of `azOrder`, those without a StatefulSet."""
    batch: BatchDescription | None = None
    """The last batch, open or complete."""
    next_batch: Time | None = None
    """When the pause is over, while one is."""
    is_paused: bool = False
    waits: tuple[Waiting, ...] = ()
    conditions: tuple[ConditionDescription, ...] = ()

    @property
    def title(self) -> str:
        """Return its namespace and name."""
        return f"{self.namespace}/{self.name}"


class NamespaceDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One of several namespaces that a process watches."""

    name: str
    is_ready: bool
    is_acting: bool
    """Whether this replica acts there, and not another replica."""
    missing: tuple[str, ...] = ()
    """What it lacks to be ready; the others go on without it."""


class PartReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of the process says of itself."""

    name: str
    """Such as `election`, or `pods watch`."""
    text: str

    @property
    def line(self) -> str:
        """Return both on one line."""
        return f"{self.name}: {self.text}"


class OperatorDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The process that answers; absent where the objects were read without one."""

    version: str
    is_ready: bool
    is_acting: bool
    """Whether this replica acts, and not another replica."""
    missing: tuple[str, ...] = ()
    """What it lacks to be ready."""
    parts: tuple[str, ...] = ()
    """What its parts say of themselves: watches, election, certificates, API client."""
    reports: tuple[PartReport, ...] = ()
    """The same, by part."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace at one moment, or all that a process watches."""

    schema_version: int = SCHEMA_VERSION
    namespace: str
    """Where several are watched, that of the operator."""
    now: Time
    operator: OperatorDescription | None = None
    groups: tuple[GroupDescription, ...] = ()
    budgets: tuple[BudgetDescription, ...] = ()
    namespaces: tuple[NamespaceDescription, ...] = ()
    """Empty where one is watched."""
    policies: tuple[PolicyDescription, ...] | UnsetType = UNSET
    """Absent where MultiAZRollouts are not obeyed."""
    releases: tuple[ReleaseDescription, ...] | UnsetType = UNSET
    """Rollouts of `kuberik.com`; absent, as are the next two, where releases are not made."""
    schedules: tuple[ScheduleDescription, ...] | UnsetType = UNSET
    health_checks: tuple[HealthCheckDescription, ...] | UnsetType = UNSET

    def list_policies(self) -> tuple[PolicyDescription, ...]:
        """Return the MultiAZRollouts, none where they are not obeyed."""
        return () if isinstance(self.policies, UnsetType) else self.policies

    def list_releases(self) -> tuple[ReleaseDescription, ...]:
        """Return the Rollouts of releases, none where releases are not made."""
        return () if isinstance(self.releases, UnsetType) else self.releases

    def list_schedules(self) -> tuple[ScheduleDescription, ...]:
        """Return the schedules of releases, none where releases are not made."""
        return () if isinstance(self.schedules, UnsetType) else self.schedules

    def list_checks(self) -> tuple[HealthCheckDescription, ...]:
        """Return the HealthChecks of releases, none where releases are not made."""
        return () if isinstance(self.health_checks, UnsetType) else self.health_checks
