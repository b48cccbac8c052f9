"""How many Events an object may have: each rank has room of its own."""

import asyncio

from rollout_operator.kube.events import (
    BURST,
    MOST_OBJECTS,
    MOST_SERIES,
    ROUTINE_BURST,
    EventLimits,
    EventRank,
    SeriesMemory,
)
from rollout_operator.model.budget import EventAction
from rollout_operator.model.names import Uid
from tests.kube.test_events import event, working
from tests.virtual_time import VirtualClock, in_virtual_time

POLICY = Uid("uid-policy")


@in_virtual_time
async def test_what_is_reported_each_batch_crowds_out_no_warning_and_no_end() -> None:
    limits = EventLimits(VirtualClock())

    def count_admitted(rank: EventRank) -> int:
        tried = range(ROUTINE_BURST * 2)
        return sum(limits.admit(POLICY, EventAction.ROLL_OUT, rank) for _ in tried)

    for rank in EventRank:
        assert count_admitted(rank) == (ROUTINE_BURST if rank is EventRank.ROUTINE else BURST)


@in_virtual_time
async def test_maz53_the_end_of_a_rollout_is_reported_after_all_its_batches() -> None:
    async with working() as desk:
        batches = range(2 * ROUTINE_BURST)
        await desk.report(*(event(f"batch {one}", is_routine=True) for one in batches))
        await desk.report(event("all are updated"))

        assert desk.api.notes[-1] == "all are updated"
        assert len(desk.api.notes) == ROUTINE_BURST + 1


def test_what_is_remembered_is_bounded() -> None:
    clock = VirtualClock()

    async def fill() -> None:
        limits, series = EventLimits(clock), SeriesMemory(clock)
        for number in range(MOST_OBJECTS + 10):
            one = event(name=f"zone-{number}")
            limits.admit(one.regarding.uid, one.action)
            series.record(one, "name", 1)
        assert (len(limits), len(series)) == (MOST_OBJECTS, MOST_SERIES)
        assert series.find(event(name="zone-0")) is None
        assert series.find(event(name=f"zone-{MOST_OBJECTS + 9}")) is not None

    asyncio.run(fill())
