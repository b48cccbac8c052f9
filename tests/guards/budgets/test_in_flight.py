"""What counts as going although it looks untouched, and what came to nothing
(SI-04, SI-17, LI-09, FP-40).
"""

from datetime import timedelta

import msgspec
import pytest
from msgspec import structs

from rollout_operator.aio.queue import REFUSED_EVICTIONS
from rollout_operator.guards.grants import (
    MOST_PODS,
    RECORD_COUNTS,
    REMEMBERED,
    Grant,
    GrantState,
    InFlight,
    OwnDeletes,
    UnusedGrants,
    is_recorded,
    read_record,
)
from rollout_operator.kube.store import PodStore
from rollout_operator.model.budget import DisruptionSource, Record
from rollout_operator.model.names import InvalidInput, Uid
from rollout_operator.model.objects import Deletion, Pod, Unreadable
from tests.builders import NOW, pod, sts_uid, unreadable
from tests.fakes_clock import FakeClock
from tests.virtual_time import VirtualClock, in_virtual_time

A0, A1, B0 = pod("a", 0), pod("a", 1), pod("b", 0)
SECOND = timedelta(seconds=1)


class Memory:
    """A Pending over a cache, and the pods that it reported."""

    def __init__(self, *pods: Pod) -> None:
        self.cache, self.clock = PodStore(), FakeClock()
        self.deletes = OwnDeletes(self.cache, self.clock)
        self.in_flight = InFlight(self.cache, self.deletes, self.clock)
        self.reported: list[str] = []
        self.in_flight.on_change(lambda one: self.reported.append(one.name))
        self.cache.replace_all(pods)

    def grant(
        self, one: Pod, state: GrantState = GrantState.GRANTED, budget: str = "ingester"
    ) -> Grant:
        """Reserve a pod and settle it."""
        made = self.in_flight.reserve(one, DisruptionSource.EVICTION, budget)
        if state is GrantState.GRANTED:
            self.in_flight.confirm(made, one)
        elif state is GrantState.DOUBTFUL:
            self.in_flight.doubt(made)
        return made

    def going(self, *owners: str, pods: tuple[Pod, ...] = ()) -> dict[Uid, Deletion]:
        """Return what counts of these zones."""
        uids = {sts_uid(letter) for letter in owners}
        return dict(self.in_flight.map_going(uids, pods, NOW))


def recorded(one: Pod, *, age: timedelta = SECOND, **changes: object) -> Pod:
    """Return a pod with a record of its own."""
    record = Record(uid=one.uid, by="y", at=NOW - age)
    text = msgspec.json.encode(msgspec.structs.replace(record, **changes)).decode()
    return msgspec.structs.replace(one, disruption=text)


@pytest.mark.parametrize("state", list(GrantState))
def test_si17_a_grant_counts_from_the_moment_of_its_reservation(state: GrantState) -> None:
    """Also while it is requested, and where its outcome is unknown."""
    memory = Memory(A0, A1, B0)
    memory.grant(A0, state)
    assert memory.going("a", "b") == {A0.uid: Deletion.GRANTED}
    assert memory.going("b") == {}


def test_fp40_a_record_counts_whichever_client_wrote_it() -> None:
    memory = Memory(A0)
    assert memory.going("a", pods=(recorded(A0), B0)) == {A0.uid: Deletion.GRANTED}


def test_si04_an_own_delete_counts_as_such_also_under_a_grant() -> None:
    """What is read back is reported by it: see `controllers.executor`."""
    memory = Memory(A0, A1)
    memory.grant(A0)
    memory.deletes.begin(A0)
    memory.deletes.begin(A1)
    memory.deletes.accept(A1)
    going = memory.going("a", pods=(recorded(A0), recorded(A1)))
    assert going == {A0.uid: Deletion.UNKNOWN, A1.uid: Deletion.ACCEPTED}


@pytest.mark.parametrize("state", [GrantState.GRANTED, GrantState.DOUBTFUL])
@pytest.mark.parametrize(
    "shown",
    [
        pytest.param([pod("a", 0, "t")], id="on its way out"),
        pytest.param([pod("a", 0, uid=Uid("new"))], id="replaced"),
        pytest.param([], id="gone"),
    ],
)
def test_a_grant_is_forgotten_once_the_cache_shows_it(state: GrantState, shown: list[Pod]) -> None:
    memory = Memory(A0)
    memory.grant(A0, state)
    memory.reported.clear()
    memory.cache.replace_all(shown)
    assert memory.going("a") == {}
    assert len(memory.in_flight) == 0
    assert memory.reported == ["zone-a-0"]


