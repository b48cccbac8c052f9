"""docs/guides, each command of them run against a real control plane."""

from datetime import timedelta
from functools import partial
from typing import Final

import pytest

from tests.system.guided import Guide, open_guide
from tests.system.pages import Happening
from tests.world.world import World

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

DELAY: Final = timedelta(hours=13)
HALF_HOUR: Final = timedelta(minutes=31)


async def test_the_guides_of_databases_for_telemetry(world: World) -> None:
    """Mimir, Loki and Tempo: rollouts, downscales that are prepared, delayed and taken back."""
    guide = await open_guide(world)
    await _follow_mimir(guide)


async def _follow_mimir(guide: Guide) -> None:
    going = [f"ingester-zone-{letter}-2" for letter in "abc"]
    a, b = ("store-gateway-zone-a", "store-gateway-zone-b")

    async def assert_told() -> None:
        guide.assert_prepared(*going, path="/ingester/prepare-shutdown")

    happenings: dict[str, Happening] = {
        "all ingesters write again": guide.wait_no_delay,
        "the ingesters are read-only for 13 hours": partial(guide.let_delay_pass, going, DELAY),
        "three ingesters were told to leave": assert_told,
        f"30 minutes pass for {a}": partial(guide.let_pass_since_downscale, a, HALF_HOUR),
        f"30 minutes pass for {b}": partial(guide.let_pass_since_downscale, b, HALF_HOUR),
    }
    await guide.follow("mimir.md", happenings)
