"""Following a collection by versions alone: streams, ends, refusals and what they cost."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import pytest

from rollout_operator.kube.api import PODS, Page, WatchEvent
from rollout_operator.kube.scales.metadata_watch import MetadataCollection, Touches
from rollout_operator.model.errors import ApiError, Denied, Gone, Unreachable
from tests.kube.scripted_watch import (
    NAMESPACE,
    ScriptedApi,
    Step,
    Wait,
    added,
    bookmark,
    deleted,
    modified,
    page,
    pod,
)
from tests.virtual_time import VirtualClock, in_virtual_time

QUIET = Wait(170)


@dataclass
class Told:
    """What a listener was told."""

    lists: list[dict[str, str]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    states: int = 0

    def on_list(self, versions: Mapping[str, str]) -> None:
        self.lists.append(dict(versions))

    def on_event(self, name: str, version: str) -> None:
        self.events.append(f"{name}@{version}")

    def on_state(self) -> None:
        self.states += 1


def scripted(
    pages: Sequence[Page | ApiError], watches: Sequence[Sequence[Step]] = ()
) -> ScriptedApi:
    """Return an API server that gives these pages, in order, and then these streams."""
    return ScriptedApi([[one] for one in pages], watches)


@asynccontextmanager
async def following(api: ScriptedApi) -> AsyncIterator[tuple[Touches, Told]]:
    told = Told()
    touches = Touches(api, MetadataCollection(PODS, NAMESPACE), told, VirtualClock(), lambda: 0.5)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(touches.run())
        try:
            yield touches, told
        finally:
            task.cancel()


@in_virtual_time
async def test_a_list_and_its_events_are_told_by_version() -> None:
    events: list[Step] = [
        modified(pod("a-0", 6)),
        deleted(pod("a-1", 7)),
        added(pod("a-2", 8)),
        QUIET,
    ]
    pages = [page(5, pod("a-0", 3), next_token="more"), page(5, pod("a-1", 4))]
    api = scripted(pages, [events])
    async with following(api) as (touches, told):
        states = [touches.is_live]
        await asyncio.sleep(1)
        assert [*states, touches.is_live] == [False, True]
        assert told.lists == [{"a-0": "3", "a-1": "4"}]
        assert told.events == ["a-0@6", "a-1@7", "a-2@8"]
        assert told.states == 1


@in_virtual_time
async def test_an_end_in_order_is_resumed_where_it_was() -> None:
    api = scripted([page(5)], [[modified(pod("a-0", 6)), bookmark(9), QUIET], [QUIET]])
    async with following(api) as (touches, told):
        await asyncio.sleep(200)
        assert [call.version for call in api.watches] == ["5", "9"]
        assert (touches.is_live, told.states) == (True, 1)
    assert api.watches[0].lasts == timedelta(seconds=171)


@in_virtual_time
async def test_a_version_that_is_gone_is_listed_anew_at_once() -> None:
    gone = Gone("410", status=410)
    api = scripted([page(5), page(20, pod("a-0", 11))], [[Wait(5), gone], [QUIET]])
    async with following(api) as (touches, told):
        await asyncio.sleep(5.5)
        assert told.lists == [{}, {"a-0": "11"}]
        assert (touches.is_live, told.states) == (True, 1), "nobody has to poll meanwhile"


@in_virtual_time
async def test_everything_is_listed_anew_every_ten_minutes() -> None:
    api = scripted([page(version) for version in range(1, 9)], [[QUIET]] * 30)
    async with following(api) as (_, told):
        await asyncio.sleep(3600)
    assert len(told.lists) == 6
    assert len(api.watches) <= 22


@in_virtual_time
async def test_streams_that_end_at_once_are_no_hot_loop() -> None:
    api = scripted([page(version) for version in range(1, 200)], [[]] * 500)
    async with following(api):
        await asyncio.sleep(600)
    assert len(api.calls) < 260


@pytest.mark.parametrize(
    "error",
    [Unreachable("cut"), Denied("401", status=401)],
    ids=["unreachable", "credential"],
)
def test_what_may_pass_is_tried_soon(error: ApiError) -> None:
    @in_virtual_time
    async def test() -> None:
        api = scripted([page(5), page(6)], [[Wait(5), error], [QUIET]])
        async with following(api) as (touches, _):
            await asyncio.sleep(5.01)
            assert not touches.is_live
            await asyncio.sleep(5)
            assert touches.is_live

    test()


@in_virtual_time
async def test_rbac_06_a_refusal_is_obeyed_for_ten_minutes_or_until_asked() -> None:
    denied = Denied("403", status=403)
    api = scripted([denied, denied, denied, page(5)], [[QUIET]])
    async with following(api) as (touches, _):
        await asyncio.sleep(599)
        assert len(api.calls) == 1
        await asyncio.sleep(2)
        assert len(api.calls) == 2
        touches.ask_again()
        await asyncio.sleep(1)
        assert len(api.calls) == 3
        assert not touches.is_live
        touches.ask_again()
        await asyncio.sleep(1)
        assert touches.is_live


@in_virtual_time
async def test_a_stream_that_never_ends_is_cut() -> None:
    events = [added(pod("a-0", version)) for version in range(6, 16)]
    endless = [step for event in events for step in (event, Wait(60))]
    api = scripted([page(5)], [endless, [QUIET]])
    async with following(api):
        await asyncio.sleep(240)
    assert len(api.watches) == 2


@in_virtual_time
async def test_what_cannot_be_read_is_no_event() -> None:
    broken = WatchEvent(type="ADDED", object=msgspec.Raw(b'{"metadata": 7}'))
    nameless = page(5, msgspec.Raw(b"{}"))
    api = scripted([nameless, page(""), page(5)], [[broken], [QUIET]])
    async with following(api) as (touches, told):
        await asyncio.sleep(20)
        assert touches.is_live
        assert (told.lists, told.events) == ([{}], [])
