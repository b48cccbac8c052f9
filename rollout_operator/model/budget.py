"""A ZoneAwarePodDisruptionBudget: what decides of it, its status, and the record of a pod under it.

How a budget is read from the API's object, and what is refused, is written in
`model.decode.custom`.

What of a StatefulSet says in which zone its pods run.

One condition in the `status` of an object of ours, as it is written and as it is described.

What is reported as a Kubernetes Event: about which object, and in which words.

How often an object may have one, and how it is written, is decided in `kube.events`.
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
    """What says in which zone the pods of a StatefulSet run. Scripts compare these."""

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
    """A StatefulSet as far as it says where its pods run."""

    name: str
    labels: Mapping[str, str] = {}
    pod_labels: Mapping[str, str] = {}
    """Of the template; so is the next field."""
    node_selector: Mapping[str, str] = {}
    node_terms: tuple[NodeTerm, ...] = ()
    """Of the required node affinity: each of them is enough."""
    pod_nodes: tuple[str, ...] = ()
    """The nodes that its scheduled pods run on, where they were read."""


Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time without a zone is refused where a description is read: it compares with no other."""


class StatusCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One condition, as Kubernetes has them."""

    type: str
    status: str
    """`True` or `False`."""
    reason: str = ""
    """One of our codes in CamelCase, such as `DisruptionBudgetUsed`."""
    message: str = ""
    last_transition_time: str = ""
    """When `status` changed last, as RFC 3339."""
    observed_generation: int = 0


class ConditionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of a status, for people."""

    type: str
    is_true: bool
    reason: str
    message: str
    since: Time | None = None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods of a zone, or of a partition, may be gone at a time."""

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    generation: int = 0
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`: of pods and of StatefulSets. Empty selects all of them."""
    max_unavailable: int = 1
    """0 where `percentage` is set."""
    percentage: int | None = None
    """Of the replicas of the zone of the pod that is to go; zone mode only."""
    pattern: str = ""
    """`spec.podNamePartitionRegex` as written; empty in zone mode."""
    pattern_group: int = 1
    """Which capture group of `pattern` holds the partition, from 1."""
    delay: timedelta = timedelta(0)
    """How long a pod of another zone must have been ready; partition mode only."""
    forgives_absent_peers: bool = False
    """Whether a zone scaled below a partition counts as having handed it over."""

    @property
    def by_partition(self) -> bool:
        """Return whether it counts by partition over all other zones, and not by zone."""
        return self.pattern != ""

    @property
    def maximum(self) -> str:
        """Return the maximum as it is written, such as `1` or `20%`."""
        return str(self.max_unavailable) if self.percentage is None else f"{self.percentage}%"


class FlawedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget that cannot be obeyed as it is written. What it selects is still known, if at all.

    It is never taken for no budget.
    """

    namespace: str
    name: str
    uid: Uid
    resource_version: str
    generation: int = 0
    selector: Mapping[str, str] | None = None
    """None where even the selector cannot be read."""
    problem: str


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """A budget, as it applies to the pods in question."""

    name: str
    budget: Budget | None
    """The version in force. None where there is none for them: then they may not go."""
    problem: str = ""
    """Why the newest version is not in force, empty where it is."""


class BudgetVersions(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the budget of one name: the version in force, and what the newest lacks."""

    namespace: str
    name: str
    uid: Uid
    generation: int
    """Of the newest version, flawed or not; 0 where it is unknown."""
    budget: Budget | None = None
    """The version in force."""
    problem: str = ""
    """Why the newest version is not in force, empty where it is."""
    flawed_selector: Mapping[str, str] | None = None
    """Of the newest version, where that is flawed and its selector is not."""

    @property
    def selectors(self) -> tuple[Mapping[str, str], ...]:
        """Return what puts a pod under the budget, any of them."""
        own = () if self.budget is None else (self.budget.selector,)
        return own if self.flawed_selector is None else (*own, self.flawed_selector)

    def find_state(self, labels: Mapping[str, str]) -> BudgetState | None:
        """Return the budget as it is for a pod with these labels, None where it is not under it.

        A version that cannot be obeyed and selects more than the version in force adds the pods
        that only it selects, without a budget: which budget counts for them is unknown.
        """
        if self.budget is not None and selects(self.budget.selector, labels):
            return BudgetState(name=self.name, budget=self.budget, problem=self.problem)
        if self.flawed_selector is not None and selects(self.flawed_selector, labels):
            return BudgetState(name=self.name, budget=None, problem=self.problem)
        return None


@unique
class DisruptionSource(StrEnum):
    """What wants a pod to go."""

    EVICTION = "eviction"
    ROLLOUT = "rollout"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """That a pod may go, as it is written on the pod.

    So every process that counts pods sees a grant, also a process that starts after the crash of
    the process that gave it. It is bound to the pod's UID: a copy on another pod says nothing.
    """

    uid: Uid
    """Of the pod."""
    by: str
    """The process that wrote it: no two of one namespace have the same name."""
    at: Annotated[datetime, Meta(tz=True)]
    """In the API server's time."""
    engine: DisruptionSource = DisruptionSource.EVICTION
    lasts: timedelta = timedelta(0)
    """How long after `at` the answer may still be acted upon."""


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`status` of a budget: written for people, never read to decide.

    Empty where nothing was written, or nothing can be read.
    """

    observed_generation: int = 0
    zones: int = 0
    pods: int = 0
    current_unavailable: int = 0
    allowed_disruptions: int = 0
    conditions: tuple[StatusCondition, ...] = ()


class ShownStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status that the API server shows of a budget."""

    name: str
    uid: Uid
    status: BudgetStatus


@unique
class EventKind(StrEnum):
    """The kinds of objects that Events are about, as the API names them."""

    STATEFULSET = "StatefulSet"
    POD = "Pod"
    BUDGET = "ZoneAwarePodDisruptionBudget"
    POLICY = "MultiAZRollout"
    RELEASE = "Rollout"
    SCHEDULE = "RolloutSchedule"
    CLUSTER_SCHEDULE = "ClusterRolloutSchedule"


@unique
class EventAction(StrEnum):
    """What was done to the object, or was not."""

    ROLL_OUT = "RollOut"
    WAIT = "Wait"
    DELETE = "Delete"
    REFUSE_EVICTION = "RefuseEviction"
    SCALE = "Scale"
    REFUSE_DOWNSCALE = "RefuseDownscale"
    VALIDATE = "Validate"
    RELEASE = "Release"


class Regarding(msgspec.Struct, frozen=True):
    """The object that an Event is about."""

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
    """Whether it is one of many that a rollout has of its kind: they crowd out no other."""

    def record(self, regarding: Regarding, action: EventAction) -> "EventRecord":
        """Return it as an Event about that object."""
        return EventRecord(
            regarding=regarding,
            action=action,
            reason=self.reason,
            note=self.note,
            severity=self.severity,
            is_routine=self.is_routine,
        )


class EventRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. Two equal records are one Event that happens again."""

    regarding: Regarding
    action: EventAction
    reason: str
    """A code of `outcome.Code` in CamelCase, or a word for what no code says."""
    note: str
    severity: Severity = Severity.INFO
    is_routine: bool = False
    """Whether it is one of many that a rollout has of its kind: they crowd out no other."""
