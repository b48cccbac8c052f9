"""Which phase a group is in.

Only a code says that a person must act: a reconcile that failed because a call failed is repeated,
and ends by itself.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rollout_operator.model.described.releases import ReleaseDescription, ReleasePhase
from rollout_operator.model.description import GroupDescription, Phase, Step
from rollout_operator.model.outcome import Code, Plan
from rollout_operator.model.reasons.urgency import ASIDE, HOLDING, HOLDING_ZONE

# A failed attempt is repeated: `Plan.failed` is no matter for a person then.
REPEATED: Final = frozenset({Code.BACKING_OFF, Code.LIVE_READ_EXPIRED})
# What a zone waits for while a rollout goes on as it should, where pods are starting.
GOING_ON: Final = frozenset({Code.PODS_STARTING, Code.BUDGET_USED, Code.ZONE_NOT_READY})
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


class Progress(msgspec.Struct, frozen=True, kw_only=True):
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


def list_worst_first(groups: Iterable[GroupDescription]) -> list[GroupDescription]:
    """Return groups as people read them: of a hundred those first that do not go on."""
    places = {phase: place for place, phase in enumerate(reversed(Phase))}
    return sorted(groups, key=lambda group: (places[group.phase], group.namespace, group.name))


def list_worst_releases(releases: Iterable[ReleaseDescription]) -> list[ReleaseDescription]:
    """Return Rollouts of releases in the same order."""
    places = {phase: place for place, phase in enumerate(reversed(ReleasePhase))}
    return sorted(
        releases, key=lambda release: (places[release.phase], release.namespace, release.name)
    )


def _is_moving(plan: Plan, steps: Sequence[Step], progress: Progress) -> bool:
    """Return whether a rollout goes on by itself, needing no more than that pods start."""
    first = next((wait.code for wait in plan.waits if wait.code not in ASIDE | SCALING), None)
    if any(not step.is_waiting for step in steps):
        return first in GOING_ON or first is None
    if first is None:
        return not any(wait.code in HOLDING_ZONE for wait in plan.waits)
    return first in GOING_ON and progress.is_coming_up
