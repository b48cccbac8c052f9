"""Requests that no server takes: unknown paths, verbs that a path has not, bodies that are none."""

from rollout_operator.kube.api import SECRETS, STATEFULSETS, Resource
from tests.contract.bodies import config_map, statefulset
from tests.contract.plays import sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World

NOTHINGS = Resource("nothing.example.org", "v1", "nothings", "Nothing")
NOTHINGS_OF_CORE = Resource("", "v1", "nothings", "Nothing")
OLD_SETS = Resource("apps", "v1beta9", "statefulsets", "StatefulSet")


@sequence()
async def unknown_resources(world: World) -> None:
    for resource in (NOTHINGS, NOTHINGS_OF_CORE, OLD_SETS):
        await world.get(resource, "a")
        await world.list(resource)
        await world.create(resource, config_map("a"))
        await world.events(resource, timeoutSeconds="1")


@sequence()
async def unknown_subresources(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.make(STATEFULSETS, statefulset("a"))
    await world.get(CONFIG_MAPS, "a/status")
    await world.get(STATEFULSETS, "a/nonsense")
    await world.get(SECRETS, "a/scale")
