"""docs/guides, each command of them run against a real control plane."""

from datetime import timedelta
from functools import partial
from typing import Final

import pytest

from tests.system.guarded import LAST_DOWNSCALE, is_called
from tests.system.guided import Guide, open_guide
from tests.system.mirrored import Template
from tests.system.pages import Happening
from tests.world.api import STATEFULSETS, VALIDATING_HOOKS
from tests.world.hooks import NO_DOWNSCALE
from tests.world.nodes import Nodes
from tests.world.webpods import BROKEN
from tests.world.world import World

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

DELAY: Final = timedelta(hours=13)
HALF_HOUR: Final = timedelta(minutes=31)
HOUR: Final = timedelta(hours=1)
THREE_HOURS: Final = timedelta(hours=3, minutes=1)
WITH_NODES: Final = [f"queue-zone-{letter}" for letter in "abc"]
# What a guide says, and what would make its test wait.
READY_FOR: Final = {"minReadySeconds: 30": "minReadySeconds: 0"}
BETWEEN_ZONES: Final = {"15m": "0s"}
FLUX: Final = "kustomize-controller"


async def test_the_guides_of_databases_for_telemetry(world: World) -> None:
    """Mimir, Loki and Tempo: rollouts, downscales that are prepared, delayed and reverted."""
    guide = await open_guide(world)
    await _follow_mimir(guide)
    await _follow_loki(guide)
    await _follow_tempo(guide)


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