@pytest.mark.parametrize("shown", [A0, unreadable("Pod", "zone-a-0", owner="a")])
def test_a_grant_is_kept_while_the_cache_shows_nothing_of_it(shown: Pod) -> None:
    """An unreadable pod is not shown to be gone."""
    memory = Memory(A0)
    memory.grant(A0)
    memory.cache.replace_all([msgspec.structs.replace(shown, uid=A0.uid, name=A0.name)])
    assert memory.going("a") == {A0.uid: Deletion.GRANTED}


def test_what_is_requested_is_settled_by_the_requester() -> None:
    """It may be confirmed in the next step, and must be found then."""
    memory = Memory(A0)
    grant = memory.grant(A0, GrantState.REQUESTED)
    memory.cache.replace_all([])
    assert memory.going("a") == {A0.uid: Deletion.GRANTED}
    assert memory.in_flight.get(A0.uid) is grant


def test_callbacks_are_called_when_a_grant_is_settled() -> None:
    """One that is not known is released in silence."""
    memory = Memory(A0, A1, B0)
    grant = memory.grant(A0, GrantState.REQUESTED)
    assert memory.reported == []
    memory.in_flight.confirm(grant, msgspec.structs.replace(A0, resource_version="2"))
    memory.grant(A1, GrantState.DOUBTFUL)
    old = memory.grant(B0, GrantState.REQUESTED)
    memory.in_flight.release(old)
    assert memory.reported == ["zone-a-0", "zone-a-1", "zone-b-0"]
    assert grant.pod.resource_version == "2"
    new = memory.grant(B0, GrantState.REQUESTED)
    memory.in_flight.release(old)
    assert memory.reported[3:] == []
    assert memory.in_flight.get(B0.uid) is new


def test_w55_what_may_still_come_to_nothing_is_listed_by_budget() -> None:
    memory = Memory(A0, A1, B0)
    memory.grant(A0, GrantState.REQUESTED)
    memory.grant(A1, GrantState.REQUESTED, "store")
    memory.grant(B0, GrantState.GRANTED)
    assert memory.in_flight.list_requested("ingester") == (A0.uid,)
    assert memory.in_flight.list_requested("store") == (A1.uid,)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        pytest.param(A0, False, id="no record"),
        pytest.param(recorded(A0), True, id="a young one"),
        pytest.param(recorded(A0, age=RECORD_COUNTS - SECOND), True, id="LI-07: 119 s"),
        pytest.param(recorded(A0, age=RECORD_COUNTS), False, id="LI-07: 120 s"),
        pytest.param(recorded(A0, age=-SECOND), True, id="one of the future"),
        pytest.param(recorded(A0, uid="uid-b-0"), False, id="a copy of another pod's"),
        pytest.param(pod("a", 0, disruption="{"), True, id="one that cannot be read"),
        pytest.param(pod("a", 0, disruption='{"uid":"uid-a-0"}'), True, id="one without a time"),
        pytest.param(pod("a", 0, disruption="[" * 9999), True, id="one that is deep"),
    ],
)
def test_li07_which_records_count(one: Pod, expected: bool) -> None:
    assert is_recorded(one, NOW) is expected
    assert (one.uid in Memory(one).going("a", pods=(one,))) is expected


def test_a_record_that_cannot_be_read_is_named() -> None:
    broken = pod("a", 0, disruption='{"uid":"uid-a-0","by":"x","at":"yesterday"}')
    with pytest.raises(InvalidInput, match=r"^Pod zone-a-0: annotation .*disruption: .*at") as info:
        read_record(broken)
    assert info.value.__cause__ is not None


def test_a_record_is_read_where_it_is_the_pods_own() -> None:
    assert read_record(A0) is None
    assert read_record(recorded(A0, uid="uid-b-0")) is None
    assert read_record(recorded(A0)) == Record(uid=A0.uid, by="y", at=NOW - SECOND)


# Grants that come to nothing: the pod waits longer each time, and others do not (LI-09, D-68)


class UnusedBench:
    """Memory of grants before a cache of pods."""

    def __init__(self) -> None:
        self.cache, self.clock = PodStore(), VirtualClock()
        self.cache.replace_all([A0])
        self.unused = UnusedGrants(self.cache, self.clock)


@in_virtual_time
async def test_li09_each_time_it_waits_twice_as_long_up_to_a_minute() -> None:
    made = UnusedBench()
    waits = []
    for _ in range(6):
        made.unused.record(A0)
        waits.append(made.unused.wait_before(A0.uid) / SECOND)
        await made.clock.sleep(REFUSED_EVICTIONS.most)
        assert not made.unused.wait_before(A0.uid)
    assert waits == [5, 10, 20, 40, 60, 60]
    assert made.unused.count(A0.uid) == 6
    assert not made.unused.wait_before(A1.uid)
    assert made.unused.count(A1.uid) == 0


