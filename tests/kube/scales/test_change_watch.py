"""The watch of a kind that zones mirror: what its lists bring, and how it ends."""

import asyncio
import random
from datetime import timedelta
from typing import NoReturn

import pytest
from rollout_lab.network.client import SimulatedClient
from rollout_lab.network.faults import Failure
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.scales import ChangeWatch
from rollout_operator.model.names import Denied
from tests.kube.reference_rig import following
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time

READ = "get replicatemplates/demo/scale"


@in_virtual_time
async def test_li02_a_change_beside_a_read_that_had_failed_before_is_found_by_a_list() -> None:
    """LI-02: events are ignored while reads fail, and the answer that mends that is older."""
    async with following() as rig:
        await rig.settle()
        begin, trouble = elapsed().total_seconds(), rig.trouble
        trouble.fails[READ] = Failure.UNAVAILABLE
        rig.put("demo", 4)
        await rig.until(lambda: rig.requested(begin)[READ] == 1)
        await asyncio.sleep(0.1)
        trouble.fails.clear()
        trouble.answers_after = timedelta(seconds=0.3)
        await rig.until(lambda: rig.requested(begin)[READ] == 2, within=10)
        await asyncio.sleep(0.15)
        rig.put("demo", 5)
        trouble.answers_after = timedelta(0)
        await rig.until_shown(4)
        await rig.until_shown(5, within=300)


class Refusing(SimulatedClient):
    """A client that may not list."""

    def __init__(self) -> None: ...

    async def fetch_page(self, *_: object, **__: object) -> NoReturn:
        await asyncio.sleep(0)  # meanwhile the tasks beside it begin, and have to be ended
        raise Denied("may not list", status=403)


@pytest.mark.parametrize("turns", range(1, 8))
async def test_a_watch_that_is_being_refused_ends_when_it_is_cancelled(turns: int) -> None:
    """However far the end of its tasks has come by then."""
    rng = random.Random(1).random
    watch = ChangeWatch(Refusing(), REPLICA_TEMPLATES, "default", VirtualClock(), rng)
    task = asyncio.create_task(watch.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert task.cancelled()
