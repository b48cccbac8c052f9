"""The chart on the real control plane, by real helm: from the first install to the removal.

Also from the chart of grafana to ours and back, by `helm upgrade`, in the middle of rollouts. What
stands for its operator is ours, under the words and rights of that chart: what changes hands is the
release. See `charted` for what stands for the kubelet, which would run Jobs of hooks, the pod of
`helm test` and the operator itself.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, three_zones

from tests.chart.rendering import CHART, render_chart
from tests.system.charted import HOOKS, KINDS, RELEASE, Charted, charted, remove_kinds, write_chart
from tests.system.pages import DOCS, Happening, Terminal
from tests.system.waits import wait_true
from tests.system.zones import NO_DOWNSCALE
from tests.world.api import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DEPLOYMENTS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_HOOKS,
    Json,
)
from tests.world.budgets import (
    CRDS,
    ZONE_BUDGETS,
    DryRun,
    evict,
    grouped_zones,
    install_kinds,
    zone_budget,
)
from tests.world.clients import Route, Workload
from tests.world.kubelet import Behaviour, Kind, always, image_of
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

pytestmark = pytest.mark.controlplane

PAGE: Final = DOCS / "helm.md"
OF_HOOKS: Final = "app.kubernetes.io/part-of=rollout-operator,app.kubernetes.io/component=hooks"
GROUPED: Final = {"rollout-group": "ingester"}
# Of a template, at its longest.
HASH: Final = "6b7f9d5c4d"
BUDGET: Final = {"selector": {"matchLabels": GROUPED}, "maxUnavailable": 1}


@pytest.mark.slow
async def test_dep80_dep85_dep87_the_page_from_an_install_to_its_end(
    world: World, tmp_path: Path
) -> None:
    """DEP-80, DEP-81, DEP-85, DEP-87, DEP-88, DEP-89: each command of docs/helm.md, in its order.

    On a cluster that has never seen the kinds, with a budget in the same release.
    """
    await remove_kinds(world)
    await world.create(
        ZoneSpec(name="zone-a", replicas=2, labels={NO_DOWNSCALE: "true"}, pod_labels=GROUPED),
        ZoneSpec(name="zone-b", replicas=2, pod_labels=GROUPED),
    )
    async with charted(world, tmp_path) as here:
        page = Page(here, pods=await _uids(world))
        terminal = Terminal(
            kubeconfig=here.kubeconfig,
            folder=tmp_path,
            words={"mimir": world.namespace, "charts/rollout-operator": f"{CHART}"},
            happenings=page.happenings,
            environment=here.environment,
        )
        await terminal.follow(PAGE)
        assert await _uids(world) == page.pods


async def test_dep85_an_upgrade_that_fails_leaves_the_way_out_open(
    world: World, tmp_path: Path
) -> None:
    """DEP-85: helm uninstalls the last revision, which here is one without webhooks that failed."""
    await install_kinds(world.api)
    async with charted(world, tmp_path) as here:
        page = Page(here, pods=set())
        await here.succeed("install", RELEASE, CHART)
        here.are_jobs_broken = True
        refused = await here.helm("upgrade", RELEASE, CHART, "--set=webhooks.enabled=false")
        assert (refused.code, f"job {RELEASE}-crds failed" in refused.err) == (1, True), refused
        await page.assert_no_accounts()
        for hook in HOOKS:
            assert await here.hooks.fetch(hook)
        here.are_jobs_broken = False
        await here.succeed("uninstall", RELEASE)
        name, ended = here.played[-1]
        assert (name, ended.out.count(": deleted")) == ("uninstall-webhooks", len(HOOKS))


async def test_dep87_its_own_pods_can_be_evicted_under_each_name(world: World) -> None:
    """DEP-87: the API server cuts off what it completes, at 58 characters."""
    await world.create(ZoneSpec(name="probe", replicas=1))
    # Each begins in a way of its own, so that no exception is for two of them.
    names = [f"n{length}-".ljust(length, "o") for length in range(45, 64)]
    names.append("a.dotted-name".ljust(48, "o"))
    hooks = [_render_eviction_hook(name, world.namespace) for name in names]
    # Called for what none of them excepts; nothing answers there.
    hook = hooks[0]
    hook["webhooks"][0] |= {
        "clientConfig": {"url": "https://localhost:1/"},
        "matchConditions": [
            one | {"name": name}
            for name, each in zip(names, hooks, strict=True)
            for one in each["webhooks"][0]["matchConditions"]
        ],
    }

    async def evict_dry(pod: str) -> int:
        return (await evict(world.api, world.namespace, pod, dry_run=DryRun.QUERY)).status

    async def is_held() -> bool:
        return await evict_dry("probe-0") == 500

    async def create(**name: str) -> str:
        spec = {"containers": [{"name": "main", "image": "v1"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": spec}
        return str((await world.post(PODS, body))["metadata"]["name"])

    await world.api.create(VALIDATING_HOOKS, "", hook)
    try:
        await wait_true("held", is_held)
        # As a ReplicaSet lets them be named, with hashes of all lengths.
        own = [
            await create(generateName=f"{name}-{HASH[:length]}-")
            for name in names
            for length in range(6, len(HASH) + 1)
        ]
        assert {pod: await evict_dry(pod) for pod in own} == dict.fromkeys(own, 201)
        cut = names[-2][:58]
        for pod in (f"{cut[:-1]}-x7k2p", f"{cut[:-2]}-10000", f"{cut}aeiou", f"{cut}x7k2px"):
            assert await evict_dry(await create(name=pod)) == 500, pod
    finally:
        await world.api.delete(VALIDATING_HOOKS, "", hook["metadata"]["name"])


def _render_eviction_hook(name: str, namespace: str) -> Json:
    """Return that of a chart whose objects are called so."""
    (hook,) = (
        one
        for one in render_chart({"fullnameOverride": name}, namespace=namespace)
        if one["metadata"]["name"] == f"pod-eviction-{namespace}"
    )
    return hook


async def _uids(world: World) -> set[str]:
    found = await world.api.items(PODS, world.namespace, "rollout-group=ingester")
    uids = {pod["metadata"]["uid"] for pod in found}
    assert len(uids) == 4
    return uids


@dataclass(slots=True)
class Page:
    """What happens between the commands of the page."""

    here: Charted
    pods: set[str]
    certificate: object = None

    @property
    def happenings(self) -> Mapping[str, Happening]:
        return {
            "the operator begins": self.begin,
            "doctor has found nothing wrong": self.assert_tested,
            "the kinds are old": self.make_old,
            "the kinds are new": self.assert_upgraded,
            "no webhook is left": self.assert_unhooked,
            "it is installed anew": self.install,
            "grafana's chart is installed": self.install_grafanas,
        }

    async def begin(self) -> None:
        """DEP-87: the budget is there; the operator answers with the rights of the chart."""
        world = self.here.world
        assert (await world.get(ZONE_BUDGETS, "ingester"))["spec"] == BUDGET
        operator = await self.here.start()
        await self.here.hooks.wait_called("zone-a")
        kept = Workload(api=world.api, namespace=world.namespace, name="zone-a")
        answer = await kept.scale(1, Route.SCALE_MERGE)
        assert (answer.status, "has the label" in answer.message) == (400, True), answer
        self.here.operator = operator
        # DEP-88: `helm test` fails where `doctor` finds an error.
        assert (await self.here.helm("test", RELEASE)).code == 1
        assert "operator_not_ready" in self.here.played[-1][1].out
        await self.assert_no_accounts()
        await _report_ready(world)

    async def assert_no_accounts(self) -> None:
        """DEP-48: a hook that failed has left no rights behind; helm before 3.19 leaves them."""
        api, namespace = self.here.world.api, self.here.world.namespace
        for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
            assert await api.items(resource, labels=OF_HOOKS) == []
        for resource in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
            assert await api.items(resource, namespace, OF_HOOKS) == []

    async def assert_tested(self) -> None:
        """DEP-88: the pod of the test has run `doctor`."""
        name, ended = self.here.played[-1]
        assert (name, ended.code, " error" in ended.out) == ("doctor", 0, False), ended

    async def make_old(self) -> None:
        """Take something from a kind that the chart has, and another kind altogether."""
        world = self.here.world
        self.certificate = await self._read_certificate()
        old = [{"op": "remove", "path": "/spec/names/shortNames"}]
        await world.api.patch(CRDS, "", KINDS[1], old, kind="json")
        await remove_kinds(world, KINDS[:1])
        await self.here.restore_service()

    async def assert_upgraded(self) -> None:
        """DEP-80, DEP-89: the kinds are upgraded first; certificate, bundles and pods stay."""
        world = self.here.world
        assert [name for name, _ in self.here.played][-1] == "apply-crds"
        assert (await world.api.get(CRDS, "", KINDS[1]))["spec"]["names"]["shortNames"] == ["zpdb"]
        assert {*KINDS} <= {one["metadata"]["name"] for one in await world.api.items(CRDS)}
        assert (await world.get(DEPLOYMENTS, RELEASE))["spec"]["replicas"] == 2
        assert await self._read_certificate() == self.certificate
        assert await _uids(world) == self.pods

    async def _read_certificate(self) -> object:
        secret = await self.here.world.get(SECRETS, "certificate")
        assert set(secret["data"]) >= {"ca", "cert", "key"}
        return secret["data"], await self.here.hooks.wait_injected(timedelta(seconds=1))

    async def assert_unhooked(self) -> None:
        """DEP-85: the Job has removed all of them, and nothing refuses any more."""
        world = self.here.world
        name, ended = self.here.played[-1]
        assert (name, ended.out.count(": deleted")) == ("uninstall-webhooks", len(HOOKS))
        kept = Workload(api=world.api, namespace=world.namespace, name="zone-a")
        answer = await kept.scale(1, Route.SCALE_MERGE, is_dry_run=True)
        assert answer.status == 200, answer

    async def install(self) -> None:
        """Install once more, after what is there of the release has gone."""
        if self.here.operator is not None:
            self.here.operator.kill()
        await self.here.helm("uninstall", RELEASE)
        await self._assert_nothing_left()
        await self.here.succeed("install", RELEASE, CHART)

    async def _assert_nothing_left(self) -> None:
        """DEP-85: neither in the namespace nor in the cluster, but for the kinds."""
        world = self.here.world
        for resource in (DEPLOYMENTS, SERVICES, ZONE_BUDGETS):
            assert await world.api.items(resource, world.namespace) == []
        left = {one["metadata"]["name"] for one in await world.api.items(CLUSTER_ROLES)}
        assert not [one for one in left if world.namespace in one]
        assert {*KINDS} <= {one["metadata"]["name"] for one in await world.api.items(CRDS)}

    async def install_grafanas(self) -> None:
        """Install what stands for it, where the page has removed the kinds a moment ago."""
        await remove_kinds(self.here.world)
        await self.here.succeed("install", RELEASE, write_chart(self.here.folder / "theirs"))


async def _report_ready(world: World) -> None:
    """Say of the Deployment what its controller and a kubelet would."""
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), 1)
    status = {**counts, "observedGeneration": 1}
    path = f"{DEPLOYMENTS.path(world.namespace, RELEASE)}/status"
    await world.api.call(
        "PATCH", path, body={"status": status}, content_type="application/merge-patch+json"
    )


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
@pytest.mark.parametrize("patches_pods", [True, False], ids=["0.51", "0.52"])
async def test_dep99_a_release_changes_charts_in_mid_rollout_and_back(
    world: World, tmp_path: Path, patches_pods: bool
) -> None:
    """DEP-89, DEP-98, DEP-99: each pod is replaced once; Secret, bundles and Deployment stay."""
    await install_kinds(world.api)
    # The Role of the original has no Leases and no Events.
    world.may_be_forbidden = True
    zones = await world.create(*three_zones(replicas=2))
    async with charted(world, tmp_path) as here:
        theirs = write_chart(tmp_path / "theirs", patches_pods=patches_pods)
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
        await here.succeed("install", RELEASE, write_chart(tmp_path / "theirs", is_hooked=False))
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
