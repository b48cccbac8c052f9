"""An arbiter for tests of its callers: no budget covers any pod."""

from collections.abc import Sequence
from datetime import timedelta

from rollout_operator.guards.arbiter import Arbiter
from rollout_operator.guards.grants import Answer, DisruptionRequest, GrantedPod
from rollout_operator.model.objects import Pod
from rollout_operator.planning.budgets import Refusal


class OpenArbiter(Arbiter):
    """Permits everything and remembers nothing."""

    def __init__(self) -> None:
        """Need nothing."""

    async def assess_all(self, requests: Sequence[DisruptionRequest]) -> Sequence[Refusal | None]:
        """Return no reason against any."""
        return [None] * len(requests)

    async def request(self, request: DisruptionRequest, until: timedelta) -> Answer:
        """Permit the pod as it is."""
        return GrantedPod(pod=request.pod)

    def may_cover(self, pod: Pod) -> bool:
        """Return that no budget does."""
        return False
