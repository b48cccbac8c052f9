"""The ledger of downscales: D-22 to D-25, W-15, W-36, SEED-111, SI-11, SI-12, SI-16, LI-05.

What a reservation means to others is read through the ledger's own questions only; at the end
nothing may be left of what has been settled.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from rollout_operator.guards.downscales import (
    PERSIST_LIMIT,
    DownscaleReservation,
    LastDownscales,
    ReservationState,
)
from rollout_operator.model.names import GROUP_LABEL, GROUP_LABEL_LONG, GroupName, Uid
from rollout_operator.model.objects import Underway
from tests.builders import sts
from tests.fakes_clock import EPOCH
from tests.ledger import INGESTER, NONE, SECOND, A, B, Bench, called, key, named, uids, waiting


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_reservation_is_remembered_as_it_was_made(bench: Bench) -> None:
    bench.clock.jump(5 * SECOND)
    reservation = bench.begin()

    assert bench.downscales.get(A) is reservation
    assert reservation == DownscaleReservation(
        key=key("a"),
        namespace="test",
        name="zone-a",
        group=INGESTER,
        begun=EPOCH,
        requested_at=5 * SECOND,
        seen_version="1",
        state=ReservationState.PREPARING,
        pods=called("12"),
        prepared=set(),
        answer=None,
    )
    assert bench.downscales.get(B) is None
    assert bench.downscales.list_sets() == [A]
    assert (bench.downscales.remembers(A), bench.downscales.remembers(B)) == (True, False)
    assert bench.called == [(A, INGESTER)]


def test_d25_w15_a_reservation_holds_its_group_back_until_it_has_happened(bench: Bench) -> None:
    """SEED-111: a reader between the first call and the write finds it."""
    ledger, expected = bench.downscales, Underway(zone="zone-a", replicas_from=3, replicas_to=1)
    assert ledger.find_underway(INGESTER) is None
    reservation = bench.begin()
    assert ledger.find_underway(INGESTER) == expected
    assert [ledger.count(state) for state in ReservationState] == [1, 0, 0]
    ledger.allow(reservation)
    assert ledger.find_underway(INGESTER) == expected
    assert [ledger.count(state) for state in ReservationState] == [0, 1, 0]
    ledger.record_persisted(reservation, EPOCH)
    assert ledger.find_underway(INGESTER) is None
    assert [ledger.count(state) for state in ReservationState] == [0, 0, 1]


def test_d25_a_reservation_holds_back_neither_its_own_set_nor_other_groups(bench: Bench) -> None:
    """Of two reservations the other is found: a restarted process may find both records."""
    bench.open("a")
    assert (bench.underway(but=A), bench.underway(but=B)) == ("", "zone-a")
    assert bench.underway(group=GroupName("other")) == ""
    assert bench.underway(group=None) == ""
    bench.open("b")
    assert (bench.underway(but=A), bench.underway(but=B)) == ("zone-b", "zone-a")


@pytest.mark.parametrize(
    ("labels", "group"),
    [
        ({GROUP_LABEL: "", GROUP_LABEL_LONG: "x"}, GroupName("")),
        ({GROUP_LABEL_LONG: "x"}, GroupName("x")),
        ({}, None),
    ],
)
def test_the_group_of_a_reservation_is_that_of_its_set(
    bench: Bench, labels: dict[str, str], group: GroupName | None
) -> None:
    reservation = bench.downscales.begin(sts("a", labels=labels), key("a"), EPOCH, [])

    assert reservation.group == group
    assert bench.underway(group=group) == ("" if group is None else "zone-a")


def test_si12_it_may_persist_for_36_seconds_after_the_newest_review(bench: Bench) -> None:
    reservation = bench.begin()
    bench.clock.jump(30 * SECOND)
    assert bench.downscales.time_left(reservation) == 6 * SECOND

    bench.downscales.renew(reservation, ())
    assert bench.downscales.time_left(reservation) == PERSIST_LIMIT == 36 * SECOND
    bench.downscales.allow(reservation)
    bench.clock.jump(36 * SECOND)
    assert bench.downscales.time_left(reservation) == NONE
    bench.clock.jump(SECOND)
    assert bench.downscales.time_left(reservation) == -SECOND


def test_si16_requested_again_a_reservation_takes_more_pods_and_loses_none(bench: Bench) -> None:
    """D-24: a pod that was replaced meanwhile is called, the others are not called again."""
    reservation = bench.open(pods="12")
    reservation.prepared |= set(uids("12"))
    bench.downscales.renew(reservation, named("23"))

    assert reservation.pods == called("123")
    assert reservation.prepared == set(uids("12"))
    assert bench.downscales.get(A) is reservation


@pytest.mark.parametrize(
    ("begun", "now", "expected"),
    [
        pytest.param(EPOCH, EPOCH + 9 * SECOND, EPOCH + 9 * SECOND, id="seen later"),
        pytest.param(EPOCH + SECOND, EPOCH, EPOCH + SECOND, id="begun by a clock a little ahead"),
    ],
)
def test_si11_the_time_of_a_downscale_is_the_later_one(
    bench: Bench, begun: datetime, now: datetime, expected: datetime
) -> None:
    reservation = bench.downscales.begin(sts("a"), key("a"), begun, [])
    assert bench.downscales.last.times == {}
    bench.downscales.record_persisted(reservation, now)

    assert bench.downscales.last.times == {A: expected}


def test_si11_a_downscale_that_happened_is_recorded_once(bench: Bench) -> None:
    """D-24: seen again an hour later it is not younger. The time never moves back: a second one is
    seen by a clock that was set back, and the other zones wait as long.
    """
    reservation, late = bench.open(start=5, end=3), EPOCH + timedelta(seconds=30)
    bench.downscales.record_persisted(reservation, late)
    called = len(bench.called)
    bench.downscales.record_persisted(reservation, EPOCH + timedelta(hours=1))
    assert bench.downscales.last.times == {A: late}
    assert len(bench.called) == called
    bench.downscales.record_persisted(bench.open(start=3, end=1), EPOCH)
    assert bench.downscales.last.times == {A: late}


def test_si11_what_is_seen_late_was_written_in_time(bench: Bench) -> None:
    """A watch that was deaf for an hour: nothing can be written 36 s after it was requested."""
    reservation = bench.open()
    bench.clock.jump(timedelta(hours=1))
    bench.downscales.record_persisted(reservation, EPOCH + timedelta(hours=1))
    assert bench.downscales.last.times == {A: EPOCH + PERSIST_LIMIT}


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(EPOCH + 4 * SECOND, EPOCH + 4 * SECOND, id="SI-11 the pods took four seconds"),
        pytest.param(EPOCH - SECOND, EPOCH, id="SI-11 a clock that was set back"),
        pytest.param(None, EPOCH, id="D-24 an earlier answer stands"),
    ],
)
def test_a_downscale_begins_with_its_first_answer(
    bench: Bench, at: datetime | None, expected: datetime
) -> None:
    reservation = bench.begin()
    bench.downscales.allow(reservation, at)

    assert (reservation.state, reservation.begun) == (ReservationState.OPEN, expected)
    bench.downscales.allow(reservation)
    assert reservation.begun == expected
    bench.downscales.record_persisted(reservation, EPOCH - SECOND)
    assert bench.downscales.find_unrecorded(A) == expected
    assert bench.downscales.last.times == {A: expected}


def test_d23_a_downscale_that_is_not_recorded_is_remembered_until_it_is(bench: Bench) -> None:
    """SEED-093: its pods are gone and its reservation closed, and the patch of the set fails still.

    Its time stays when all that has gone (SI-11).
    """
    reservation, ledger = bench.open(), bench.downscales
    assert ledger.find_unrecorded(A) is None
    ledger.record_persisted(reservation, EPOCH + 9 * SECOND)
    ledger.close(reservation, un_prepare=())
    assert (ledger.find_unrecorded(A), ledger.find_unrecorded(B)) == (EPOCH, None)
    assert ledger.remembers(A)
    assert ledger.list_sets() == [A]
    assert bench.underway() == ""
    ledger.record_written(B, EPOCH)
    ledger.record_written(A, EPOCH - SECOND)
    assert ledger.find_unrecorded(A) == EPOCH
    ledger.record_written(A, EPOCH)
    bench.assert_is_empty()
    assert ledger.last.times == {A: EPOCH + 9 * SECOND}
    ledger.forget_set(A)
    assert ledger.last.times == {}


def test_d23_the_record_of_an_older_downscale_is_not_taken_for_that_of_a_newer(
    bench: Bench,
) -> None:
    for begun in (EPOCH, EPOCH + SECOND):
        reservation = bench.downscales.begin(sts("a"), key("a"), begun, [])
        bench.downscales.record_persisted(reservation, begun)
    bench.downscales.record_written(A, EPOCH)

    assert bench.downscales.find_unrecorded(A) == EPOCH + SECOND


def test_w36_the_pods_of_a_reservation_that_is_replaced_are_not_forgotten(bench: Bench) -> None:
    """5 to 3 happened; before its pods are gone, 3 to 2 begins and everything is reverted."""
    first = bench.open(start=5, end=3, pods="34")
    bench.downscales.record_persisted(first, EPOCH)
    second = bench.open(start=3, end=2, pods="2")

    assert second.pods == called("234")
    assert second.prepared == set()
    bench.downscales.close(second, un_prepare=second.pods)
    assert set(bench.due()) == {"pod-2", "pod-3", "pod-4"}


def test_li05_a_pod_that_the_next_downscale_leaves_is_un_prepared_at_once(bench: Bench) -> None:
    """3 to 1 of an earlier process never came about, and then 3 to 2 does: pod 1 stays."""
    zone, ledger = sts("a", 3), bench.downscales
    went, stays = (Uid("2"), "zone-a-2"), (Uid("1"), "zone-a-1")
    ledger.adopt(zone, key("a", 3, 1), EPOCH, [stays, went])
    second = ledger.begin(zone, key("a", 3, 2), EPOCH, [went])

    assert set(second.pods) == {went[0]}
    assert {one.uid for one in ledger.backlog.map_due_cancels(zone.uid)} == {stays[0]}


def test_a_reservation_that_was_replaced_or_closed_closes_nothing(bench: Bench) -> None:
    """A review that was cancelled ends after the next has begun."""
    first = bench.open(pods="12")
    bench.downscales.record_persisted(first, EPOCH)
    second = bench.begin(start=1, end=0, pods="0")
    called = len(bench.called)
    bench.downscales.close(first, un_prepare=uids("12"))
    assert bench.downscales.get(A) is second
    assert bench.due() == {}
    assert len(bench.called) == called
    bench.downscales.record_written(A, EPOCH)
    bench.downscales.close(second, un_prepare=uids("0"))
    bench.downscales.backlog.settle(A, waiting("0"))
    bench.downscales.close(second, un_prepare=uids("0"))
    assert bench.due() == {}


def test_fp06_what_another_process_began_is_taken_over(bench: Bench) -> None:
    """D-23, LI-05: open, since it is unknown whether it was answered, and not prepared."""
    bench.clock.jump(SECOND)
    reservation = bench.downscales.adopt(sts("a"), key("a"), EPOCH, named("12"))

    assert (reservation.state, reservation.prepared, reservation.pods) == (
        ReservationState.OPEN,
        set(),
        called("12"),
    )
    assert bench.downscales.time_left(reservation) == PERSIST_LIMIT
    assert bench.underway() == "zone-a"
    assert set(bench.called) == {(A, INGESTER)}


def test_a_set_that_is_gone_is_forgotten_whole(bench: Bench) -> None:
    bench.downscales.close(bench.begin(pods="12"), un_prepare=uids("12"))
    bench.downscales.record_persisted(bench.begin(pods="2"), EPOCH)
    bench.open("b")
    bench.called.clear()
    bench.downscales.forget_set(A)

    assert bench.downscales.list_sets() == [B]
    assert bench.downscales.last.times == {}
    assert bench.downscales.find_unrecorded(A) is None
    assert bench.due() == {}
    assert bench.called == [(A, INGESTER)]
    bench.downscales.forget_set(A)
    bench.downscales.forget_set(B)
    bench.assert_is_empty()


def test_each_step_is_reported_to_all_subscribers(bench: Bench) -> None:
    """D-25: rollouts of the group are planned again, and its un-prepare backlog, too."""
    also: list[Uid] = []
    ledger = bench.downscales
    ledger.on_change(lambda uid, _: also.append(uid))
    reservation = bench.begin()
    steps: list[Callable[[], None]] = [
        lambda: ledger.renew(reservation, ()),
        lambda: ledger.allow(reservation),
        lambda: ledger.record_persisted(reservation, EPOCH),
        lambda: ledger.close(reservation, un_prepare=()),
    ]
    for number, step in enumerate(steps, 1):
        assert (bench.called, also) == ([(A, INGESTER)] * number, [A] * number)
        step()
    assert (bench.called, also) == ([(A, INGESTER)] * 5, [A] * 5)


# D-66: what was seen counts until the store shows it, and not a moment longer


@pytest.mark.parametrize(
    ("version", "is_seen"),
    [
        pytest.param("9", True, id="a cache of before the record"),
        pytest.param("10", False, id="the record itself"),
        pytest.param("11", False, id="what came after it"),
    ],
)
def test_d66_memory_counts_for_caches_of_before_the_record(version: str, is_seen: bool) -> None:
    """D-66, SI-11: a stale cache that shows no record is no person who removed it."""
    last = LastDownscales()
    last.record(A, EPOCH)
    assert last.map_unshown({A: version}) == {A: EPOCH}, "nothing is recorded yet"
    last.record_shown(A, EPOCH, "10")
    assert last.map_unshown({A: version}) == ({A: EPOCH} if is_seen else {})
    assert last.times == {A: EPOCH}


def test_si11_the_next_downscale_is_bridged_anew() -> None:
    last = LastDownscales()
    last.record(A, EPOCH)
    last.record_shown(A, EPOCH, "10")
    last.record(A, EPOCH + SECOND)
    assert last.map_unshown({A: "11"}) == {A: EPOCH + SECOND}
    last.record_shown(A, EPOCH, "12")
    assert last.map_unshown({A: "13"}) == {A: EPOCH + SECOND}, "that was the record of the first"


def test_si11_no_time_moves_back_and_a_set_that_is_gone_has_none() -> None:
    last = LastDownscales()
    last.record(A, EPOCH + SECOND)
    last.record(A, EPOCH)
    assert last.times == {A: EPOCH + SECOND}
    last.forget(A)
    last.record_shown(A, EPOCH, "10")
    assert last.map_unshown({A: "1"}) == last.times == {}
