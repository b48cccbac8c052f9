"""The ledger of downscales: texts of commands beside this file, and what holds whatever happens."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.guards.downscales import ReservationState
from rollout_operator.guards.prepared_pods import UnansweredCancels
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.pods import PodError
from tests.builders import sts_uid
from tests.examples import repeatable
from tests.goldens import Golden
from tests.guards.downscales.ledger_stage import LedgerStage
from tests.stories import Story, read_stories
from tests.virtual_time import VirtualClock, in_virtual_time


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("ledger.txt")))
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await LedgerStage().play(story.commands), golden)


STEPS = ("begin", "renew", "allow", "persist", "fail")


@repeatable(150)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from("abc")), max_size=25))
def test_si12_whatever_happens_the_ledger_is_sound_and_ends_empty(
    steps: list[tuple[str, str]],
) -> None:
    asyncio.run(_play(steps))


async def _play(steps: Sequence[tuple[str, str]]) -> None:
    stage = LedgerStage()
    ledger = stage.ledger
    for step, letter in steps:
        one = ledger.get(sts_uid(letter))
        is_over = one is None or one.state is ReservationState.PERSISTED
        pods = "" if one is None else "".join(uid.removeprefix("uid-") for uid in one.pods)
        commands = {
            "begin": f"begin {letter} 3-1 12" if is_over else "",
            "renew": f"renew {letter} 3",
            "allow": f"allow {letter}",
            "persist": f"persist {letter} {stage.clock.elapsed().total_seconds()}",
            "fail": f"close {letter} {pods} again=1",
        }
        for command in (commands[step if one else "begin"], f"told {letter} 1", "1s"):
            if command:
                await stage.act(command)
        _assert_is_sound(stage)
    for letter in "abc":
        uid = sts_uid(letter)
        if one := ledger.get(uid):
            ledger.close(one, un_prepare=one.pods)
        ledger.backlog.settle(uid, ledger.backlog.map_due_cancels(uid))
        if begun := ledger.find_unrecorded(uid):
            ledger.record_written(uid, begun)
    assert ledger.list_sets() == []
    assert ledger.backlog.count() == 0
    for letter in "abc":
        ledger.forget_set(sts_uid(letter))
    assert ledger.last.times == {}


def _assert_is_sound(stage: LedgerStage) -> None:
    ledger = stage.ledger
    for uid in ledger.list_sets():
        one = ledger.get(uid)
        # SI-12: a pod on its way out is never un-prepared.
        due = {cancel.uid for cancel in ledger.backlog.map_due_cancels(uid)}
        assert one is None or not due.intersection(one.pods)
        assert one or due or ledger.find_unrecorded(uid)
    held = ledger.count(ReservationState.PREPARING) + ledger.count(ReservationState.OPEN)
    assert (ledger.find_underway(GroupName("ingester")) is not None) == (held > 0)


class Hanging:
    """Pods that never answer."""

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]:
        await asyncio.sleep(60)
        raise AssertionError("cut short before")


@in_virtual_time
async def test_si10_calls_that_are_cut_short_have_no_answer() -> None:
    """They may take effect still; nothing is kept of them once they cannot."""
    lasts = timedelta(seconds=10)
    unanswered = UnansweredCancels(VirtualClock(), lasts)
    one = Endpoint(pod="one", uid=Uid("uid-one"), ip="10.0.0.1", host="one", port=80, path="p")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await unanswered.cancel_all(Hanging(), sts_uid("a"), [one])
    assert unanswered.map_waits(sts_uid("a"), [one]) == {one.uid: lasts}
    assert list(unanswered.by_set) == [sts_uid("a")]
    await asyncio.sleep(10)
    assert dict(unanswered.by_set) == {}
