"""Reviews of downscales that are cut off at each await, or go on in any order with others."""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.model.names import Throttled, Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.web.no_downscale import LATELY, RepeatedReads
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time
from tests.web.downscales.stage import LIMIT, MAP, DownscaleStage

A = Uid("uid-zone-a")


async def _cancel_at(stage: DownscaleStage, step: int) -> bool:
    """Send a review, and cancel it when it has waited that often; return whether it still ran."""
    waits = 0
    reached = asyncio.Event()

    async def count(*_: object) -> None:
        nonlocal waits
        waits += 1
        if waits == step:
            reached.set()
            await asyncio.sleep(1)
        await asyncio.sleep(0)

    async def answer(method: str, endpoint: Endpoint) -> int:
        await count()
        return 200

    confirm, stage.client.pause, stage.pods.answer = stage.pods.answer, count, answer
    async with asyncio.TaskGroup() as tasks:
        requesting = tasks.create_task(stage.act("review a 2"))
        waiting = tasks.create_task(reached.wait())
        await asyncio.wait([requesting, waiting], return_when=asyncio.FIRST_COMPLETED)
        was_running = not requesting.done()
        requesting.cancel()
        waiting.cancel()
    stage.pods.answer = confirm
    return was_running


@pytest.mark.parametrize("step", range(1, 10))
@in_virtual_time
async def test_a_review_that_is_cut_off_leaves_no_prepared_pod(step: int) -> None:
    """W-13, FP-22, LI-05: cancelled in the live read, the records, the calls: pods that were called
    are un-prepared."""
    stage = DownscaleStage([])
    assert await _cancel_at(stage, step)
    downscales = stage.process.downscales
    assert downscales.get(A) is None
    called = {call.uid for call in stage.pods.calls}
    assert called <= {one.uid for one in downscales.of(A).backlog.due}
    assert "allowed" in await stage.act("review b 4")
    async with stage.stack:
        await stage.act("start; 60s")
        assert called <= {call.uid for call in stage.pods.confirmed if call.method == "DELETE"}
        assert not [uid for uid in stage.pods.prepared() if uid.startswith("uid-zone-a")]
        assert downscales.of(A).backlog.due == {}
        assert not [name for name in stage.recorded() if name.startswith("zone-a")]


@in_virtual_time
async def test_all_waits_of_a_review_are_cut_off_above() -> None:
    """The range of the test above: there is no tenth wait."""
    assert not await _cancel_at(DownscaleStage([]), 10)


@pytest.mark.parametrize("delay", [0, 1, 2, 3, 5, 8], ids=lambda turns: f"after {turns} turns")
@pytest.mark.parametrize("tracker", ["", "tracker"], ids=["annotations", "tracker"])
@in_virtual_time
async def test_w15_two_zones_at_once(tracker: str, delay: int) -> None:
    """T-08, ZONE-08, W-15, D-25, PREP-27, SEED-111, FP-19: exactly one passes, in any order.

    Another group passes.
    """
    stage = DownscaleStage([])
    await stage.act(
        f"zones wait=ab {tracker}; {'map; ' * bool(tracker)}label c rollout-group store"
    )
    stage.client.pause = lambda call: asyncio.sleep(0)

    async def request_later(letter: str) -> Verdict:
        for _ in range(delay):
            await asyncio.sleep(0)
        return await stage.judge(stage.make_review(letter, 3))

    first = stage.judge(stage.make_review("a", 3))
    verdicts = await asyncio.gather(first, request_later("b"), request_later("c"))
    assert [verdict.is_allowed for verdict in verdicts] == [True, False, True]
    assert verdicts[1].reason.code is Code.OTHER_DOWNSCALE_UNDERWAY
    assert verdicts[1].reason.text.endswith("zone-a is already in process of updating replicas")
    assert {name[:6] for name in stage.pods.names("POST")} == {"zone-a", "zone-c"}
    assert not tracker or {*stage.client.objects["configmaps", MAP]["data"]} == {"zone-a", "zone-c"}


@in_virtual_time
async def test_w15_two_processes_at_once() -> None:
    """W-15, SI-11: neither knows of the other; pods of the second are told that they stay."""
    stage = DownscaleStage([])
    await stage.act("zones wait=ab tracker; map")
    first = stage.process
    await stage.act("crash")
    verdicts = await asyncio.gather(
        stage.judge(stage.make_review("a", 3), first), stage.judge(stage.make_review("b", 3))
    )
    assert sorted(verdict.is_allowed for verdict in verdicts) == [False, True]
    (lost,) = [verdict for verdict in verdicts if not verdict.is_allowed]
    assert lost.reason.code is Code.ZONE_DOWNSCALED_LATELY
    assert len(stage.client.objects["configmaps", MAP]["data"]) == 1
    assert len(stage.pods.names("DELETE")) == 2


@in_virtual_time
async def test_li06_the_first_read_of_a_set_waits_for_no_repetition_of_another() -> None:
    """LI-06: with as many sets as there may be, each is reviewed freely once in a minute."""
    reads = RepeatedReads(5.0, VirtualClock())
    for _ in range(11):
        await reads.wait_turn(Uid("often"), LIMIT)
    assert elapsed() == timedelta(0)
    with pytest.raises(Throttled):
        await reads.wait_turn(Uid("often"), timedelta(0))
    await reads.wait_turn(Uid("first"), timedelta(0))
    await asyncio.sleep(LATELY.total_seconds())
    await reads.wait_turn(Uid("first"), timedelta(0))
