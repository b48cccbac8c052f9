"""A downscale of zone a that a review has allowed, and what the API server makes of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.web.downscale_world import World, three_zones


@asynccontextmanager
async def granted(world: World | None = None, replicas: int = 3) -> AsyncIterator[World]:
    """Run the controller of a world, by default of three zones of five, after the grant."""
    world = world or three_zones()
    async with world.controlling():
        assert (await world.send_request("zone-a", replicas)).is_allowed
        yield world


async def write(world: World, replicas: int, zone: str = "zone-a", *, stamp: str = "") -> None:
    """Write replicas as the API server does; the caches follow."""
    world.commit(zone, replicas, stamp=stamp)
    await world.watch()
