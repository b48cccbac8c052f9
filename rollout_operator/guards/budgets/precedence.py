"""Who goes first where there is room: an eviction that waits, or the rollout that held still.

Asked only of pods that their budget would let go. Never lets anything go by itself, so that no
mistake here can cross a budget.
"""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Final

from msgspec import structs

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.budgets.refusals import (
    refuse_as_evictions_wait,
    refuse_as_rollout_waits,
)
from rollout_operator.guards.budgets.request import DisruptionRequest
from rollout_operator.guards.budgets.unused import UnusedGrants
from rollout_operator.guards.budgets.waiting import Waiter, Waiting
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.group import Deletion
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets.rule import (
    Refusal,
    Scene,
    assess_disruption,
    find_maximum,
    is_down,
)
from rollout_operator.planning.wording import count

# What an eviction is refused for that only needs a free place.
ROOM: Final = frozenset({Code.DISRUPTION_BUDGET_USED, Code.EVICTION_FIRST, Code.ROLLOUT_FIRST})
# Each costs a decision; whether the rollout is in the way of the next few says enough.
_MOST_LOOKED_AT: Final = 5


class Precedence:
    """The order of evictions and rollouts under the budgets of one process."""

    def __init__(self, waiting: Waiting, unused: UnusedGrants, clock: Clock) -> None:
        self._waiting = waiting
        self._unused = unused
        self._clock = clock

    def assess(self, ask: DisruptionRequest, scene: Scene) -> Refusal | None:
        """Return that another one goes first, None where the pod may go now."""
        if ask.engine is DisruptionSource.ROLLOUT:
            return self._assess_rollout(scene)
        return self._assess_eviction(ask, scene)

    def note_granted(self, scene: Scene) -> None:
        """A pod was allowed to go."""
        most = find_maximum(scene)
        if scene.engine is DisruptionSource.ROLLOUT:
            most = min(most, scene.override)
        self._waiting.note_granted(scene.budget, scene.pod, scene.engine, max(most, 1))

    def line_up(self, ask: DisruptionRequest, budget: Budget, refusal: Refusal) -> Refusal:
        """Remember an eviction that lacks room, and say how many are in front of it."""
        if refusal.reason.code not in ROOM:
            return refusal
        front = self._waiting.count_in_front(budget, ask.pod)
        if not ask.dry_run:
            self._waiting.note_refused(budget, ask.pod)
        place = f"{count(front, 'eviction')} in front" if front else "the next eviction in line"
        reason = replace(refusal.reason, text=f"{refusal.reason.text}; {place}")
        return replace(refusal, reason=reason)

    def _assess_rollout(self, scene: Scene) -> Refusal | None:
        budget, pod = scene.budget, scene.pod
        # Its deletion takes nobody's place: it is down already (LI-10).
        if is_down(scene) or not self._waiting.holds(budget, pod, DisruptionSource.ROLLOUT):
            return None
        front = self._waiting.list_in_front(budget, pod)
        if not any(_is_in_the_way(scene, one) for one in front[:_MOST_LOOKED_AT]):
            return None
        self._waiting.hold(budget, pod, is_whole=False)
        left = max(one.until for one in front) - self._clock.elapsed()
        refusal = refuse_as_evictions_wait(front[0].pod, len(front), budget, _soon(left))
        return replace(refusal, is_shared=not budget.by_partition)

    def _assess_eviction(self, ask: DisruptionRequest, scene: Scene) -> Refusal | None:
        budget, pod = scene.budget, scene.pod
        if self._waiting.holds(budget, pod, DisruptionSource.EVICTION):
            if not ask.dry_run:
                self._waiting.hold(budget, pod, is_whole=_is_whole(scene))
            return refuse_as_rollout_waits(pod, budget)
        front = self._waiting.list_in_front(budget, pod)
        if not front or not self._unused.count(pod.uid):
            return None
        # What came to nothing before holds up no eviction that may be in earnest.
        left = front[0].until - self._clock.elapsed()
        return refuse_as_evictions_wait(front[0].pod, len(front), budget, _soon(left))


def _is_in_the_way(scene: Scene, waiter: Waiter) -> bool:
    """Tell whether a waiting eviction lacks room once the pod of the scene has gone."""
    going = {**scene.deletions, scene.pod.uid: Deletion.GRANTED}
    theirs = replace(
        scene,
        pod=waiter.pod,
        owner=waiter.pod.owner_uid or Uid(""),
        engine=DisruptionSource.EVICTION,
        override=0,
        deletions=going,
    )
    return assess_disruption(theirs) is not None


def _is_whole(scene: Scene) -> bool:
    """Tell whether the pod could go even if one at a time were the limit: nothing is down."""
    budget = structs.replace(scene.budget, max_unavailable=1, percentage=None)
    return assess_disruption(replace(scene, budget=budget)) is None


def _soon(left: timedelta) -> timedelta:
    return timedelta(seconds=max(math.ceil(left.total_seconds()), 1))
