"""Lists, streams and load, on virtual time (LI-02, LI-03, LI-11, SI-09, FP-07, FP-39)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from math import inf
from typing import Any

import msgspec
import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import PODS, STATEFULSETS, Page
from rollout_operator.kube.informer import STEP, Collection, Informer
from rollout_operator.kube.store import PodStore, RetryCause, StatefulSetStore
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.names import (
    ApiError,
    Gone,
    GroupName,
    TooManyRequests,
    Uid,
    Unreachable,
)
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.informer_rig import Rig, after, make, played, running
from tests.kube.scripted_watch import (
    NAMESPACE,
    SILENCE,
    ScriptedApi,
    Step,
    Wait,
    added,
    as_raw,
    bookmark,
    deleted,
    modified,
    page,
    pod,
)
from tests.virtual_time import in_virtual_time

GONE = Gone("watch pods in namespace prod: too old resource version", status=410)
CUT = Unreachable("watch pods in namespace prod: connection reset")
DOWN = Unreachable("list pods in namespace prod: connection refused")
BUSY = TooManyRequests("cannot list pods in namespace prod: too many requests", status=429)

# Lists


@in_virtual_time
async def test_d54_the_first_list_comes_in_pages_of_the_newest_state() -> None:
    first = page(10, pod("a-0", 1), pod("a-1", 2), next_token="more")
    rig = make([[first, page(10, pod("a-2", 3))]])
    assert not rig.has_synced()
    assert rig.informer.age == timedelta.max
    assert rig.sample("watch_age_seconds") == inf
    async with running(rig):
        await rig.informer.wait_synced()
        assert rig.has_synced()
        await after(1)
    assert rig.names == {"a-0", "a-1", "a-2"}
    assert rig.reported == [">a-0@1", ">a-1@2", ">a-2@3"]
    assert rig.requested == ["list", "list more", "watch 10"]
    assert {(call.limit, call.version) for call in rig.api.calls[:2]} == {(500, None)}
    assert rig.sample("cached_objects") == 3


@in_virtual_time
async def test_pages_of_several_namespaces_are_held_within_their_slots() -> None:
    """MAZ-60: dozens of namespaces begin at once, and no more pages are in memory than of one."""
    slots, most, held = asyncio.Semaphore(2), 0, 0

    class Held(ScriptedApi):
        async def fetch_page(self, *named: Any, **how: Any) -> Page:
            nonlocal most, held
            held += 1
            most = max(most, held)
            await asyncio.sleep(1)
            held -= 1
            return await super().fetch_page(*named, **how)

    def follow() -> Informer[Pod | Unreadable]:
        of: Collection[Pod | Unreadable] = Collection(
            resource=PODS, namespace=NAMESPACE, decode=decode_pod, store=PodStore(), slots=slots
        )
        return Informer(Held([[page(3)]]), of, Metrics(), LoopClock(), lambda: 0.5)

    async with TaskStack() as tasks:
        informers = [follow() for _ in range(6)]
        for number, informer in enumerate(informers):
            tasks.start(f"informer {number}", informer.run())
        await asyncio.gather(*(one.wait_synced() for one in informers))
        assert (most, asyncio.get_running_loop().time()) == (2, 3)


@in_virtual_time
async def test_si09_nothing_counts_as_synced_before_the_last_page() -> None:
    rig = make([[page(10, pod("a-0", 1), next_token="more"), DOWN, page(11, pod("a-0", 1))]])
    async with running(rig):
        await asyncio.sleep(0.01)
        assert not rig.has_synced()
        assert rig.names == set(), "half a list is no list"
        await rig.informer.wait_synced()
        assert rig.names == {"a-0"}


@in_virtual_time
async def test_the_selector_goes_with_each_call_and_groups_are_found() -> None:
    head = {"namespace": NAMESPACE, "name": "a", "uid": "A", "resourceVersion": "1"}
    tree = {"metadata": {**head, "labels": {"rollout-group": "g"}}, "spec": {}}
    store, api = StatefulSetStore(), ScriptedApi([[page(3, as_raw(tree))]])
    of = Collection(
        resource=STATEFULSETS,
        namespace=NAMESPACE,
        decode=decode_statefulset,
        store=store,
        selector="rollout-group",
    )
    informer = Informer(api, of, Metrics(), LoopClock(), lambda: 0.5)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informer.run())
        await asyncio.sleep(1)
        task.cancel()
    assert [call.selector for call in api.calls] == ["rollout-group"] * 2
    assert [item.name for item in store.list_group(GroupName("g"))] == ["a"]


@in_virtual_time
async def test_si09_a_list_is_as_old_as_its_request() -> None:
    rig = make([[DOWN, page(1)]], rng=1.0)
    async with running(rig):
        await rig.informer.wait_synced()
        assert rig.age <= 0.001
        await asyncio.sleep(7)
        assert 7 <= rig.age < 7.1
        assert rig.sample("watch_age_seconds") == pytest.approx(7, abs=0.1)


# Streams


@in_virtual_time
async def test_events_reach_store_and_callbacks_in_order() -> None:
    stream = [added(pod("a-1", 11)), modified(pod("a-0", 12, ready=False)), deleted(pod("a-1", 13))]
    rig = make([[page(10, pod("a-0", 1))]], [[Wait(1), *stream, Wait(100)]])
    seen: list[set[str]] = []
    rig.informer.on_change(lambda old, new: seen.append(rig.names))
    async with running(rig):
        await after(2)
    assert rig.reported[1:] == [">a-1@11", "a-0@1>a-0@12", "a-1@11>"]
    assert seen[1:] == [{"a-0", "a-1"}, {"a-0", "a-1"}, {"a-0"}], "the store is changed before"
    assert rig.names == {"a-0"}
    for type in ("ADDED", "MODIFIED", "DELETED"):
        assert rig.sample("watch_events_total", type=type) == 1


@in_virtual_time
async def test_w44_a_change_that_decides_nothing_is_stored_and_wakes_nothing() -> None:
    rig = await played(1, [[page(10, pod("a-0", 1))]], [[modified(pod("a-0", 12)), *SILENCE]])
    assert rig.stored() == "Pod@12"
    assert rig.reported == [">a-0@1"]


@in_virtual_time
async def test_li03_an_idle_stream_proves_itself_by_bookmarks_and_resumes_without_a_list() -> None:
    streams: list[list[Step]] = [[Wait(38), bookmark(10 + n), Wait(2)] for n in range(1, 4)]
    rig = make([[page(10, pod("a-0", 1))]], streams)
    ages = []
    async with running(rig):
        for second in range(1, 120):
            await after(second)
            ages.append(rig.age)
    assert max(ages) <= 45
    assert rig.requested == ["list", "watch 10", "watch 11", "watch 12"]
    assert {call.lasts for call in rig.api.watches} == {timedelta(seconds=40)}
    assert rig.restarts("closed") == 2
    assert rig.sample("watch_events_total", type="BOOKMARK") == 3


@pytest.mark.parametrize(("rng", "seconds"), [(0.0, 36), (0.5, 40), (1.0, 44)])
@in_virtual_time
async def test_li11_streams_of_many_processes_do_not_end_in_step(rng: float, seconds: int) -> None:
    rig = await played(1, [[page(10)]], rng=rng)
    assert rig.api.watches[0].lasts == timedelta(seconds=seconds)


@in_virtual_time
async def test_li11_an_idle_informer_sends_at_most_two_requests_a_minute() -> None:
    rig = await played(3_000, [[page(10)]] * 20, [[Wait(38), bookmark(10), Wait(2)]] * 100)
    assert len(rig.api.calls) <= 100


@in_virtual_time
async def test_a_stream_resumes_from_its_newest_event() -> None:
    stream: list[Step] = [Wait(2), bookmark(15), added(pod("a-0", 17)), Wait(3)]
    rig = await played(6, [[page(10)]], [stream])
    assert rig.requested == ["list", "watch 10", "watch 17"]


@in_virtual_time
async def test_fp07_duplicated_and_reordered_events_change_nothing_and_turn_nothing_back() -> None:
    new = modified(pod("a-0", 30, ready=False))
    stream = [new, new, modified(pod("a-0", 20)), deleted(pod("a-1", 29)), added(pod("a-1", 28))]
    pods = page(10, pod("a-0", 1), pod("a-1", 2))
    rig = await played(5, [[pods]], [[*stream, Wait(2), CUT]])
    assert rig.reported[2:] == ["a-0@1>a-0@30", "a-1@2>"]
    assert rig.names == {"a-0"}
    assert rig.requested[-1] == "watch 30", "not 28"


@in_virtual_time
async def test_a_bookmark_from_the_past_neither_turns_back_nor_proves_anything() -> None:
    rig = make([[page(10)]], [[Wait(20), bookmark(9), Wait(5), CUT]])
    async with running(rig):
        await after(22)
        assert rig.age > 21
        await after(27)
    assert rig.requested == ["list", "watch 10", "watch 10"]


@in_virtual_time
async def test_versions_that_are_no_numbers_are_opaque() -> None:
    events = [added(pod("a-0", "v2")), modified(pod("a-0", "v1", ready=False))]
    rig = make([[page("x")], [page("b")]], [[*events, Wait(5)], [GONE]])
    async with running(rig):
        await after(4)
        assert rig.stored() == "Pod@v1"
        await after(8)
    assert rig.requested == ["list", "watch x", "watch v1", "list", "watch b"]


@in_virtual_time
async def test_fp07_recreated_under_the_same_name_within_one_stream() -> None:
    old, new = pod("a-0", 1, uid="one", owner="A"), pod("a-0", 12, uid="two", owner="A")
    rig = await played(1, [[page(10, old)]], [[added(new), *SILENCE]])
    assert rig.reported[1:] == ["a-0@1>", ">a-0@12"]
    assert [item.uid for item in rig.store.list_by_owner(Uid("A"))] == ["two"]


# Everything is listed anew now and then, whatever becomes of streams and lists (LI-02)

ORDERLY: Sequence[Step] = [Wait(38), bookmark(16), Wait(2)]
# Something between resets each connection, with events in each stream before that.
RESET: Sequence[Sequence[Step]] = [
    [Wait(20), added(pod("a-1", 11 + n)), Wait(5), CUT] for n in range(20)
]


@pytest.mark.parametrize(
    "streams",
    [
        pytest.param([ORDERLY] * 10, id="LI-02 no watch should lose an event; one that did"),
        pytest.param(RESET, id="FP-05 streams that end with an error"),
    ],
)
@in_virtual_time
async def test_what_a_watch_never_brings_is_found_within_five_minutes(
    streams: Sequence[Sequence[Step]],
) -> None:
    pages = [[page(10, pod("a-0", 5, ready=False))], [page(90, pod("a-0", 15))]]
    rig = await played(300, pages, streams)
    assert [one for one in rig.reported if "a-0" in one] == [">a-0@5", "a-0@5>a-0@15"]
    assert rig.lists == 2, "no list after each stream"


@pytest.mark.parametrize("error", [BUSY, Unreachable("no answer")], ids=["429", "down"])
@in_virtual_time
async def test_a_list_that_fails_gives_up_no_watch(error: ApiError) -> None:
    """SI-09, FP-12: large lists are turned away for ten minutes, watches are fine."""
    streams: list[list[Step]] = [[Wait(38), bookmark(16 + n), Wait(2)] for n in range(14)]
    streams.append([added(pod("a-1", 90)), Wait(40)])
    rig = make([[page(10)], *[[error]] * 20], streams)
    async with running(rig):
        await after(600)
        assert rig.age <= 40
        assert rig.broken_for() is None
        assert rig.names == {"a-1"}
    assert rig.lists <= 2 + (600 - 240) / 30


@in_virtual_time
async def test_a_list_without_news_keeps_the_items_that_are_stored() -> None:
    """D-51: a second copy of five thousand pods would be 20 MiB."""
    rig = make([[page(10, pod("a-0", 5))], [page(20, pod("a-0", 5))]], [[Wait(40)]] * 10)
    async with running(rig):
        await after(1)
        before = rig.store.get("prod", "a-0")
        assert before is not None
        await after(300)
        assert rig.store.get("prod", "a-0") is before
    assert rig.lists == 2


# Life and load


@in_virtual_time
async def test_li14_a_bug_in_a_callback_ends_run_with_it() -> None:
    rig = make([[page(10)]], [[Wait(1), added(pod("a-0", 11))]])

    def fail(old: object, new: object) -> None:
        raise ZeroDivisionError

    rig.informer.on_change(fail)
    with pytest.raises(ZeroDivisionError):
        await rig.informer.run()
    assert rig.api.open_watches == 0


@pytest.mark.parametrize("seconds", [0.0, 0.05, 3.0])
@in_virtual_time
async def test_fp36_cancelling_ends_run_wherever_it_is(seconds: float) -> None:
    rig = make([[DOWN], [page(10)]], rng=1.0)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(rig.informer.run())
        await asyncio.sleep(seconds)
        task.cancel()
    assert task.cancelled()
    assert rig.api.open_watches == 0


@in_virtual_time
async def test_every_known_outcome_exists_at_zero() -> None:
    rig = make([])
    assert all(rig.restarts(cause) == 0 for cause in RetryCause)
    for type in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        assert rig.sample("watch_events_total", type=type) == 0


class Turns:
    """Counts how much is decoded and reported between two turns of the loop."""

    def __init__(self) -> None:
        self.decoded = self.reported = self.most_decoded = self.most_reported = self.total = 0

    def decode(self, raw: bytes | msgspec.Raw) -> Pod | Unreadable:
        self.total += 1
        self.decoded += 1
        self.most_decoded = max(self.most_decoded, self.decoded)
        return decode_pod(raw)

    def record(self, old: object, new: object) -> None:
        self.reported += 1
        self.most_reported = max(self.most_reported, self.reported)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.decoded = self.reported = 0


async def read_in_turns(rig: Rig, turns: Turns, until: int) -> None:
    """Run an informer until it holds so many pods, beside others who want the loop."""
    rig.informer.on_change(turns.record)
    async with asyncio.TaskGroup() as tasks:
        others = tasks.create_task(turns.run())
        task = tasks.create_task(rig.informer.run())
        await rig.informer.wait_synced()
        while len(rig.store) < until:  # noqa: ASYNC110  # each turn is one step of the loop
            await asyncio.sleep(0)
        task.cancel()
        others.cancel()
    assert turns.most_decoded <= STEP


@in_virtual_time
async def test_fp39_five_thousand_pods_come_in_small_steps() -> None:
    pages = [
        page(
            9_000,
            *[pod(f"a-{n}", n + 1) for n in range(start, start + 500)],
            next_token="more" if start < 4_500 else "",
        )
        for start in range(0, 5_000, 500)
    ]
    turns = Turns()
    rig = make([pages], decode=turns.decode)
    await read_in_turns(rig, turns, 5_000)
    assert turns.total == len(rig.reported) == len(rig.store) == 5_000
    assert rig.requested == ["list", *["list more"] * 9, "watch 9000"]
    assert turns.most_reported <= STEP


@in_virtual_time
async def test_fp39_a_burst_of_events_lets_others_in() -> None:
    turns = Turns()
    burst = [added(pod(f"a-{n}", 100 + n)) for n in range(2_000)]
    stream = [*burst, Wait(1), bookmark(5_000), *SILENCE]
    await read_in_turns(make([[page(10)]], [stream], decode=turns.decode), turns, 2_000)
