"""References: stories of what they read and report, and a watch that ends while it is refused."""

import asyncio
import random
from pathlib import Path
from typing import Final, NoReturn

import pytest
from rollout_lab.network.client import SimulatedClient
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.scales import ChangeWatch
from rollout_operator.model.names import Denied
from tests.goldens import Golden
from tests.kube.scales.stage import ReferenceStage
from tests.stories import Story, read_stories
from tests.virtual_time import VirtualClock, in_virtual_time

HERE: Final = Path(__file__).parent


@pytest.mark.parametrize("story", read_stories(HERE / "references.txt"))
@in_virtual_time
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await ReferenceStage().play(story.commands), golden)


@pytest.mark.thorough
@pytest.mark.parametrize("story", read_stories(HERE / "faults.txt"))
@in_virtual_time
async def test_fault(story: Story, golden: Golden) -> None:
    story.check(await ReferenceStage().play(story.commands), golden)


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
