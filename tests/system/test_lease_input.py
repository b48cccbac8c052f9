"""A Lease on the real control plane that is not as an operator wrote it, and operators that differ.

The same on virtual time, with more of it: `tests/kube/test_election_input.py`.
"""

import time
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.lab.zones import three_zones
from tests.system.budgeted import create_budgets
from tests.system.evictions import calling
from tests.system.hooked import TLS_FLAGS
from tests.system.test_failover import acts
from tests.system.waits import wait_true
from tests.world.api import LEASES, Json
from tests.world.budgets import TRY_AGAIN, grouped_zones, zone_budget
from tests.world.manifests import LEASE
from tests.world.world import World

pytestmark = pytest.mark.controlplane

STRANGER: Final = "a-pod-that-is-not-ours"
# Seen unchanged for so long it may be taken.
UNCHANGED: Final = timedelta(seconds=15)
FUTURE: Final[Json] = {
    "holderIdentity": STRANGER,
    "acquireTime": "2999-01-01T00:00:00.000000Z",
    "renewTime": "2999-01-01T00:00:00.000000Z",
    "leaseDurationSeconds": 99_999,
    "leaseTransitions": 2**31 - 1,
}


async def test_d70_a_lease_of_a_stranger_with_times_of_the_future(world: World) -> None:
    """D-70, DEP-93, LI-08: waited for by the operator's own clock, ready meanwhile; then taken."""
    names = await world.create(*three_zones(replicas=1))
    began = time.monotonic()
    await world.post(LEASES, _lease(FUTURE))
    operator = await world.operator()
    assert not await acts(operator)
    assert f"acts: {STRANGER}" in (await operator.fetch("/status"))[1]
    await world.set_image(names, "v2")
    await wait_true("it acts", lambda: acts(operator))
    assert time.monotonic() - began > UNCHANGED.total_seconds()
    await world.wait_adopted(names)
    lease = await world.get(LEASES, LEASE)
    assert lease["spec"]["leaseDurationSeconds"] == UNCHANGED.total_seconds()
    assert lease["spec"]["renewTime"] < "2999"
    await world.judge.assert_clean()


async def test_d70_a_lease_that_people_delete_and_edit(world: World) -> None:
    """D-70, SI-22, FP-18: deleted it is made again; given away its holder ends and begins anew."""
    names = await world.create(*three_zones(replicas=1))
    operator = await world.operator()
    await wait_true("it acts", lambda: acts(operator))
    before = (await world.get(LEASES, LEASE))["metadata"]["uid"]
    await world.delete(LEASES, LEASE)

    async def is_made_again() -> bool:
        found = await world.api.items(LEASES, world.namespace)
        return any(one["metadata"]["uid"] != before for one in found)

    await wait_true("a new Lease", is_made_again)
    assert await acts(operator)
    await world.roll(names, "v2")
    for holder, loss in (("", "names no holder"), (STRANGER, f"another process acts: {STRANGER}")):
        await wait_true("it acts", lambda: acts(operator))  # ready it is before
        await world.patch(LEASES, LEASE, {"spec": {"holderIdentity": holder}})
        assert await operator.wait_end() == 1
        assert loss in operator.child.tail()
        operator.start()
        await operator.wait_ready()
    await world.set_image(names, "v3")
    await world.wait_adopted(names)
    await world.judge.assert_clean()


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


def _lease(spec: Json) -> Json:
    kind = {"apiVersion": LEASES.api_version, "kind": "Lease"}
    return kind | {"metadata": {"name": LEASE}, "spec": spec}
