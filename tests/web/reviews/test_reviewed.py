"""How many namespaces a client may make up, and that others are looked after all the same."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from rollout_operator.kube.api import PODS, Page, Resource
from rollout_operator.model.names import ApiError, Denied, NotFound
from rollout_operator.operator.fleet import (
    ANSWER_WITHIN,
    EMPTY_LASTS,
    MOST_EMPTY,
    MOST_UNPROVEN,
    PAUSE,
    ReviewedNamespaces,
)
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time


class Cluster:
    """Namespaces with pods, and an operator that looks after some. Implements `Reader`."""

    def __init__(self, *filled: str) -> None:
        self.filled = {*filled}
        self.begun: list[str] = []
        self.reads: list[str] = []
        self.error: ApiError | None = None
        self.hangs = False
        self.reviewed = ReviewedNamespaces(
            self,
            VirtualClock(),
            begin=self.begun.append,
            is_empty=lambda namespace: namespace not in self.filled,
        )

    async def fetch(
        self, resource: Resource, namespace: str, name: str, *rest: object, **how: object
    ) -> bytes:
        raise NotFound(name)

    async def fetch_page(
        self, resource: Resource, namespace: str, *, limit: int = 500, **how: object
    ) -> Page:
        assert limit == 1, "one object proves it"
        self.reads.append(namespace)
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        is_there = namespace in self.filled and resource == PODS
        items: Sequence[msgspec.Raw] = [msgspec.Raw(b"{}")] if is_there else []
        return Page(items=items, resource_version="1")

    async def forge(self, number: int = MOST_UNPROVEN) -> None:
        """Name so many namespaces that never were."""
        for one in range(number):
            await self.reviewed.add(f"none-{one}")


@in_virtual_time
async def test_sec09_names_that_are_made_up_keep_no_namespace_out() -> None:
    cluster = Cluster("real")
    await cluster.forge(2 * MOST_UNPROVEN)
    assert len(cluster.begun) == MOST_UNPROVEN

    await asyncio.sleep(PAUSE.total_seconds())
    await cluster.reviewed.add("real")
    assert cluster.begun[-1] == "real"


@in_virtual_time
async def test_namespaces_that_hold_something_use_up_nothing() -> None:
    """Also those that were believed before anything was seen of them."""
    cluster = Cluster()
    names = [f"real-{number}" for number in range(3 * MOST_UNPROVEN)]
    for name in names:
        await cluster.reviewed.add(name)
        cluster.filled.add(name)

    assert cluster.begun == names
    assert cluster.reads == []


@in_virtual_time
async def test_sec09_names_that_are_made_up_cost_a_question_a_second() -> None:
    cluster = Cluster()
    await cluster.forge()
    begin = elapsed()
    for number in range(300):
        await cluster.reviewed.add(f"other-{number}")
        await asyncio.sleep(0.1)

    assert len({*cluster.reads}) <= (elapsed() - begin) / PAUSE + 1
    assert len(cluster.begun) == MOST_UNPROVEN


@in_virtual_time
async def test_an_empty_namespace_is_read_again_later() -> None:
    cluster = Cluster()
    await cluster.forge()
    for _ in range(3):
        await cluster.reviewed.add("later")
        await asyncio.sleep(PAUSE.total_seconds())
    assert cluster.reads == ["later"] * 2, "StatefulSets and pods, once"

    cluster.filled.add("later")
    await asyncio.sleep(EMPTY_LASTS.total_seconds())
    await cluster.reviewed.add("later")
    assert cluster.begun[-1] == "later"


@in_virtual_time
async def test_what_is_remembered_of_empty_ones_is_bounded() -> None:
    cluster = Cluster()
    await cluster.forge()
    for number in range(MOST_EMPTY + 9):
        await cluster.reviewed.add(f"other-{number}")
        await asyncio.sleep(PAUSE.total_seconds())
    assert len(cluster.reviewed._empty) == MOST_EMPTY


@pytest.mark.parametrize("error", [Denied("no right"), None], ids=["refused", "no answer"])
@in_virtual_time
async def test_a_namespace_that_cannot_be_read_is_not_believed(error: ApiError | None) -> None:
    cluster = Cluster("real")
    await cluster.forge()
    cluster.error, cluster.hangs = error, error is None
    begin = elapsed()

    await cluster.reviewed.add("real")

    assert elapsed() - begin <= ANSWER_WITHIN
    assert "real" not in cluster.begun
