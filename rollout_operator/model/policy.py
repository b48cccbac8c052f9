"""A MultiAZRollout: spec, zones, status, and the input and outcome of a decision for it.

`model.decode.custom` reads and refuses it, `planning.policies`, `policy_zones` and `policy_status`
decide. A status field without a value is left out: the schema of a time refuses an empty text.
"""

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from rollout_operator.model.budget import ObjectEvent, StatusCondition, ZoneSource
from rollout_operator.model.names import TOPOLOGY_KEYS, GroupName, InvalidInput, Revision, Uid
from rollout_operator.model.objects import (
    Group,
    LabelSelector,
    SelectorTerm,
    StatefulSet,
    Unreadable,
)
from rollout_operator.model.outcome import Reason, RecordRevision, ReplacePods, ZoneProgress
from rollout_operator.model.units import IntOrPercent, quote

_LONGEST_NAME: Final = 63
_LONGEST_PREFIX: Final = 253
# Each is compared with every object in question, by a process that acts for other tenants as well.
_MOST_TERMS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
)
# Exact in every client; numbers then start again from 1.
MOST_BATCHES: Final = 2**53 - 1


class SelectorRefused(InvalidInput):
    """`below` locates the problem, such as `.matchExpressions[0].key`."""

    def __init__(self, message: str, below: str) -> None:
        super().__init__(message)
        self.below = below


@unique
class PodOrder(StrEnum):
    """By ordinal."""

    DESCENDING = "Descending"
    ASCENDING = "Ascending"


@unique
class PolicyRefusalCode(StrEnum):
    """Why a policy is not in service: reasons of `Accepted`. Never renamed."""

    INVALID_SPEC = "InvalidSpec"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    EMPTY_SELECTOR = "EmptySelector"
    CONFLICT = "Conflict"
    ROLLOUT_GROUP_SPLIT = "RolloutGroupSplit"
    SELECTION_UNKNOWN = "SelectionUnknown"
    """Of a StatefulSet so many labels are left out that it is unknown whether it is selected."""


class PolicyRefusal(msgspec.Struct, frozen=True, kw_only=True):
    code: PolicyRefusalCode
    field: str
    """Such as `spec.azOrder[2]`."""
    text: str
    """Names object, field and value."""


class PolicyHead(msgspec.Struct, frozen=True, kw_only=True):
    """Which policy it is, whatever its spec says."""

    namespace: str
    name: str
    uid: Uid
    generation: int = 0
    created: datetime | None = None
    is_terminating: bool = False

    @property
    def key(self) -> str:
        """Return namespace and name."""
        return f"{self.namespace}/{self.name}"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A valid policy, with defaults filled in."""

    head: PolicyHead
    selector: LabelSelector
    """Of StatefulSets in its namespace; never empty."""
    max_unavailable: IntOrPercent = IntOrPercent(1)
    """Of a zone."""
    interval: timedelta = timedelta(seconds=30)
    """From the completion of a batch to the next one."""
    zone_interval: timedelta = timedelta(0)
    """How long the other zones must have been whole before a zone is begun."""
    pod_order: PodOrder = PodOrder.DESCENDING
    topology_key: str = TOPOLOGY_KEYS[0]
    """The label that names the zone of a node."""
    zone_order: tuple[str, ...] = ()
    """The zones to update first; the others follow by name."""
    is_paused: bool = False
    """Whether no new batch starts."""
    may_switch_strategy: bool = False
    """Whether StatefulSets are switched to OnDelete."""
    progress_deadline: timedelta = timedelta(minutes=10)
    """How long an open batch may make no progress before it counts as stalled."""


class RefusedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that is not in service: it replaces no pods."""

    head: PolicyHead
    refusals: tuple[PolicyRefusal, ...]
    """At least one; the first is the reason of its condition."""


