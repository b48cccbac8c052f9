"""Each kind of trouble that the proxy can make reaches a client as it would from a real server."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import aiohttp
import pytest

from tests.world.api import CONFIG_MAPS, Api, ApiError, Event
from tests.world.faults import (
    Answer,
    CommitLate,
    Cut,
    Delay,
    Drop,
    Expire,
    Freeze,
    NeverAnswer,
    Request,
    Truncate,
    continued_lists,
    everything,
    lists,
    verbs,
    watches,
)
from tests.world.scene import World

pytestmark = pytest.mark.controlplane

SHORT = timedelta(milliseconds=300)
MAPS = "configmaps"


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


@pytest.fixture
async def through(world: World) -> AsyncIterator[Api]:
    """Yield the admin's client, but by way of the proxy."""
    async with world.plane.api(url=world.proxy.url) as api:
        yield api


@asynccontextmanager
async def watching(api: Api, world: World) -> AsyncIterator[asyncio.Queue[Event | Exception]]:
    """Yield what a watch of config maps brings; its end is the last thing in the queue."""
    seen: asyncio.Queue[Event | Exception] = asyncio.Queue()
    version = (await api.list(CONFIG_MAPS, world.namespace))["metadata"]["resourceVersion"]

    async def watch() -> None:
        try:
            async for event in api.watch(CONFIG_MAPS, world.namespace, version=version):
                if event.type != "BOOKMARK":
                    seen.put_nowait(event)
        except (aiohttp.ClientError, ApiError) as end:
            seen.put_nowait(end)

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watch(), name="test-watch")
        await world.api.create(CONFIG_MAPS, world.namespace, config_map("first"))
        await next_name(seen)
        yield seen
        task.cancel()


async def next_name(seen: asyncio.Queue[Event | Exception]) -> str:
    async with asyncio.timeout(10):
        event = await seen.get()
    assert isinstance(event, Event), event
    return str(event.object["metadata"]["name"])


async def test_without_rules_everything_passes_and_is_counted(world: World, through: Api) -> None:
    async with watching(through, world) as seen:
        await through.create(CONFIG_MAPS, world.namespace, config_map("a"))
        assert await next_name(seen) == "a"
        assert [each.resource for each in world.proxy.open_watches] == [MAPS]
        await through.get(CONFIG_MAPS, world.namespace, "a")
        await through.delete(CONFIG_MAPS, world.namespace, "a")

    assert world.proxy.counts == {
        ("list", MAPS): 1,
        ("watch", MAPS): 1,
        ("create", MAPS): 1,
        ("get", MAPS): 1,
        ("delete", MAPS): 1,
    }


