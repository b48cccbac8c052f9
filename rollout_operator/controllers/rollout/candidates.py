"""The pods that a rollout may try next: those that budgets do not hold back as the caches show it.

What the caches show is asked for all pods at once, and again whenever one has gone. Whether a pod
really may go is asked of the gate for each by itself, by the executor.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from rollout_operator.guards.budgets.request import DisruptionRequest
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Replacement
from rollout_operator.planning.budgets.rule import Refusal
from rollout_operator.planning.rollout.zones import choose_limit


class Assessor(Protocol):
    """The part of the gate that costs no request."""

    async def assess_all(self, asks: Sequence[DisruptionRequest]) -> Sequence[Refusal | None]:
        """Return for each pod why it may not go as the caches show it, None where it may."""
        ...


class Candidates:
    """Pods of one zone, in the order in which they are to be tried."""

    def __init__(
        self,
        gate: Assessor,
        zone: StatefulSet,
        pods: Sequence[Replacement],
        held: list[Refusal],
        reserved: Sequence[Replacement] = (),
    ) -> None:
        """Try `reserved` in any case, then `pods`; why one is not tried is added to `held`."""
        self._gate = gate
        self._zone = zone
        self._reserved = deque(reserved)
        self._left = deque(pods)
        self._held = held
        self._answers: deque[Refusal | None] = deque()

    async def next(self) -> Replacement | None:
        """Return the next pod that is not held back, None where there is none."""
        if self._reserved:
            return self._reserved.popleft()
        if self._left and not self._answers:
            asks = [ask_for(one, self._zone) for one in self._left]
            self._answers.extend(await self._gate.assess_all(asks))
        while self._left:
            one, refusal = self._left.popleft(), self._answers.popleft()
            if refusal is None:
                return one
            self._held.append(refusal)
        return None

    def reassess(self) -> None:
        """A pod has gone: that may have been all that the budget has room for."""
        self._answers.clear()


def ask_for(one: Replacement, zone: StatefulSet) -> DisruptionRequest:
    """Return what is asked of the gate for the delete of a pod."""
    return DisruptionRequest(
        pod=one.pod, engine=DisruptionSource.ROLLOUT, limit=choose_limit(zone)[0]
    )
