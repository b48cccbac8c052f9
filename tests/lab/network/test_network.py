"""One process and the world around it, and what goes wrong between: texts of commands beside this.

Section 3.2: errors, latency, crashes, stale views; partitions; behaviours of pods (FP-25).
"""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.kube.api import PODS
from rollout_operator.model.names import NotFound
from tests.lab.network.stage import NAMESPACE, NetworkStage
from tests.stories import check_stories
from tests.virtual_time import in_virtual_time

test_story = in_virtual_time(check_stories(__file__, faults=NetworkStage, process=NetworkStage))


def test_a_request_on_its_way_at_death_may_arrive() -> None:
    """By chance of the link: bytes that were sent a moment ago."""
    ends: list[str] = []

    @in_virtual_time
    async def die(seed: int) -> None:
        ends.extend(await NetworkStage(seed).play(["kill 0.0005; create; 1s"]))

    for seed in range(1, 30):
        die(seed)
    assert {"wrote new" in end for end in ends} == {True, False}
    assert all(end.startswith("never returns") for end in ends)


@in_virtual_time
async def test_the_server_time_is_that_of_its_answers() -> None:
    """D-22: up to a second early; in whole seconds, as the header of any answer has it."""
    stage = NetworkStage()
    stage.open()
    assert stage.client.server_time() is None
    for _ in range(20):
        await asyncio.sleep(0.37)
        with pytest.raises(NotFound):
            await stage.client.fetch(PODS, NAMESPACE, "a")
        reported = stage.following.server_time()
        assert reported is not None
        assert timedelta(0) <= stage.api.now() - reported <= timedelta(seconds=1.02)
    # Many answers show the second more exactly, and time goes on without any.
    await asyncio.sleep(100)
    reported = stage.client.server_time()
    assert reported is not None
    assert stage.api.now() - reported < timedelta(seconds=0.2)
