"""What was granted and came to nothing makes the next grant of that pod wait (LI-07, LI-09)."""

from datetime import timedelta

from rollout_operator.aio.queue import REFUSED_EVICTIONS
from rollout_operator.guards.grants import DisruptionRequest, GrantedPod
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.planning.budgets import Refusal
from tests.controllers.budgets.test_controller import MOMENT, Bench, granted, start
from tests.guards.arbiter_bench import Hold
from tests.virtual_time import in_virtual_time

LIMIT = timedelta(minutes=1)


def count_unused(made: Bench) -> float | None:
    """Return how many grants the process has counted as unused."""
    metric = "rollout_operator_zpdb_unused_grants_total"
    return made.process.metrics.registry.get_sample_value(metric)


@in_virtual_time
async def test_li09_a_grant_that_came_to_nothing_makes_the_next_one_of_that_pod_wait() -> None:
    """LI-07, LI-09: others go on meanwhile; it is counted, and then the pod has its turn again."""
    made = await granted()
    await made.reconcile_late()
    x = made.process
    x.sync()
    assert await x.evict("a-0") == (
        "429 grant_unused: ingester-zone-a-0 was allowed to go 1 time and stayed, as where a"
        " PodDisruptionBudget or another webhook refuses it"
    )
    assert await x.evict("a-0", dry_run=True) == await x.evict("a-0")
    assert made.here.recorded() == []
    assert await x.evict("b-0", dry_run=True) == "allowed"
    assert isinstance(await x.roll("a-0"), GrantedPod)  # what a client does holds no rollout
    await x.gate.release_pod(x.cached("a-0"))
    assert count_unused(made) == 1


@in_virtual_time
async def test_li09_after_its_pause_the_pod_has_its_turn() -> None:
    """An honest client whose eviction a PodDisruptionBudget refused is not shut out."""
    made = await granted()
    await made.reconcile_late()
    made.process.sync()
    await made.wait(REFUSED_EVICTIONS.first - MOMENT)
    request = DisruptionRequest(pod=made.process.cached("a-0"), engine=DisruptionSource.EVICTION)
    refusal = await made.process.gate.request(request, LIMIT)
    assert isinstance(refusal, Refusal)
    assert refusal.requeue_after == MOMENT
    assert refusal.reason.text.endswith("it may be allowed again in 1 s")
    await made.wait(MOMENT)
    assert await made.process.evict("a-0") == "allowed"


@in_virtual_time
async def test_li09_a_rollout_that_died_makes_no_eviction_wait() -> None:
    made = start()
    grant = made.process.in_flight.reserve(
        made.process.cached("a-0"), DisruptionSource.ROLLOUT, "ingester"
    )
    made.process.in_flight.doubt(grant)
    await made.reconcile_late()
    assert await made.process.evict("a-0") == "allowed"


@in_virtual_time
async def test_li09_a_grant_without_an_answer_is_not_unused() -> None:
    """LI-09, SI-18: the lists are too slow for an answer; no client failed to use one."""
    made = start()
    made.here.client.pause = hold = Hold("list")
    assert (await made.process.evict("a-0")).startswith("429 grant_")
    hold.open.set()
    assert made.here.recorded() == ["a-0"]
    await made.reconcile_late()
    assert made.grants == 0
    assert count_unused(made) == 0
    made.process.sync()
    assert await made.process.evict("a-0") == "allowed"


@in_virtual_time
async def test_li09_a_grant_that_is_doubted_after_its_answer_is_unused() -> None:
    """LI-09: an answer that the client has stays true."""
    made = await granted()
    grant = made.process.in_flight.get(made.process.cached("a-0").uid)
    assert grant is not None
    made.process.in_flight.doubt(grant)
    await made.reconcile_late()
    assert count_unused(made) == 1
