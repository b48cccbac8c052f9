"""Replacing objects: versions, identities, what is left out."""

from rollout_operator.kube.api import PODS, SECRETS, STATEFULSETS, JsonObject
from tests.contract.bodies import config_map, pod, secret, statefulset, tree
from tests.contract.plays import sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World


@sequence()
async def only_the_newest_version_is_replaced(world: World) -> None:
    body = tree(await world.make(CONFIG_MAPS, config_map("a")))
    body["data"] = {"key": "other"}
    await world.update(CONFIG_MAPS, "a", body)
    await world.update(CONFIG_MAPS, "a", body)  # old, even without a change
    body["data"] = {"key": "third"}
    await world.update(CONFIG_MAPS, "a", body)
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def only_the_newest_version_of_a_stateful_set_is_replaced(world: World) -> None:
    body = tree(await world.make(STATEFULSETS, statefulset("a")))
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 2}})
    body["spec"]["replicas"] = 5
    await world.update(STATEFULSETS, "a", body)
    await world.update(STATEFULSETS, "a", statefulset("a", 5))


@sequence()
async def no_version_means_whatever_is_there(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a", labels={"x": "y"}, annotations={"x": "y"}))
    await world.update(CONFIG_MAPS, "a", config_map("a", data={"key": "other"}))
    await world.update(CONFIG_MAPS, "a", config_map("a", data={"key": "third"}))
    bare: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    await world.update(CONFIG_MAPS, "a", bare)
    body = tree(await world.make(PODS, pod("a")))
    del body["metadata"]["resourceVersion"]
    body["metadata"]["labels"] = {"other": "label"}
    await world.update(PODS, "a", body)


@sequence()
async def a_write_without_change_keeps_the_version(world: World) -> None:
    body = tree(await world.make(CONFIG_MAPS, config_map("a")))
    await world.update(CONFIG_MAPS, "a", body)
    del body["metadata"]["resourceVersion"]
    await world.update(CONFIG_MAPS, "a", body)
    await world.get(CONFIG_MAPS, "a")
    body = tree(await world.make(STATEFULSETS, statefulset("a")))
    await world.update(STATEFULSETS, "a", body)
    await world.update(STATEFULSETS, "a", statefulset("a"))


@sequence()
async def what_does_not_exist_is_not_replaced(world: World) -> None:
    await world.update(CONFIG_MAPS, "a", config_map("a"))
    await world.update(CONFIG_MAPS, "a", config_map("a", resourceVersion="17"))
    await world.update(SECRETS, "a", secret("a"))
    await world.update(STATEFULSETS, "a", statefulset("a"))
    await world.make(CONFIG_MAPS, config_map("a"))
    uid = "11111111-2222-3333-4444-555555555555"
    await world.update(CONFIG_MAPS, "a", config_map("a", uid=uid))


@sequence()
async def dry_run_of_a_put_changes_nothing(world: World) -> None:
    body = tree(await world.make(STATEFULSETS, statefulset("a")))
    body["spec"]["replicas"] = 7
    await world.update(STATEFULSETS, "a", body, dryRun="All")
    await world.get(STATEFULSETS, "a")
    await world.update(STATEFULSETS, "a", body)
    await world.update(STATEFULSETS, "a", body, dryRun="All")
