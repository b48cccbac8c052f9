"""A MultiAZRollout: how several StatefulSets roll out together, or why it is refused.

How a policy is read from the API's object is written in `model.decode.policy`; which StatefulSets
each of several policies owns is decided in `planning.policies.ownership`.
"""

from datetime import datetime, timedelta
from enum import StrEnum, unique

import msgspec

from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.names import TOPOLOGY_KEYS, GroupName, Uid
from rollout_operator.model.objects import StatefulSet, Unreadable
from rollout_operator.model.units import IntOrPercent


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
