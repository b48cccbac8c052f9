"""What is reported as a Kubernetes Event: about which object, and in which words.

How often an object may have one, and how it is written, is decided in `kube.events`.
"""

from enum import StrEnum, unique

import msgspec

from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Severity


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
