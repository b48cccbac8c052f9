"""A gate for tests of what passes it: no budget covers any pod."""

from collections.abc import Sequence
from datetime import timedelta

from rollout_operator.guards.budgets.request import Answer, DisruptionRequest, Permit, Reservation
from rollout_operator.model.group import Group
from rollout_operator.model.objects import Pod
from rollout_operator.planning.budgets.rule import Refusal


class OpenGate:
    """Permits everything and remembers nothing."""

    async def assess_all(self, asks: Sequence[DisruptionRequest]) -> Sequence[Refusal | None]:
        """Return no reason against any."""
        return [None] * len(asks)

    async def ask(self, ask: DisruptionRequest, until: timedelta) -> Answer:
        """Permit the pod as it is."""
        return Permit(pod=ask.pod)

    def may_cover(self, pod: Pod) -> bool:
        """Return that no budget does."""
        return False

    async def reserve(
        self, ask: DisruptionRequest, until: timedelta
    ) -> Reservation | Refusal | None:
        """Reserve nothing: there is no budget."""
        return None

    async def confirm(self, reserved: Reservation, live: Group, until: timedelta) -> Answer:
        """Permit what was never reserved."""
        raise AssertionError("nothing was reserved")

    def abandon(self, reserved: Reservation) -> None:
        """Nothing was reserved."""

    async def release(self, reserved: Reservation) -> None:
        """Take note of nothing."""

    async def give_back(self, pod: Pod) -> None:
        """Take note of nothing."""
