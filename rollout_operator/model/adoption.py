"""What `rollout-operator adopt` reads of StatefulSets, and what it proposes.

`planning.adoption` decides.
"""

from collections.abc import Mapping
from enum import StrEnum, unique

import msgspec

from rollout_operator.model.budget import Budget, FlawedBudget, PlacedSet, ZoneSource
from rollout_operator.model.diagnosis import LabelledPod, NativeBudget
from rollout_operator.model.outcome import Severity


class RolloutProgress(msgspec.Struct, frozen=True, kw_only=True):
    observed_generation: int = 0
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    current_revision: str = ""
    update_revision: str = ""


class AdoptableSet(PlacedSet, frozen=True, kw_only=True):
    """A StatefulSet, from a cluster or from a file in Git."""

    namespace: str = ""
    """Empty where a file names none."""
    generation: int = 0
    annotations: Mapping[str, str] = {}
    replicas: int = 1
    strategy: str = "RollingUpdate"
    rolling_update: Mapping[str, object] | None = None
    """`spec.updateStrategy.rollingUpdate` as written."""
    status: RolloutProgress | None = None
    """None for a file."""
    selector: Mapping[str, str] = {}
    """`spec.selector.matchLabels`."""
    image: str = ""
    """Of the first container."""
    controller: str = ""
    """Kind and name of its controlling owner."""
    writers: tuple[str, ...] = ()
    """The field managers of the selector, which whoever creates the set writes."""

    @property
    def partition(self) -> int:
        """Return the ordinal below which pods keep their revision under RollingUpdate."""
        value = (self.rolling_update or {}).get("partition")
        return value if isinstance(value, int) else 0


class AdoptableNamespace(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str
    """Empty where the files name none."""
    sets: tuple[AdoptableSet, ...]
    pods: tuple[LabelledPod, ...] = ()
    native_budgets: tuple[NativeBudget, ...] = ()
    zone_budgets: tuple[Budget | FlawedBudget, ...] = ()
    unread: tuple[str, ...] = ()
    """What could not be read, a sentence each."""


class AdoptionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asks for."""

    names: frozenset[str] = frozenset()
    """StatefulSets; empty for all."""
    is_narrowed: bool = False
    """Whether names or labels choose the StatefulSets: then each of them is meant."""
    group: str = ""
    """Group name; empty to find it from the names."""


Patch = Mapping[str, object]
"""A JSON merge patch of one object, or an object."""


@unique
class AdoptionCode(StrEnum):
    """What to know before adopting. Scripts compare these: never renamed."""

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
    """An error holds back the patches of its group."""

    code: AdoptionCode
    severity: Severity
    object: str
    text: str
    remedy: str


class SetAdoption(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    zone: str
    zone_source: ZoneSource
    patch: Patch | None = None
    """None where nothing must change."""
    undo: Patch | None = None


class GroupAdoption(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    pods: int
    sets: tuple[SetAdoption, ...]
    budget: Patch | None = None
    """A proposed ZoneAwarePodDisruptionBudget."""
    findings: tuple[AdoptionFinding, ...] = ()
    checked: bool = False
    """Whether it is proven that the patches replace no pod."""

    @property
    def is_held(self) -> bool:
        """Return whether something must be done first."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def patched(self) -> tuple[SetAdoption, ...]:
        """Return the zones to patch: none while the group is held."""
        return () if self.is_held else tuple(sts for sts in self.sets if sts.patch is not None)


class AdoptionPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    namespace: str
    groups: tuple[GroupAdoption, ...] = ()
    left_alone: tuple[AdoptionFinding, ...] = ()
    """About StatefulSets in no group of several zones."""
    unread: tuple[str, ...] = ()

    @property
    def needs_a_person(self) -> bool:
        """Return whether a requested group is held."""
        is_wrong = any(finding.severity is Severity.ERROR for finding in self.left_alone)
        return is_wrong or any(group.is_held for group in self.groups)
