"""Budgets by partition on the real control plane, by real evictions: T-13 rows 7 and 8."""

from datetime import timedelta
from typing import Final

import pytest

from tests.system.budgeted import hold
from tests.world.budgets import ZONE_BUDGETS, by_partition, grouped_zones
from tests.world.kubelet import Behaviour, Kind, always
from tests.world.world import World

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "mock"}
PENDING: Final = Behaviour(kind=Kind.PENDING)
DELAY: Final = timedelta(seconds=4)
ABSENT_PEERS: Final = "grafana.com/rollout-operator-absent-peers"


async def test_t13_7_partitions_are_apart(world: World) -> None:
    """T-13 row 7: one pod of each partition, whatever the zone."""
    zones = grouped_zones("mock", letters="ab", replicas=2)
    held = await hold(world, *zones, budgets=[by_partition("mock", LABELS)])
    with world.kubelet.choosing(always(PENDING)):
        await held.assert_evicts("mock-zone-a-0")
        await held.assert_refuses("mock-zone-b-0", 429, "1 pod not ready in partition 0")
        await held.assert_evicts("mock-zone-b-1")
        await held.assert_refuses("mock-zone-a-1", 429, "1 pod not ready in partition 1")
        await held.wait_replaced("mock-zone-a-0", "mock-zone-b-1")
        await held.assert_refuses("mock-zone-b-0", 429, "mock-zone-a-0: ")
    for pod in ("mock-zone-a-0", "mock-zone-b-1"):
        await world.kubelet.make_ready(pod)
    await held.wait_ready()
    await held.wait_allowed("mock-zone-b-0")
    await held.wait_ready()
    await world.judge.assert_clean()


async def test_t13_8_copies_must_have_been_ready_for_a_while(world: World) -> None:
    """T-13 row 8, ZPDB-92, W-38: by the condition of the pods; other partitions do not wait."""
    zones = grouped_zones("mock", letters="ab", replicas=2)
    delay = f"{DELAY.seconds}s"
    budget = by_partition("mock", LABELS, crossZoneEvictionDelay=delay)
    held = await hold(world, *zones, budgets=[budget])
    await held.wait_allowed("mock-zone-a-0")
    await held.wait_ready()
    await held.assert_refuses(
        "mock-zone-b-0", 429, f"partition 0 (mock-zone-a-0: ready for less than {delay})"
    )
    await held.assert_evicts("mock-zone-b-1")
    await held.wait_allowed("mock-zone-b-0", DELAY * 3)
    await held.wait_ready()
    await world.judge.assert_clean()


async def test_w41_a_zone_that_is_scaled_below_a_partition(world: World) -> None:
    """W-41, T-11 row 25: unknown, unless the budget says that it has handed its data over."""
    a, b = grouped_zones("mock", letters="ab", replicas=2)
    (b,) = grouped_zones("mock", letters="b", replicas=3)
    held = await hold(world, a, b, budgets=[by_partition("mock", LABELS)])
    await held.assert_refuses(
        "mock-zone-b-2", 429, "1 pod unknown in partition 2 (mock-zone-a: no peer)"
    )
    change = {"metadata": {"annotations": {ABSENT_PEERS: "gone"}}}
    await world.patch(ZONE_BUDGETS, "mock", change)
    await held.wait_allowed("mock-zone-b-2")
    await held.wait_ready()
    await world.judge.assert_clean()
