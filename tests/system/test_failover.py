"""Two operators on one namespace: one acts, the other one soon after its end."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import three_zones

from tests.system.grants import without
from tests.system.waits import read_metric, wait_line, wait_reason
from tests.world.api import LEASES
from tests.world.manifests import LEASE
from tests.world.operatorproc import OperatorProcess
from tests.world.sets import set_image, wait_adopted
from tests.world.world import World

pytestmark = pytest.mark.controlplane

TAKE_OVER_LIMIT: Final = timedelta(seconds=20)
LIMIT: Final = timedelta(seconds=60)
HAND_OVER_LIMIT: Final = timedelta(seconds=3)


async def test_li08_another_one_acts_after_a_kill_and_after_an_end(world: World) -> None:
    """LI-08, SI-22, DEP-93, DEP-94: within 20 s of SIGKILL, 3 s of SIGTERM; a rollout goes on."""
    names = await world.create(*three_zones())
    first, second = [await world.operator() for _ in range(2)]
    assert await acts(first)
    assert not await acts(second)
    await set_image(world.api, world.namespace, names, "v2")
    await measure(lambda: has_deleted(world))
    first.kill()
    assert await measure(lambda: acts(second)) < TAKE_OVER_LIMIT
    await wait_adopted(world.api, world.namespace, names)
    first.start()
    await first.wait_ready()
    await second.terminate()
    assert await measure(lambda: acts(first)) < HAND_OVER_LIMIT
    assert "acts: this process" in (await first.fetch("/status"))[1]
    lease = await world.api.get(LEASES, world.namespace, LEASE)
    assert lease["spec"]["leaseTransitions"] == 2
    await world.judge.assert_clean()


async def test_si22_one_that_was_frozen_writes_nothing_and_begins_anew(world: World) -> None:
    """SI-22, FP-18: woken while another one acts, it ends by itself with exit code 1."""
    names = await world.create(*three_zones())
    first, second = [await world.operator() for _ in range(2)]
    first.pause()
    assert await measure(lambda: acts(second)) < TAKE_OVER_LIMIT
    await set_image(world.api, world.namespace, names, "v2")
    first.resume()
    assert await first.wait_end() == 1
    assert "another process acts" in first.child.tail()
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def test_d70_without_the_right_one_works_alone(world: World) -> None:
    """D-70: as under the role of grafana/rollout-operator's chart: one warning, and it acts.

    Once the right is granted it takes the Lease, without a restart.
    """
    names = await world.create(*three_zones(replicas=1))
    async with without(world, ("get", "leases"), ("create", "leases")):
        operator = await world.operator()
        await wait_line(operator, "No election is possible", "level=warn")
        await world.roll(names, "v2")
    await wait_line(operator, "Elected: this process acts")
    await world.roll(names, "v3")
    assert await acts(operator)
    assert operator.is_running
    assert sum("No election is possible" in line for line in operator.log_lines()) == 1
    await world.judge.assert_clean()


async def test_si22_a_lease_that_may_not_be_renewed_holds_everything(world: World) -> None:
    """SI-22, LI-01: another replica may be elected by now; reported with why; mended by itself."""
    names = await world.create(*three_zones(replicas=1))
    operator = await world.operator()
    async with without(world, ("patch", "leases")):
        await wait_line(operator, "Nothing is written until the lease is renewed", "level=warn")
        await set_image(world.api, world.namespace, names, "v2")
        await wait_reason(operator, "ingester", "was renewed")
        assert not [call for call in await world.judge.calls() if call.verb == "delete"]
    await wait_adopted(world.api, world.namespace, names)
    await world.judge.assert_clean()


async def acts(operator: OperatorProcess) -> bool:
    """Return whether an operator says that it acts."""
    name = "rollout_operator_leader_election_master_status"
    return await read_metric(operator, name, name=LEASE) == 1


async def has_deleted(world: World) -> bool:
    """Return whether a pod has been deleted by now."""
    return any(
        call.verb == "delete" and call.resource == "pods" for call in await world.judge.calls()
    )


async def measure(check: Callable[[], Awaitable[bool]]) -> timedelta:
    """Wait until something holds, and return how long that took. Raises TimeoutError."""
    began = time.monotonic()
    async with asyncio.timeout(LIMIT.total_seconds()):
        while not await check():  # noqa: ASYNC110 (a state, no event)
            await asyncio.sleep(0.02)
    return timedelta(seconds=time.monotonic() - began)
