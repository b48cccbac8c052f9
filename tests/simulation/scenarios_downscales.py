"""S7: two zones are scaled down at once, by clients that try again; a third may not be at all.

Both webhooks are registered as shipped. The pods are asked first; the zones wait for one another.
"""

import asyncio
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Final

from rollout_operator.lab.model.request import ApiRefusal
from rollout_operator.lab.zones import ZoneSpec
from tests.simulation.scenarios import Scenario, Size, find_unready
from tests.simulation.scenarios_people import LIVELY_ROUTES, People, Route
from tests.simulation.scenarios_rollouts import list_zones

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

    Those who want it do not stop before it is granted, but for one in three: whoever gives up once
    the pods are prepared leaves pods that must be told that they stay. Where they are called may
    change meanwhile (D-24).
    """
    first, second, *kept = list_zones(size)
    zones = [
        *(prepare_zone(zone) for zone in (first, second)),
        *(replace(zone, labels={NO_DOWNSCALE: "true"}) for zone in kept),
    ]
    wanted = {zone.name: size.pods - 1 for zone in (first, second)}

    async def script(people: People) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, replicas in wanted.items():
                client = people.split(f"client-{name[-1]}")
                tasks.create_task(_scale_down(client, name, replicas))
            tries = people.split("bob")
            tasks.create_task(_rehearse(tries, list(wanted)))
            for zone in kept:
                tasks.create_task(_try_in_vain(tries, zone.name, size.pods - 1))
            tasks.create_task(_move(people.split("ops"), list(wanted)))

    return Scenario(
        name="s7",
        size=size,
        zones=zones,
        script=script,
        find_missing=find_unready,
        has_webhooks=True,
    )


def prepare_zone(zone: ZoneSpec, *, wait: str = WAIT) -> ZoneSpec:
    """Return a zone whose pods are asked before they go, and which waits for the others."""
    return replace(
        zone,
        labels={PREPARE: "true", MIN_TIME: wait},
        annotations={f"{PREPARE}-http-path": PATH, f"{PREPARE}-http-port": "8080"},
    )


async def _scale_down(people: People, name: str, replicas: int) -> None:
    """Ask by any route until it is granted; some change their mind once, some give up at once."""
    await people.wait(0, 20)
    mood = people.rng.random()
    if mood < GIVES_UP:
        await people.insist(partial(_lose_the_race, people, name, replicas))
        return
    if mood < GIVES_UP + WAVERS:
        # 3 -> 2 -> 3 -> 2, as an autoscaler that cannot decide.
        await people.attempt(partial(scale_anyhow, people, name, replicas))
        await people.wait(0, 10)
        await people.insist(partial(scale_anyhow, people, name, replicas + 1))
    await people.insist(partial(scale_anyhow, people, name, replicas))


async def _lose_the_race(people: People, name: str, replicas: int) -> None:
    """Write a stale version: once the pods are prepared it is a conflict, and one gives up."""
    try:
        await people.scale(name, replicas, Route.PUT_STALE)
    except ApiRefusal as refusal:
        if refusal.status != HTTPStatus.CONFLICT:
            raise


async def scale_anyhow(people: People, name: str, replicas: int) -> None:
    """Ask once, by any route that leads there. Raises Refusal."""
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
            await people.attempt(partial(people.annotate, names[0], f"{PREPARE}-http-path", path))


async def _try_in_vain(people: People, name: str, replicas: int) -> None:
    for _ in range(3):
        await people.wait(0, 60)
        route = people.rng.choice(LIVELY_ROUTES)
        await people.attempt(partial(people.scale, name, replicas, route))
