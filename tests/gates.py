"""A gate for tests of what passes it: no budget covers any pod."""

from collections.abc import Sequence
from datetime import timedelta

from rollout_operator.guards.asking import Answer, Ask, Permit
from rollout_operator.model.objects import Pod
from rollout_operator.planning.disruption import Refusal


class OpenGate:
    """Permits everything and remembers nothing."""

    async def assess_all(self, asks: Sequence[Ask]) -> Sequence[Refusal | None]:
        """Return no reason against any."""
        return [None] * len(asks)

    async def ask(self, ask: Ask, until: timedelta) -> Answer:
        """Permit the pod as it is."""
        return Permit(pod=ask.pod)

    async def give_back(self, pod: Pod) -> None:
        """Take note of nothing."""
