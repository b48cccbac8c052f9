"""`status` of a MultiAZRollout: written for people and scripts; its last batch is read to decide.

What stands in it is decided in `planning.policies.status`. A field without a value is left out:
the schema of a time refuses an empty text.
"""

from enum import StrEnum, unique

import msgspec
from msgspec import UNSET, UnsetType

from rollout_operator.model.condition import StatusCondition
from rollout_operator.model.event import ObjectEvent


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
