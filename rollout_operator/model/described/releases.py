"""What Rollouts of `kuberik.com`, their schedules and HealthChecks look like to a person, as data.

A part of `model.description`, under the same promise: fields are added freely, and none is renamed
or removed. Reasons are those of conditions and Events, and the texts are theirs.
"""

from enum import StrEnum, unique

import msgspec

from rollout_operator.model.condition import ConditionDescription, Time


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
