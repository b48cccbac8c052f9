"""How many Events an object may have: what warns has room of its own."""

from rollout_operator.kube.event_memory import BURST, EventLimits
from rollout_operator.model.event import EventAction
from rollout_operator.model.names import Uid
from tests.virtual_time import VirtualClock, in_virtual_time

POLICY = Uid("uid-policy")


@in_virtual_time
async def test_what_is_told_of_each_batch_crowds_out_no_warning() -> None:
    limits = EventLimits(VirtualClock())

    def count_admitted(*, warns: bool) -> int:
        return sum(
            limits.admit(POLICY, EventAction.ROLL_OUT, warns=warns) for _ in range(BURST * 2)
        )

    assert count_admitted(warns=False) == BURST
    assert count_admitted(warns=True) == BURST
