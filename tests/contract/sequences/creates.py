"""Creating objects, and reading single ones."""

from rollout_operator.kube.api import PODS, SECRETS, STATEFULSETS
from tests.contract.bodies import config_map, pod, secret, statefulset, uid_of, version_of
from tests.contract.plays import sequence
from tests.contract.sides import CONFIG_MAPS, NAMESPACES
from tests.contract.world import World


@sequence()
async def what_exists_is_read_and_not_created_again(world: World) -> None:
    await world.create(CONFIG_MAPS, config_map("a", labels={"x": "y"}))
    await world.get(CONFIG_MAPS, "a")
    await world.create(CONFIG_MAPS, config_map("a", data={"other": "value"}))
    await world.create(CONFIG_MAPS, config_map("a"), dryRun="All")
    await world.get(CONFIG_MAPS, "a")
    await world.create(SECRETS, secret("a"))


@sequence()
async def what_does_not_exist_is_not_found(world: World) -> None:
    await world.get(CONFIG_MAPS, "a")
    await world.get(STATEFULSETS, "a")
    await world.get(STATEFULSETS, "a/scale")
    await world.create(CONFIG_MAPS, config_map("a"), dryRun="All")
    await world.get(CONFIG_MAPS, "a")


@sequence()
async def a_name_is_generated(world: World) -> None:
    body = config_map("")
    body["metadata"] = {"generateName": "made-"}
    await world.create(CONFIG_MAPS, body)
    await world.create(CONFIG_MAPS, body)
    await world.create(CONFIG_MAPS, config_map("a", generateName="made-"))


@sequence()
async def what_a_body_may_say(world: World) -> None:
    """The own namespace, no kind, unknown fields, and fields that the server sets."""
    await world.create(CONFIG_MAPS, config_map("a", namespace=world.namespace))
    await world.create(CONFIG_MAPS, {"metadata": {"name": "b"}, "data": {"key": "value"}})
    body = config_map("c")
    body["nonsense"] = {"b": 1}
    await world.create(CONFIG_MAPS, body)
    await world.get(CONFIG_MAPS, "c")
    uid = "11111111-2222-3333-4444-555555555555"
    made = await world.create(
        CONFIG_MAPS,
        config_map(
            "d",
            uid=uid,
            creationTimestamp="2001-01-01T00:00:00Z",
            deletionTimestamp="2001-01-01T00:00:00Z",
            deletionGracePeriodSeconds=7,
            generation=9,
        ),
    )
    world.record("the uid", is_another=uid_of(made) != uid)


@sequence()
async def versions_rise_with_each_create(world: World) -> None:
    first = await world.create(CONFIG_MAPS, config_map("b"))
    second = await world.create(SECRETS, secret("a"))
    third = await world.create(CONFIG_MAPS, config_map("a"))
    versions = [int(version_of(each)) for each in (first, second, third)]
    world.record("the versions", rise=versions == sorted(set(versions)))


@sequence()
async def a_status_in_the_body_is_dropped(world: World) -> None:
    await world.create(PODS, {**pod("a"), "status": {"phase": "Running"}})
    await world.create(STATEFULSETS, {**statefulset("a"), "status": {"replicas": 3}})


@sequence()
async def namespaces(world: World) -> None:
    found = await world.get(NAMESPACES, world.namespace)
    metadata = found.body["metadata"]
    assert isinstance(metadata, dict)
    world.record("labels", are=metadata["labels"])
    with world.elsewhere("nowhere-at-all"):
        await world.create(CONFIG_MAPS, config_map("a"))
        await world.get(CONFIG_MAPS, "a")
        await world.list(CONFIG_MAPS)
