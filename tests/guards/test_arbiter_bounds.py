"""What decisions cost, and how much is remembered; what they are is told in tests/web/budgets."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from rollout_operator.guards.arbiter import MOST_WAITING, SLICE
from rollout_operator.guards.grants import (
    MOST_PODS,
    DisruptionRequest,
    UnusedGrants,
    is_recorded,
    refuse,
)
from rollout_operator.guards.turns import AWAITED, FORGET_EVERY, MOST_WAITERS, Precedence
from rollout_operator.kube.store import PodStore
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code
from tests.builders import NOW
from tests.guards.arbiter_bench import LONG, Process, rule, world
from tests.planning.disruptions import PATTERN, budget, member
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time


@in_virtual_time
async def test_w55_too_many_do_not_wait() -> None:
    x = Process(world())
    answer = asyncio.Event()

    async def hold(call: str) -> None:
        await answer.wait()

    x.world.client.pause = hold
    requests = [_evict(x, "a-0"), *(_evict(x, "b-0") for _ in range(MOST_WAITING))]
    waiting = [asyncio.create_task(x.gate.request(one, LONG)) for one in requests]
    await asyncio.sleep(0.01)
    await x.gate.request(_evict(x, "c-0"), LONG)
    assert elapsed() == timedelta(seconds=0.01)
    assert not any(task.done() for task in waiting)
    answer.set()
    await asyncio.gather(*waiting)


@in_virtual_time
async def test_d51_many_pods_are_decided_on_with_one_read_of_each_zone() -> None:
    """D-51: the work grows with the pods, not with their square."""
    x = Process(world(rule(), rule(name="one", selector={"app": "another"}), pods=30))
    await x.gate.request(_evict(x, "b-0"), LONG)
    x.pods.reads = 0
    refusals = await x.gate.assess_all(_roll(x, 30))
    assert len({id(one) for one in refusals if one}) == 1
    assert x.pods.reads == 3


@in_virtual_time
async def test_d51_others_have_their_turn_while_many_pods_are_decided_on() -> None:
    x = Process(world(rule(pattern=PATTERN), pods=SLICE + 1))
    turns: list[str] = []

    async def decide() -> None:
        await x.gate.assess_all(_roll(x, SLICE + 1))
        turns.append("decided")

    async def wait() -> None:
        turns.append("another")

    await asyncio.gather(decide(), wait())
    assert turns == ["another", "decided"]


def _evict(x: Process, pod: str) -> DisruptionRequest:
    return DisruptionRequest(pod=x.cached(pod), engine=DisruptionSource.EVICTION)


def _roll(x: Process, pods: int) -> list[DisruptionRequest]:
    """Return requests of a rollout for all pods of zone a."""
    return [
        DisruptionRequest(pod=x.cached(f"a-{at}"), engine=DisruptionSource.ROLLOUT, limit=9)
        for at in range(pods)
    ]


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
