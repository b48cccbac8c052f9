"""Following a collection by versions alone: streams, ends, refusals and what they cost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest

from rollout_operator.kube.api import PODS, Page, WatchEvent
from rollout_operator.kube.scales.metadata_watch import MetadataWatch
from rollout_operator.model.errors import ApiError, Gone
from rollout_operator.model.scaling import Reading, Scale
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


class Reported:
    """A subscriber, and what the watch said of its object."""

    def __init__(self) -> None:
        self.reading: Reading | None = Scale(replicas=1, status_replicas=1)
        self.versions: list[str] = []
        self.wakes = 0

    def read_unless(self, version: str) -> None:
        self.versions.append(version)

    def wake(self) -> None:
        self.wakes += 1


def scripted(
    pages: Sequence[Page | ApiError], watches: Sequence[Sequence[Step]] = ()
) -> ScriptedApi:
    """Return an API server that gives these pages, in order, and then these streams."""
    return ScriptedApi([[one] for one in pages], watches)


@asynccontextmanager
async def following(api: ScriptedApi) -> AsyncIterator[tuple[MetadataWatch, Reported]]:
    """Watch with a subscriber of `a-0`."""
    watch = MetadataWatch(api, PODS, NAMESPACE, VirtualClock(), lambda: 0.5)
    reported = Reported()
    watch.subscribers["a-0"] = reported
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watch.run())
        try:
            yield watch, reported
        finally:
            task.cancel()


@in_virtual_time
async def test_a_list_and_its_events_are_reported_by_version() -> None:
    events: list[Step] = [
        modified(pod("a-0", 6)),
        deleted(pod("a-1", 7)),
        added(pod("a-0", 8)),
        QUIET,
    ]
    pages = [page(5, pod("a-1", 4), next_token="more"), page(5, pod("a-0", 3))]
    async with following(scripted(pages, [events])) as (watch, reported):
        states = [watch.is_live]
        await asyncio.sleep(1)
        assert [*states, watch.is_live] == [False, True]
        assert reported.versions == ["3", "6", "8"]
        assert reported.wakes == 1


@in_virtual_time
@pytest.mark.parametrize("had_scale", [True, False])
async def test_an_object_that_a_list_does_not_show_is_read_where_it_was_there(
    had_scale: bool,
) -> None:
    async with following(scripted([page(5)], [[QUIET]])) as (_, reported):
        if not had_scale:
            reported.reading = None
        await asyncio.sleep(1)
        assert reported.versions == ([""] if had_scale else [])


@in_virtual_time
async def test_an_end_in_order_is_resumed_where_it_was() -> None:
    """Until it is time to list everything anew."""
    api = scripted([page(5)], [[modified(pod("a-0", 6)), bookmark(9), Wait(60)], [QUIET]])
    async with following(api) as (watch, reported):
        await asyncio.sleep(100)
        assert [call.version for call in api.watches] == ["5", "9"]
        assert (watch.is_live, reported.wakes) == (True, 1)
    assert api.watches[0].lasts == timedelta(seconds=171)


@in_virtual_time
async def test_a_version_that_is_gone_is_listed_anew_at_once() -> None:
    gone = Gone("410", status=410)
    api = scripted([page(5), page(20, pod("a-0", 11))], [[Wait(5), gone], [QUIET]])
    async with following(api) as (watch, reported):
        await asyncio.sleep(5.5)
        assert reported.versions == ["", "11"]
        assert (watch.is_live, reported.wakes) == (True, 1), "no subscriber has to poll meanwhile"


@in_virtual_time
async def test_li02_everything_is_listed_anew_within_five_minutes() -> None:
    """LI-02: whatever a stream has not brought; and no more often than streams end."""
    api = scripted([page(version) for version in range(1, 30)], [[QUIET]] * 30)
    async with following(api) as (_, reported):
        await asyncio.sleep(3600)
    assert 3600 / 300 < len(reported.versions) == len(api.watches) <= 22


@in_virtual_time
async def test_streams_that_end_at_once_are_no_hot_loop() -> None:
    api = scripted([page(version) for version in range(1, 200)], [[]] * 500)
    async with following(api):
        await asyncio.sleep(600)
    assert len(api.calls) < 260


@in_virtual_time
async def test_a_stream_that_never_ends_is_cut() -> None:
    events = [added(pod("a-0", version)) for version in range(6, 16)]
    endless = [step for event in events for step in (event, Wait(60))]
    api = scripted([page(5), page(20)], [endless, [QUIET]])
    async with following(api):
        await asyncio.sleep(240)
    assert len(api.watches) == 2


@in_virtual_time
async def test_what_cannot_be_read_is_no_event() -> None:
    broken = WatchEvent(type="ADDED", object=msgspec.Raw(b'{"metadata": 7}'))
    nameless = page(5, msgspec.Raw(b"{}"))
    api = scripted([nameless, page(""), page(5)], [[broken], [QUIET]])
    async with following(api) as (watch, reported):
        await asyncio.sleep(20)
        assert watch.is_live
        assert reported.versions == [""], "the list that could be read has no `a-0`"
