"""How removals of marks that other clients write are paced (LI-09, LI-11)."""

from contextlib import ExitStack
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.controllers.replicas import Removals
from rollout_operator.guards.downscales import Intents
from rollout_operator.model.names import DOWNSCALE_INTENT, Uid
from rollout_operator.model.objects import StatefulSet
from tests.builders import sts
from tests.virtual_time import VirtualClock, in_virtual_time

CLOCK: Final = VirtualClock()
QPS: Final = 5.0
SECOND: Final = timedelta(seconds=1)
NOTHING: Final = timedelta(0)
AT_ONCE: Final = 10
"""Marks that are removed one after the other before each has to wait for its share."""


def marked(number: int, text: str = "x") -> StatefulSet:
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
async def test_a_mark_that_tries_again_late_has_its_turn() -> None:
    removals, _ = make()
    assert all(try_to_remove(removals, marked(number)) for number in range(AT_ONCE))
    assert not try_to_remove(removals, marked(AT_ONCE))
    await CLOCK.sleep(60 * SECOND)
    assert try_to_remove(removals, marked(AT_ONCE))


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
