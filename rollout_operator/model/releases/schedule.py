"""A schedule of releases: in which hours of a local calendar versions may be deployed.

How a schedule is read from the API's object is written in `model.decode.releases.schedule`; when it
is active, and which gates it wants for its Rollouts, is decided in `planning.releases.schedules`.
"""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.condition import StatusCondition
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.releases.release import Instant
from rollout_operator.model.releases.rollout import (
    OURS,
    GateOrigin,
    ReleaseCompat,
    ReleaseGate,
    ReleaseHead,
)

SCHEDULE: Final = "RolloutSchedule"
CLUSTER_SCHEDULE: Final = "ClusterRolloutSchedule"
WEEKDAYS: Final = (*("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),)
"""In the order in which `date.weekday` counts them."""
MINUTES_OF_DAY: Final = 24 * 60


@unique
class ScheduleAction(StrEnum):
    """What a schedule does to versions while one of its rules matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class MinuteRange(msgspec.Struct, frozen=True):
    """Hours of a day on the wall clock, in minutes since its midnight, without the end.

    From an end before the start it reaches into the next day; equal times are the whole day.
    """

    start: int
    end: int


class DateRange(msgspec.Struct, frozen=True):
    """Local dates, both included."""

    first: date
    last: date


class ScheduleRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: it matches where all that it restricts does, and always if that is nothing."""

    name: str = ""
    times: MinuteRange | None = None
    weekdays: frozenset[int] = frozenset()
    """As `date.weekday` counts them; empty for every day."""
    dates: DateRange | None = None


class ReleaseSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """What the spec of a schedule says of time. Its rules are alternatives."""

    rules: tuple[ScheduleRule, ...]
    time_zone: str = "UTC"
    """A name of the IANA database, not looked up yet."""
    action: ScheduleAction = ScheduleAction.DENY


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule says at one moment."""

    is_active: bool
    active_rules: tuple[str, ...] = ()
    """Names of the rules that match, as the spec orders them; without those that have none."""
    next_transition: datetime | None = None
    """When `is_active` changes, in UTC. None where it stays as it is."""


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """`status` of a schedule. Empty where nothing was written."""

    observed_generation: int = 0
    active: bool = False
    active_rules: tuple[str, ...] = ()
    next_transition: Instant | None = None
    managed_gates: tuple[str, ...] = ()
    """Names; those of a schedule of the cluster with their namespace."""
    matching_rollouts: int = 0
    conditions: tuple[StatusCondition, ...] = ()


class ScheduleObject(msgspec.Struct, frozen=True, kw_only=True):
    """A RolloutSchedule or, without a namespace, a ClusterRolloutSchedule."""

    kind: str
    head: ReleaseHead
    schedule: ReleaseSchedule | None = None
    """None where it is invalid: its gates stay as they are, and new gates do not pass."""
    rollouts: LabelSelector | None = None
    """The Rollouts concerned. None where it cannot be read."""
    namespaces: LabelSelector | None = None
    """Of a schedule of the cluster: the namespaces concerned. None where it does not say."""
    pretty_name: str | None = None
    description: str | None = None
    problem: str = ""
    """Names object, field and value, where it is invalid."""
    status: ScheduleStatus = ScheduleStatus()


class GatedRollout(msgspec.Struct, frozen=True, kw_only=True):
    """A Rollout as far as schedules look at it, whether or not it can be obeyed."""

    namespace: str
    name: str
    labels: Mapping[str, str] = {}
    is_terminating: bool = False


class ScheduleSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that one decision on a schedule works on."""

    schedule: ScheduleObject
    now: datetime
    rollouts: tuple[GatedRollout, ...] = ()
    """All that are known."""
    gates: tuple[ReleaseGate, ...] = ()
    """All that are known, whichever schedule keeps them."""
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces; needed where the schedule selects by them."""
    compat: ReleaseCompat = OURS


class WantedGate(msgspec.Struct, frozen=True, kw_only=True):
    """A gate as a schedule wants it. Which versions it allows is left to people."""

    namespace: str
    name: str
    rollout: str
    is_passing: bool
    origin: GateOrigin

    @property
    def key(self) -> str:
        """Return namespace and name."""
        return f"{self.namespace}/{self.name}"


class CreateGate(msgspec.Struct, frozen=True, kw_only=True):
    """Create a gate that is missing."""

    wanted: WantedGate


class CorrectGate(msgspec.Struct, frozen=True, kw_only=True):
    """Change a gate into what is wanted, if it is still the same."""

    head: ReleaseHead
    wanted: WantedGate


class DeleteGate(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a gate whose Rollout is not selected any more, if it is still the same."""

    head: ReleaseHead


GateAction = CreateGate | CorrectGate | DeleteGate


class SchedulePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done for a schedule. Its status is rendered once that was tried."""

    state: ScheduleState | None = None
    """None where it is invalid: its gates stay as they are, and new gates do not pass."""
    problem: str = ""
    actions: tuple[GateAction, ...] = ()
    kept: tuple[str, ...] = ()
    """The gates that it has and that stay, by namespace and name."""
    matching: int = 0
    """How many Rollouts it concerns."""
    requeue_after: timedelta | None = None
    """When time alone changes something."""
