"""The chart on the real control plane, by real helm: from the first install to the removal.

See `charted` for what stands for the kubelet, which would run Jobs of hooks, the pod of `helm test`
and the operator itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.chart.rendering import CHART, render_chart
from tests.system.charted import HOOKS, KINDS, RELEASE, Charted, charted, remove_kinds
from tests.system.grafanas_chart import write_chart
from tests.system.guarded import NO_DOWNSCALE
from tests.system.pages import DOCS, Happening, Terminal
from tests.system.waits import wait_true
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
from tests.world.budgets import CRDS, ZONE_BUDGETS, DryRun, evict, install_kinds
from tests.world.clients import Route, Workload
from tests.world.world import World

pytestmark = pytest.mark.controlplane

PAGE: Final = DOCS / "helm.md"
OF_HOOKS: Final = "app.kubernetes.io/part-of=rollout-operator,app.kubernetes.io/component=hooks"
GROUPED: Final = {"rollout-group": "ingester"}
SOON: Final = timedelta(seconds=30)
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
        await wait_true("held", is_held, SOON)
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
        """Return them by the words of the page."""
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
