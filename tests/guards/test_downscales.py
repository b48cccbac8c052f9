"""What holds of the ledger of downscales and of records on pods, whatever happens or is written."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rollout_operator.guards.downscales import ReservationState
from rollout_operator.guards.prepared_pods import (
    COPIES,
    UnansweredCancels,
    choose_annotated,
    read_downscale_record,
)
from rollout_operator.model.names import GroupName, InvalidInput, Uid
from rollout_operator.model.objects import DownscaleRecord, Endpoint
from rollout_operator.pods import PodError
from tests.builders import NOW, pod, sts_uid
from tests.examples import repeatable
from tests.guards.ledger_stage import LedgerStage
from tests.guards.small_stages import carry, make_record
from tests.virtual_time import VirtualClock, in_virtual_time

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
        memory = ledger.of(uid)
        memory.backlog.record_un_prepared([*memory.backlog.due])
        memory.backlog.record_un_prepared([*memory.backlog.due])
        if late := memory.unrecorded:
            ledger.record_written(uid, late.begun)
    assert ledger.list_sets() == []
    assert ledger.count_due() == 0
    for letter in "abc":
        ledger.forget_set(sts_uid(letter))
    assert ledger.last.times == {}


def _assert_is_sound(stage: LedgerStage) -> None:
    ledger = stage.ledger
    for uid in ledger.list_sets():
        one = ledger.get(uid)
        # SI-12: a pod on its way out is never un-prepared.
        memory = ledger.of(uid)
        due = {cancel.uid for cancel in memory.backlog.due}
        assert one is None or not due.intersection(one.pods)
        assert one or due or memory.unrecorded
    held = ledger.count(ReservationState.PREPARING) + ledger.count(ReservationState.OPEN)
    held += sum(ledger.of(uid).unrecorded is not None for uid in ledger.list_sets())
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
            await unanswered.cancel_all(Hanging(), [one])
    assert unanswered.map_waits([one]) == {one.uid: lasts}
    await asyncio.sleep(10)
    assert unanswered.is_empty
    assert unanswered.map_waits([one]) == {}


def test_first_and_last_always_carry_a_record_and_no_pod_twice() -> None:
    for number in range(1, 40):
        all_of_them = [pod("a", ordinal, "l") for ordinal in range(number)]
        chosen = choose_annotated(all_of_them)
        assert len(chosen) == len({one.uid for one in chosen}) == min(number, COPIES)
        assert (chosen[0], chosen[-1]) == (all_of_them[0], all_of_them[-1])
        assert [one for one in all_of_them if one in chosen] == chosen


instants = st.datetimes(
    min_value=datetime(1, 1, 2),  # noqa: DTZ001
    max_value=datetime(2026, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))]),
)


@repeatable(300)
@given(st.one_of(st.text(max_size=30), st.builds(make_record, st.integers(), st.integers())))
@example(make_record(10**30, 10**29))
@example(make_record(10**400, 0))
@example(make_record(at="9999-12-31T23:59:59.999999-12:00"))
@example(make_record(at="0001-01-01T00:00:00+14:00"))
def test_sec25_any_text_is_a_sound_record_or_none(text: str) -> None:
    try:
        record = read_downscale_record(carry(text), NOW)
    except InvalidInput:
        return
    assert record is None or 0 <= record.replicas_to < record.replicas_from
    assert (record is None) == (text == "")


@repeatable(300)
@given(st.integers(1, 2**31 - 1), st.data(), instants)
def test_what_is_written_is_read(start: int, data: st.DataObject, at: datetime) -> None:
    end = data.draw(st.integers(0, start - 1))
    record = DownscaleRecord(replicas_from=start, replicas_to=end, at=at)
    assert read_downscale_record(carry(make_record(start, end, at.isoformat())), NOW) == record
