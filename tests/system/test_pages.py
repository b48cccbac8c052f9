"""Pages whose commands are run: README, the tutorials, docs/guides, on a real control plane."""

import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pytest
from rollout_lab.demo.screen import choose_screen

from tests.code_rules import ROOT
from tests.demo.__main__ import open_cluster, present
from tests.demo.flags import Settings
from tests.demo.kept import COMMANDS, render_invitation, write_kubeconfig
from tests.system.hooked import PROBE, TLS_FLAGS
from tests.system.pages import DOCS, Happening, Terminal
from tests.system.zones import LAST_DOWNSCALE, Template, is_called, read_stamp
from tests.world.api import PODS, STATEFULSETS, VALIDATING_HOOKS
from tests.world.budgets import install_kinds
from tests.world.hooks import BUDGET_HOOKS, NO_DOWNSCALE, PREPARE_DOWNSCALE, Hooks, Registration
from tests.world.kubelet import Behaviour, Kind, Nodes, by_image
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.sets import Missing, Snapshot
from tests.world.webpods import BROKEN, WebPods
from tests.world.world import World

pytestmark = pytest.mark.controlplane

GUIDES: Final = DOCS / "guides"
# Beside the Roles of the base and of the component `webhooks`.
COMPONENTS: Final = ("scaling", "mirroring")
HOOKS: Final = (NO_DOWNSCALE, PREPARE_DOWNSCALE, *BUDGET_HOOKS)
# Pods are called again that often; guides wait for what they say then.
FLAGS: Final = (*TLS_FLAGS, "-reconcile.interval=1s")
# What the pages write for the ports of Mimir, Loki and Tempo.
PORTS: Final = ("8080", "3100", "3200")
NAMED: Final = "NAMESPACE"
CRASHING: Final = "registry.example/db:crashes"
CRASHES: Final = Behaviour(kind=Kind.CRASH_LOOP)
QUICK: Final = Behaviour(
    ready_after=timedelta(milliseconds=30), terminates_after=timedelta(milliseconds=10)
)


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    world: World
    pods: WebPods
    operator: OperatorProcess
    hooks: Hooks

    async def follow(
        self,
        name: str,
        happenings: Mapping[str, Happening] | None = None,
        words: Mapping[str, str] | None = None,
    ) -> None:
        """Do what a guide says, with other words where it would take too long.

        Raises AssertionError for what does not come out so.
        """
        terminal = Terminal(
            kubeconfig=write_kubeconfig(self.world),
            folder=self.world.folder,
            words={
                **dict.fromkeys(PORTS, f"{self.pods.port}"),
                NAMED: self.world.namespace,
                **(words or {}),
            },
            happenings=happenings or {},
        )
        await terminal.follow(GUIDES / name)
        await self.world.judge.assert_clean()

    async def let_delay_pass(self, pods: Sequence[str], span: timedelta) -> None:
        """Wait until these pods are prepared for a delayed downscale, and make it long ago."""
        uids = await self.wait_delay(pods)
        for uid in uids:
            self.pods.delayed_since[uid] -= int(span.total_seconds())
        await self._restart()

    async def wait_delay(self, pods: Sequence[str]) -> list[str]:
        """Wait until these pods are prepared for a delayed downscale, and return their UIDs."""
        found = await self.world.api.items(PODS, self.world.namespace)
        uids = [one["metadata"]["uid"] for one in found if one["metadata"]["name"] in pods]
        await self.pods.wait_until(
            f"prepared for later: {pods}",
            lambda: all(uid in self.pods.delayed_since for uid in uids),
        )
        return uids

    async def _restart(self) -> None:
        """Have pods called at once; an operator that goes on calls them again after a minute."""
        self.operator.kill()
        self.operator.start()
        await self.operator.wait_ready()

    async def wait_no_delay(self) -> None:
        await self.pods.wait_until("all un-prepared", lambda: not self.pods.delayed_since)

    async def let_pass_since_downscale(self, zone: str, span: timedelta) -> None:
        """Wait until the downscale of a zone is on record, and make it long ago."""

        def check(now: Snapshot) -> Missing:
            return "" if read_stamp(now.sets.get(zone)) else f"no {LAST_DOWNSCALE} on {zone}"

        await self.world.wait_until(check)
        then = f"{datetime.now(UTC) - span:%Y-%m-%dT%H:%M:%SZ}"
        await self.world.annotate(zone, **{LAST_DOWNSCALE: then})

    def assert_prepared(self, *pods: str, path: str) -> None:
        """Raise AssertionError unless each of these pods was prepared to go at a path, once."""
        found = [(one.pod, one.method) for one in self.pods.calls if one.path == path]
        assert sorted(found) == sorted((pod, "POST") for pod in pods), self.pods.describe()


