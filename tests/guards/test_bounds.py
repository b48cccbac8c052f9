"""What is remembered of zones and names costs little, whatever tenants do (SI-03, SI-26, D-68)."""

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Final
from weakref import ref

import pytest
from msgspec.structs import replace

from rollout_operator.guards.arbiter import SLICE
from rollout_operator.guards.departed import MOST_DEPARTED, POLICY
from rollout_operator.guards.grants import (
    MOST_PODS,
    DisruptionRequest,
    UnusedGrants,
    is_recorded,
    refuse,
)
from rollout_operator.guards.newcomers import FORGOTTEN, MOST_NAMES, UNKNOWN, PastNames
from rollout_operator.guards.turns import (
    AWAITED,
    FORGET_EVERY,
    MOST_WAITERS,
    Locks,
    Precedence,
    calls_lock,
    group_lock,
)
from rollout_operator.kube.store import PodStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import GROUP_LABEL, GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.model.outcome import Code
from tests.builders import NOW, pod, sts
from tests.guards.watched_stage import GROUPS, LABELS, MOMENT, SELECTED, DepartedStage
from tests.planning.disruptions import budget, member
from tests.virtual_time import VirtualClock, in_virtual_time
from tests.web.budgets.stage import BudgetStage

START: Final = timedelta(minutes=1)
LARGEST: Final = 2**31 - 1


def relabel(stage: DepartedStage, letter: str, times: int, **labels: str) -> None:
    """Have a zone move from group to group."""
    for number in range(times):
        old = stage.sets.get("test", f"zone-{letter}")
        assert isinstance(old, StatefulSet)
        moved = {GROUP_LABEL: f"g{number}", **labels}
        stage.show(replace(old, labels=moved, resource_version=stage.next()))


async def test_d68_a_set_that_is_labelled_again_and_again_pushes_out_no_other() -> None:
    """SI-26: who may label one StatefulSet must not have the operator forget the others."""
    stage = DepartedStage()
    await stage.act("down 1, delete")
    stage.show(sts("b", ready_replicas=0, resource_version=stage.next(), labels=LABELS["none"]))
    relabel(stage, "b", MOST_DEPARTED + 10)
    assert stage.outline() == "ingester 2/3 600s"
    assert len(stage.departed) == MOST_DEPARTED


@pytest.mark.parametrize("step", ["label back", "down 1", "status 1"])
async def test_si03_a_set_that_is_labelled_again_and_again_is_matched_a_few_times(
    step: str,
) -> None:
    """SI-26: one that is short is matched with policies whenever it or its pods change."""
    stage, matched, woken = DepartedStage(), list[str](), list[str]()

    def selects(name: str, sts: StatefulSet | Unreadable) -> bool:
        matched.append(name)
        return sts.labels.get("app") == name

    stage.departed.add_kind(POLICY, lambda: [f"p{number}" for number in range(100)], selects)
    stage.departed.on_change(POLICY, woken.append)
    await stage.act("down 1")
    relabel(stage, "a", 100, app="p7")
    matched.clear()
    woken.clear()
    await stage.act(step)
    assert len(matched) <= 100 * 60
    assert set(woken) == {"p7"}


def make_fat(stage: DepartedStage, number: int, replicas: int = 3, name: str = "b") -> StatefulSet:
    """Return a StatefulSet with about as much text as is kept of labels; none of it is shared."""
    labels = {f"{'k' * 200}/{number}-{label}": f"{number:060}" for label in range(120)}
    labels[GROUP_LABEL] = f"g{number}"
    version = stage.next()
    return sts(name, replicas, labels=labels, ready_replicas=0, resource_version=version)


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "is_deleted"), [(3, False), (3, True), (0, True)])
def test_si26_the_memory_is_bounded_whatever_labels_hold(replicas: int, is_deleted: bool) -> None:
    """D-68: the small records of others stay, though they are the oldest."""
    stage = DepartedStage()
    asyncio.run(stage.act("down 1, delete"))
    tracemalloc.start()
    try:
        for number in range(1000, 2000):
            fat = make_fat(stage, number, replicas, f"{number}" if is_deleted else "b")
            stage.show(fat)
            if is_deleted:
                stage.remove_set(fat)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 24 << 20
    assert stage.outline().startswith("ingester 2/3 600s")


