"""What another client puts back: marks of downscales, and counts (LI-09, LI-11, W-42)."""

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.controllers.replicas import Removals
from rollout_operator.guards.downscales import Intents
from rollout_operator.model.names import DOWNSCALE_INTENT, Denied, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code
from tests.builders import sts
from tests.controllers.fake_client import Json
from tests.controllers.scaling_bench import Bench, pass_time
from tests.controllers.scaling_objects import zone
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time
from tests.web.downscale_world import part

CLOCK: Final = VirtualClock()
QPS: Final = 5.0
SECOND: Final = timedelta(seconds=1)
NOTHING: Final = timedelta(0)
AT_ONCE: Final = 10
"""Marks that are removed one after the other before each has to wait for its share."""

MINUTE = 60 * SECOND
BACK_AFTER = 0.2  # seconds


def marked(number: int, text: str = "x") -> StatefulSet:
    """Return a set with a mark."""
    one = sts("a", replicas=3)
    return replace(one, uid=Uid(f"{number}"), annotations={DOWNSCALE_INTENT: text})


def make(qps: float = QPS) -> tuple[Removals, Intents]:
    """Return what paces removals, and what is known of marks."""
    intents = Intents(CLOCK)
    return Removals(intents, CLOCK, qps), intents


def try_to_remove(removals: Removals, one: StatefulSet) -> bool:
    """Remove a mark where it may go; return whether it might."""
    if removals.wait_before(one) or removals.wait_in_line(one):
        return False
    with removals.turn(one):
        return True


@in_virtual_time
async def test_li11_ever_new_marks_of_one_set_are_removed_ever_more_seldom() -> None:
    """LI-09: whatever they say; and a copy of one that was removed is no mark of ours."""
    removals, intents = make()
    times = 0
    for second in range(300):
        one = marked(1, f"{second}")
        if try_to_remove(removals, one):
            intents.record_gone(one.uid, f"{second}", f"{second}")
            times += 1
        await CLOCK.sleep(SECOND)
    assert 3 < times <= 3 + 6


@in_virtual_time
async def test_li09_a_long_line_takes_no_longer_than_its_share() -> None:
    """Did all try again at the same time, a mark behind 300 others would wait for 21 minutes."""
    removals, _ = make()
    due = {number: CLOCK.elapsed() for number in range(300)}
    called, began = 0, CLOCK.elapsed()
    while due:
        for number in [one for one, at in due.items() if at <= CLOCK.elapsed()]:
            called += 1
            if wait := removals.wait_in_line(marked(number)):
                due[number] = CLOCK.elapsed() + wait
                continue
            with removals.turn(marked(number)):
                del due[number]
        await CLOCK.sleep(SECOND / 10)
    assert CLOCK.elapsed() - began < timedelta(seconds=300 + AT_ONCE)
    assert called < 300 * 4


@in_virtual_time
async def test_a_downscale_of_ours_that_was_answered_begins_anew() -> None:
    removals, _ = make()
    for _ in range(3):
        assert try_to_remove(removals, marked(1))
    assert not try_to_remove(removals, marked(1))
    removals.record_answered(Uid("1"))
    assert try_to_remove(removals, marked(1))


@in_virtual_time
async def test_si18_marks_of_ours_wait_for_none_of_others() -> None:
    """SI-18: what got no answer is revoked at the next reconcile."""
    removals, intents = make()
    for number in range(AT_ONCE):
        assert try_to_remove(removals, marked(number))
    assert not try_to_remove(removals, marked(AT_ONCE))
    for number in range(100, 140):
        intents.begin(Uid(f"{number}"), "ours")
        assert try_to_remove(removals, marked(number, "ours"))


@in_virtual_time
async def test_li09_four_marks_of_others_are_removed_at_a_time() -> None:
    """LI-09: each has a worker, of which other groups need some; one that fails makes room, too."""
    removals, _ = make()
    with ExitStack() as stack:
        for number in range(4):
            assert removals.wait_in_line(marked(number)) == NOTHING
            stack.enter_context(removals.turn(marked(number)))
        assert removals.wait_in_line(marked(4)) > NOTHING
    assert removals.wait_in_line(marked(4)) == NOTHING
    with pytest.raises(ValueError, match="refused"), removals.turn(marked(4)):
        raise ValueError("refused")
    for number in range(5, 9):
        assert removals.wait_in_line(marked(number)) == NOTHING