class PolicyScope(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in service, and what it owns: nothing else replaces pods of these StatefulSets."""

    policy: Policy
    sets: tuple[StatefulSet | Unreadable, ...] = ()
    """By name."""
    groups: frozenset[GroupName] = frozenset()
    """Rollout groups of its namespace, each as a whole."""


class PolicyOwnership(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest first."""

    scopes: tuple[PolicyScope, ...] = ()
    refused: tuple[RefusedPolicy, ...] = ()


@unique
class ZonesCode(StrEnum):
    """Reasons of the condition `ZonesResolved`. Never renamed."""

    ALL_RESOLVED = "AllResolved"
    SOME_BY_FALLBACK = "SomeByFallback"
    """Of some StatefulSets nothing says the zone."""
    SPANS_ZONES = "StatefulSetSpansZones"
    """It is False: nothing may be updated."""


@unique
class ZoneFindingCode(StrEnum):
    """Reasons of Events. Never renamed."""

    ZONE_UNKNOWN = "ZoneUnknown"
    SPANS_ZONES = "StatefulSetSpansZones"
    NODES_UNREADABLE = "NodesUnreadable"


class ResolvedSet(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet, its zone, and where that comes from."""

    name: str
    zone: str
    source: ZoneSource


class ResolvedZone(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sets: tuple[ResolvedSet, ...]
    """At least one, in update order."""


class ZoneFinding(msgspec.Struct, frozen=True, kw_only=True):
    code: ZoneFindingCode
    text: str


class ZoneResolution(msgspec.Struct, frozen=True, kw_only=True):
    """The zones of a policy."""

    code: ZonesCode
    key: str = ""
    """The label that names zones."""
    zones: tuple[ResolvedZone, ...] = ()
    """In update order. Empty if a StatefulSet spans several."""
    sets: tuple[ResolvedSet, ...] = ()
    """By name, without those that span several zones."""
    unknown_zones: tuple[str, ...] = ()
    """Zones in `azOrder` without a StatefulSet."""
    findings: tuple[ZoneFinding, ...] = ()


class BatchPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a batch, as it was when the batch began."""

    name: str
    uid: Uid


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that go together, recorded in the status before they go."""

    number: int
    """From 1, unique while the status is kept."""
    zone: str
    set_name: str
    revision: Revision
    """The update revision that it was begun for."""
    pods: tuple[BatchPod, ...]
    start: datetime
    completion: datetime | None = None
    """Since when no pod is unavailable; the pause counts from it. None while the batch is open,
    also again because a pod failed during the pause."""


class SetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet in numbers of its desired pods."""

    name: str
    replicas: int
    updated: int
    outdated: int
    ready: int
    """Proven available, without newcomers (D-67)."""
    unavailable: int
    """Those that others wait for."""
    revision: Revision
    """The update revision."""
    initial: int = 0
    """The fewest replicas since that came."""
    is_paused: bool = False


class ZoneCounts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    sets: tuple[SetCounts, ...]
    """By name."""

    @property
    def unavailable(self) -> int:
        return sum(sts.unavailable for sts in self.sets)


class PolicySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The input of `plan_policy`."""

    policy: Policy
    resolution: ZoneResolution
    group: Group
    """All StatefulSets of the policy, with their pods."""
    batch: Batch | None = None
    """The last batch, from the status."""
    initial: Mapping[str, int] = {}
    """The fewest replicas since the update revision came, by StatefulSet."""
    clock_error: timedelta = timedelta(0)
    """How much later than `group.now` it may be."""

    @property
    def latest(self) -> datetime:
        """Return the latest time that it may be now on the server's clock."""
        return self.group.now + self.clock_error


class PolicyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for one snapshot of a policy."""

    batch: Batch | None = None
    """To be recorded before any delete."""
    action: ReplacePods | None = None
    """Pods of that batch only."""
    records: tuple[RecordRevision, ...] = ()
    """StatefulSets that are rolled out, but do not say so yet."""
    waits: tuple[Reason, ...] = ()
    """Why no (more) pods go; the first is what holds the policy."""
    target: str = ""
    """The current StatefulSet."""
    next_batch: datetime | None = None
    """When the current pause is over."""
    is_stalled: bool = False
    """Whether the open batch passed its progress deadline."""
    needs_person: bool = False
    """Whether only a person ends what holds it, as far as the pods show."""
    is_open: bool = False
    """Whether a batch is open, and not superseded."""
    requeue_after: timedelta | None = None
    """When something changes by time alone."""
    zones: tuple[ZoneCounts, ...] = ()
    """In update order; empty if unknown."""
    progress: tuple[ZoneProgress, ...] = ()
    """Of each StatefulSet."""

    @property
    def leading(self) -> Reason | None:
        """Return what holds it."""
        return self.waits[0] if self.waits else None


@unique
class PolicyPhase(StrEnum):
    """Never renamed."""

    INVALID = "Invalid"
    IDLE = "Idle"
    PROGRESSING = "Progressing"
    WAITING = "Waiting"
    BLOCKED = "Blocked"
    PAUSED = "Paused"


@unique
class PolicyZoneState(StrEnum):
    """Never renamed."""

    PENDING = "Pending"
    UPDATING = "Updating"
    UPDATED = "Updated"
    BLOCKED = "Blocked"


class PolicySetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A StatefulSet, in numbers of its desired pods."""

    name: str
    source: str = ""
    """What gives its zone, a `ZoneSource`."""
    replicas: int = 0
    updated_pods: int = 0
    outdated_pods: int = 0
    unavailable_pods: int = 0
    update_revision: str = ""
    initial_replicas: int = 0
    """The fewest replicas since the update revision came; 0 if unknown."""


class PolicyZoneStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    order: int = 0
    """From 1."""
    state: str = ""
    stateful_sets: tuple[PolicySetStatus, ...] = ()


class RecordedPod(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str


class RecordedBatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Times are RFC 3339 with a fraction, so that no pause is shortened."""

    number: int
    zone: str
    stateful_set: str
    update_revision: str
    pods: tuple[RecordedPod, ...]
    start_time: str
    completion_time: str | UnsetType = UNSET


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Empty if nothing was written, or can be read."""

    observed_generation: int = 0
    phase: str = ""
    current_zone: str = ""
    current_stateful_set: str = ""
    updated_pods: int | UnsetType = UNSET
    """Absent, as are the next two, if nothing was counted."""
    total_pods: int | UnsetType = UNSET
    ready_pods: int | UnsetType = UNSET
    start_time: str | UnsetType = UNSET
    """Of the current or last rollout."""
    completion_time: str | UnsetType = UNSET
    """Absent while it runs."""
    next_batch_time: str | UnsetType = UNSET
    unknown_zones: tuple[str, ...] = ()
    az_topology_key: str = ""
    """The label that gave `zones`; another one counts once no batch is open."""
    zones: tuple[PolicyZoneStatus, ...] = ()
    last_batch: RecordedBatch | UnsetType = UNSET
    conditions: tuple[StatusCondition, ...] = ()

    @property
    def is_underway(self) -> bool:
        """Return whether a rollout has begun and is not complete."""
        has_begun = not isinstance(self.start_time, UnsetType)
        return has_begun and isinstance(self.completion_time, UnsetType)

    @property
    def has_open_batch(self) -> bool:
        batch = self.last_batch
        return isinstance(batch, RecordedBatch) and isinstance(batch.completion_time, UnsetType)

    def find_condition(self, kind: str) -> StatusCondition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def get_reason(self, kind: str) -> str:
        condition = self.find_condition(kind)
        return "" if condition is None else condition.reason


class PolicyEvent(ObjectEvent, frozen=True, kw_only=True):
    """A routine one is about a batch or a zone."""


class WatchedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in any state."""

    resource_version: str
    policy: Policy | RefusedPolicy
    status: PolicyStatus = PolicyStatus()
    """As far as it can be read."""
    problems: tuple[str, ...] = ()
    """What of the status cannot be read, a sentence each."""

    @property
    def namespace(self) -> str:
        return self.policy.head.namespace

    @property
    def name(self) -> str:
        return self.policy.head.name

    @property
    def uid(self) -> Uid:
        return self.policy.head.uid


def check_label_key(text: str) -> str:
    """Return a key such as `topology.kubernetes.io/zone`. Raises InvalidInput."""
    prefix, slash, name = text.rpartition("/")
    is_prefix = len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix)
    if not _is_name(name) or (slash and not is_prefix):
        raise InvalidInput(f"{quote(text)} is no name of a label")
    return text


def check_label_value(text: str) -> str:
    """Return a value, perhaps empty. Raises InvalidInput."""
    if text and not _is_name(text):
        raise InvalidInput(f"{quote(text)} is no value of a label")
    return text


def check_selector(selector: LabelSelector) -> None:
    """Raise SelectorRefused for what the API's own selectors refuse, and for too many terms."""
    _check_length(".matchLabels", selector.labels)
    _check_length(".matchExpressions", selector.terms)
    for place, term in enumerate(selector.terms):
        _check_length(f".matchExpressions[{place}].values", term.values)
    for key, value in selector.labels.items():
        _check(".matchLabels", check_label_key, key)
        _check(f".matchLabels[{key}]", check_label_value, value)
    for place, term in enumerate(selector.terms):
        _check_term(f".matchExpressions[{place}]", term)


def _check_length(path: str, items: Collection[object]) -> None:
    if len(items) > _MOST_TERMS:
        raise SelectorRefused(f"it has {len(items)} items, at most {_MOST_TERMS}", path)


def _check_term(path: str, term: SelectorTerm) -> None:
    """Refuse an unknown term: it would select everything."""
    _check(f"{path}.key", check_label_key, term.key)
    match term.operator:
        case "In" | "NotIn":
            if not term.values:
                raise SelectorRefused(f"{term.operator} needs a value", f"{path}.values")
        case "Exists" | "DoesNotExist":
            if term.values:
                raise SelectorRefused(f"{term.operator} takes no value", f"{path}.values")
        case _:
            operators = "In, NotIn, Exists or DoesNotExist"
            raise SelectorRefused(f"{quote(term.operator)} is not {operators}", f"{path}.operator")
    for value in term.values:
        _check(f"{path}.values", check_label_value, value)


def _check(below: str, check: Callable[[str], str], text: str) -> None:
    try:
        check(text)
    except InvalidInput as error:
        raise SelectorRefused(str(error), below) from error


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None
