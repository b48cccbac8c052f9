"""References: stories of what they read and report, and a watch that ends while it is refused."""

import asyncio
import random
from typing import NoReturn

import pytest
from rollout_lab.network.client import SimulatedClient
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.scales import ChangeWatch
from rollout_operator.model.names import Denied
from tests.kube.scales.stage import ReferenceStage
from tests.stories import check_stories
from tests.virtual_time import VirtualClock, in_virtual_time

test_story = in_virtual_time(check_stories(__file__, references=ReferenceStage))
test_fault = pytest.mark.thorough(in_virtual_time(check_stories(__file__, faults=ReferenceStage)))


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