@in_virtual_time
async def test_li09_after_a_while_it_is_forgotten() -> None:
    made = UnusedBench()
    made.unused.record(A0)
    await made.clock.sleep(REMEMBERED)
    assert made.unused.count(A0.uid) == 0
    made.unused.record(A0)
    assert made.unused.wait_before(A0.uid) == REFUSED_EVICTIONS.first


@pytest.mark.parametrize("successor", [[], [msgspec.structs.replace(A0, uid=Uid("new"))]])
@in_virtual_time
async def test_li09_a_pod_that_is_gone_is_forgotten(successor: list[Pod]) -> None:
    made = UnusedBench()
    made.unused.record(A0)
    made.cache.replace_all(successor)
    assert made.unused.count(A0.uid) == 0
    other = msgspec.structs.replace(A0, name="other", uid=Uid("other"))
    made.cache.upsert(other)
    made.unused.record(other)
    assert len(made.unused) == 1


@in_virtual_time
async def test_d68_the_memory_is_bounded() -> None:
    """D-68: the pods are real, and there may be very many of them."""
    made = UnusedBench()
    pods = [
        msgspec.structs.replace(A0, name=f"p-{at}", uid=Uid(f"u-{at}"))
        for at in range(MOST_PODS + 5)
    ]
    made.cache.replace_all(pods)
    for one in pods:
        made.unused.record(one)
    assert len(made.unused) == MOST_PODS
    assert made.unused.count(pods[0].uid) == 0
    assert made.unused.count(pods[-1].uid) == 1


# What is remembered of own deletes, and when it ends (D-17, SI-18)

POD = pod("a", 0)
UNREADABLE = structs.replace(unreadable("Pod", POD.name), uid=POD.uid)
GROUP, OTHER = {sts_uid("a")}, {sts_uid("b")}
UNKNOWN, ACCEPTED = {POD.uid: Deletion.UNKNOWN}, {POD.uid: Deletion.ACCEPTED}


def memory() -> tuple[OwnDeletes, PodStore, FakeClock]:
    cache, clock = PodStore(), FakeClock()
    cache.replace_all([POD])
    return OwnDeletes(cache, clock), cache, clock


def test_a_delete_counts_from_before_it_is_sent() -> None:
    """For the sets that control the pods, and no others."""
    made, _, _ = memory()
    made.begin(POD)
    assert made.map_deletions(GROUP) == UNKNOWN
    made.accept(POD)
    assert made.map_deletions(GROUP) == ACCEPTED
    assert not made.map_deletions(OTHER)
    made.begin(POD)
    assert not made.list_unknown(OTHER)


@pytest.mark.parametrize(
    ("shown", "is_over"),
    [
        pytest.param([pod("a", 0, "t")], True, id="the pod terminates"),
        pytest.param([pod("a", 0, uid=Uid("2"))], True, id="another pod of that name"),
        pytest.param([], True, id="no pod"),
        pytest.param([UNREADABLE], False, id="it cannot be read: no proof"),
    ],
)
def test_it_ends_with_what_the_cache_shows(shown: list[Pod | Unreadable], is_over: bool) -> None:
    made, cache, _ = memory()
    made.begin(POD)
    made.accept(POD)
    cache.replace_all(shown)
    assert made.map_deletions(GROUP) == ({} if is_over else ACCEPTED)


def test_a_request_that_was_turned_away_leaves_only_an_earlier_one() -> None:
    """SI-18: the first may still be committed."""
    made, _, clock = memory()
    made.begin(POD)
    made.refuse(POD)
    assert not made.map_deletions(GROUP)
    made.begin(POD)
    clock.jump(timedelta(seconds=60))
    made.begin(POD)
    made.refuse(POD)
    assert made.map_deletions(GROUP) == UNKNOWN


def test_the_newest_request_decides_how_long_one_may_still_be_committed() -> None:
    """SI-18: requests at 0 s and 60 s; the second may be committed until 150 s."""
    made, _, clock = memory()
    made.begin(POD)
    clock.jump(timedelta(seconds=60))
    made.begin(POD)
    (own,) = made.list_unknown(GROUP)
    clock.jump(timedelta(seconds=89))
    assert made.may_still_commit(own)
    clock.jump(timedelta(seconds=1))
    assert not made.may_still_commit(own)


def test_longest_unseen_counts_accepted_deletes_only() -> None:
    made, _, clock = memory()
    made.begin(POD)
    clock.jump(timedelta(seconds=7))
    assert made.longest_unseen(GROUP) == timedelta(0)
    made.accept(POD)
    clock.jump(timedelta(seconds=3))
    assert made.longest_unseen(GROUP) == timedelta(seconds=3)
