"""Two operator processes on one namespace: of what both review at once only one may be allowed."""

import asyncio
import random
from collections import Counter
from string import ascii_lowercase
from typing import Final

import pytest

from tests.system.budgeted import RECORD, create_budgets
from tests.system.evictions import Answered, Caller, calling
from tests.system.hooked import TLS_FLAGS
from tests.world.api import PODS
from tests.world.budgets import by_partition, grouped_zones, zone_budget
from tests.world.sets import each_of, missing_ready
from tests.world.world import World

pytestmark = pytest.mark.controlplane

GROUPS: Final = 20
ROUNDS: Final = 100
LANES: Final = 4
"""Rounds at a time, each of another group."""
NO_ELECTION: Final = "-leader-election.enabled=false"
WITHIN: Final = 0.010
"""Seconds between the two questions of a round, at most."""


async def test_fp20_never_both(world: World) -> None:
    """SI-01, SI-17, FP-20: 100 rounds, two zones, 10 ms; by zone and by partition in turn."""
    groups = [f"group-{letter}" for letter in ascii_lowercase[:GROUPS]]
    await world.grant_webhooks()
    await create_budgets(
        world,
        [
            (zone_budget, by_partition)[number % 2](group, {"rollout-group": group})
            for number, group in enumerate(groups)
        ],
    )
    zones = [zone for group in groups for zone in grouped_zones(group, letters="ab", replicas=1)]
    await world.create(*zones)
    # The limiter would keep the two apart.
    flags = (*TLS_FLAGS, "-log.level=info", "-kubernetes.client-qps=0", NO_ELECTION)
    operators = [await world.operator(*flags) for _ in range(2)]
    counts = Counter[int]()
    async with (
        calling(world, operators[0]) as one,
        calling(world, operators[1]) as other,
        asyncio.TaskGroup() as tasks,
    ):
        for number in range(LANES):
            mine = groups[number::LANES]
            lane = _play(world, (one, other), mine, random.Random(number), counts)
            tasks.create_task(lane, name=f"lane-{number}")
    assert counts.total() == ROUNDS
    assert counts[1] >= ROUNDS * 0.9, f"both refused in {counts[0]} rounds"


async def _play(
    world: World,
    callers: tuple[Caller, Caller],
    groups: list[str],
    rng: random.Random,
    counts: Counter[int],
) -> None:
    for number in range(ROUNDS // LANES):
        answers = await _request_both(world, callers, groups[number % len(groups)], rng)
        allowed = [pod for pod, answer in answers.items() if answer.is_allowed]
        counts[len(allowed)] += 1
        assert len(allowed) < 2, answers
        for answer in answers.values():
            assert answer.is_allowed or answer.code == 429, answer
        await _replace(world, allowed)


async def _request_both(
    world: World, callers: tuple[Caller, Caller], group: str, rng: random.Random
) -> dict[str, Answered]:
    """Have each operator review a pod of another zone, when both zones are whole."""
    names = [f"{group}-zone-a", f"{group}-zone-b"]
    await world.wait_until(each_of(names, missing_ready))
    pods = [f"{name}-0" for name in rng.sample(names, 2)]
    late = rng.uniform(0, WITHIN)
    answers = await asyncio.gather(
        callers[0].evict(world.namespace, pods[0]),
        callers[1].evict(world.namespace, pods[1], after=late),
    )
    return dict(zip(pods, answers, strict=True))


async def _replace(world: World, pods: list[str]) -> None:
    """Do what the API server does when an eviction is allowed; the record must be there."""
    for pod in pods:
        found = await world.get(PODS, pod)
        assert RECORD in found["metadata"].get("annotations", {})
        await world.delete(PODS, pod)
