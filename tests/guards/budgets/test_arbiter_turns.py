"""The arbiter between drains and rollouts: each has its turn (SI-01, LI-01, LI-09)."""

from datetime import timedelta

import pytest

from rollout_operator.guards.budgets.precedence import USUAL_PAUSE
from rollout_operator.guards.budgets.request import DisruptionRequest, GrantedPod
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.outcome import Code
from rollout_operator.planning.budgets.rule import Refusal
from tests.guards.arbiter_bench import Process, render_answer, rule, start
from tests.planning.disruptions import PATTERN
from tests.virtual_time import in_virtual_time

EVICTIONS = "429 eviction_first: the next place under budget ingester is for the eviction of"
ROLLOUT = "429 rollout_first: the next place under budget ingester is for the rollout, which has"


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
