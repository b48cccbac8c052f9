"""How labels and selectors of labels are spelled, as the API server judges them.

A MultiAZRollout: how several StatefulSets roll out together, or why it is refused.

How a policy is read from the API's object is written in `model.decode.custom`; which StatefulSets
each of several policies owns is decided in `planning.policy_zones`.

The zones of a policy: in which zone each of its StatefulSets is, and what to know of that.

Which they are is decided in `planning.policy_zones`.

What one decision for a policy works on, and what it comes to.

The decision is made in `planning.policies`; recording a batch, and deleting its pods, is left
to the controllers.

`status` of a MultiAZRollout: written for people and scripts; its last batch is read to decide.

What stands in it is decided in `planning.policy_status`. A field without a value is left out:
the schema of a time refuses an empty text.

A MultiAZRollout as a watch shows it: what it wants, and what its status has recorded.
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


class SelectorRefused(InvalidInput):
    """A selector is refused for what stands at `below`, such as `.matchExpressions[0].key`."""

    def __init__(self, message: str, below: str) -> None:
        super().__init__(message)
        self.below = below


def check_label_key(text: str) -> str:
    """Return a key such as `topology.kubernetes.io/zone`. Raises InvalidInput."""
    prefix, slash, name = text.rpartition("/")
    if not _is_name(name) or (slash and not _is_prefix(prefix)):
        raise InvalidInput(f"{quote(text)} is no name of a label")
    return text


def check_label_value(text: str) -> str:
    """Return a value, which may be empty. Raises InvalidInput for what no label can have."""
    if text and not _is_name(text):
        raise InvalidInput(f"{quote(text)} is no value of a label")
    return text


def check_selector(selector: LabelSelector) -> None:
    """Refuse what the API's own selectors refuse, and too many terms. Raises SelectorRefused."""
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
    """Refuse a term that is not known: it would take everything."""
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


def _is_prefix(text: str) -> bool:
    return len(text) <= _LONGEST_PREFIX and _PREFIX.fullmatch(text) is not None


@unique
class PodOrder(StrEnum):
    """In which order the pods of a StatefulSet go, by ordinal."""

    DESCENDING = "Descending"
    ASCENDING = "Ascending"


@unique
class PolicyRefusalCode(StrEnum):
    """Why a policy is not in service: reasons of its condition `Accepted`. Never renamed."""

    INVALID_SPEC = "InvalidSpec"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    EMPTY_SELECTOR = "EmptySelector"
    CONFLICT = "Conflict"
    ROLLOUT_GROUP_SPLIT = "RolloutGroupSplit"
    SELECTION_UNKNOWN = "SelectionUnknown"
    """Of a StatefulSet so many labels are left out that it is unknown whether it is selected."""


class PolicyRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """One thing for which a policy is refused."""

    code: PolicyRefusalCode
    field: str
    """Where it is, such as `spec.azOrder[2]`."""
    text: str
    """A sentence that names object, field and value."""


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
        """Return namespace and name, as every text names a policy."""
        return f"{self.namespace}/{self.name}"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that can be obeyed. What it leaves out has the default of its field."""

    head: PolicyHead
    selector: LabelSelector
    """Of StatefulSets of its own namespace; it is never empty."""
    max_unavailable: IntOrPercent = IntOrPercent(1)
    """Of a zone."""
    interval: timedelta = timedelta(seconds=30)
    """From the completion of a batch to the next batch."""
    pod_order: PodOrder = PodOrder.DESCENDING
    topology_key: str = TOPOLOGY_KEYS[0]
    """The label that names the zone of a node."""
    zone_order: tuple[str, ...] = ()
    """The zones that go first. All others follow by name."""
    is_paused: bool = False
    """Whether no new batch starts."""
    may_switch_strategy: bool = False
    """Whether StatefulSets are switched to OnDelete."""
    progress_deadline: timedelta = timedelta(minutes=10)
    """How long an open batch may make no progress before it counts as stalled."""


class RefusedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that is not in service: no pod is touched for it."""

    head: PolicyHead
    refusals: tuple[PolicyRefusal, ...]
    """All that is wrong; at least one, and the first is the reason of its condition."""


