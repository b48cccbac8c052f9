"""A Lease on the real control plane that is not as an operator wrote it, and operators that differ.

The same on virtual time, with more of it: `tests/kube/test_election.py`.
"""

from datetime import timedelta

import pytest
from rollout_lab.zones import three_zones

from tests.system.budgeted import create_budgets
from tests.system.evictions import calling
from tests.system.hooked import TLS_FLAGS
from tests.system.test_failover import acts
from tests.system.waits import wait_true
from tests.world.budgets import TRY_AGAIN, grouped_zones, zone_budget
from tests.world.world import World

pytestmark = pytest.mark.controlplane


async def test_dep92_one_without_webhooks_leads_one_that_has_them(world: World) -> None:
    """DEP-92, DEP-91: two Deployments with other flags; refused while the first acts, not allowed.

    The one with webhooks answers what needs no memory; it decides all once the other has ended.
    """
    await world.grant_webhooks()
    await create_budgets(world, [zone_budget("ingester", {"rollout-group": "ingester"})])
    names = await world.create(*grouped_zones(replicas=2))
    bare = await world.operator()
    served = await world.operator(*TLS_FLAGS)
    assert await acts(bare)
    async with calling(world, served) as caller:
        for _ in range(5):
            answer = await caller.evict(world.namespace, f"{names[0]}-0")
            assert (answer.is_allowed, answer.code) == (False, TRY_AGAIN)
            assert "this replica does not decide that; try again" in answer.message
        await world.roll(names, "v2")
        assert await bare.terminate() == 0
        await wait_true("the other one acts", lambda: acts(served))
        assert (await caller.evict(world.namespace, f"{names[0]}-0")).is_allowed
        assert not (await caller.evict(world.namespace, f"{names[1]}-0")).is_allowed
    await world.judge.assert_clean()


@pytest.mark.slow
async def test_d72_one_that_takes_no_part_beside_one_that_leads(world: World) -> None:
    """D-72, D-73, SI-01, SI-03: both act, by a flag that differs; the rollout ends all the same."""
    names = await world.create(*three_zones())
    first = await world.operator()
    second = await world.operator("-leader-election.enabled=false")
    assert await acts(first)
    assert "acts:" not in (await second.fetch("/status"))[1], "there is no election"
    await world.set_image(names, "v2")
    await world.wait_adopted(names, limit=timedelta(minutes=5))
    await world.judge.assert_clean()
