"""S7 with more pods: people who want different counts of one set, at once or one after the other.

Two zones lose up to three pods. Some pods refuse to go or are slow to say so; in the second zone
pods go one by one, so that a downscale can be taken back in its middle.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import name_of
from rollout_operator.lab.nodes.behaviour import BROKEN, Behaviour, Choose, Response
from tests.simulation.scenarios import Scenario, Size, find_unready, usual
from tests.simulation.scenarios_downscales import prepare_zone, scale_anyhow
from tests.simulation.scenarios_people import People
from tests.simulation.scenarios_rollouts import list_zones

ORDERED: Final = "OrderedReady"
# So long do some pods take to go, one after the other.
LINGERS: Final = timedelta(seconds=60)
# A call ends after five seconds, whatever becomes of it at the pod.
LATE: Final = Response(after=timedelta(seconds=7))
TOO_LATE: Final = Response(after=timedelta(seconds=16))
HESITANT: Final = Response(after=timedelta(seconds=4.5))
# What may be wrong with the last pod but one: how it takes the word to go, and to stay.
FINE: Final = (Response(), Response())
TROUBLES: Final = (FINE, (BROKEN, Response()), (LATE, Response()), (TOO_LATE, HESITANT))

Wish = Callable[[People, str, int], Coroutine[Any, Any, None]]


def widened(size: Size) -> Scenario:
    """Two zones, each with people of one kind; it takes four pods to show all kinds."""
    first, second = list_zones(Size(2, size.pods))
    zones = [prepare_zone(first), replace(prepare_zone(second), pod_management=ORDERED)]

    async def script(people: People) -> None:
        wishes = people.rng.choice(WISHES), people.rng.choice((*WISHES, _repent))
        async with asyncio.TaskGroup() as tasks:
            for zone, wish in zip(zones, wishes, strict=True):
                tasks.create_task(wish(people.split("carol"), zone.name, size.pods))

    return Scenario(
        name="s7-wide",
        size=size,
        zones=zones,
        script=script,
        find_missing=find_unready,
        make_choice=partial(troubled, zones=[zone.name for zone in zones], pods=size.pods),
        has_webhooks=True,
    )


def troubled(rng: random.Random, *, zones: Sequence[str], pods: int) -> Choose:
    """Return pods that may linger, and of which the last but one may never say that it goes.

    More often in the first zone than in the others: there all have to go, if one is to repent.
    """
    choose = usual(rng)
    lingers = rng.random() < 1 / 2
    first, *others = (f"{name}-{pods - 2}" for name in zones)
    troubles = {name: rng.choice((FINE, FINE, *TROUBLES)) for name in others}
    troubles[first] = rng.choice(TROUBLES)

    def behave(pod: JsonObject) -> Behaviour:
        behaviour = choose(pod)
        if lingers:
            behaviour = replace(behaviour, terminates_after=LINGERS)
        if name_of(pod) in troubles:
            prepare, cancel = troubles[name_of(pod)]
            behaviour = replace(behaviour, prepare=prepare, cancel=cancel)
        return behaviour

    return behave


async def _be_modest(people: People, name: str, pods: int) -> None:
    """Want two pods less; once refused, be content with one."""
    await people.wait(0, 20)
    if not await people.attempt(partial(scale_anyhow, people, name, pods - 2)):
        await people.wait(0, 40)
        await people.insist(partial(scale_anyhow, people, name, pods - 1))


async def _give_up(people: People, name: str, pods: int) -> None:
    """Want two pods less, and nothing any more once that is refused."""
    await people.wait(0, 20)
    await people.attempt(partial(scale_anyhow, people, name, pods - 2))


async def _disagree(people: People, name: str, pods: int) -> None:
    """Two want different counts at the same time; one insists, one is soon tired of it."""
    await people.wait(0, 20)
    other = people.split("eve")

    async def ask_for_more() -> None:
        for _ in range(4):
            await other.wait(0, 0.5)
            if await other.attempt(partial(scale_anyhow, other, name, pods - 2)):
                return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ask_for_more())
        await people.wait(0, 0.5)
        await people.insist(partial(scale_anyhow, people, name, pods - 1))


async def _see_saw(people: People, name: str, pods: int) -> None:
    """Down, up again, and down."""
    for replicas in (pods - 1, pods, pods - 1):
        await people.wait(0, 20)
        await people.insist(partial(scale_anyhow, people, name, replicas))


async def _repent(people: People, name: str, pods: int) -> None:
    """All pods but one are to go; before they have gone, one of them is wanted after all."""
    await people.wait(0, 20)
    if await people.attempt(partial(scale_anyhow, people, name, 1)):
        await people.wait(0, 2)
        await people.insist(partial(scale_anyhow, people, name, 2))


WISHES: Final[tuple[Wish, ...]] = (_be_modest, _give_up, _disagree, _see_saw, _repent)
