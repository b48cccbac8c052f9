"""Which phase a group is in, and which of its reasons a person reads first.

Only a code tells that a person must act: a reconcile that failed because a call failed is repeated,
and ends by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rollout_operator.model.description import Phase, Step
from rollout_operator.model.outcome import Code, Plan, Reason

# A person must change something before anything of the group moves.
HOLDING: Final = frozenset(
    {
        Code.WRONG_STRATEGY,
        Code.REVISION_EMPTY,
        Code.OBJECT_UNREADABLE,
        Code.BUDGET_INVALID,
        Code.BUDGETS_OVERLAP,
        Code.TOO_FEW_ZONES,
        Code.OWNER_NOT_STATEFULSET,
        Code.PARTITION_UNKNOWN,
    }
)
# The same for one zone: it holds the group once nothing else of it moves.
HOLDING_ZONE: Final = frozenset(
    {
        Code.PAUSED,
        Code.NO_LEADING_ZONE,
        Code.LEADING_ZONES_CIRCLE,
        Code.WAIT_TIME_MISSING,
        Code.BAD_DOWNSCALE_TIME,
        Code.BAD_REFERENCE,
        Code.BAD_DELAY,
        Code.COUNT_CONTESTED,
    }
)
# A failed attempt is repeated: `Plan.failed` is no matter for a person then.
REPEATED: Final = frozenset({Code.BACKING_OFF, Code.LIVE_READ_EXPIRED})
# What a zone waits for while a rollout goes on as it should: always, and where pods are starting.
MOVING: Final = frozenset({Code.PODS_STARTING})
GOING_ON: Final = MOVING | {Code.BUDGET_USED, Code.ZONE_NOT_READY}
# These do not say what the zone whose turn it is waits for.
ASIDE: Final = HOLDING_ZONE | {Code.ANOTHER_ZONE_FIRST, Code.UP_TO_DATE}
# Replicas of zones: no rollout waits for them.
SCALING: Final = frozenset(
    {
        Code.LEADING_ZONE_NOT_READY,
        Code.ROLLOUT_UNDERWAY,
        Code.ZONE_DOWNSCALED_LATELY,
        Code.OTHER_ZONE_NOT_READY,
        Code.DELAYED_BY_PODS,
        Code.POD_GAVE_NO_TIME,
        Code.REFERENCE_NOT_READ,
        Code.SCALE_REFUSED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a group is, as far as its snapshot shows it."""

    is_due: bool
    """Whether pods are outdated, or a revision is not recorded yet."""
    is_coming_up: bool
    """Whether all pods that are down are only starting or on their way out."""
    is_whole: bool
    is_scaling: bool
    """Whether pods of an upscale or a downscale come or go."""


def choose_phase(plan: Plan, steps: Sequence[Step], progress: Progress) -> Phase:
    """Return the phase of a group."""
    codes = {wait.code for wait in plan.waits}
    if codes & HOLDING or (plan.failed and not codes & REPEATED):
        return Phase.HELD
    if progress.is_due and _is_moving(plan, steps, progress):
        return Phase.ROLLING_OUT
    if codes & HOLDING_ZONE:
        return Phase.HELD
    if progress.is_scaling and not progress.is_due:
        return Phase.SCALING
    is_done = progress.is_whole and not progress.is_due and not codes - {Code.UP_TO_DATE}
    return Phase.ROLLED_OUT if is_done else Phase.WAITING


def find_leading(plan: Plan, phase: Phase) -> Reason | None:
    """Return the reason to read first, None where nothing is waited for."""
    waits = plan.waits
    choices = [
        [wait for wait in waits if phase is Phase.HELD and wait.code in HOLDING],
        [wait for wait in waits if phase is Phase.HELD and wait.code in HOLDING_ZONE],
        [wait for wait in waits if wait.code not in ASIDE],
        [wait for wait in waits if wait.code is not Code.UP_TO_DATE],
        [wait for wait in waits if phase in (Phase.SCALING, Phase.ROLLED_OUT)],
    ]
    return next((choice[0] for choice in choices if choice), None)


def _is_moving(plan: Plan, steps: Sequence[Step], progress: Progress) -> bool:
    """Tell whether a rollout goes on by itself, needing no more than that pods start."""
    first = next((wait.code for wait in plan.waits if wait.code not in ASIDE | SCALING), None)
    if any(not step.is_waiting for step in steps):
        return first in GOING_ON or first is None
    if first is None:
        return not any(wait.code in HOLDING_ZONE for wait in plan.waits)
    return first in MOVING or (first in GOING_ON and progress.is_coming_up)