async def open_guide(world: World, nodes: Nodes | None = None) -> Guide:
    """Start an operator with all its webhooks, and return once the API server calls them.

    Pods of zones that have nodes are bound to them, all others to no node in particular.
    """
    if nodes is not None:
        world.kubelet.place = nodes.place
    world.kubelet.choose = by_image({CRASHING: CRASHES}, QUICK)
    pods = await world.serve_pods()
    await install_kinds(world.api)
    await world.grant("webhooks")
    for component in COMPONENTS:
        await world.grant(component)
    (probe,) = await world.create(PROBE)
    operator = await world.operator(*FLAGS)
    hooks = await world.register(Registration(port=operator.tls_port, hooks=HOOKS), probe)
    return Guide(world=world, pods=pods, operator=operator, hooks=hooks)


NAMESPACE: Final = "demo"
SECTIONS: Final = ("Roll out your own zones", "When a rollout stands still")
# What README takes the zones to be before: alone, and rolled out by Kubernetes.
AS_BEFORE: Final = """```console
$ kubectl label statefulset --all rollout-group-
$ kubectl patch statefulset zone-a -p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'
$ kubectl patch statefulset zone-b -p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'
$ kubectl patch statefulset zone-c -p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'
```
"""


def _write_page(folder: Path) -> Path:
    """Write the sections whose commands need a cluster, with what comes before."""
    parts = re.split(r"^## (.+)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    page = folder / "page.md"
    page.write_text("\n".join([AS_BEFORE, *(texts[title] for title in SECTIONS)]))
    return page


@pytest.mark.slow
async def test_every_command_does_what_the_readme_says(plane: ControlPlane) -> None:
    """SEED-001: plain zones are adopted and rolled out, and the commands that explain end well."""
    settings = Settings(ready_after=timedelta(milliseconds=300))
    async with open_cluster(
        plane, settings, choose_screen(io.StringIO(), {}), NAMESPACE
    ) as cluster:
        folder = cluster.world.folder
        terminal = Terminal(kubeconfig=write_kubeconfig(cluster.world), folder=folder)
        await terminal.follow(_write_page(folder))
        await cluster.world.judge.assert_clean()


TUTORIAL: Final = DOCS / "tutorial.md"
POLICIES: Final = DOCS / "tutorial-policies.md"


@pytest.mark.slow
async def test_every_command_does_what_the_tutorials_say(plane: ControlPlane) -> None:
    """SEED-001: after the story, on the same cluster, with kubectl and our own commands."""
    settings = Settings(ready_after=timedelta(milliseconds=700), is_kept=True)
    async with open_cluster(
        plane, settings, choose_screen(io.StringIO(), {}), NAMESPACE
    ) as cluster:
        config = write_kubeconfig(cluster.world)
        terminal = Terminal(kubeconfig=config, folder=cluster.world.folder)
        await terminal.follow(TUTORIAL)
        await terminal.follow(POLICIES)
        await cluster.world.judge.assert_clean()


async def test_a_whole_rollout_in_plain_lines(plane: ControlPlane) -> None:
    """SEED-001, LI-01: as `make demo-cluster` shows it in a pipe, with pods that are quick."""
    stream = io.StringIO()
    settings = Settings(pods=2, ready_after=timedelta(milliseconds=150))
    screen = choose_screen(stream, {})

    async with open_cluster(plane, settings, screen) as cluster:
        assert await present(cluster, screen), stream.getvalue()

    text = stream.getvalue()
    assert re.findall(r"ingester  (.*)  6/6 ready  6/6 updated", text)[-1] == "rolled out"
    assert "\x1b" not in text
    assert all(f"deletes zone-{zone}-{n}: " in text for zone in "abc" for n in range(2))
    assert not re.search(r"\b(SI|LI)-\d\d|pod_outdated|rolled_out", text)
    assert text.rstrip().splitlines()[-2:] == [
        "the operator deleted 6 pods",
        "etcd's own history, read by a judge: every promise was kept",
    ]


def test_the_invitation_has_five_commands_of_the_tutorial() -> None:
    """Each with what it shows, after how to reach the cluster."""
    lines = render_invitation(Path("/kept/kubeconfig"), "/bin")
    known = TUTORIAL.read_text()

    assert "  export KUBECONFIG=/kept/kubeconfig" in lines
    assert any(line.startswith("  export PATH=") for line in lines)
    assert [line.strip() for line in lines if line.strip() in dict(COMMANDS)] == [*dict(COMMANDS)]
    assert len(COMMANDS) == 5
    for command in dict(COMMANDS):
        assert command.partition(" -o ")[0].partition(",")[0] in known, command


DELAY: Final = timedelta(hours=13)
HALF_HOUR: Final = timedelta(minutes=31)
HOUR: Final = timedelta(hours=1)
THREE_HOURS: Final = timedelta(hours=3, minutes=1)
WITH_NODES: Final = [f"queue-zone-{letter}" for letter in "abc"]
# What a guide says, and what would make its test wait.
READY_FOR: Final = {"minReadySeconds: 30": "minReadySeconds: 0"}
BETWEEN_ZONES: Final = {"15m": "0s"}
FLUX: Final = "kustomize-controller"


@pytest.mark.slow
async def test_the_guides_of_databases_for_telemetry(world: World) -> None:
    """Mimir, Loki and Tempo: rollouts, downscales that are prepared, delayed and reverted."""
    guide = await open_guide(world)
    await _follow_mimir(guide)
    await _follow_loki(guide)
    await _follow_tempo(guide)


@pytest.mark.slow
async def test_the_guides_of_everything_else(world: World) -> None:
    """A database, drains, autoscaling and GitOps."""
    async with Nodes(world.api, WITH_NODES) as nodes:
        guide = await open_guide(world, nodes)
        await guide.follow("database.md", words=READY_FOR)
        await _follow_drains(guide)
        await _follow_autoscaling(guide)
        await _follow_gitops(guide)


async def _follow_mimir(guide: Guide) -> None:
    going = [f"ingester-zone-{letter}-2" for letter in "abc"]
    a, b = ("store-gateway-zone-a", "store-gateway-zone-b")

    async def assert_called() -> None:
        guide.assert_prepared(*going, path="/ingester/prepare-shutdown")

    happenings: dict[str, Happening] = {
        "three ingesters are read-only": partial(guide.wait_delay, going),
        "all ingesters write again": guide.wait_no_delay,
        "the ingesters are read-only for 13 hours": partial(guide.let_delay_pass, going, DELAY),
        "three ingesters were prepared to leave": assert_called,
        f"30 minutes pass for {a}": partial(guide.let_pass_since_downscale, a, HALF_HOUR),
        f"30 minutes pass for {b}": partial(guide.let_pass_since_downscale, b, HALF_HOUR),
    }
    await guide.follow("mimir.md", happenings)


async def _follow_loki(guide: Guide) -> None:
    a, b, c = (f"loki-ingester-zone-{letter}" for letter in "abc")
    stubborn = f"{c}-1"

    async def let_pass_in_a() -> None:
        guide.assert_prepared(f"{a}-1", path="/ingester/prepare_shutdown")
        await guide.let_pass_since_downscale(a, THREE_HOURS)

    async def fail() -> None:
        guide.pods.behave(stubborn, BROKEN, method="POST")

    async def let_pass_in_b() -> None:
        await guide.let_pass_since_downscale(b, THREE_HOURS)
        await guide.pods.wait_until(
            f"{stubborn} told that it stays", lambda: is_called(guide.pods.calls_to(stubborn))
        )

    async def succeed() -> None:
        guide.pods.behave_well(stubborn)

    happenings: dict[str, Happening] = {
        "the ingester of zone a was prepared to leave, and 3 hours pass": let_pass_in_a,
        f"{stubborn} cannot write its marker": fail,
        "3 hours pass": let_pass_in_b,
        f"{stubborn} can write its marker": succeed,
    }
    await guide.follow("loki.md", happenings)


async def _follow_tempo(guide: Guide) -> None:
    going = [f"live-store-zone-{letter}-1" for letter in "ab"]

    async def assert_called() -> None:
        guide.assert_prepared(*going, path="/live-store/prepare-downscale")

    happenings: dict[str, Happening] = {
        "partition 1 is read-only for an hour": partial(guide.let_delay_pass, going, HOUR),
        "both live-stores of partition 1 were prepared to leave": assert_called,
    }
    await guide.follow("tempo.md", happenings)


async def _follow_drains(guide: Guide) -> None:
    kubelet, pod = guide.world.kubelet, "queue-zone-c-0"

    async def crash() -> None:
        await guide.world.wait_ready(WITH_NODES)  # else the message names others, too
        await kubelet.crash(pod)

    happenings: dict[str, Happening] = {
        f"{pod} crashes": crash,
        f"{pod} is well again": partial(kubelet.make_ready, pod),
    }
    await guide.follow("drains.md", happenings)


async def _follow_autoscaling(guide: Guide) -> None:
    template = Template(world=guide.world, name="worker")
    happenings: dict[str, Happening] = {
        f"the autoscaler writes {replicas}": partial(template.scale, replicas)
        for replicas in (3, 2)
    }
    await guide.follow("autoscaling.md", happenings)


async def _follow_gitops(guide: Guide) -> None:
    world, zone, seen = guide.world, "ledger-zone-a", set[str]()

    async def assert_owned() -> None:
        found = await world.get(STATEFULSETS, zone)
        assert found["metadata"]["annotations"][LAST_DOWNSCALE]
        (ours,) = [one for one in found["metadata"]["managedFields"] if one["manager"] == FLUX]
        assert "f:replicas" not in ours["fieldsV1"]["f:spec"]
        assert f"f:{LAST_DOWNSCALE}" not in ours["fieldsV1"]["f:metadata"]["f:annotations"]
        seen.add(found["metadata"]["resourceVersion"])

    async def assert_unchanged() -> None:
        assert {(await world.get(STATEFULSETS, zone))["metadata"]["resourceVersion"]} == seen

    happenings: dict[str, Happening] = {
        "Git owns neither replicas nor the time of the downscale": assert_owned,
        "the apply has not even made a new version": assert_unchanged,
        "Git applies the configuration twice without caBundle": partial(_apply_twice, guide),
    }
    await guide.follow("gitops.md", happenings, words=BETWEEN_ZONES)


async def _apply_twice(guide: Guide) -> None:
    """Apply a configuration as Git has it: the second time changes nothing, and the CA stays."""
    hooks, name = guide.hooks, guide.hooks.name(NO_DOWNSCALE)
    (before,) = (await hooks.fetch(NO_DOWNSCALE))["webhooks"]
    body = hooks.configuration(NO_DOWNSCALE)
    versions = set()
    for _ in range(2):
        applied = await guide.world.api.patch(VALIDATING_HOOKS, "", name, body, kind="apply")
        versions.add(applied["metadata"]["resourceVersion"])
        (now,) = applied["webhooks"]
        assert now["clientConfig"] == before["clientConfig"]
    assert before["clientConfig"]["caBundle"]
    assert len(versions) == 1
