"""What was recorded for a client that hung up is withdrawn at once (LI-09, SI-17, SI-18, FP-36)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rollout_operator.guards.budgets.arbiter import ANSWER_LIMIT
from rollout_operator.guards.budgets.in_flight import GrantState
from rollout_operator.guards.budgets.releases import LIMIT
from rollout_operator.model.errors import Unreachable
from tests.guards.arbiter_bench import Hold, Process, world
from tests.virtual_time import elapsed, in_virtual_time

DOWN = Unreachable("patch pods: connection refused")


@asynccontextmanager
async def withdrawing(of: Process) -> AsyncIterator[None]:
    """Have a process withdraw what is abandoned, until the end of the block."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(of.gate.run())
        await asyncio.sleep(0)
        yield
        running.cancel()


async def hang_up(of: Process, hold: Hold, then: Hold | None = None) -> None:
    """Ask for an eviction of a-0, and go as soon as the call that is held back has begun.

    `then` holds back what follows.
    """
    async with asyncio.TaskGroup() as tasks:
        client = tasks.create_task(of.evict("a-0"))
        await hold.arrived.wait()
        of.world.client.pause = then or hold
        client.cancel()


def stage(of: Process) -> GrantState | None:
    """Return how far the grant of a-0 has come."""
    grant = of.pending.get(of.cached("a-0").uid)
    return None if grant is None else grant.stage


@in_virtual_time
async def test_li09_a_client_that_hangs_up_before_its_answer_holds_nobody_up() -> None:
    """LI-09, LI-07: its record was answered, no answer has left: others need not wait for 8 s."""
    here = world()
    x = here.start()
    here.client.pause = hold = Hold("list")
    async with withdrawing(x):
        await hang_up(x, hold)
        hold.open.set()
        assert await x.evict("b-0") == "allowed"
    assert elapsed() < LIMIT
    assert here.recorded() == ["b-0"]
    assert stage(x) is None


@in_virtual_time
async def test_li09_an_answer_that_comes_too_late_holds_nobody_up() -> None:
    """LI-09: a look that hangs ends in a refusal: no answer has let the pod go."""
    here = world()
    x = here.start()
    here.client.pause = hold = Hold("list")
    async with withdrawing(x):
        await x.evict("a-0")
        assert elapsed() == ANSWER_LIMIT
        hold.open.set()
        assert await x.evict("b-0") == "allowed"
    assert elapsed() == ANSWER_LIMIT
    assert here.recorded() == ["b-0"]


@in_virtual_time
async def test_si18_a_record_in_flight_stays_in_doubt() -> None:
    """SI-18: the patch may be carried out after whatever would withdraw it."""
    here = world()
    x = here.start()
    here.client.pause = hold = Hold("patch")
    async with withdrawing(x):
        await hang_up(x, hold)
        assert stage(x) is GrantState.DOUBTFUL
        await asyncio.sleep(LIMIT.total_seconds())
    assert stage(x) is GrantState.DOUBTFUL
    assert here.client.verbs() == ["patch"]


@in_virtual_time
async def test_si17_a_grant_whose_answer_may_have_left_stays() -> None:
    """SI-17: the client goes the moment after the decision."""
    here = world()
    x = here.start()
    here.client.pause = hold = Hold("list")
    given = asyncio.Event()
    x.pending.on_change(lambda pod: given.set())

    async def answer_slowly() -> None:
        await x.evict("a-0")
        await asyncio.sleep(1)  # on its way to the client

    async with withdrawing(x), asyncio.TaskGroup() as tasks:
        client = tasks.create_task(answer_slowly())
        await hold.arrived.wait()
        hold.open.set()
        await given.wait()
        client.cancel()
        await asyncio.sleep(LIMIT.total_seconds())
        assert stage(x) is GrantState.GIVEN
        assert here.recorded() == ["a-0"]
    assert here.client.verbs() == ["patch", "list"]


@in_virtual_time
async def test_si18_what_cannot_be_withdrawn_is_in_doubt_and_counts() -> None:
    here = world()
    x = here.start()
    here.client.pause = hold = Hold("list")
    async with withdrawing(x):
        fails = Hold("patch", error=DOWN)
        fails.open.set()
        await hang_up(x, hold, fails)
        assert stage(x) is GrantState.DOUBTFUL
        assert (await x.evict("b-0")).startswith("429 disruption_budget_used")


@in_virtual_time
async def test_si18_a_withdrawal_that_hangs_is_in_doubt_after_four_seconds() -> None:
    """LI-07: from then on the controller of disruptions looks after it."""
    here = world()
    x = here.start()
    here.client.pause = hold = Hold("list")
    async with withdrawing(x):
        await hang_up(x, hold, Hold("patch"))
        await asyncio.sleep(LIMIT.total_seconds() - 1)
        assert stage(x) is GrantState.ASKED, "others wait for it meanwhile"
        await asyncio.sleep(2)
        assert stage(x) is GrantState.DOUBTFUL


@in_virtual_time
async def test_fp36_a_process_that_ends_leaves_it_in_doubt() -> None:
    """FP-36: what it withdraws is cut off; the record on the pod tells the next one."""
    here = world()
    x = here.start()
    here.client.pause = hold = Hold("list")
    async with withdrawing(x):
        await hang_up(x, hold, Hold("patch"))
        assert stage(x) is GrantState.ASKED
    assert stage(x) is GrantState.DOUBTFUL
