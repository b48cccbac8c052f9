"""Writing counts: under which lock, announced for how long, and remembered until it is seen."""

import asyncio
from collections.abc import Mapping

import pytest

from rollout_operator.guards.downscales import PERSIST_LIMIT
from rollout_operator.guards.turns import group_lock
from rollout_operator.model.names import ApiError, Conflict, Denied, Uid
from rollout_operator.model.objects import Underway
from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import NoScale, Scale
from tests.controllers.fake_client import Json
from tests.controllers.scaling_bench import GROUP, SECOND, Bench, pass_time
from tests.controllers.scaling_objects import (
    DEMO,
    NO_ANSWER,
    REFUSAL,
    guarded,
    mirroring,
    old,
    zone,
)
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import part

PATCH = "patch statefulsets/zone-b"


def follower(leading: int = 2, **annotations: str) -> Bench:
    """Return zone-b with five replicas that follows zone-a, and zone-c that is at rest."""
    return Bench([zone("a", leading), zone("b", 5, follows="a", **annotations), old("c", 3)])


def underway(bench: Bench) -> Underway | None:
    """Return the downscale that holds back the group."""
    return bench.memory.downscales.find_underway(GROUP)


@in_virtual_time
async def test_fp24_the_lock_is_not_held_across_the_write() -> None:
    """FP-24: the write comes back as a review, which takes the lock; the group knows of it then."""
    bench, seen = follower(), list[Underway | None]()

    async def review(call: str) -> None:
        if call == PATCH:
            async with asyncio.timeout(1), bench.memory.locks.hold(group_lock(GROUP)):
                seen.append(underway(bench))

    bench.client.pause = review
    await bench.reconcile()
    assert bench.client.patched == ["zone-b 2"]
    assert seen == [Underway(zone="zone-b", replicas_from=5, replicas_to=2)]


@in_virtual_time
async def test_the_lock_is_held_from_the_live_read_to_the_announcement() -> None:
    """D-25: the next holder of the lock sees the announcement."""
    bench, seen = follower(), list[Underway | None]()

    async def wait_in_turn() -> None:
        async with bench.memory.locks.hold(group_lock(GROUP)):
            seen.append(underway(bench))

    async with asyncio.TaskGroup() as tasks:

        async def begin(call: str) -> None:
            if call.startswith("list pods"):
                tasks.create_task(wait_in_turn())
                await pass_time(SECOND)
            if call == PATCH:
                await pass_time(SECOND)

        bench.client.pause = begin
        await bench.reconcile()
    assert [one and one.zone for one in seen] == ["zone-b"]


@in_virtual_time
async def test_d25_a_downscale_that_reads_first_holds_the_rollout_back() -> None:
    """SEED-110, SEED-111: c is rolled out from the moment on at which b is written."""
    bench = follower()

    async def roll(call: str) -> None:
        if call == PATCH:
            await bench.roll()
            assert bench.waits() == [f"{Code.DOWNSCALE_UNDERWAY} zone-b"]

    bench.client.pause = roll
    await bench.reconcile()
    assert (bench.client.patched, bench.client.deleted) == (["zone-b 2"], [])
    bench.client.pause = _at_once
    bench.follow()
    await bench.roll()
    assert bench.client.deleted == ["zone-c-0", "zone-c-1"]


@in_virtual_time
async def test_d25_a_rollout_that_reads_first_holds_the_downscale_back() -> None:
    """SEED-111: planned on a cache without it, and seen in the live read after the lock."""
    bench = follower()
    reconciling: list[asyncio.Task[object]] = []
    async with asyncio.TaskGroup() as tasks:

        async def scale_meanwhile(call: str) -> None:
            if call == "delete pods/zone-c-0":
                reconciling.append(tasks.create_task(bench.reconcile()))
                await pass_time(SECOND)

        bench.client.pause = scale_meanwhile
        await bench.roll()
    assert reconciling
    assert bench.client.deleted == ["zone-c-0", "zone-c-1"]
    assert bench.client.tries("zone-b") == 0
    bench.show_store()
    await bench.reconcile()
    assert bench.client.tries("zone-b") == 0
    assert f"{Code.ROLLOUT_UNDERWAY} zone-b" in bench.waits()