class CountedPods(PodStore):
    """Counts how many pods are looked up by name."""

    looked_up = 0

    def get(self, namespace: str, name: str) -> Pod | Unreadable | None:
        self.looked_up += 1
        return super().get(namespace, name)


async def delete_large(stage: DepartedStage) -> None:
    large = sts("b", LARGEST, ready_replicas=0, resource_version=stage.next())
    stage.show(large)
    stage.remove_set(large)


async def leave_large_behind(stage: DepartedStage) -> None:
    large = sts("b", LARGEST, ready_replicas=0, resource_version="1000", labels=LABELS["other"])
    stage.show(large)
    mover = sts("c", 0, resource_version="1001", labels=LABELS["other"])
    stage.show(mover)
    stage.show(replace(mover, resource_version="1002", labels=LABELS["back"]))


async def find_orphans_far_apart(stage: DepartedStage) -> None:
    for ordinal in (0, LARGEST - 1):
        stage.pods.upsert(pod("b", ordinal, "L", labels=SELECTED, owner_uid=None))
    await stage.do_restart()


@pytest.mark.parametrize("leave", [delete_large, leave_large_behind, find_orphans_far_apart])
async def test_si03_replicas_that_nobody_created_cost_nothing(
    leave: Callable[[DepartedStage], Awaitable[None]],
) -> None:
    """SI-26: `spec.replicas` may be anything; hundreds of such sets must not stop all groups."""
    counted = CountedPods()
    stage = DepartedStage(counted)
    counted.looked_up = 0
    await leave(stage)
    (zone,) = stage.departed.list_zones(GROUPS[0])
    assert (zone.sts.name, zone.sts.replicas) == ("zone-b", LARGEST)
    assert counted.looked_up == 0


class CountedReads(list[Pod | Unreadable]):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Pod | Unreadable]:
        self.times += 1
        return super().__iter__()


async def test_si03_pods_without_an_owner_are_gone_through_once_for_all_zones() -> None:
    """SI-26: of both there may be thousands."""
    stage = DepartedStage()
    await stage.act("down 1, delete, orphan")
    for letter in "bcd":
        old = sts(letter, ready_replicas=0, resource_version=stage.next())
        stage.show(old)
        stage.show(replace(old, labels={}, resource_version=stage.next()))
    read = CountedReads(pod("a", at, owner_uid=None, labels=SELECTED) for at in range(3))
    assert len(stage.departed.list_zones(GROUPS[0], {None: read})) == 4
    assert read.times == 1


async def test_nothing_is_left_of_locks_that_are_not_held() -> None:
    """A group that comes and goes with each deployment must not cost memory for ever."""
    locks = Locks()
    kept = locks._locks
    async with locks.hold("k"):
        held = ref(kept["k"])
        assert list(kept) == ["k"]
    gc.collect()
    assert held() is None
    assert list(kept) == []


def test_keys_of_groups_and_of_calls_never_meet() -> None:
    assert group_lock(GroupName("x")) != calls_lock(Uid("x"))
    assert group_lock(GroupName("")) != group_lock(GroupName(" "))


def test_si02_a_name_is_remembered_for_an_hour_and_its_highest_ordinal() -> None:
    past = PastNames(START)
    for name, ordinal, after in (
        ("a", 3, 0 * MOMENT), ("b", 5, 0 * MOMENT), ("c", 3, 0 * MOMENT),
        ("c", 1, FORGOTTEN - MOMENT), ("d", UNKNOWN, 0 * MOMENT),
    ):  # fmt: skip
        past.add("test", name, ordinal, START + after)
    assert past.take("test", "a", START + FORGOTTEN - MOMENT) == 3
    assert past.take("test", "b", START + FORGOTTEN) == 0
    assert past.take("test", "c", START + FORGOTTEN + MOMENT) == 3
    # It is let go of once it has a set again.
    assert [past.take("test", "d", START) for _ in range(2)] == [UNKNOWN, 0]