@pytest.mark.parametrize("qps", [0.0, 1.0, QPS, 100.0])
@in_virtual_time
async def test_li09_marks_of_new_sets_come_in_their_turn_within_their_share(qps: float) -> None:
    """LI-09: ten sets a second for a minute, which try again when the client may.

    Without rate limits only so many at a time. Every fifth is gone before its turn.
    """
    removals, _ = make(qps)
    due = {number: number / 10 for number in range(600)}
    removed: list[int] = []
    for moment in range(1200):
        for number, at in list(due.items()):
            if at > moment / 10:
                break
            one = marked(number)
            wait = removals.wait_in_line(one)
            if wait == NOTHING:
                with removals.turn(one):
                    removed.append(number)
            if wait == NOTHING or number % 5 == 0:
                del due[number]
            else:
                due[number] = moment / 10 + wait.total_seconds()
                due = dict(sorted(due.items(), key=lambda pair: pair[1]))
        await CLOCK.sleep(0.1 * SECOND)
    share = 120 * qps * 0.2 if qps else 600
    assert min(0.5 * share, 480) <= len(removed) <= AT_ONCE + share
    pairs = zip(removed, sorted(removed), strict=True)
    assert max(abs(number - in_turn) for number, in_turn in pairs) <= 4


def fight(bench: Bench, letter: str) -> list[float]:
    """Put the count of a zone back soon after each write; return when the operator wrote."""
    name, writes = f"zone-{letter}", list[float]()
    held = bench.client.count(name)
    former = bench.client.after

    def put_back() -> None:
        bench.client.change(name, lambda one: _hold(one, held, "keda"))
        bench.follow()

    def answer(call: str) -> None:
        former(call)
        if call == f"patch statefulsets/{name}":
            writes.append(elapsed().total_seconds())
            asyncio.get_running_loop().call_later(BACK_AFTER, put_back)

    bench.client.after = answer
    return writes


def contested(replicas: int = 5, *others: Json) -> Bench:
    """Return zone-b that follows zone-a, and whose count does not stay."""
    bench = Bench([zone("a", replicas), zone("b", 3, follows="a"), *others])
    fight(bench, "b")
    return bench


def _hold(one: Json, replicas: object, manager: str) -> None:
    part(one, "spec")["replicas"] = replicas
    part(one, "metadata")["managedFields"] = [
        {"manager": "rollout-operator", "fieldsV1": {"f:metadata": {}}},
        {"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}},
    ]


@pytest.mark.parametrize("replicas", [5, 2], ids=["up", "down"])
@in_virtual_time
async def test_li11_a_count_that_is_put_back_is_written_ever_more_seldom(replicas: int) -> None:
    """LI-11: at most 12 a minute as upstream, and after 5 minutes one in 30 s."""
    bench = Bench([zone("a", replicas), zone("b", 3, follows="a")])
    writes = fight(bench, "b")
    async with bench.living():
        await pass_time(30 * MINUTE)
    assert len([one for one in writes if one < 60]) == 5
    late = [one for one in writes if one >= 300]
    assert len(late) <= 25 * 60 / 300 + 1
    assert late, "it is never given up"


@in_virtual_time
async def test_the_reason_names_its_other_writers() -> None:
    bench = contested()
    async with bench.living():
        await pass_time(2 * SECOND)
        assert bench.waits() == [f"{Code.COUNT_CONTESTED} zone-b"]
        (reason,) = bench.reasons()
        assert reason.text == (
            "zone-b follows zone-a: 3 → 5 waits: spec.replicas was set to 5 and did not stay,"
            " keda writes it too; set 3 times, again in 10s"
        )
        assert bench.failures(Code.COUNT_CONTESTED)
        reads = bench.client.calls.count("get statefulsets/zone-b")
        for _ in range(50):
            bench.follow()
            await pass_time(SECOND / 10)
        assert bench.client.calls.count("get statefulsets/zone-b") == reads, "read once for a write"


@in_virtual_time
async def test_a_name_that_cannot_be_read_is_something_else() -> None:
    bench = contested()

    def deny(call: str) -> None:
        if call == "get statefulsets/zone-b":
            raise Denied("get statefulsets is forbidden", status=403)

    bench.client.before = deny
    async with bench.living():
        await pass_time(2 * SECOND)
        assert "something else writes it too" in bench.reasons()[0].text


@in_virtual_time
async def test_a_new_count_is_followed_at_once() -> None:
    bench = contested()
    async with bench.living():
        await pass_time(10 * MINUTE)
        seen = len(bench.client.patched)
        bench.scale("a", 7)
        await pass_time(SECOND / 10)
        assert bench.client.patched[seen:] == ["zone-b 7"]


@in_virtual_time
async def test_a_leading_zone_that_changes_all_the_time_is_followed_all_the_time() -> None:
    """What we set back ourselves, because it is wanted otherwise, is no contest."""
    bench = Bench([zone("a", 3), zone("b", 3, follows="a")])
    async with bench.living():
        for _ in range(20):
            for replicas in (5, 3):
                bench.scale("a", replicas)
                await pass_time(SECOND)
    assert bench.client.patched == ["zone-b 5", "zone-b 3"] * 20
