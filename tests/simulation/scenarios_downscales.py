"""S7: two zones are scaled down at once, by clients that try again; a third may not be at all.

Both webhooks are registered as shipped. The pods are called first; the zones wait for one another.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from msgspec.structs import replace
from rollout_lab.model.fields import name_of
from rollout_lab.model.request import ApiRefusal
from rollout_lab.nodes.behaviour import BROKEN, Behaviour, Choose, Response
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import JsonObject
from tests.simulation.scenarios import (
    LIVELY_ROUTES,
    People,
    Route,
    Scenario,
    Size,
    list_zones,
    name_unready,
    usual,
)

NO_DOWNSCALE: Final = "grafana.com/no-downscale"
PREPARE: Final = "grafana.com/prepare-downscale"
MIN_TIME: Final = "grafana.com/min-time-between-zones-downscale"
PATH: Final = "ingester/prepare-shutdown"
OTHER_PATHS: Final = ("ready", PATH)
WAIT: Final = "1m"
# Shares of the clients.
GIVES_UP: Final = 1 / 3
WAVERS: Final = 1 / 5
MOVES: Final = 1 / 2


def downscaled(size: Size) -> Scenario:
    """S7: the first two zones lose a pod each; every further one is never to lose any.

    Clients do not stop before it is granted, but for one in three: a client that gives up once
    the pods are prepared leaves pods that must be told that they stay. Where they are called may
    change meanwhile (D-24).
    """
    first, second, *others = list_zones(size)
    kept = [replace(zone, labels={NO_DOWNSCALE: "true"}) for zone in others]
    zones = [prepare_zone(first), prepare_zone(second), *kept]
    names = [first.name, second.name]

    async def script(people: People) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                client = people.split(f"client-{name[-1]}")
                tasks.create_task(_scale_down(client, name, size.pods - 1))
            tries = people.split("bob")
            tasks.create_task(_rehearse(tries, names))
            for zone in kept:
                tasks.create_task(_try_in_vain(tries, zone.name, size.pods - 1))
            tasks.create_task(_move(people.split("ops"), names))

    return Scenario("s7", size, zones, script, name_unready, has_webhooks=True)


def prepare_zone(zone: ZoneSpec, *, wait: str = WAIT) -> ZoneSpec:
    """Return a zone whose pods are called before they go, and which waits for the others."""
    return replace(
        zone,
        labels={PREPARE: "true", MIN_TIME: wait},
        annotations={f"{PREPARE}-http-path": PATH, f"{PREPARE}-http-port": "8080"},
    )


async def _scale_down(people: People, name: str, replicas: int) -> None:
    """Try by any route until it is granted; some change their mind once, some give up at once."""
    await people.wait(0, 20)
    mood = people.rng.random()
    if mood < GIVES_UP:
        await people.insist(_lose_the_race, people, name, replicas)
        return
    if mood < GIVES_UP + WAVERS:
        # 3 -> 2 -> 3 -> 2, as an autoscaler that cannot decide.
        await people.attempt(scale_anyhow, people, name, replicas)
        await people.wait(0, 10)
        await people.insist(scale_anyhow, people, name, replicas + 1)
    await people.insist(scale_anyhow, people, name, replicas)


async def _lose_the_race(people: People, name: str, replicas: int) -> None:
    """Write a stale version: once the pods are prepared it is a conflict, and one gives up."""
    try:
        await people.scale(name, replicas, Route.PUT_STALE)
    except ApiRefusal as refusal:
        if refusal.status != HTTPStatus.CONFLICT:
            raise


async def scale_anyhow(people: People, name: str, replicas: int) -> None:
    """Try once, by any route that leads there."""
    await people.scale(name, replicas, people.rng.choice(LIVELY_ROUTES))


async def _rehearse(people: People, names: list[str]) -> None:
    for _ in range(4):
        await people.wait(0, 60)
        name = people.rng.choice(names)
        route = people.rng.choice(LIVELY_ROUTES)
        await people.attempt(partial(people.scale, name, 1, route, is_dry_run=True))


async def _move(people: People, names: list[str]) -> None:
    """Change now and then where the pods of a zone are called, while others scale it down."""
    for _ in range(2):
        await people.wait(0, 40)
        if people.rng.random() < MOVES:
            path = people.rng.choice(OTHER_PATHS)
            await people.attempt(people.annotate, names[0], f"{PREPARE}-http-path", path)


async def _try_in_vain(people: People, name: str, replicas: int) -> None:
    for _ in range(3):
        await people.wait(0, 60)
        await people.attempt(people.scale, name, replicas, people.rng.choice(LIVELY_ROUTES))


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

DesiredReplicas = Callable[[People, str, int], Coroutine[Any, Any, None]]


def widened(size: Size) -> Scenario:
    """Two zones, each with people of one kind; it takes four pods to show all kinds."""
    first, second = list_zones(Size(2, size.pods))
    zones = [prepare_zone(first), replace(prepare_zone(second), pod_management=ORDERED)]
    choose = partial(troubled, zones=[zone.name for zone in zones], pods=size.pods)

    async def script(people: People) -> None:
        wishes = people.rng.choice(WISHES), people.rng.choice((*WISHES, _repent))
        async with asyncio.TaskGroup() as tasks:
            for zone, desired in zip(zones, wishes, strict=True):
                tasks.create_task(desired(people.split("carol"), zone.name, size.pods))

    return Scenario("s7-wide", size, zones, script, name_unready, choose, has_webhooks=True)


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
    if not await people.attempt(scale_anyhow, people, name, pods - 2):
        await people.wait(0, 40)
        await people.insist(scale_anyhow, people, name, pods - 1)


async def _give_up(people: People, name: str, pods: int) -> None:
    """Want two pods less, and nothing any more once that is refused."""
    await people.wait(0, 20)
    await people.attempt(scale_anyhow, people, name, pods - 2)


async def _disagree(people: People, name: str, pods: int) -> None:
    """Two want different counts at the same time; one insists, one is soon tired of it."""
    await people.wait(0, 20)
    other = people.split("eve")

    async def request_more() -> None:
        for _ in range(4):
            await other.wait(0, 0.5)
            if await other.attempt(scale_anyhow, other, name, pods - 2):
                return

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(request_more())
        await people.wait(0, 0.5)
        await people.insist(scale_anyhow, people, name, pods - 1)


async def _see_saw(people: People, name: str, pods: int) -> None:
    """Down, up again, and down."""
    for replicas in (pods - 1, pods, pods - 1):
        await people.wait(0, 20)
        await people.insist(scale_anyhow, people, name, replicas)


async def _repent(people: People, name: str, pods: int) -> None:
    """All pods but one are to go; before they have gone, one of them is wanted after all."""
    await people.wait(0, 20)
    if await people.attempt(scale_anyhow, people, name, 1):
        await people.wait(0, 2)
        await people.insist(scale_anyhow, people, name, 2)


WISHES: Final[tuple[DesiredReplicas, ...]] = (_be_modest, _give_up, _disagree, _see_saw, _repent)


# Of a pod that is prepared: the longer it takes, the longer others have to come in between.
ANSWERS: Final = (0.02, 0.7, 2.5, 4.5)  # seconds
# Between downscales: so little that most of them meet the rollout.
SHORT_WAIT: Final = "20s"
# No client scales for so long: then a new template comes all the same.
PATIENCE: Final = 30.0  # seconds


def rolled_and_downscaled(size: Size) -> Scenario:
    """All zones get a new template, some twice, and the first two lose a pod each meanwhile."""
    zones = [prepare_zone(zone, wait=SHORT_WAIT) for zone in list_zones(size)]
    names = [zone.name for zone in zones]

    async def script(people: People) -> None:
        requested = asyncio.Event()  # set whenever a client scales down

        async def request(client: People, name: str) -> None:
            requested.set()
            await scale_anyhow(client, name, size.pods - 1)

        async def scale_down(client: People, name: str) -> None:
            await client.wait(0, 20)
            await client.insist(request, client, name)

        async with asyncio.TaskGroup() as tasks:
            for name in names[:2]:
                tasks.create_task(scale_down(people.split(f"client-{name[-1]}"), name))
            tasks.create_task(_renew(people.split("dave"), names, requested))

    return Scenario("both", size, zones, script, make_choice=hesitant, has_webhooks=True)


def hesitant(rng: random.Random) -> Choose:
    """Return pods that are quickly replaced, and take their time to say that they may go."""
    choose = usual(rng)

    def hesitate(pod: JsonObject) -> Behaviour:
        answer = Response(after=timedelta(seconds=rng.choice(ANSWERS)))
        return replace(choose(pod), prepare=answer)

    return hesitate


async def _renew(people: People, names: Sequence[str], requested: asyncio.Event) -> None:
    """Change all templates once or twice, by the clock or while a review is being answered."""
    for version in range(2, people.rng.choice((3, 3, 4))):
        if people.rng.random() < 1 / 3:
            await people.wait(0, 20)
        else:
            requested.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await requested.wait()
            await people.wait(0, 2)
        for name in names:
            await people.insist(people.set_image, name, f"v{version}")
