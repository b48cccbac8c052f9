"""Watches: where they start, what they send, how they end."""

from rollout_operator.kube.api import PODS, STATEFULSETS
from tests.contract.bodies import config_map, delete_options, pod, statefulset, version_of
from tests.contract.plays import Needs, sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World


async def _start(world: World) -> str:
    """Return the version before anything that the sequence does from now on."""
    return version_of(await world.make(CONFIG_MAPS, config_map("start")))


async def _end(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("end", labels={"x": "y"}))


@sequence()
async def what_happened_since_a_version(world: World) -> None:
    version = await _start(world)
    for _ in range(2):
        await world.create(CONFIG_MAPS, config_map("a"))
        await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
        await world.delete(CONFIG_MAPS, "a")
    await _end(world)
    await world.events(CONFIG_MAPS, "end", resourceVersion=version)


@sequence()
async def events_come_while_it_is_open(world: World) -> None:
    version = await _start(world)
    async with world.watch(CONFIG_MAPS, resourceVersion=version) as watch:
        await world.create(CONFIG_MAPS, config_map("a"))
        await watch.until("a")
        await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
        await watch.until("a")


@sequence()
async def what_changes_nothing_here_is_no_event(world: World) -> None:
    version = await _start(world)
    await world.patch(CONFIG_MAPS, "start", {"data": {"key": "value"}})
    await world.patch(CONFIG_MAPS, "start", {"data": {"key": "other"}}, dryRun="All")
    await world.create(CONFIG_MAPS, config_map("start"))
    await world.patch(CONFIG_MAPS, "start", {"metadata": {"resourceVersion": "1"}})
    await world.make(PODS, pod("a"))
    await _end(world)
    await world.events(CONFIG_MAPS, "end", resourceVersion=version)


@sequence()
async def leaving_and_entering_a_selector(world: World) -> None:
    version = await _start(world)
    await world.make(CONFIG_MAPS, config_map("a"))
    for value in ("y", "z", "y"):
        await world.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"x": value}}})
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    await world.patch(CONFIG_MAPS, "a", {"metadata": {"labels": None}})
    await world.delete(CONFIG_MAPS, "a")
    await _end(world)
    await world.events(CONFIG_MAPS, "end", resourceVersion=version, labelSelector="x=y")


@sequence()
async def one_object_by_name(world: World) -> None:
    version = await _start(world)
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.make(CONFIG_MAPS, config_map("b"))
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "other"}})
    await world.patch(CONFIG_MAPS, "b", {"data": {"key": "other"}})
    await world.delete(CONFIG_MAPS, "b")
    query = {"fieldSelector": "metadata.name=b", "resourceVersion": version}
    await world.events(CONFIG_MAPS, timeoutSeconds="1", **query)


@sequence()
async def from_any_state(world: World) -> None:
    version = await _start(world)
    await world.make(CONFIG_MAPS, config_map("a"))
    await _end(world)
    await world.events(CONFIG_MAPS, "end", resourceVersion=version)
    await world.events(CONFIG_MAPS, "start", resourceVersion="0")


@sequence()
async def from_the_newest_state(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("b"))
    await world.make(CONFIG_MAPS, config_map("a"))
    await world.events(CONFIG_MAPS, "b")
    await _end(world)
    await world.events(CONFIG_MAPS, "end", labelSelector="x=y")


@sequence()
async def it_ends_when_its_time_is_over(world: World) -> None:
    version = await _start(world)
    await world.events(CONFIG_MAPS, resourceVersion=version, timeoutSeconds="1")


@sequence()
async def bookmarks(world: World) -> None:
    version = await _start(world)
    query = {"resourceVersion": version, "timeoutSeconds": "4"}
    async with world.watch(CONFIG_MAPS, allowWatchBookmarks="true", **query) as watch:
        await world.create(CONFIG_MAPS, config_map("a"))
        world.side.send_bookmarks()
        await watch.until()


@sequence()
async def all_objects_first_and_a_bookmark_that_says_so(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a", labels={"x": "y"}))
    await world.make(CONFIG_MAPS, config_map("b"))
    await _end(world)
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    query |= {"labelSelector": "x=y", "timeoutSeconds": "4"}
    async with world.watch(CONFIG_MAPS, allowWatchBookmarks="true", **query) as watch:
        world.side.send_bookmarks()
        await watch.until()


@sequence()
async def no_bookmarks_unless_requested(world: World) -> None:
    version = await _start(world)
    query = {"resourceVersion": version, "timeoutSeconds": "4"}
    async with world.watch(CONFIG_MAPS, **query) as watch:
        world.side.send_bookmarks()
        await watch.until()


@sequence(needs=Needs.OBLIVION)
async def a_version_that_is_too_old(world: World) -> None:
    version = await _start(world)
    await _end(world)
    await world.side.forget_past()
    await world.events(CONFIG_MAPS, resourceVersion=version, timeoutSeconds="2")


@sequence()
async def ends_of_pods_and_of_what_a_finalizer_held(world: World) -> None:
    version = await _start(world)
    await world.make(PODS, pod("a", node="n"))
    await world.delete(PODS, "a")
    await world.delete(PODS, "a", delete_options(gracePeriodSeconds=0))
    await world.make(PODS, pod("b", node="n"))
    await world.delete(PODS, "b", delete_options(gracePeriodSeconds=0))
    await world.make(PODS, pod("c"))
    await world.delete(PODS, "c")
    await world.make(PODS, pod("end"))
    await world.events(PODS, "end", resourceVersion=version)
    await world.make(CONFIG_MAPS, config_map("a", finalizers=["x.org/a"]))
    await world.delete(CONFIG_MAPS, "a")
    await world.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})
    await _end(world)
    await world.events(CONFIG_MAPS, "end", resourceVersion=version)


@sequence()
async def status_and_scale_are_changes_of_the_object(world: World) -> None:
    version = await _start(world)
    await world.make(STATEFULSETS, statefulset("a"))
    await world.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 2}})
    await world.patch(STATEFULSETS, "a/status", {"status": {"replicas": 2}})
    await world.make(STATEFULSETS, statefulset("end"))
    await world.events(STATEFULSETS, "end", resourceVersion=version)
