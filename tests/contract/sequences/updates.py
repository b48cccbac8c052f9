"""Replacing objects whole: versions, conflicts, writes that change nothing."""

from rollout_operator.kube.api import PODS, SECRETS, STATEFULSETS
from tests.contract.bodies import config_map, pod, secret, statefulset, tree
from tests.contract.plays import sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World


@sequence()
async def the_newest_version_is_replaced(world: World) -> None:
    body = tree(await world.make(CONFIG_MAPS, config_map("a")))
    body["data"] = {"key": "other"}
    await world.update(CONFIG_MAPS, "a", body)
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def an_old_version_conflicts(world: World) -> None:
    body = tree(await world.make(CONFIG_MAPS, config_map("a")))
    body["data"] = {"key": "other"}
    await world.update(CONFIG_MAPS, "a", body)
    body["data"] = {"key": "third"}
    await world.update(CONFIG_MAPS, "a", body)
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def an_old_version_conflicts_even_without_a_change(world: World) -> None:
    body = tree(await world.make(CONFIG_MAPS, config_map("a")))
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    body["data"] = {"key": "other"}
    await world.update(CONFIG_MAPS, "a", body)


@sequence()
async def an_old_version_conflicts_for_a_stateful_set(world: World) -> None:
    body = tree(await world.make(STATEFULSETS, statefulset("a")))
    await world.patch(STATEFULSETS, "a", {"spec": {"replicas": 2}})
    body["spec"]["replicas"] = 5
    await world.update(STATEFULSETS, "a", body)


@sequence()
async def no_version_means_whatever_is_there(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.update(CONFIG_MAPS, "a", config_map("a", data={"key": "other"}))
    await world.update(CONFIG_MAPS, "a", config_map("a", data={"key": "third"}))


@sequence()
async def a_stateful_set_without_version(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    await world.update(STATEFULSETS, "a", statefulset("a", 5))


@sequence()
async def a_pod_without_version(world: World) -> None:
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


@sequence()
async def a_stateful_set_put_back_keeps_version_and_generation(world: World) -> None:
    body = tree(await world.make(STATEFULSETS, statefulset("a")))
    await world.update(STATEFULSETS, "a", body)
    await world.update(STATEFULSETS, "a", statefulset("a"))


@sequence()
async def what_does_not_exist_is_not_replaced(world: World) -> None:
    await world.update(CONFIG_MAPS, "a", config_map("a"))
    await world.update(CONFIG_MAPS, "a", config_map("a", resourceVersion="17"))
    await world.update(SECRETS, "a", secret("a"))
    await world.update(STATEFULSETS, "a", statefulset("a"))


@sequence()
async def another_uid_in_the_body(world: World) -> None:
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


@sequence()
async def what_is_left_out_of_a_put_is_gone(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a", labels={"x": "y"}, annotations={"x": "y"}))
    await world.update(CONFIG_MAPS, "a", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "a"}})  # fmt: skip