@pytest.mark.parametrize(
    "error",
    [None, REFUSAL, Conflict("changed", status=409), Denied("forbidden", status=403)],
    ids=["written", "refused", "conflict", "forbidden"],
)
@in_virtual_time
async def test_an_announcement_ends_with_the_answer(error: ApiError | None) -> None:
    """D-25: whatever the answer is, and a caller that can go on learns of it."""
    bench, reported = follower(), list[object]()
    if error is not None:
        bench.client.refuse("zone-b", error)
    bench.memory.downscales.on_change(lambda uid, group: reported.append(group))
    await bench.reconcile()
    assert underway(bench) is None
    assert reported == [GROUP]


@in_virtual_time
async def test_an_announcement_ends_36_s_after_a_write_without_an_answer() -> None:
    """SI-18, D-25: it is not wanted any more and the cache never shows it, and it ends in time."""
    bench = Bench([zone("a", 2), guarded("b", 5, follows="a")])
    bench.client.refuse("zone-b", NO_ANSWER)
    async with bench.living():
        await pass_time(0.05 * SECOND)
        assert underway(bench) is not None
        bench.client.before = lambda call: None
        bench.scale("a", 5)
        await pass_time(PERSIST_LIMIT - SECOND)
        assert underway(bench) is not None, "it may still be stored"
        await pass_time(1.1 * SECOND)
        assert underway(bench) is None
        assert bench.client.tries("zone-b") == 1


@pytest.mark.parametrize("how", ["annotation removed", "set deleted", "group deleted"])
@in_virtual_time
async def test_an_announcement_of_what_is_gone_ends_as_well(how: str) -> None:
    """D-25: never for ever."""
    bench = follower()
    bench.client.refuse("zone-b", NO_ANSWER)
    async with bench.living():
        await pass_time(0.05 * SECOND)
        if how == "annotation removed":
            bench.annotate("b", follows=None)
        for letter in {"set deleted": "b", "group deleted": "abc"}.get(how, ""):
            bench.remove(letter)
        await pass_time(PERSIST_LIMIT + SECOND)
        assert underway(bench) is None


@in_virtual_time
async def test_an_announcement_ends_as_soon_as_the_cache_shows_the_count() -> None:
    """SI-18: the answer was lost, the write was not."""
    bench = follower()
    bench.client.lose_answer("zone-b")
    await bench.reconcile()
    assert underway(bench) is not None
    bench.show_store()
    await bench.reconcile()
    assert underway(bench) is None
    assert bench.client.patched == ["zone-b 2"]


@in_virtual_time
async def test_another_set_of_that_name_is_not_scaled() -> None:
    """FP-16: zone-b was deleted and made anew since; the UID shows it. A zone that moves has many
    versions: a change of its status is no conflict.
    """
    bench = follower(leading=7)
    bench.client.change("zone-b", lambda one: part(one, "metadata").update(uid="uid-another"))
    await bench.reconcile()
    assert bench.client.patched == []
    assert bench.scalings("up", "conflict") == 1
    bench = follower(leading=7)
    for _ in range(3):
        bench.client.change("zone-b", lambda one: None)
    await bench.reconcile()
    assert bench.client.patched == ["zone-b 7"]


@in_virtual_time
async def test_an_own_write_that_no_cache_shows_is_believed_for_a_minute() -> None:
    """The cache has not moved: then what it shows counts again, and the API server contradicts."""
    bench = follower(leading=7)
    await bench.reconcile()
    for _ in range(59):
        await pass_time(SECOND)
        await bench.reconcile()
    assert bench.client.tries("zone-b") == 1
    assert bench.waits() == []
    await pass_time(2 * SECOND)
    await bench.reconcile()
    assert bench.client.tries("zone-b") == 2
    assert bench.client.patched == ["zone-b 7"]


@in_virtual_time
async def test_what_a_client_wrote_after_us_counts() -> None:
    """The cache shows a later generation than ours: another count is not ours to defend."""
    bench = follower(leading=7)
    await bench.reconcile()
    bench.scale("a", 9)
    bench.scale("b", 8)
    await bench.reconcile()
    assert bench.client.patched == ["zone-b 7", "zone-b 9"]


