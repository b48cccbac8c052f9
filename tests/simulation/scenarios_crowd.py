"""S11: many groups due at once under the default rate limits, as after one `helm upgrade`.

What limits the rollout is the operator's own limiter: all groups wait for the same tokens. Pods all
take the same time, so that groups that were served together are due together again.
"""

import asyncio
from typing import Final

from rollout_operator.sandbox.behaviour import DEFAULT
from rollout_operator.sandbox.zones import Zone
from tests.simulation.scenarios import Scenario, Size, find_unrolled
from tests.simulation.scenarios_people import People
from tests.simulation.scenarios_rollouts import list_zones

# Forty-three and more never moved, when the age of a look counted from before its turn.
GROUPS: Final = 50


def crowded(size: Size) -> Scenario:
    """S11: the templates of fifty groups change within a moment."""
    zones = [zone for number in range(GROUPS) for zone in _list_group(number, size)]

    async def script(people: People) -> None:
        await people.wait(0, 10)
        async with asyncio.TaskGroup() as tasks:
            for zone in zones:
                tasks.create_task(people.set_image(zone.name, "v2"))

    return Scenario(
        name="s11",
        size=size,
        zones=zones,
        script=script,
        find_missing=find_unrolled,
        make_choice=lambda chance: DEFAULT,
    )


def _list_group(number: int, size: Size) -> list[Zone]:
    return list_zones(size, f"group-{number:02}")