async def test_a_frozen_watch_brings_everything_after_the_thaw_a_dropped_one_nothing(
    world: World, through: Api
) -> None:
    async with watching(through, world) as seen:
        with world.proxy.during(watches(MAPS), Freeze()):
            await world.api.create(CONFIG_MAPS, world.namespace, config_map("a"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(seen.get(), SHORT.total_seconds())
        assert await next_name(seen) == "a"

        with world.proxy.during(watches(MAPS), Drop()):
            await world.api.create(CONFIG_MAPS, world.namespace, config_map("b"))
        await world.api.create(CONFIG_MAPS, world.namespace, config_map("c"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(seen.get(), SHORT.total_seconds())
        assert len(world.proxy.open_watches) == 1


@pytest.mark.parametrize(
    ("trouble", "text"), [(Cut(), "Payload|Connection|Server"), (Expire(), "410 Expired")]
)
async def test_an_open_watch_ends(
    world: World, through: Api, trouble: Cut | Expire, text: str
) -> None:
    async with watching(through, world) as seen:
        with world.proxy.during(watches(MAPS), trouble):
            async with asyncio.timeout(10):
                end = await seen.get()
    assert isinstance(end, ApiError if text.startswith("410") else aiohttp.ClientError)
    assert re.search(text, f"{type(end).__name__} {end}")


async def test_a_new_watch_and_a_second_page_expire(world: World, through: Api) -> None:
    world.proxy.add(watches(MAPS), Expire(), times=1)
    with pytest.raises(ApiError, match="410 Expired"):
        async for _ in through.watch(CONFIG_MAPS, world.namespace):
            pass

    for name in ("a", "b", "c"):
        await world.api.create(CONFIG_MAPS, world.namespace, config_map(name))
    world.proxy.add(continued_lists(MAPS), Answer(410), times=1)
    first = await through.list(CONFIG_MAPS, world.namespace, query={"limit": "1"})
    rest = {"limit": "1", "continue": first["metadata"]["continue"]}
    with pytest.raises(ApiError, match="410 Expired"):
        await through.list(CONFIG_MAPS, world.namespace, query=rest)
    await through.list(CONFIG_MAPS, world.namespace, query=rest)


async def test_an_answer_is_given_in_the_servers_place_late_or_cut(
    world: World, through: Api
) -> None:
    world.proxy.add(lists(MAPS), Answer(503, timedelta(seconds=7)), times=1)
    async with through.session.get(CONFIG_MAPS.path(world.namespace)) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "7")
        assert (await answer.json())["code"] == 503

    begin = asyncio.get_running_loop().time()
    with world.proxy.during(everything, Delay(SHORT)) as rule:
        await through.list(CONFIG_MAPS, world.namespace)
    assert asyncio.get_running_loop().time() - begin >= SHORT.total_seconds()
    assert rule.hits == 1

    world.proxy.add(lists(MAPS), Truncate(20), times=1)
    with pytest.raises(aiohttp.ClientError):
        await through.list(CONFIG_MAPS, world.namespace)


@pytest.mark.parametrize(
    ("trouble", "is_written", "comes_late"),
    [(Cut(), False, False), (CommitLate(SHORT), False, True), (NeverAnswer(), True, True)],
)
async def test_what_becomes_of_a_write_without_an_answer(
    world: World,
    through: Api,
    trouble: Cut | CommitLate | NeverAnswer,
    is_written: bool,
    comes_late: bool,
) -> None:
    world.proxy.add(verbs("create", MAPS), trouble, times=1)
    path, body = CONFIG_MAPS.path(world.namespace), config_map("a")

    with pytest.raises((aiohttp.ClientError, TimeoutError)):
        await through.call("POST", path, body=body, limit=SHORT * 3)

    async def exists() -> bool:
        return any(
            one["metadata"]["name"] == "a"
            for one in await world.api.items(CONFIG_MAPS, world.namespace)
        )

    assert await exists() is is_written
    await asyncio.sleep(SHORT.total_seconds() * 3)
    assert await exists() is comes_late


@pytest.mark.parametrize(
    ("method", "path", "query", "verb", "resource"),
    [
        ("GET", "/api/v1/namespaces/n/pods", {}, "list", "pods"),
        ("GET", "/api/v1/namespaces/n/pods", {"watch": "1"}, "watch", "pods"),
        ("GET", "/api/v1/namespaces/n/pods/p", {}, "get", "pods"),
        ("DELETE", "/api/v1/namespaces/n/pods/p", {}, "delete", "pods"),
        ("DELETE", "/api/v1/namespaces/n/pods", {}, "deletecollection", "pods"),
        ("GET", "/api/v1/pods", {}, "list", "pods"),
        ("GET", "/api/v1/namespaces", {}, "list", "namespaces"),
        ("GET", "/api/v1/namespaces/n", {}, "get", "namespaces"),
        ("POST", "/api/v1/namespaces/n/pods/p/eviction", {}, "create", "pods/eviction"),
        (
            "PUT",
            "/apis/apps/v1/namespaces/n/statefulsets/s/status",
            {},
            "update",
            "statefulsets/status",
        ),
    ],
)
def test_verb_and_resource_of_a_request(
    method: str, path: str, query: dict[str, str], verb: str, resource: str
) -> None:
    request = Request(method=method, path=path, query=query)

    assert (request.verb, request.resource) == (verb, resource)
