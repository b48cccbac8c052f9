"""StatefulSets that may come under the operator, as they were read, and what a person requests.

What is proposed is decided in `planning.adoption`.

What `rollout-operator adopt` proposes: patches, the way back, and what to know before.
"""

from collections.abc import Mapping
from enum import StrEnum, unique

import msgspec

from rollout_operator.model.budget import Budget, FlawedBudget, PlacedSet, ZoneSource
from rollout_operator.model.diagnosis import LabelledPod, NativeBudget
from rollout_operator.model.outcome import Severity


class RolloutProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What the status of a StatefulSet says of its pods."""

    observed_generation: int = 0
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    current_revision: str = ""
    update_revision: str = ""


class AdoptableSet(PlacedSet, frozen=True, kw_only=True):
    """What adopting reads of a StatefulSet, from a cluster or from a file in Git."""

    namespace: str = ""
    """Empty where a file names none."""
    generation: int = 0
    annotations: Mapping[str, str] = {}
    replicas: int = 1
    strategy: str = "RollingUpdate"
    rolling_update: Mapping[str, object] | None = None
    """`spec.updateStrategy.rollingUpdate` as it is written."""
    status: RolloutProgress | None = None
    """None for a file that was never in a cluster."""
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`."""
    image: str = ""
    """Of the first container."""
    controller: str = ""
    """Kind and name of the object that controls it, by its owner references."""
    writers: tuple[str, ...] = ()
    """The field managers that wrote its whole spec: who writes the selector has created it."""

    @property
    def partition(self) -> int:
        """Return below which ordinal the pods keep their revision under RollingUpdate."""
        value = (self.rolling_update or {}).get("partition")
        return value if isinstance(value, int) else 0


class AdoptableNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of one namespace."""

    namespace: str
    """Empty: the files name none."""
    sets: tuple[AdoptableSet, ...]
    pods: tuple[LabelledPod, ...] = ()
    native_budgets: tuple[NativeBudget, ...] = ()
    zone_budgets: tuple[Budget | FlawedBudget, ...] = ()
    unread: tuple[str, ...] = ()
    """What could not be read, a sentence each."""


class AdoptionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What a person requests."""

    names: frozenset[str] = frozenset()
    """The StatefulSets; empty: all."""
    is_narrowed: bool = False
    """Whether names or labels choose the StatefulSets: then each of them is meant."""
    group: str = ""
    """The name of their group; empty: found by the names."""


Patch = Mapping[str, object]
"""A JSON merge patch of one object, or an object."""


@unique
class AdoptionCode(StrEnum):
    """What a person should know before adopting. Scripts compare these: never renamed."""

    SINGLE_ZONE = "single_zone"
    OTHER_CONTROLLER = "other_controller"
    APPLICATIONS_DIFFER = "applications_differ"
    ZONE_LEFT_OUT = "zone_left_out"
    ROLLOUT_UNDERWAY = "rollout_underway"
    STATUS_UNKNOWN = "status_unknown"
    PODS_NOT_READY = "pods_not_ready"
    PARTITION = "partition"
    GROUPS_DIFFER = "groups_differ"
    ZONE_SHARED = "zone_shared"
    ZONE_ORDER = "zone_order"
    NAME_LABEL_MISSING = "name_label_missing"
    NATIVE_BUDGET_REFUSES = "native_budget_refuses"
    NATIVE_BUDGET_REPLACED = "native_budget_replaced"
    BUDGET_SELECTOR_MISSING = "budget_selector_missing"


class AdoptionFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to know. An error holds the patches of its group back."""

    code: AdoptionCode
    severity: Severity
    object: str
    text: str
    remedy: str


class SetAdoption(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One zone."""

    name: str
    zone: str
    zone_source: ZoneSource
    patch: Patch | None = None
    """None: it is as it should be already."""
    undo: Patch | None = None


class GroupAdoption(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rollout group to be."""

    name: str
    pods: int
    sets: tuple[SetAdoption, ...]
    budget: Patch | None = None
    """A ZoneAwarePodDisruptionBudget; None where none is proposed."""
    findings: tuple[AdoptionFinding, ...] = ()
    checked: bool = False
    """Whether it is shown that the patches replace no pod."""

    @property
    def is_held(self) -> bool:
        """Return whether something must be done first."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def patched(self) -> tuple[SetAdoption, ...]:
        """Return the zones that change: none while the group is held."""
        return () if self.is_held else tuple(sts for sts in self.sets if sts.patch is not None)


class AdoptionPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is proposed for one namespace."""

    namespace: str
    groups: tuple[GroupAdoption, ...] = ()
    left_alone: tuple[AdoptionFinding, ...] = ()
    """About StatefulSets that belong to no group of several zones."""
    unread: tuple[str, ...] = ()

    @property
    def needs_a_person(self) -> bool:
        """Return whether something that was requested is held."""
        is_wrong = any(finding.severity is Severity.ERROR for finding in self.left_alone)
        return is_wrong or any(group.is_held for group in self.groups)
