"""A ZoneAwarePodDisruptionBudget, its status and records on pods; conditions, placement and Events.

`model.decode.custom` reads budgets and refuses bad ones; `kube.events` writes Events.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Annotated

import msgspec
from msgspec import Meta

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import selects
from rollout_operator.model.outcome import Severity

NodeTerm = Mapping[str, tuple[str, ...]]
"""A term of a required node affinity: the values that it allows for each label of nodes."""


@unique
class ZoneSource(StrEnum):
    """What gives the zone of a StatefulSet. Scripts compare these."""

    LABEL = "Label"
    """The topology label of the StatefulSet or of its pods."""
    NODE_SELECTOR = "NodeSelector"
    NODE_AFFINITY = "NodeAffinity"
    NODES = "Nodes"
    ZONE_LABEL = "ZoneLabel"
    NAME_SUFFIX = "NameSuffix"
    SET_NAME = "StatefulSetName"
    """Nothing does: it is a zone of its own."""
    NONE = ""


class PlacedSet(msgspec.Struct, frozen=True, kw_only=True):
    """What a StatefulSet says of the zone in which its pods run."""

    name: str
    labels: Mapping[str, str] = {}
    pod_labels: Mapping[str, str] = {}
    """Of the template, as is the next field."""
    node_selector: Mapping[str, str] = {}
    node_terms: tuple[NodeTerm, ...] = ()
    """Of the required node affinity; any one suffices."""
    pod_nodes: tuple[str, ...] = ()
    """Nodes of its scheduled pods, where they were read."""


Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time without a zone is refused where a description is read: it compares with no other."""


class StatusCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    type: str
    status: str
    """`True` or `False`."""
    reason: str = ""
    """One of our codes in CamelCase, such as `DisruptionBudgetUsed`."""
    message: str = ""
    last_transition_time: str = ""
    """When `status` changed, as RFC 3339."""
    observed_generation: int = 0


class ConditionDescription(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    is_true: bool
    reason: str
    message: str
    since: Time | None = None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods of a zone, or of a partition, may be down at a time."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    generation: int = 0
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`, of pods and StatefulSets. Empty selects all."""
    max_unavailable: int = 1
    """0 where `percentage` is set."""
    percentage: int | None = None
    """Of the replicas of the pod's own zone; zone mode only."""
    pattern: str = ""
    """`spec.podNamePartitionRegex`; empty in zone mode."""
    pattern_group: int = 1
    """The capture group with the partition, from 1."""
    delay: timedelta = timedelta(0)
    """How long pods of other zones must have been ready; partition mode only."""
    forgives_absent_peers: bool = False
    """Whether a zone scaled below a partition counts as having handed it over."""

    @property
    def by_partition(self) -> bool:
        """Return whether it counts a partition over all other zones."""
        return self.pattern != ""

    @property
    def maximum(self) -> str:
        """Return the maximum such as `1` or `20%`."""
        return str(self.max_unavailable) if self.percentage is None else f"{self.percentage}%"


class FlawedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget that cannot be obeyed. It never counts as none."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    generation: int = 0
    selector: Mapping[str, str] | None = None
    """None where not even the selector can be read."""
    problem: str


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """A budget as it applies to some pods."""

    name: str
    budget: Budget | None
    """The version in force. Without one the pods may not be disrupted."""
    problem: str = ""
    """Why the newest version is not in force."""


class BudgetVersions(msgspec.Struct, frozen=True, kw_only=True):
    """The version in force of one budget, and what is wrong with the newest."""

    namespace: str
    name: str
    uid: Uid
    generation: int
    """Of the newest version, 0 if unknown."""
    budget: Budget | None = None
    problem: str = ""
    """Why the newest version is not in force."""
    flawed_selector: Mapping[str, str] | None = None
    """Of the newest version, if only its selector is valid."""

    @property
    def selectors(self) -> tuple[Mapping[str, str], ...]:
        """Return the selectors of both versions."""
        own = () if self.budget is None else (self.budget.selector,)
        return own if self.flawed_selector is None else (*own, self.flawed_selector)

    def find_state(self, labels: Mapping[str, str]) -> BudgetState | None:
        """Return the budget for a pod with these labels, None where it is not selected.

        A flawed version that selects more adds those pods without a budget: what holds for them is
        unknown.
        """
        if self.budget is not None and selects(self.budget.selector, labels):
            return BudgetState(name=self.name, budget=self.budget, problem=self.problem)
        if self.flawed_selector is not None and selects(self.flawed_selector, labels):
            return BudgetState(name=self.name, budget=None, problem=self.problem)
        return None


@unique
class DisruptionSource(StrEnum):
    """Who wants to disrupt a pod."""

    EVICTION = "eviction"
    ROLLOUT = "rollout"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The grant for a pod, as an annotation on it, bound to its UID.

    Every process that counts pods sees it, also after a crash of the process that granted it.
    """

    uid: Uid
    by: str
    """The process that wrote it, unique in its namespace."""
    at: Annotated[datetime, Meta(tz=True)]
    """On the API server's clock."""
    engine: DisruptionSource = DisruptionSource.EVICTION
    lasts: timedelta = timedelta(0)
    """How long after `at` the answer may still be used."""


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`status` of a budget: for people, never read to decide."""

    observed_generation: int = 0
    zones: int = 0
    pods: int = 0
    current_unavailable: int = 0
    allowed_disruptions: int = 0
    conditions: tuple[StatusCondition, ...] = ()


class ShownStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status that the API server has."""

    name: str
    uid: Uid
    status: BudgetStatus


@unique
class EventKind(StrEnum):
    STATEFULSET = "StatefulSet"
    POD = "Pod"
    BUDGET = "ZoneAwarePodDisruptionBudget"
    POLICY = "MultiAZRollout"
    RELEASE = "Rollout"
    SCHEDULE = "RolloutSchedule"
    CLUSTER_SCHEDULE = "ClusterRolloutSchedule"


@unique
class EventAction(StrEnum):
    """What was done to the object, or refused."""

    ROLL_OUT = "RollOut"
    WAIT = "Wait"
    DELETE = "Delete"
    REFUSE_EVICTION = "RefuseEviction"
    SCALE = "Scale"
    REFUSE_DOWNSCALE = "RefuseDownscale"
    VALIDATE = "Validate"
    RELEASE = "Release"


class Regarding(msgspec.Struct, frozen=True):
    kind: EventKind
    namespace: str
    name: str
    uid: Uid


class ObjectEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to an object."""

    reason: str
    note: str
    severity: Severity = Severity.INFO
    is_routine: bool = False
    """Whether a rollout has many of its kind: they displace no other Event."""

    def record(self, regarding: Regarding, action: EventAction) -> "EventRecord":
        return EventRecord(
            regarding=regarding,
            action=action,
            reason=self.reason,
            note=self.note,
            severity=self.severity,
            is_routine=self.is_routine,
        )


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Two equal records are one Event that happens again."""

    regarding: Regarding
    action: EventAction
    reason: str
    """A `Code` in CamelCase, or another word."""
    note: str
    severity: Severity = Severity.INFO
    is_routine: bool = False
    """Whether a rollout has many of its kind: they displace no other Event."""
