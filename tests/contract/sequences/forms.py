"""Requests that no server takes: kinds, versions and subresources that it does not serve."""

from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.api import SECRETS, STATEFULSETS, Resource
from tests.contract.bodies import config_map, statefulset
from tests.contract.plays import sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World

GROUP = REPLICA_TEMPLATES.group


@sequence()
async def unknown_resources(world: World) -> None:
    for resource in (
        Resource("nothing.example.org", "v1", "nothings", "Nothing"),
        Resource("", "v1", "nothings", "Nothing"),
        Resource("apps", "v1beta9", "statefulsets", "StatefulSet"),
        Resource(GROUP, "v1", "nothings", "Nothing"),
        Resource(GROUP, "v2", "replicatemplates", "ReplicaTemplate"),
    ):
        await world.get(resource, "a")
        await world.get(resource, "a/scale")
        await world.list(resource)
        await world.create(resource, config_map("a"))
        await world.events(resource, timeoutSeconds="1")
        call = world.clients.fetch(resource, world.namespace, "a", "scale")
        await world.attempt("through the client", call)


@sequence()
async def unknown_subresources(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.make(STATEFULSETS, statefulset("a"))
    await world.get(STATEFULSETS, "a/nonsense")
    await world.get(SECRETS, "a/scale")
    await world.get(CONFIG_MAPS, "a/status")
    await world.get(CONFIG_MAPS, "a/scale")
    await world.get(CONFIG_MAPS, "b/scale")
    await world.patch(CONFIG_MAPS, "a/scale", {"spec": {"replicas": 1}})
    await world.patch(CONFIG_MAPS, "a/status", {"status": {"replicas": 1}})
