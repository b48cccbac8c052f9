"""What one decision on a schedule is made of, and which gates it wants for its Rollouts."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from rollout_operator.model.releases.compat import OURS, ReleaseCompat
from rollout_operator.model.releases.gate import GateOrigin, ReleaseGate
from rollout_operator.model.releases.rollout import ReleaseHead
from rollout_operator.model.releases.schedule import ScheduleObject, ScheduleState


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
