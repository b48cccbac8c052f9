"""Shadow mode on the real control plane, with rights to read and no others."""

from typing import Final

import pytest
from msgspec.structs import replace
from rollout_lab.zones import three_zones

from tests.system.waits import read_metric, wait_reason, wait_true
from tests.world.api import PODS
from tests.world.judge import Judge
from tests.world.manifests import SHADOW, apply_manifests, read_manifests
from tests.world.operatorproc import Launch, OperatorProcess
from tests.world.world import World

pytestmark = pytest.mark.controlplane

ACCOUNT: Final = "rollout-operator-shadow"
DIFFERENCES: Final = "rollout_operator_shadow_differences_total"
READS: Final = frozenset({"list", "watch", "get"})


async def test_si25_a_rollout_by_the_other_operator_without_a_difference(world: World) -> None:
    """SI-25, SEC-17: not one write, not one refused read; what another client does is counted."""
    names = await world.create(*three_zones())
    judge = Judge(world.plane, world.namespace, user(world))
    async with judge, OperatorProcess(await launch_shadow(world), "shadow") as shadow:
        await shadow.wait_ready()
        await wait_reason(shadow, "ingester", "all ready at the update revision")
        await world.operator()

        await world.roll(names, "v2")

        assert await count(shadow) == 0
        calls = await judge.calls(with_events=True)
        assert {call.verb for call in calls} <= READS, calls
        assert not [call for call in calls if call.code in (401, 403)]
        page = (await shadow.fetch("/status"))[1]
        assert "another operator, if any: this process is in shadow mode" in page
        assert "nothing is written; 0 differences from the operator that acts" in page
    await world.judge.assert_clean()


async def test_si25_an_artificial_difference_is_counted(world: World) -> None:
    """SI-25: two pods of zones whose turn it is not; what is due is reported meanwhile."""
    names = await world.create(*three_zones())
    async with OperatorProcess(await launch_shadow(world), "shadow") as shadow:
        await shadow.wait_ready()
        await world.set_image(names, "v2")
        text = "would delete ingester-zone-a-0, but shadow mode writes nothing"
        await wait_reason(shadow, "ingester", text)
        # It knows by then that the pods of these are outdated, too.
        behind = "ingester-zone-b and ingester-zone-c wait for ingester-zone-a"
        await wait_reason(shadow, "ingester", behind)

        await world.delete(PODS, "ingester-zone-b-0")

        async def is_counted() -> bool:
            return await count(shadow) == 1

        await wait_true("the delete counts", is_counted)
        line = next(line for line in shadow.log_lines() if "would have kept" in line)
        assert "level=warn" in line
        assert "pod=ingester-zone-b-0" in line


async def launch_shadow(world: World, *flags: str) -> Launch:
    """Return how to start an operator in shadow mode, under the Role that is shipped for it."""
    granted = [one for one in read_manifests(SHADOW) if one["kind"] != "Deployment"]
    await apply_manifests(world.api, world.namespace, granted)
    token = await world.plane.fetch_token(world.api, world.namespace, ACCOUNT)
    launch = world.launch("-mode=shadow", *flags)
    config = world.plane.kubeconfig(world.folder / "shadow.conf", token, url=launch.url)
    return replace(launch, kubeconfig=config)


def user(world: World) -> str:
    """Return the name by which the API server knows the shadow."""
    return f"system:serviceaccount:{world.namespace}:{ACCOUNT}"


async def count(shadow: OperatorProcess) -> float | None:
    """Return how many differences the shadow has counted."""
    return await read_metric(shadow, DIFFERENCES, rollout_group="ingester")
