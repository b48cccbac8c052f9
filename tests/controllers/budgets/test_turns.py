"""When a grant is taken back: not while it is decided on, and our own limits are no time-out of it
(SI-17, LI-07, D-65).
"""

import pytest

from rollout_operator.controllers.budgets.controller import LONGEST, LOOK_LIMIT, UNTOUCHED_FOR
from rollout_operator.model.budget import DisruptionSource
from tests.controllers.budgets.test_controller import granted, record, start
from tests.guards.arbiter_bench import world
from tests.virtual_time import elapsed, in_virtual_time


@in_virtual_time
async def test_si17_a_grant_that_is_still_decided_on_is_left_alone() -> None:
    """SI-17: its record is minutes in the queue of the rate limiter, or its look is: whichever asks
    settles it, and that wakes us.
    """
    made = start()
    made.process.pending.reserve(made.process.cached("a-0"), DisruptionSource.EVICTION, "ingester")
    await made.wait(LONGEST)
    assert await made.look() == UNTOUCHED_FOR
    assert made.here.client.calls == []
    assert made.grants == 1


@in_virtual_time
async def test_si17_a_grant_that_is_decided_on_anew_while_we_look_is_left_alone() -> None:
    """SI-17: an old record is there, and the pod is asked for once more before our read ends."""
    here = world()
    here.annotate("a-0", record("a-0", here))
    made = start(here)
    await made.look()
    await made.wait(UNTOUCHED_FOR)
    pending, pod = made.process.pending, made.process.cached("a-0")

    def ask(call: str) -> None:
        if call.startswith("get"):
            pending.reserve(pod, DisruptionSource.EVICTION, "ingester")

    here.client.before = ask
    assert await made.look() == UNTOUCHED_FOR
    assert here.recorded() == ["a-0"]
    assert made.grants == 1


@pytest.mark.parametrize("kind", ["pods", "patch pods"])
@in_virtual_time
async def test_d65_the_time_limit_of_a_look_begins_when_it_is_sent(kind: str) -> None:
    """D-65, LI-07: under our own rate limits each look would be given up before it was sent."""
    made = await granted()
    await made.wait(UNTOUCHED_FOR)

    async def wait(of: str) -> None:
        if of == kind:
            await made.wait(LOOK_LIMIT * 2)

    made.here.client.turn = wait
    assert await made.look() is None
    assert elapsed() == UNTOUCHED_FOR + LOOK_LIMIT * 2
    assert made.here.recorded() == []
    assert made.grants == 0
