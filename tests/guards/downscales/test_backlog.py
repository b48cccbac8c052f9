"""Backlog of the ledger: who is to be told that it stays, and who never is: LI-05, SI-12, FP-26."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.guards.downscales import Downscales, ReservationState
from rollout_operator.guards.prepared_pods import BacklogEntry, UnansweredCancels
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint, Target
from rollout_operator.pods import PodError
from tests.builders import sts, sts_uid
from tests.examples import repeatable
from tests.fakes_clock import EPOCH
from tests.ledger import INGESTER, NONE, SECOND, A, B, Bench, key, named, uids, waiting
from tests.virtual_time import VirtualClock, in_virtual_time


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_li05_pods_that_were_prepared_are_to_be_un_prepared(bench: Bench) -> None:
    reservation = bench.begin(pods="12")
    bench.clock.jump(SECOND)
    bench.downscales.close(reservation, un_prepare=uids("12"), after=5 * SECOND)

    assert bench.downscales.get(A) is None
    assert bench.due() == {"pod-1": 6 * SECOND, "pod-2": 6 * SECOND}
    assert bench.downscales.backlog.map_due_cancels(A)[waiting("1")[0]] == BacklogEntry(
        "pod-1", 6 * SECOND
    )
    assert bench.downscales.list_sets() == [A]
    assert bench.downscales.remembers(A)
    assert bench.downscales.backlog.count() == 2
    assert bench.underway() == ""


def test_fp26_a_pod_that_may_have_been_called_late_is_un_prepared_twice(bench: Bench) -> None:
    """A slow prepare may arrive after the first word; after the second nothing is owed."""
    bench.downscales.close(bench.begin(pods="12"), un_prepare=uids("12"), again=9 * SECOND)
    assert bench.due() == {"pod-1": NONE, "pod-2": NONE}

    bench.clock.jump(SECOND)
    bench.downscales.backlog.record_un_prepared(A, waiting("1"))
    assert bench.due() == {"pod-1": 10 * SECOND, "pod-2": NONE}
    bench.downscales.backlog.record_un_prepared(A, waiting("12"))
    assert bench.due() == {"pod-2": 10 * SECOND}
    bench.downscales.backlog.record_un_prepared(A, waiting("29"))
    bench.assert_is_empty()


def test_li05_a_pod_that_is_un_prepared_gets_no_more_calls(bench: Bench) -> None:
    """Only pods that were called can be in the backlog; they leave it one after the other."""
    backlog = bench.downscales.backlog
    bench.downscales.close(bench.begin(pods="123"), un_prepare=uids("1239"))
    backlog.record_un_prepared(A, waiting("1"))
    backlog.record_un_prepared(B, waiting("1"))
    backlog.settle(A, waiting("2"))
    backlog.map_due_cancels(A).clear()  # a copy
    assert bench.due() == {"pod-3": NONE}
    backlog.settle(A, waiting("139"))
    bench.assert_is_empty()


def test_d40_a_pod_that_could_not_be_un_prepared_is_named_with_the_cause(bench: Bench) -> None:
    """D-40, LI-05: on the page, until it has been un-prepared; a log line says it only once."""
    backlog = bench.downscales.backlog
    bench.downscales.close(bench.begin(pods="12"), un_prepare=uids("12"))
    assert backlog.describe_unreached() is None
    backlog.postpone(A, waiting("2")[0], SECOND, "DELETE pod-2: no connection")
    assert backlog.describe_unreached() == (
        "to be told that they stay: pod-2 (DELETE pod-2: no connection)"
    )
    backlog.record_un_prepared(A, waiting("2"))
    assert backlog.describe_unreached() is None


def test_li05_a_pod_that_could_not_be_un_prepared_is_called_later(bench: Bench) -> None:
    bench.downscales.close(bench.begin(pods="12"), un_prepare=uids("12"), again=9 * SECOND)
    bench.clock.jump(SECOND)
    bench.downscales.backlog.postpone(A, waiting("2")[0], 3 * SECOND, "away")
    bench.downscales.backlog.postpone(A, waiting("9")[0], 3 * SECOND, "away")
    bench.downscales.backlog.postpone(B, waiting("1")[0], 3 * SECOND, "away")

    assert bench.due() == {"pod-1": NONE, "pod-2": 4 * SECOND}
    assert bench.downscales.backlog.map_due_cancels(A)[waiting("2")[0]].again == 9 * SECOND
    assert bench.due(B) == {}
    assert bench.downscales.list_sets() == [A]


def test_si12_a_debt_remembers_which_state_of_the_set_it_is_of(bench: Bench) -> None:
    """A cache that shows an older one would take pods that are going for ones that stay."""
    ledger = bench.downscales
    seen = sts("a", resource_version="17")
    reservation = ledger.begin(seen, key("a"), EPOCH, named("12"))
    assert ledger.backlog.get_version(A) == ""
    ledger.close(reservation, un_prepare=uids("12"))

    assert ledger.backlog.get_version(A) == "17"
    assert ledger.backlog.get_version(B) == ""
    ledger.backlog.settle(A, waiting("1"))
    assert ledger.backlog.get_version(A) == "17"
    ledger.backlog.record_un_prepared(A, waiting("2"))
    assert ledger.backlog.get_version(A) == ""
    ledger.close(ledger.begin(seen, key("a"), EPOCH, named("1")), un_prepare=())
    assert ledger.backlog.get_version(A) == "", "no pod is left to un-prepare"
    ledger.close(ledger.begin(seen, key("a"), EPOCH, named("1")), un_prepare=uids("1"))
    ledger.forget_set(A)
    assert ledger.backlog.get_version(A) == ""
    bench.assert_is_empty()


@pytest.mark.parametrize("again", ["begin", "renew", "adopt"])
def test_si12_a_pod_that_is_prepared_again_is_not_un_prepared(bench: Bench, again: str) -> None:
    """FP-19: an entry of pod 2 from before must not undo what pod 2 confirms now."""
    bench.downscales.close(bench.begin(pods="12"), un_prepare=uids("12"))
    if again == "adopt":
        bench.downscales.adopt(sts("a"), key("a", 3, 2), EPOCH, named("2"))
    else:
        reservation = bench.begin(start=3, end=2, pods="2" if again == "begin" else "")
        bench.downscales.renew(reservation, named("2"))

    assert bench.due() == {"pod-1": NONE}


def test_si12_a_debt_to_a_pod_of_the_same_name_elsewhere_stays(bench: Bench) -> None:
    bench.downscales.close(bench.begin("b", pods="1"), un_prepare=uids("1"))
    bench.begin("a", pods="1")
    assert bench.due(B) == {"pod-1": NONE}


def run(bench: Bench, steps: Iterable[tuple[str, str]]) -> None:
    """Do one thing after another, as reviews and the controller may."""
    ledger = bench.downscales
    for step, letter in steps:
        uid = sts_uid(letter)
        reservation = ledger.get(uid)
        if reservation is None or step == "begin":
            if reservation is None or reservation.state is ReservationState.PERSISTED:
                bench.begin(letter)
        elif step == "renew":
            ledger.renew(reservation, named("3"))
        elif step == "allow":
            ledger.allow(reservation)
        elif step == "persist":
            ledger.record_persisted(reservation, bench.clock.now())
        elif step == "fail":
            ledger.close(reservation, un_prepare=reservation.pods, again=SECOND)
        ledger.backlog.record_un_prepared(uid, list(ledger.backlog.map_due_cancels(uid))[:1])
        bench.clock.jump(SECOND)
        assert_is_sound(ledger)


def assert_is_sound(ledger: Downscales) -> None:
    for uid in ledger.list_sets():
        reservation = ledger.get(uid)
        # SI-12: a pod on its way out is never un-prepared.
        due = {one.uid for one in ledger.backlog.map_due_cancels(uid)}
        assert reservation is None or not due.intersection(reservation.pods)
        assert reservation or ledger.backlog.map_due_cancels(uid) or ledger.find_unrecorded(uid)
    found = ledger.find_underway(INGESTER)
    held = ledger.count(ReservationState.PREPARING) + ledger.count(ReservationState.OPEN)
    assert (found is not None) == (held > 0)


stories = st.lists(
    st.tuples(
        st.sampled_from(["begin", "renew", "allow", "persist", "fail"]), st.sampled_from("abc")
    ),
    max_size=25,
)


@repeatable(150)
@given(stories)
def test_si12_whatever_happens_the_ledger_is_sound_and_ends_empty(
    steps: list[tuple[str, str]],
) -> None:
    bench = Bench()
    run(bench, steps)
    for letter in "abc":
        uid = sts_uid(letter)
        reservation = bench.downscales.get(uid)
        if reservation is not None:
            bench.downscales.close(reservation, un_prepare=reservation.pods)
        bench.downscales.backlog.settle(uid, bench.downscales.backlog.map_due_cancels(uid))
        begun = bench.downscales.find_unrecorded(uid)
        if begun is not None:
            bench.downscales.record_written(uid, begun)

    bench.assert_is_empty()
    for letter in "abc":
        bench.downscales.forget_set(sts_uid(letter))
    assert bench.downscales.last.times == {}


# Calls without an answer: which pods, where, and for how long (SI-10)

LASTS = timedelta(seconds=10)


def endpoint(pod: str, path: str = "prepare") -> Endpoint:
    return Endpoint(pod=pod, uid=Uid(f"uid-{pod}"), ip="10.0.0.1", host=pod, port=80, path=path)


ONE, TWO = endpoint("one"), endpoint("two")


class Calls:
    """Pods that fail as the test wants."""

    def __init__(self, **failed: bool) -> None:
        """Let pods fail, and say of each whether its call may arrive still."""
        self.failed = {
            Uid(f"uid-{pod}"): PodError(pod, may_arrive=may) for pod, may in failed.items()
        }
        self.takes = 0.0

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]:
        await asyncio.sleep(self.takes)
        return self.failed


@in_virtual_time
async def test_only_those_without_an_answer_and_only_for_so_long() -> None:
    clock = VirtualClock()
    unanswered = UnansweredCancels(clock, LASTS)
    calls = Calls(one=True, two=False)
    assert await unanswered.cancel_all(calls, A, [ONE, TWO]) == calls.failed
    assert unanswered.map_waits(A, [ONE, TWO]) == {ONE.uid: LASTS}
    assert unanswered.map_waits(B, [ONE, TWO]) == {}
    assert unanswered.map_waits(A, [endpoint("one", "elsewhere")]) == {}
    await clock.sleep(4 * SECOND)
    assert unanswered.map_waits(A, [ONE]) == {ONE.uid: 6 * SECOND}
    assert list(unanswered.by_set) == [A]
    await clock.sleep(6 * SECOND)
    assert unanswered.map_waits(A, [ONE]) == {}
    assert dict(unanswered.by_set) == {}, "nothing is kept of what is over"


@in_virtual_time
async def test_an_answer_to_a_later_call_says_nothing_of_an_earlier_one() -> None:
    clock = VirtualClock()
    unanswered = UnansweredCancels(clock, LASTS)
    await unanswered.cancel_all(Calls(one=True), A, [ONE])
    await clock.sleep(SECOND)
    await unanswered.cancel_all(Calls(), A, [ONE])
    assert unanswered.map_waits(A, [ONE]) == {ONE.uid: 9 * SECOND}
    unanswered.forget(A)
    assert unanswered.map_waits(A, [ONE]) == {}


@in_virtual_time
async def test_calls_that_are_cut_short_have_no_answer() -> None:
    unanswered = UnansweredCancels(VirtualClock(), LASTS)
    calls = Calls()
    calls.takes = 60
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await unanswered.cancel_all(calls, A, [ONE, TWO])
    assert unanswered.map_waits(A, [ONE, TWO]) == {ONE.uid: LASTS, TWO.uid: LASTS}


@in_virtual_time
async def test_what_another_process_may_have_sent() -> None:
    """D-24: where a record does not name the path, it may be any."""
    unanswered = UnansweredCancels(VirtualClock(), LASTS)
    unanswered.suspect(A, [ONE.uid], Target(port=80, path="prepare", service="s"))
    unanswered.suspect(A, [TWO.uid], None)
    elsewhere = endpoint("one", "elsewhere"), endpoint("two", "elsewhere")
    assert set(unanswered.map_waits(A, [ONE, TWO])) == {ONE.uid, TWO.uid}
    assert set(unanswered.map_waits(A, elsewhere)) == {TWO.uid}
