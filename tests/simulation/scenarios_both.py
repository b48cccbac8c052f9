"""Both at once: a rollout of all zones begins before, while or after some of them are scaled down.

A rollout and a downscale of one group exclude each other (D-25): whichever comes first holds the
other back, and who is refused asks again.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.nodes.behaviour import Behaviour, Choose, Response
from tests.simulation.scenarios import Scenario, Size, find_unrolled, usual
from tests.simulation.scenarios_downscales import prepare_zone, scale_anyhow
from tests.simulation.scenarios_people import People
from tests.simulation.scenarios_rollouts import list_zones

# Of a pod that is told to go: the longer it takes, the longer others have to come in between.
ANSWERS: Final = (0.02, 0.7, 2.5, 4.5)  # seconds
# Between downscales: so little that most of them meet the rollout.
WAIT: Final = "20s"
# Nobody asks for so long: then a new template comes all the same.
PATIENCE: Final = 30.0  # seconds


def rolled_and_downscaled(size: Size) -> Scenario:
    """All zones get a new template, some twice, and the first two lose a pod each meanwhile."""
    zones = [prepare_zone(zone, wait=WAIT) for zone in list_zones(size)]
    names = [zone.name for zone in zones]

    async def script(people: People) -> None:
        tale = _Tale(names)
        async with asyncio.TaskGroup() as tasks:
            for name in names[:2]:
                client = people.split(f"client-{name[-1]}")
                tasks.create_task(tale.scale_down(client, name, size.pods - 1))
            tasks.create_task(tale.renew(people.split("dave")))

    return Scenario(
        name="both",
        size=size,
        zones=zones,
        script=script,
        find_missing=find_unrolled,
        make_choice=hesitant,
        has_webhooks=True,
    )


def hesitant(rng: random.Random) -> Choose:
    """Return pods that are quickly replaced, and take their time to say that they may go."""
    choose = usual(rng)

    def hesitate(pod: JsonObject) -> Behaviour:
        answer = Response(after=timedelta(seconds=rng.choice(ANSWERS)))
        return replace(choose(pod), prepare=answer)

    return hesitate


@dataclass(slots=True)
class _Tale:
    names: Sequence[str]
    _asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever somebody asks for fewer pods."""

    async def scale_down(self, people: People, name: str, replicas: int) -> None:
        """Ask until it is granted."""
        await people.wait(0, 20)
        await people.insist(partial(self._ask, people, name, replicas))

    async def renew(self, people: People) -> None:
        """Change all templates once or twice, by the clock or while somebody is being answered."""
        for version in range(2, people.rng.choice((3, 3, 4))):
            if people.rng.random() < 1 / 3:
                await people.wait(0, 20)
            else:
                self._asked.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        await self._asked.wait()
                await people.wait(0, 2)
            for name in self.names:
                await people.insist(partial(people.set_image, name, f"v{version}"))

    async def _ask(self, people: People, name: str, replicas: int) -> None:
        self._asked.set()
        await scale_anyhow(people, name, replicas)
