"""What budgets need of the operator's rights, each taken away in turn (SEC-17, W-38)."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from tests.system.budgeted import RECORD, hold
from tests.system.grants import give_back, take_away
from tests.system.starts import wait_line
from tests.world.api import PODS
from tests.world.budgets import grouped_zones, zone_budget
from tests.world.faults import Cut, watches
from tests.world.scene import World
from tests.world.sets import set_image, wait_adopted

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "mock"}
BUDGET: Final = zone_budget("mock", LABELS)
ZPDB: Final = "zoneawarepoddisruptionbudgets"
TOLD: Final = f'on \\"{ZPDB}\\" in API group \\"rollout-operator.grafana.com\\" in its Role'
QUARANTINE: Final = timedelta(seconds=12)
# A refused list or watch is tried again after 30 s at the latest.
AFTER_REFUSAL: Final = timedelta(seconds=60)


async def test_sec17_patch_pods(world: World) -> None:
    """SEC-17, W-38: from memory, said once, after twelve seconds in which nothing goes."""
    world.judge.promises = replace(world.judge.promises, are_recorded=False)
    await take_away(world, "patch", "pods")
    held = await hold(world, *grouped_zones("mock", replicas=2), budgets=[BUDGET])
    refused = await held.evict("mock-zone-a-0")
    assert refused.status == 429, refused
    await held.wait_allowed("mock-zone-a-0", QUARANTINE * 2)
    await held.assert_refuses("mock-zone-b-0", 429, "1 pod not ready in mock-zone-a")
    await held.wait_ready()
    await held.wait_allowed("mock-zone-b-0")
    told = [line for line in held.operator.log_lines() if "not recorded on pods" in line]
    assert len(told) == 1
    assert "level=warn" in told[0]
    pods = await world.api.items(PODS, world.namespace)
    assert not [pod for pod in pods if RECORD in pod["metadata"].get("annotations", {})]
    await held.wait_ready()
    await world.judge.assert_clean()


async def test_sec17_list_budgets(world: World) -> None:
    """SEC-17, W-52: what is not known allows nothing; said with the verb; goes on by itself."""
    await take_away(world, "list", ZPDB)
    held = await hold(world, *grouped_zones("mock", replicas=2), budgets=[BUDGET])
    line = await wait_line(held.operator, "Kind is not followed", f"verb list {TOLD}")
    assert "level=warn" in line
    await held.assert_refuses("mock-zone-a-0", 429, "the budgets are not known yet")
    await give_back(world, "list", ZPDB)
    await held.wait_answer("mock-zone-a-0", 201, AFTER_REFUSAL)


async def test_sec17_watch_budgets(world: World) -> None:
    """SEC-17, LI-14: without it a watch that ends is not opened again, which is an error."""
    zones = grouped_zones("mock", replicas=2)
    held = await hold(world, *zones, budgets=[BUDGET], is_through_proxy=True)
    await take_away(world, "watch", ZPDB)
    with world.proxy.during(watches(ZPDB), Cut()):
        pass
    line = await wait_line(held.operator, "Watch interrupted", f"verb watch {TOLD}")
    assert "level=error" in line
    await held.set_budget("mock", maxUnavailable=0)
    await give_back(world, "watch", ZPDB)
    await held.wait_answer("mock-zone-a-0", 403, AFTER_REFUSAL)


async def test_rbac10_a_role_without_budgets_rolls_out_as_before(world: World) -> None:
    """RBAC-10, DEP-33: under a Role of earlier releases rollouts do not stop; said once."""
    await take_away(world, "list", ZPDB)
    await take_away(world, "patch", "pods")
    names = await world.create(*grouped_zones("mock", replicas=2))
    operator = await world.operator()
    await set_image(world.api, world.namespace, names, "v2")
    await wait_adopted(world.api, world.namespace, names)
    told = [line for line in operator.log_lines() if "Kind is not followed" in line]
    assert len(told) == 1
    assert TOLD in told[0]
    await world.judge.assert_clean()