def test_si02_a_crowd_of_names_makes_it_incomplete_and_not_larger() -> None:
    """It is complete an hour after anything was missed; who may create sets may miss many."""
    past, late = PastNames(START), START + 2 * FORGOTTEN
    assert [past.is_complete(START + FORGOTTEN - span) for span in (MOMENT, 0 * MOMENT)] == [
        False, True,
    ]  # fmt: skip
    past.lose_track(START + FORGOTTEN)
    assert not past.is_complete(late - MOMENT)
    for number in range(MOST_NAMES):
        past.add("test", f"crowd-{number}", 1, late)
    assert past.is_complete(late)
    past.add("test", "one-more", 1, late + MOMENT)
    assert len(past) == MOST_NAMES
    assert not past.is_complete(late + FORGOTTEN - MOMENT)
    assert past.is_complete(late + FORGOTTEN)
    # What is long ago makes room.
    past.add("test", "zone-a", 1, late + MOMENT + FORGOTTEN)
    assert len(past) == 1
    assert past.is_complete(late + MOMENT + FORGOTTEN)


@pytest.mark.parametrize("held", ["evict b-0", "roll a-0; evict b-0; new a-0; see"])
@in_virtual_time
async def test_d51_many_pods_are_decided_on_with_one_read_of_each_zone(held: str) -> None:
    """D-51: the work grows with the pods, not with their square."""
    stage = BudgetStage([])
    await stage.act(f"zones pods=30; budget one selector=app:another; {held}")
    stage.process.pods.reads = 0
    refusals = await stage.assess([f"a-{at}" for at in range(30)], 9)
    assert len({id(one) for one in refusals if one}) == 1
    assert stage.process.pods.reads == 3


@in_virtual_time
async def test_d51_others_have_their_turn_while_many_pods_are_decided_on() -> None:
    stage = BudgetStage([])
    await stage.act(f"zones pods={SLICE + 1}; budget ingester pattern")
    turns: list[str] = []

    async def decide() -> None:
        await stage.assess([f"a-{at}" for at in range(SLICE + 1)], 9)
        turns.append("decided")

    async def wait() -> None:
        turns.append("another")

    await asyncio.gather(decide(), wait())
    assert turns == ["another", "decided"]


@in_virtual_time
async def test_d68_the_memory_of_waiting_evictions_is_bounded() -> None:
    """By number and time, and to pods that are there."""
    cache, clock = PodStore(), VirtualClock()
    waiting = Precedence(cache, UnusedGrants(cache, clock), clock)
    base = member("a", 0)
    pods = [replace(base, name=f"p-{at}", uid=Uid(f"u-{at}")) for at in range(MOST_WAITERS + 5)]
    cache.replace_all(pods)

    def wait(pod: Pod) -> None:
        request = DisruptionRequest(pod=pod, engine=DisruptionSource.EVICTION)
        waiting.line_up(request, budget(), refuse(Code.DISRUPTION_BUDGET_USED, "used"))

    for one in pods:
        wait(one)
    assert len(waiting) == MOST_WAITERS
    cache.replace_all(pods[5:])
    await clock.sleep(FORGET_EVERY)
    wait(pods[5])
    assert len(waiting) == MOST_WAITERS - 5
    await clock.sleep(AWAITED + timedelta(milliseconds=1))
    wait(pods[-1])
    assert len(waiting) == 1


def test_li07_a_record_too_deep_to_read_counts() -> None:
    assert is_recorded(replace(member("a", 0), disruption="[" * 9999), NOW)


@in_virtual_time
async def test_d68_the_memory_of_unused_grants_is_bounded() -> None:
    """The pods are real, and there may be very many of them."""
    cache = PodStore()
    unused = UnusedGrants(cache, VirtualClock())
    base = member("a", 0)
    pods = [replace(base, name=f"p-{at}", uid=Uid(f"u-{at}")) for at in range(MOST_PODS + 5)]
    cache.replace_all(pods)
    for one in pods:
        unused.record(one)
    assert len(unused) == MOST_PODS
    assert unused.count(pods[0].uid) == 0
    assert unused.count(pods[-1].uid) == 1
