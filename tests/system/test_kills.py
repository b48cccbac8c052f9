"""Three operators, killed, frozen and ended at random moments, under work and a judge."""

from datetime import timedelta
from typing import Final

import pytest

from tests.kills.campaign import LIMITS, Round, play
from tests.world.world import World

# Of these kills two take the pod along, and three do not; the stop hits the one that acts.
GATE: Final = Round(
    seed=103,
    replicas=3,
    kills=6,
    stops=1,
    ends=1,
    is_dense=False,
    frozen_for=timedelta(seconds=20),
    longest_pause=2.0,
    lost_share=0.4,
)

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


async def test_li08_operators_that_are_killed_frozen_and_ended(world: World) -> None:
    """LI-08, LI-01, SI-22, FP-06, FP-18, FP-35: another one acts in time, and nothing is broken.

    Under rollouts, drains and downscales that are prepared; `python -m tests.prove kills` plays
    more rounds.
    """
    figures = await play(world, GATE)
    assert figures.list_late() == [], figures.render()
    assert all(figures.spans[hit] for hit in LIMITS), figures.render()
