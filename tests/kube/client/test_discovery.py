"""MIRR-03: which resource a kind has, how often that is requested, and how answers are read."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from rollout_operator.kube.api import Resource, Served
from rollout_operator.kube.responses import KindCatalog
from rollout_operator.model.names import ApiError, NotFound, Unreachable
from tests.virtual_time import VirtualClock, in_virtual_time

GROUP = "x.example.org"


def served(kind: str, version: str = "v1", *subresources: str) -> Served:
    resource = Resource(GROUP, version, f"{kind.lower()}s", kind)
    return Served(resource=resource, subresources=frozenset(subresources))


class Shelf:
    """A discoverer whose groups a test fills."""

    def __init__(self, versions: dict[str, list[Served]]) -> None:
        self.versions = versions
        self.error: ApiError | None = None
        self.takes = timedelta(0)
        self.requested: Counter[str] = Counter()

    async def fetch_group(self, group: str) -> Sequence[str]:
        self.requested[group] += 1
        await asyncio.sleep(self.takes.total_seconds())
        if self.error is not None:
            raise self.error
        if group != GROUP or not self.versions:
            raise NotFound("404: 404 page not found", status=404)
        return tuple(self.versions)

    async def fetch_resources(self, group: str, version: str) -> Sequence[Served]:
        self.requested[f"{group}/{version}"] += 1
        if version == "v0":
            raise NotFound("404", status=404)
        return self.versions[version]


@in_virtual_time
async def test_a_kind_is_found_in_the_version_that_is_preferred() -> None:
    old, new = served("Thing", "v1", "scale"), served("Thing", "v2", "scale")
    only_old = served("Other", "v1")
    catalog = KindCatalog(Shelf({"v0": [], "v2": [new], "v1": [old, only_old]}), VirtualClock())
    assert await catalog.find(GROUP, "Thing") == new
    assert await catalog.find(GROUP, "Other") == only_old
    assert await catalog.find(GROUP, "things") is None


@in_virtual_time
async def test_a_version_with_a_scale_goes_before_one_without() -> None:
    bare, scaled = served("Thing", "v2"), served("Thing", "v1", "scale")
    catalog = KindCatalog(Shelf({"v2": [bare], "v1": [scaled]}), VirtualClock())
    assert await catalog.find(GROUP, "Thing") == scaled


@in_virtual_time
async def test_what_is_found_is_requested_every_ten_minutes_of_use() -> None:
    shelf = Shelf({"v1": [served("Thing", "v1", "scale")]})
    catalog = KindCatalog(shelf, VirtualClock())
    for _ in range(3600):
        assert await catalog.find(GROUP, "Thing") is not None
        await asyncio.sleep(1)
    assert shelf.requested[GROUP] == 6


@in_virtual_time
async def test_what_is_missing_is_requested_once_a_minute() -> None:
    shelf = Shelf({"v1": []})
    catalog = KindCatalog(shelf, VirtualClock())
    for _ in range(600):
        assert await catalog.find(GROUP, "Thing") is None
        assert await catalog.find(GROUP, "Other") is None
        assert await catalog.find("no-server", "Thing") is None
        await asyncio.sleep(1)
    assert (shelf.requested[GROUP], shelf.requested["no-server"]) == (10, 10)


@in_virtual_time
async def test_what_is_doubted_is_requested_once_a_minute() -> None:
    shelf = Shelf({"v1": [served("Thing", "v1", "scale")]})
    catalog = KindCatalog(shelf, VirtualClock())
    await catalog.find(GROUP, "Thing")
    catalog.doubt("no client has requested this")
    for _ in range(600):
        catalog.doubt(GROUP)
        await catalog.find(GROUP, "Thing")
        await asyncio.sleep(1)
    assert shelf.requested[GROUP] == 10
    shelf.versions.clear()
    catalog.doubt(GROUP)
    await asyncio.sleep(60)
    assert await catalog.find(GROUP, "Thing") is None, "it has vanished"


@in_virtual_time
async def test_a_failure_is_shared_and_not_kept() -> None:
    shelf = Shelf({"v1": [served("Thing", "v1", "scale")]})
    shelf.error = Unreachable("no answer")
    catalog = KindCatalog(shelf, VirtualClock())
    for _ in range(10):
        with pytest.raises(Unreachable):
            await catalog.find(GROUP, "Thing")
    assert shelf.requested[GROUP] == 1
    shelf.error = None
    await asyncio.sleep(5)
    assert await catalog.find(GROUP, "Thing") is not None


@in_virtual_time
async def test_a_failure_leaves_what_was_found_before() -> None:
    shelf = Shelf({"v1": [served("Thing", "v1", "scale")]})
    catalog = KindCatalog(shelf, VirtualClock())
    await catalog.find(GROUP, "Thing")
    shelf.error = Unreachable("no answer")
    await asyncio.sleep(3600)
    assert await catalog.find(GROUP, "Thing") is not None
    with pytest.raises(Unreachable):
        await catalog.find(GROUP, "Other")


@in_virtual_time
async def test_a_group_that_hangs_delays_no_other_and_is_read_once() -> None:
    slow = Shelf({"v1": [served("Thing", "v1", "scale")]})
    slow.takes = timedelta(seconds=30)
    catalog = KindCatalog(slow, VirtualClock())
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(catalog.find(GROUP, "Thing")) for _ in range(5)]
        await asyncio.sleep(1)
        slow.takes = timedelta(0)
        async with asyncio.timeout(1):
            assert await catalog.find("no-server", "Thing") is None
    assert all(task.result() is not None for task in waiting)
    assert slow.requested[GROUP] == 1


@in_virtual_time
async def test_groups_that_are_not_needed_are_forgotten() -> None:
    shelf = Shelf({"v1": [served("Thing", "v1", "scale")]})
    catalog = KindCatalog(shelf, VirtualClock())
    for kept in (frozenset({GROUP}), frozenset[str](), frozenset[str]()):
        await catalog.find(GROUP, "Thing")
        catalog.keep(kept)
    assert shelf.requested[GROUP] == 2
