"""Drains and rollouts that wait for a place: each has its turn (SI-01, LI-01, LI-09, D-68)."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.guards.grants import DisruptionRequest, GrantedPod, UnusedGrants
from rollout_operator.guards.turns import (
    FORGET_EVERY,
    LEAST_PAUSE,
    MOST_PAUSE,
    MOST_WAITERS,
    USUAL_PAUSE,
    WaitingEvictions,
)
from rollout_operator.kube.store import PodStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets import Refusal
from tests.guards.arbiter_bench import Process, render_answer, rule, start
from tests.planning.disruptions import PATTERN, budget, by_partition, member
from tests.virtual_time import VirtualClock, in_virtual_time

EVICTIONS = "429 eviction_first: the next place under budget ingester is for the eviction of"
ROLLOUT = "429 rollout_first: the next place under budget ingester is for the rollout, which has"

MOMENT = timedelta(milliseconds=1)
RULE = budget()
FIRST, SECOND, ROLLED = member("a", 0), member("b", 0), member("c", 0)


def replaced(x: Process, *pods: str) -> None:
    """Have pods that were allowed to go be gone, and back."""
    for pod in pods:
        x.world.replace(pod)
    x.sync()


async def rolled(x: Process, pod: str) -> str:
    """Request a delete by a rollout; see `render_answer`."""
    return render_answer(await x.roll(pod, limit=9))


async def drained(x: Process, pod: str = "b-0", *, rolls: str = "a-0") -> None:
    """Let a rollout have pods, refuse an eviction for them, and have the pods back."""
    for one in rolls.split():
        assert await rolled(x, one) == "allowed"
    assert (await x.evict(pod)).startswith("429 disruption_budget_used")
    replaced(x, *rolls.split())


@in_virtual_time
async def test_an_eviction_that_was_refused_has_the_next_place() -> None:
    """LI-01: in another zone, where the rollout would be first by its events."""
    _, x = start()
    await drained(x)
    answer = await x.roll("a-1")
    assert isinstance(answer, Refusal)
    assert render_answer(answer).startswith(f"{EVICTIONS} ingester-zone-b-0")
    assert answer.reason.text.endswith("is awaited; 1 eviction waits")
    assert answer.is_shared
    assert answer.requeue_after == 2 * USUAL_PAUSE
    assert await x.evict("b-0") == "allowed"
    assert (await rolled(x, "a-1")).startswith("429 disruption_budget_used")


@in_virtual_time
async def test_after_it_the_rollout_has_a_place() -> None:
    """One in two, also where another eviction is faster."""
    _, x = start()
    await drained(x)
    assert (await rolled(x, "a-1")).startswith(EVICTIONS)
    assert await x.evict("b-0") == "allowed"
    replaced(x, "b-0")
    assert (await x.evict("b-1", dry_run=True)).startswith(ROLLOUT)
    assert (await x.evict("b-1")).startswith(ROLLOUT)
    assert await rolled(x, "a-1") == "allowed"
    replaced(x, "a-1")
    assert (await rolled(x, "a-2")).startswith(f"{EVICTIONS} ingester-zone-b-1")
    assert await x.evict("b-1") == "allowed"


@in_virtual_time
async def test_a_client_that_requests_nothing_more_holds_no_rollout() -> None:
    _, x = start()
    await drained(x)
    await x.clock.sleep(2 * USUAL_PAUSE + timedelta(milliseconds=1))
    assert await rolled(x, "a-1") == "allowed"


@in_virtual_time
async def test_a_dry_run_waits_for_nothing() -> None:
    """SI-15: it leaves no trace, in this memory neither."""
    _, x = start()
    assert await rolled(x, "a-0") == "allowed"
    assert (await x.evict("b-0", dry_run=True)).startswith("429 disruption_budget_used")
    replaced(x, "a-0")
    assert await rolled(x, "a-1") == "allowed"


@in_virtual_time
async def test_a_rollout_goes_on_where_it_is_in_no_eviction_s_way() -> None:
    """A pod that waits itself goes by the rollout; and where there is room for both, both go."""
    _, x = start()
    await drained(x, "a-1")
    assert (await rolled(x, "a-2")).startswith(EVICTIONS)
    assert await rolled(x, "a-1") == "allowed"
    _, x = start(rule(2), pods=4)
    await drained(x, "a-2", rolls="a-0 a-1")
    assert await rolled(x, "a-3") == "allowed"  # one of two places is left for a-2
    assert await x.evict("a-2") == "allowed"


@in_virtual_time
async def test_li10_a_pod_that_is_down_waits_for_no_eviction() -> None:
    """LI-10, D-14: its replacement takes no other place."""
    here, x = start(rule(2))
    await drained(x, rolls="a-0 a-1")
    here.break_pod("a-2")
    x.sync()
    assert await rolled(x, "a-2") == "allowed"


@in_virtual_time
async def test_partitions_wait_for_none_but_their_own() -> None:
    _, x = start(rule(pattern=PATTERN))
    assert await rolled(x, "a-0") == "allowed"
    assert (await x.evict("b-0")).startswith("429 disruption_budget_used")
    assert await rolled(x, "a-1") == "allowed"
    replaced(x, "a-0")
    assert (await rolled(x, "a-0")).startswith(EVICTIONS)
    assert await x.evict("b-0") == "allowed"


@in_virtual_time
async def test_the_caches_alone_show_which_goes_first() -> None:
    """The rollout requests no live read while it holds still, but for the pod that waits."""
    _, x = start()
    await drained(x, "a-1")
    pods = [x.cached(f"a-{at}") for at in range(3)]
    found = await x.gate.assess_all(
        [DisruptionRequest(pod=one, engine=DisruptionSource.ROLLOUT, limit=1) for one in pods]
    )
    assert [one and one.reason.code for one in found] == [
        Code.EVICTION_FIRST, None, Code.EVICTION_FIRST
    ]  # fmt: skip


@pytest.mark.parametrize(("before", "says"), [(0, "the next eviction in line"), (2, "2 evictions")])
@in_virtual_time
async def test_a_refusal_says_how_many_are_in_front(before: int, says: str) -> None:
    _, x = start()
    assert await rolled(x, "a-0") == "allowed"
    for at in range(before):
        await x.evict(f"b-{at}")
        await x.clock.sleep(timedelta(milliseconds=1))
    answer = await x.gate.request(
        DisruptionRequest(pod=x.cached("c-0"), engine=DisruptionSource.EVICTION), timedelta(hours=1)
    )
    assert not isinstance(answer, GrantedPod)
    assert answer.reason.text.partition("max unavailable 1; ")[2].startswith(says)


@in_virtual_time
async def test_li09_what_came_to_nothing_lets_those_in_earnest_go_first() -> None:
    """LI-09, D-68: many pods that are requested in turn, and never go, starve no drain."""
    _, x = start()
    x.in_flight.unused.record(x.cached("c-0"))
    assert await rolled(x, "a-0") == "allowed"
    assert (await x.evict("b-0")).startswith("429 disruption_budget_used")
    await x.clock.sleep(USUAL_PAUSE)
    replaced(x, "a-0")
    assert (await x.evict("c-0")).startswith(f"{EVICTIONS} ingester-zone-b-0")
    assert await x.evict("b-0") == "allowed"


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