@in_virtual_time
async def test_fp24_a_webhook_that_knows_better_makes_no_storm() -> None:
    """LI-11: the count is stored as 6 each time; tried ever more rarely, with a reason."""
    bench = follower(leading=7)
    bench.client.meddle = lambda one: part(one, "spec").update(replicas=6)
    async with bench.living():
        await pass_time(60 * SECOND)
        assert 5 <= bench.client.tries("zone-b") <= 20
        assert bench.waits() == [f"{Code.SCALE_REFUSED} zone-b"]
        assert "stored as 6 instead of 7" in bench.reasons()[0].text


@pytest.mark.parametrize(
    "live",
    [
        pytest.param(Scale(replicas=5, status_replicas=5), id="is back at 5"),
        pytest.param(Scale(replicas=3, status_replicas=5), id="is 3 by now"),
        pytest.param(NoScale(why="HTTP status 500", is_lasting=False), id="cannot be read"),
    ],
)
@in_virtual_time
async def test_a_mirrored_count_is_read_live_before_pods_go(live: Scale | NoScale) -> None:
    """SI-09: what is watched may be minutes old; no pod goes by a count that is not so any more."""
    bench = Bench([mirroring("b", 5)])
    bench.references.show(2, 5)
    bench.references.live[DEMO] = live
    await bench.reconcile()
    assert bench.client.tries("zone-b") == 0
    assert bench.waits() == [f"{Code.SNAPSHOT_CHANGED} zone-b"]


@in_virtual_time
async def test_nothing_is_begun_while_stopping() -> None:
    """SI-22: the downscale is left to the next process, without a mark and without a word."""
    bench = follower()
    bench.is_stopping = True
    await bench.reconcile()
    assert bench.client.tries("zone-b") == 0
    assert underway(bench) is None
    assert bench.client.calls == []


@in_virtual_time
async def test_stopping_takes_no_answer_from_a_write_that_has_begun() -> None:
    """SIGTERM while the API server is slow: the write is counted, and nothing more begins."""
    bench = Bench([zone("a", 2), zone("b", 5, follows="a"), zone("c", 5, follows="a")])

    async def stop(call: str) -> None:
        bench.is_stopping = call == PATCH

    bench.client.pause = stop
    await bench.reconcile()
    assert bench.client.patched == ["zone-b 2"]
    assert bench.scalings("down", "accepted") == 1


async def _at_once(call: str) -> None:
    """Wait for nothing."""


@in_virtual_time
async def test_si11_what_we_have_seen_counts_in_the_live_read_too() -> None:
    """SI-11: a was scaled down while b was observed, and it is not written yet."""
    bench = Bench([zone("a", 2, span="5m"), zone("b", 5, follows="a", span="5m")])

    async def scale_other(call: str) -> None:
        if call.startswith("list statefulsets"):
            bench.memory.counts.record_downscale(Uid("uid-zone-a"))

    bench.client.pause = scale_other
    await bench.reconcile()
    assert bench.client.patched == []
    bench.client.pause = _at_once
    await bench.reconcile()
    assert bench.waits() == [f"{Code.ZONE_DOWNSCALED_LATELY} zone-b"]


@pytest.mark.parametrize(
    ("force", "change"),
    [
        pytest.param(None, {"metadata": {"generation": 99}}, id="DELAY-08: to 2 and back"),
        pytest.param("2", {"status": {"readyReplicas": 4}}, id="D-67: one more is ready"),
    ],
)
@in_virtual_time
async def test_si09_a_write_that_comes_late_does_not_find_what_it_was_decided_for(
    force: str | None, change: Mapping[str, Json]
) -> None:
    """DELAY-08, D-24: no call went to the pods of now. What goes because it was not up goes for
    that version of the set only (D-67): a pod that became ready may be one of those that go.
    """
    bench = follower() if force is None else follower(force=force)

    def change_all(one: Json) -> None:
        for key, changes in change.items():
            part(one, key).update(changes)

    async def come_late(call: str) -> None:
        if call == PATCH:
            bench.client.change("zone-b", change_all)

    bench.client.pause = come_late
    await bench.reconcile()
    assert bench.client.patched == []
