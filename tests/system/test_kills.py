"""Two and three operators, killed, frozen and ended at random moments, under work and a judge."""

from typing import Final

import pytest

from tests.kills.campaign import Round, play
from tests.world.scene import World

GATE: Final = Round(seed=1, replicas=2, kills=6, stops=1, ends=1, longest_pause=2.0, lost_share=0.3)

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


async def test_li08_operators_that_are_killed_frozen_and_ended(world: World) -> None:
    """LI-08, LI-01, SI-22, FP-06, FP-18, FP-35: another one acts in time, and nothing is broken.

    Under rollouts, drains and downscales that are prepared; `python -m tests.prove kills` plays
    more rounds.
    """
    figures = await play(world, GATE)
    assert figures.find_late() == [], figures.render()
