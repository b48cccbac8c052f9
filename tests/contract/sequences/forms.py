"""Requests that no server takes: unknown paths, verbs that a path has not, bodies that are none."""

from rollout_operator.kube.api import PODS, SECRETS, STATEFULSETS, Resource
from rollout_operator.lab.model.request import MERGE_PATCH, ApiRequest
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


@sequence()
async def posts_to_an_object(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.create(CONFIG_MAPS, config_map("a"), "a")


@sequence()
async def posts_to_subresources(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await world.create(STATEFULSETS, statefulset("a"), "a/status")
    await world.create(STATEFULSETS, statefulset("a"), "a/scale")


@sequence()
async def deletes_of_subresources(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await world.delete(STATEFULSETS, "a/status")
    await world.delete(STATEFULSETS, "a/scale")


@sequence()
async def puts_of_a_collection(world: World) -> None:
    await world.update(CONFIG_MAPS, "", config_map("a"))
    await world.patch(CONFIG_MAPS, "", {"data": {}})


@sequence()
async def an_eviction_is_only_posted(world: World) -> None:
    await world.get(PODS, "a/eviction")
    await world.delete(PODS, "a/eviction")


@sequence()
async def another_version_in_the_body(world: World) -> None:
    body = statefulset("a")
    body["apiVersion"] = "apps/v1beta9"
    await world.create(STATEFULSETS, body)


@sequence()
async def a_patch_that_is_a_list(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.patch(CONFIG_MAPS, "a", [{"data": {}}], MERGE_PATCH)


@sequence()
async def a_body_of_another_media_type(world: World) -> None:
    request = ApiRequest(
        verb="create",
        resource=CONFIG_MAPS,
        namespace=world.namespace,
        body=config_map("a"),
        content_type="text/plain",
    )
    await world.send(request)


@sequence()
async def an_unknown_field_validation(world: World) -> None:
    await world.create(CONFIG_MAPS, config_map("a"), fieldValidation="Nonsense")
    await world.create(CONFIG_MAPS, config_map("b"), fieldValidation="Strict")