class PolicyScope(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in service, and what it owns: nothing but it replaces pods of these StatefulSets."""

    policy: Policy
    sets: tuple[StatefulSet | Unreadable, ...] = ()
    """By name. Where there is none it has nothing to do."""
    groups: frozenset[GroupName] = frozenset()
    """The rollout groups of its namespace that are its own, each as a whole."""


class PolicyOwnership(msgspec.Struct, frozen=True, kw_only=True):
    """Which of several policies are in service; the oldest first."""

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
    """What is to be known of zones: reasons of Events. Never renamed."""

    ZONE_UNKNOWN = "ZoneUnknown"
    SPANS_ZONES = "StatefulSetSpansZones"
    NODES_UNREADABLE = "NodesUnreadable"


class ResolvedSet(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet, its zone, and what says so."""

    name: str
    zone: str
    source: ZoneSource


class ResolvedZone(msgspec.Struct, frozen=True, kw_only=True):
    """What may be down together: StatefulSets of one zone, by name."""

    name: str
    sets: tuple[ResolvedSet, ...]
    """At least one. They are updated in this order."""


class ZoneFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know of the zones."""

    code: ZoneFindingCode
    text: str


class ZoneResolution(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the zones of a policy."""

    code: ZonesCode
    key: str = ""
    """The label that names zones."""
    zones: tuple[ResolvedZone, ...] = ()
    """In the order of their updates. Empty where a StatefulSet spans several."""
    sets: tuple[ResolvedSet, ...] = ()
    """By name; without those that span several zones."""
    unknown_zones: tuple[str, ...] = ()
    """Zones of `azOrder` that have no StatefulSet, in its order."""
    findings: tuple[ZoneFinding, ...] = ()


# Exact in every client. The number after it is 1 again, as where the status was lost.
MOST_BATCHES: Final = 2**53 - 1


class BatchPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that a batch replaces, as it was when the batch began."""

    name: str
    uid: Uid


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that go together, as the status of the policy has recorded them before they went."""

    number: int
    """From 1; it never repeats while the status is kept."""
    zone: str
    set_name: str
    revision: Revision
    """The update revision that it was begun for."""
    pods: tuple[BatchPod, ...]
    start: datetime
    completion: datetime | None = None
    """Since when nothing is unavailable, on the server's clock. The pause counts from it. None
    while the batch is open, or open again because a pod failed during the pause."""


class SetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One StatefulSet of a policy in numbers of its desired pods."""

    name: str
    replicas: int
    updated: int
    outdated: int
    ready: int
    """Proven available; new pods of an upscale are not, and are no reason to wait either (D-67)."""
    unavailable: int
    """Those that others wait for."""
    revision: Revision
    """The update revision."""
    initial: int = 0
    """The fewest replicas since that came: what was added later is no sign that it was begun."""
    is_paused: bool = False


class ZoneCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One zone of a policy in numbers."""

    name: str
    sets: tuple[SetCounts, ...]
    """By name."""

    @property
    def unavailable(self) -> int:
        """Return for how many pods of the zone others wait."""
        return sum(sts.unavailable for sts in self.sets)


class PolicySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `plan_policy` reads."""

    policy: Policy
    resolution: ZoneResolution
    group: Group
    """All StatefulSets that the policy owns, each with its pods. `now` is the server's clock."""
    batch: Batch | None = None
    """The last batch, as the status of the policy has it."""
    initial: Mapping[str, int] = {}
    """By StatefulSet the fewest replicas since its update revision came, where they are known."""
    clock_error: timedelta = timedelta(0)
    """By so much the server's clock may show more than `group.now`."""

    @property
    def latest(self) -> datetime:
        """Return the latest time that the server's clock may show now."""
        return self.group.now + self.clock_error


class PolicyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that one snapshot of a policy leads to."""

    batch: Batch | None = None
    """The batch to record ahead of any delete, where it is another batch than before."""
    action: ReplacePods | None = None
    """Pods of that batch, and no others."""
    records: tuple[RecordRevision, ...] = ()
    """StatefulSets that are rolled out, and do not say so yet."""
    waits: tuple[Reason, ...] = ()
    """Why nothing, or nothing more, goes now; the first is what holds it. Empty only where pods
    go, and nothing else would."""
    target: str = ""
    """The StatefulSet whose turn it is; empty where none has a turn."""
    next_batch: datetime | None = None
    """When the pause is over, while one is."""
    is_stalled: bool = False
    """Whether the open batch has made no progress for longer than the policy grants."""
    needs_person: bool = False
    """Whether only a person ends what holds it, as far as the pods show."""
    is_open: bool = False
    """Whether a batch is open, and not superseded."""
    requeue_after: timedelta | None = None
    """After what time a deadline falls due that no event announces."""
    zones: tuple[ZoneCounts, ...] = ()
    """In the order of their updates; empty where they are unknown."""
    progress: tuple[ZoneProgress, ...] = ()
    """Of each StatefulSet; empty where no zone was looked at."""

    @property
    def leading(self) -> Reason | None:
        """Return what holds it, None where nothing does."""
        return self.waits[0] if self.waits else None


@unique
class PolicyPhase(StrEnum):
    """What a policy does, in a word. Never renamed."""

    INVALID = "Invalid"
    IDLE = "Idle"
    PROGRESSING = "Progressing"
    WAITING = "Waiting"
    BLOCKED = "Blocked"
    PAUSED = "Paused"


@unique
class PolicyZoneState(StrEnum):
    """What a zone of a policy is at. Never renamed."""

    PENDING = "Pending"
    UPDATING = "Updating"
    UPDATED = "Updated"
    BLOCKED = "Blocked"


class PolicySetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One StatefulSet, in numbers of its desired pods."""

    name: str
    source: str = ""
    """What says its zone, one of `placement.ZoneSource`."""
    replicas: int = 0
    updated_pods: int = 0
    outdated_pods: int = 0
    unavailable_pods: int = 0
    update_revision: str = ""
    initial_replicas: int = 0
    """The fewest replicas since the update revision came; 0 where that is not known."""


class PolicyZoneStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One zone."""

    name: str
    order: int = 0
    """Its place, from 1."""
    state: str = ""
    stateful_sets: tuple[PolicySetStatus, ...] = ()


class RecordedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of the last batch."""

    name: str
    uid: str


class RecordedBatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last batch; times as RFC 3339, with their fraction: a pause is not shortened."""

    number: int
    zone: str
    stateful_set: str
    update_revision: str
    pods: tuple[RecordedPod, ...]
    start_time: str
    completion_time: str | UnsetType = UNSET


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of it. Empty where nothing was written, or nothing can be read."""

    observed_generation: int = 0
    phase: str = ""
    current_zone: str = ""
    current_stateful_set: str = ""
    updated_pods: int | UnsetType = UNSET
    """This and the next two are absent where nothing was counted."""
    total_pods: int | UnsetType = UNSET
    ready_pods: int | UnsetType = UNSET
    start_time: str | UnsetType = UNSET
    """When the rollout began that runs, or ran last."""
    completion_time: str | UnsetType = UNSET
    """When it was complete; absent while it runs."""
    next_batch_time: str | UnsetType = UNSET
    unknown_zones: tuple[str, ...] = ()
    az_topology_key: str = ""
    """The label by which `zones` were found: another label counts once no batch is open."""
    zones: tuple[PolicyZoneStatus, ...] = ()
    last_batch: RecordedBatch | UnsetType = UNSET
    conditions: tuple[StatusCondition, ...] = ()

    @property
    def is_underway(self) -> bool:
        """Return whether a rollout has begun that is not complete."""
        has_begun = not isinstance(self.start_time, UnsetType)
        return has_begun and isinstance(self.completion_time, UnsetType)

    @property
    def has_open_batch(self) -> bool:
        """Return whether the last batch is not complete."""
        batch = self.last_batch
        return isinstance(batch, RecordedBatch) and isinstance(batch.completion_time, UnsetType)

    def find_condition(self, kind: str) -> StatusCondition | None:
        """Return a condition by its type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def get_reason(self, kind: str) -> str:
        """Return the reason of a condition, empty where there is none."""
        condition = self.find_condition(kind)
        return "" if condition is None else condition.reason


class PolicyEvent(ObjectEvent, frozen=True, kw_only=True):
    """Something that happened to a policy; a routine one is of a batch or a zone."""


class WatchedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One policy, whatever state it is in."""

    resource_version: str
    policy: Policy | RefusedPolicy
    status: PolicyStatus = PolicyStatus()
    """As far as it can be read: what cannot is as if it were lost."""
    problems: tuple[str, ...] = ()
    """What of the status cannot be read, a sentence each; another client has written it."""

    @property
    def namespace(self) -> str:
        """Return its namespace."""
        return self.policy.head.namespace

    @property
    def name(self) -> str:
        """Return its name."""
        return self.policy.head.name

    @property
    def uid(self) -> Uid:
        """Return its UID."""
        return self.policy.head.uid
