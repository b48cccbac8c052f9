"""From grafana's chart to ours and back, by `helm upgrade`, in the middle of rollouts.

What stands for grafana's operator is ours, under the words and rights of grafana's chart: what
changes hands is the release. See `charted` for what stands for the kubelet.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace
from rollout_lab.zones import three_zones

from tests.chart.rendering import CHART
from tests.system.charted import HOOKS, RELEASE, Charted, charted
from tests.system.grafanas_chart import PODS as PODS_052
from tests.system.grafanas_chart import PODS_051, write_chart, write_unhooked_chart
from tests.system.waits import wait_true
from tests.world.api import DEPLOYMENTS, PODS, ROLES, SECRETS, SERVICES
from tests.world.budgets import ZONE_BUDGETS, evict, grouped_zones, install_kinds, zone_budget
from tests.world.kubelet import Behaviour, Kind, always, image_of
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# Of a user of grafana's chart.
VALUES: Final[Mapping[str, Any]] = {
    "image": {"repository": "some/mirror", "tag": "v9"},
    "podSecurityContext": {"fsGroup": 10001, "runAsUser": 10001},
    "extraArgs": ["-log.level=info"],
    "webhooks": {"timeoutSeconds": 15},
    "global": {"commonLabels": {"team": "x"}},
}
KEPT: Final = "--reset-then-reuse-values"
BEGUN: Final = timedelta(seconds=60)


@pytest.mark.slow
@pytest.mark.parametrize("pods", [PODS_051, PODS_052], ids=["0.51", "0.52"])
async def test_dep99_a_release_changes_charts_in_mid_rollout_and_back(
    world: World, tmp_path: Path, pods: str
) -> None:
    """DEP-89, DEP-98, DEP-99: each pod is replaced once; Secret, bundles and Deployment stay."""
    await install_kinds(world.api)
    # The Role of the original has no Leases and no Events.
    world.may_be_forbidden = True
    zones = await world.create(*three_zones(replicas=2))
    async with charted(world, tmp_path) as here:
        theirs = write_chart(tmp_path / "theirs", pods)
        await here.succeed("install", RELEASE, theirs, values=VALUES)
        operator = await here.start()
        before = await _identity(here)
        for image, chart in (("v2", CHART), ("v3", theirs)):
            pod = await _begin(world, zones, image)
            operator = await _switch(here, operator, chart)
            await world.kubelet.make_ready(pod)
            await world.wait_rolled(zones)
            assert await _identity(here) == before
        deleted = Counter(one.name for one in await world.judge.deletes() if one.is_done)
        assert set(deleted.values()) == {2}, deleted
        assert len(deleted) == 2 * len(zones)
        await world.judge.assert_clean()
        operator.kill()


async def test_d83_under_the_role_of_the_newest_chart_budgets_hold(
    world: World, tmp_path: Path
) -> None:
    """D-83: from memory, after the twelve seconds in which another process may have granted."""
    await install_kinds(world.api)
    world.may_be_forbidden = True
    world.judge.promises = replace(world.judge.promises, are_recorded=False)
    labels = {"rollout-group": "mock"}
    zones = await world.create(*grouped_zones("mock", replicas=2))
    async with charted(world, tmp_path) as here:
        await here.succeed("install", RELEASE, write_chart(tmp_path / "theirs"), values=VALUES)
        operator = await here.start()
        await world.post(ZONE_BUDGETS, zone_budget("mock", labels, maxUnavailable=1))
        first, second = f"{zones[0]}-0", f"{zones[1]}-0"

        async def is_evicted() -> bool:
            return (await evict(world.api, world.namespace, first)).status == 201

        with world.kubelet.choosing(always(Behaviour(ready_after=timedelta(seconds=5)))):
            await wait_true("evicted", is_evicted, BEGUN)
            held = await evict(world.api, world.namespace, second)
            assert (held.status, "not ready" in held.message) == (429, True), held
        said = [line for line in operator.log_lines() if "not recorded on pods" in line]
        assert len(said) == 1
        await world.wait_ready(zones)
        await world.roll(zones, "v2")
        await world.judge.assert_clean()
        operator.kill()


async def test_dep78_a_service_without_an_address_stays_so(world: World, tmp_path: Path) -> None:
    """DEP-78, DEP-98: without webhooks the original makes one, and the upgrade goes through."""
    await install_kinds(world.api)
    async with charted(world, tmp_path) as here:
        await here.succeed("install", RELEASE, write_unhooked_chart(tmp_path / "theirs"))
        before = await world.get(SERVICES, RELEASE)
        await here.succeed("upgrade", RELEASE, CHART, values={"webhooks": {"enabled": False}})
        after = await world.get(SERVICES, RELEASE)
    assert after["spec"]["clusterIP"] == before["spec"]["clusterIP"] == "None"
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def _identity(here: Charted) -> object:
    """Return what is the same before and after: certificate, bundles, Deployment."""
    secret = await here.world.get(SECRETS, "certificate")
    deployment = await here.world.get(DEPLOYMENTS, RELEASE)
    bundles = await here.hooks.wait_injected(timedelta(seconds=1))
    return secret["metadata"]["uid"], secret["data"], bundles, deployment["metadata"]["uid"]


async def _begin(world: World, zones: Sequence[str], image: str) -> str:
    """Begin a rollout that waits for its first pod, and return the name of that pod."""
    found: list[str] = []

    async def has_begun() -> bool:
        pods = await world.api.items(PODS, world.namespace)
        found[:] = [
            pod["metadata"]["name"]
            for pod in pods
            if image_of(pod) == image and pod["status"].get("phase") == "Running"
        ]
        return bool(found)

    with world.kubelet.choosing(always(Behaviour(kind=Kind.NEVER_READY))):
        await world.set_image(zones, image)
        await wait_true("begun", has_begun, BEGUN)
    (pod,) = found
    return pod


async def _switch(here: Charted, old: OperatorProcess, chart: Path) -> OperatorProcess:
    """Upgrade the release to another chart; the new operator is ready before the old one ends."""
    if chart is CHART:
        refused = await here.helm("upgrade", RELEASE, CHART, "--reuse-values")
        assert (refused.code, "--reset-then-reuse-values" in refused.err) == (1, True), refused
    await here.change("upgrade", RELEASE, chart, KEPT)
    if chart is CHART:
        assert [name for name, _ in here.played] == ["apply-crds"]
        await _assert_kept(here)
    new = await here.start()
    assert await old.terminate() == 0
    return new


async def _assert_kept(here: Charted) -> None:
    """DEP-98: the user's values have their effect, and no right of the original is left."""
    world = here.world
    deployment = await world.get(DEPLOYMENTS, RELEASE)
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "some/mirror:v9"
    assert container["args"][-1] == "-log.level=info"
    assert pod["securityContext"]["fsGroup"] == 10001
    assert deployment["metadata"]["labels"]["team"] == "x"
    for hook in HOOKS:
        (webhook,) = (await here.hooks.fetch(hook))["webhooks"]
        assert webhook["timeoutSeconds"] == 15
    roles = {one["metadata"]["name"] for one in await world.api.items(ROLES, world.namespace)}
    assert roles == {RELEASE}
