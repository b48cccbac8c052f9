"""S11, S13: many groups due at once under the default rate limits, as after one `helm upgrade`.

What limits the rollout is the operator's own limiter: all groups wait for the same tokens. Pods all
take the same time, so that groups that were served together are due together again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rollout_operator.lab.nodes.behaviour import DEFAULT
from rollout_operator.lab.zones import ZoneSpec
from tests.simulation.drainers import create_budget, zone_budget
from tests.simulation.scenarios import Scenario, Size, find_unrolled
from tests.simulation.scenarios_people import People
from tests.simulation.scenarios_rollouts import list_zones

# Forty-three and more never moved, when the age of a look counted from before its turn.
GROUPS: Final = 50
GUARDED_GROUPS: Final = 8


def crowded(size: Size) -> Scenario:
    """S11: the templates of fifty groups change within a moment."""
    zones = [zone for name in _name_groups(GROUPS) for zone in list_zones(size, name)]
    return _change_all("s11", size, zones)


def crowded_under_budgets(size: Size) -> Scenario:
    """S13: eight groups, each under a budget of its own: every delete takes a patch more."""
    selectors = {name: {"rollout-group": name} for name in _name_groups(GUARDED_GROUPS)}
    zones = [
        replace(zone, pod_labels=selector)
        for name, selector in selectors.items()
        for zone in list_zones(size, name)
    ]

    async def prepare(people: People) -> None:
        for name, selector in selectors.items():
            await create_budget(people, zone_budget(name, selector, maxUnavailable=1))

    return replace(_change_all("s13", size, zones), prepare=prepare, has_budgets=True)


def _change_all(name: str, size: Size, zones: Sequence[ZoneSpec]) -> Scenario:
    async def script(people: People) -> None:
        await people.wait(0, 10)
        async with asyncio.TaskGroup() as tasks:
            for zone in zones:
                tasks.create_task(people.set_image(zone.name, "v2"))

    return Scenario(
        name=name,
        size=size,
        zones=zones,
        script=script,
        find_missing=find_unrolled,
        make_choice=lambda rng: DEFAULT,
    )


def _name_groups(count: int) -> list[str]:
    return [f"group-{number:02}" for number in range(count)]
