"""Evictions that wait: remembered for twice the pause of their client, in order (LI-09, D-68)."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.guards.budgets.in_flight import UnusedGrants
from rollout_operator.guards.budgets.precedence import (
    FORGET_EVERY,
    LEAST_PAUSE,
    MOST_PAUSE,
    MOST_WAITERS,
    USUAL_PAUSE,
    WaitingEvictions,
)
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from tests.planning.disruptions import budget, by_partition, member
from tests.virtual_time import VirtualClock, in_virtual_time

MOMENT = timedelta(milliseconds=1)
RULE = budget()
FIRST, SECOND, ROLLED = member("a", 0), member("b", 0), member("c", 0)


class Bench:
    """Memory of evictions before a cache of pods."""

    def __init__(self) -> None:
        self.cache, self.clock = PodStore(), VirtualClock()
        self.cache.replace_all([FIRST, SECOND, ROLLED])
        self.unused = UnusedGrants(self.cache, self.clock)
        self.waiting = WaitingEvictions(self.cache, self.unused, self.clock)

    @property
    def front(self) -> list[str]:
        """Return what is in front of a pod that no client evicts."""
        return [one.pod.name[-3:] for one in self.waiting.list_in_front(RULE, ROLLED)]


@in_virtual_time
async def test_a_refused_drain_is_awaited_for_twice_the_pause_of_kubectl() -> None:
    made = Bench()
    made.waiting.record_refused(RULE, FIRST)
    await made.clock.sleep(2 * USUAL_PAUSE)
    assert made.front == ["a-0"]
    await made.clock.sleep(MOMENT)
    assert made.front == []


@pytest.mark.parametrize(("gap", "pause"), [(10, 10), (3, 3), (1, 2.5), (29, 29), (45, 30)])
@in_virtual_time
async def test_the_pause_is_learned_from_repeats_within_bounds(gap: float, pause: float) -> None:
    made = Bench()
    made.waiting.record_refused(RULE, FIRST)
    await made.clock.sleep(timedelta(seconds=gap))
    made.waiting.record_refused(RULE, FIRST)
    await made.clock.sleep(timedelta(seconds=2 * pause))
    assert made.front == ["a-0"]
    await made.clock.sleep(MOMENT)
    assert made.front == []


@in_virtual_time
async def test_a_request_that_is_repeated_at_once_says_nothing_of_the_pause() -> None:
    made = Bench()
    made.waiting.record_refused(RULE, FIRST)
    await made.clock.sleep(LEAST_PAUSE / 10)
    made.waiting.record_refused(RULE, FIRST)
    await made.clock.sleep(2 * USUAL_PAUSE)
    assert made.front == ["a-0"]


@in_virtual_time
async def test_they_stand_in_the_order_in_which_they_came() -> None:
    made = Bench()
    made.waiting.record_refused(RULE, FIRST)
    await made.clock.sleep(MOMENT)
    made.waiting.record_refused(RULE, SECOND)
    assert made.front == ["a-0", "b-0"]
    assert [one.pod for one in made.waiting.list_in_front(RULE, SECOND)] == [FIRST]
    assert made.waiting.list_in_front(RULE, FIRST) == []
    # A client without a request for too long is the last again.
    await made.clock.sleep(3 * USUAL_PAUSE)
    made.waiting.record_refused(RULE, SECOND)
    made.waiting.record_refused(RULE, FIRST)
    assert [one.pod for one in made.waiting.list_in_front(RULE, ROLLED)] == [SECOND, FIRST]


@pytest.mark.parametrize("now", [[], [replace(FIRST, uid=Uid("new"))], [member("a", 0, "t")]])
@in_virtual_time
async def test_a_pod_that_has_gone_is_awaited_no_more(now: list[Pod]) -> None:
    made = Bench()
    made.waiting.record_refused(RULE, FIRST)
    made.cache.replace_all([*now, SECOND, ROLLED])
    assert made.front == []
    await made.clock.sleep(FORGET_EVERY)
    made.waiting.record_refused(RULE, SECOND)
    assert len(made.waiting) == 1


@in_virtual_time
async def test_d68_what_came_to_nothing_before_has_no_turn() -> None:
    """D-68: a forged list of evictions costs a rollout one turn for each pod, and no more."""
    made = Bench()
    made.waiting.record_refused(RULE, FIRST)
    made.unused.record(FIRST)
    made.waiting.record_refused(RULE, FIRST)
    assert made.front == []


@in_virtual_time
async def test_d68_the_memory_is_bounded() -> None:
    made = Bench()
    pods = [replace(FIRST, name=f"p-{at}", uid=Uid(f"u-{at}")) for at in range(MOST_WAITERS + 5)]
    made.cache.replace_all(pods)
    for one in pods:
        made.waiting.record_refused(RULE, one)
    assert len(made.waiting) == MOST_WAITERS
    await made.clock.sleep(2 * MOST_PAUSE + MOMENT)
    made.waiting.record_refused(RULE, pods[-1])
    assert len(made.waiting) == 1


@in_virtual_time
async def test_partitions_and_budgets_do_not_wait_for_one_another() -> None:
    made = Bench()
    rule = by_partition()
    made.waiting.record_refused(rule, FIRST)
    assert made.waiting.list_in_front(rule, SECOND) != []
    assert made.waiting.list_in_front(rule, member("b", 1)) == []
    assert made.waiting.list_in_front(by_partition(name="other"), SECOND) == []


@in_virtual_time
async def test_a_pod_that_a_rollout_replaces_is_served() -> None:
    """Its drain is content: so it was a place of the evictions."""
    made = Bench()
    made.waiting.record_refused(RULE, FIRST)
    made.waiting.hold(RULE, ROLLED, is_whole=False)
    made.waiting.record_granted(RULE, FIRST, DisruptionSource.ROLLOUT, most=1)
    assert made.front == []
    assert made.waiting.holds(RULE, SECOND, DisruptionSource.EVICTION)
