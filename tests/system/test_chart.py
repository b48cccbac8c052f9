"""The chart on the real control plane, by real helm: from the first install to the removal.

See `charted` for what stands for the kubelet, which would run Jobs of hooks, the pod of `helm test`
and the operator itself.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.chart.rendering import CHART
from tests.system.charted import HOOKS, KINDS, RELEASE, Charted, charted, remove_kinds
from tests.system.guarded import NO_DOWNSCALE
from tests.world.api import CLUSTER_ROLES, DEPLOYMENTS, PODS, SECRETS, SERVICES, Json
from tests.world.budgets import CRDS, ZONE_BUDGETS
from tests.world.clients import Route, Workload
from tests.world.world import World

pytestmark = pytest.mark.controlplane

SECRET: Final = "certificate"
GROUPED: Final = {"rollout-group": "ingester"}
BUDGET: Final = {"selector": {"matchLabels": GROUPED}, "maxUnavailable": 1}
VALUES: Final[Mapping[str, Any]] = {"zoneAwarePodDisruptionBudgets": {"ingester": BUDGET}}


@pytest.mark.slow
async def test_dep80_dep85_dep87_a_release_from_its_install_to_its_end(
    world: World, tmp_path: Path
) -> None:
    """DEP-80, DEP-81, DEP-85, DEP-87, DEP-88, DEP-89: install, test, upgrade, rollback, uninstall.

    On a cluster that has never seen the kinds, with a budget in the same release.
    """
    await remove_kinds(world)
    zones = await world.create(
        ZoneSpec(name="zone-a", replicas=2, labels={NO_DOWNSCALE: "true"}, pod_labels=GROUPED),
        ZoneSpec(name="zone-b", replicas=2, pod_labels=GROUPED),
    )
    before = await _uids(world)
    async with charted(world, tmp_path) as here:
        shown = await here.succeed("install", RELEASE, CHART, values=VALUES)
        assert f"helm test {RELEASE} --namespace {world.namespace}" in shown
        assert (await world.get(ZONE_BUDGETS, "ingester"))["spec"] == BUDGET
        operator = await here.start()
        await here.hooks.wait_called(zones[0])
        await _assert_guarded(world)
        await _assert_tested(here)
        await _assert_upgraded(here)
        await here.change("rollback", RELEASE, "1")
        assert (await world.get(DEPLOYMENTS, RELEASE))["spec"]["replicas"] == 1
        assert await _uids(world) >= before
        operator.kill()
        await _assert_uninstalled(here)


async def _uids(world: World) -> set[str]:
    found = await world.api.items(PODS, world.namespace, "rollout-group=ingester")
    return {pod["metadata"]["uid"] for pod in found}


async def _assert_guarded(world: World) -> None:
    """The operator answers with the rights and words of the chart."""
    kept = Workload(api=world.api, namespace=world.namespace, name="zone-a")
    answer = await kept.scale(1, Route.SCALE_MERGE)
    assert (answer.status, "has the label" in answer.message) == (400, True), answer


async def _assert_tested(here: Charted) -> None:
    """DEP-88: the test fails where `doctor` finds an error, and passes where it finds none."""
    assert (await here.helm("test", RELEASE)).code == 1
    name, ended = here.played[-1]
    assert (name, "operator_not_ready" in ended.out) == ("doctor", True)
    await _report_ready(here.world)
    await here.succeed("test", RELEASE)
    name, ended = here.played[-1]
    assert (name, ended.code, " error" in ended.out) == ("doctor", 0, False), ended


async def _report_ready(world: World) -> None:
    """Say of the Deployment what its controller and a kubelet would."""
    status = {"replicas": 1, "readyReplicas": 1}
    path = f"{DEPLOYMENTS.path(world.namespace, RELEASE)}/status"
    await world.api.call(
        "PATCH", path, body={"status": status}, content_type="application/merge-patch+json"
    )


async def _assert_upgraded(here: Charted) -> None:
    """DEP-80, DEP-89: the kinds are upgraded first; certificate, bundles and pods stay."""
    world = here.world
    before = (await _certificate(here), await _uids(world))
    old = [{"op": "remove", "path": "/spec/names/shortNames"}]
    await world.api.patch(CRDS, "", KINDS[1], old, kind="json")
    words = ("--reset-then-reuse-values", "--set", "replicas=2")
    await here.change("upgrade", RELEASE, CHART, *words)
    assert [name for name, _ in here.played][-1] == "apply-crds"
    assert (await world.api.get(CRDS, "", KINDS[1]))["spec"]["names"]["shortNames"] == ["zpdb"]
    assert (await world.get(DEPLOYMENTS, RELEASE))["spec"]["replicas"] == 2
    assert (await _certificate(here), await _uids(world)) == before


async def _certificate(here: Charted) -> tuple[Json, list[bytes]]:
    """Return the Secret's data and the bundles of all webhooks."""
    secret = await here.world.get(SECRETS, SECRET)
    assert set(secret["data"]) >= {"ca", "cert", "key"}
    return secret["data"], await here.hooks.wait_injected(timedelta(seconds=1))


async def _assert_uninstalled(here: Charted) -> None:
    """DEP-85: the webhooks go first; nothing is left but the kinds."""
    world = here.world
    await here.succeed("uninstall", RELEASE)
    name, ended = here.played[-1]
    assert (name, ended.out.count(": deleted")) == ("uninstall-webhooks", len(HOOKS))
    for resource in (DEPLOYMENTS, SERVICES, ZONE_BUDGETS):
        assert await world.api.items(resource, world.namespace) == []
    left = {one["metadata"]["name"] for one in await world.api.items(CLUSTER_ROLES)}
    assert not [one for one in left if world.namespace in one]
    assert {*KINDS} <= {one["metadata"]["name"] for one in await world.api.items(CRDS)}
    kept = Workload(api=world.api, namespace=world.namespace, name="zone-a")
    assert (await kept.scale(1, Route.SCALE_MERGE)).status == 200
