"""`explain`: one pod or StatefulSet, by any of its names (D-76)."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.cli.explain import (
    ExplainedKind,
    ExplainedObject,
    draw_explanation,
    read_target,
)
from rollout_operator.cli.main import main
from rollout_operator.kube.api import ZONE_BUDGETS, JsonObject
from rollout_operator.model.names import GROUP_LABEL, Denied, InvalidInput, NotFound
from rollout_operator.model.outcome import Code
from rollout_operator.planning.cards import build_group, render_card
from rollout_operator.planning.text import StatusLayout, render_line
from tests.cli.kubeconfig import write_kubeconfig
from tests.cli.test_status import EMPTY
from tests.kube.fake_api import FakeApi, reply
from tests.operator.diagnosis.inspected import ObservedCluster, observed_cluster, requesting
from tests.virtual_time import VirtualClock, in_virtual_time

ZONES = three_zones(replicas=2)
NAMES = [zone.name for zone in ZONES]
APP = {"app": "ingester"}
BUDGET: JsonObject = {
    "apiVersion": "rollout-operator.grafana.com/v1",
    "kind": "ZoneAwarePodDisruptionBudget",
    "metadata": {"name": "ingester"},
    "spec": {"maxUnavailable": 0, "selector": {"matchLabels": APP}},
}


async def explain(world: ObservedCluster, *words: str) -> str:
    lines = await draw_explanation(
        await world.inspect(), read_target(words), StatusLayout(width=80)
    )
    return "\n".join(render_line(line, 80, is_coloured=False) for line in lines)


@in_virtual_time
async def test_d_76_which_pod_goes_now_and_what_the_others_wait_for() -> None:
    async with observed_cluster(*ZONES) as world:
        assert "no rollout deletes it" in await explain(world, f"{NAMES[0]}-0")

        await world.set_image(*NAMES)
        await VirtualClock().sleep(world.patience)

        now = await explain(world, f"pod/{NAMES[0]}-0")
        assert now.startswith(f"pod {NAMES[0]}-0 of group ingester\nrollout: ")
        assert "it goes now" in " ".join(now.split())
        assert now.endswith("eviction: no zone-aware budget refuses it")
        later = await explain(world, "pod", f"{NAMES[2]}-1")
        assert "it cannot go yet [pod_outdated]" in " ".join(later.split())
        assert f"first: {NAMES[0]} and {NAMES[1]} have outdated pods" in later
        assert "it is the turn of" in await explain(world, NAMES[0])
        assert "cannot go yet" in await explain(world, f"sts/{NAMES[1]}")


@in_virtual_time
async def test_the_group_of_an_empty_label_has_a_name() -> None:
    async with observed_cluster(*(replace(zone, group="") for zone in ZONES)) as world:
        assert f'{NAMES[0]}-0 of group ""\n' in await explain(world, f"{NAMES[0]}-0")
        (group,) = (await world.inspect()).description.groups
    assert render_card(build_group(group)).startswith('group "": rolled out, ')


@in_virtual_time
async def test_an_eviction_that_a_budget_would_refuse_says_why() -> None:
    zones = [ZoneSpec(name=name, replicas=2, labels=APP, pod_labels=APP) for name in NAMES]
    async with observed_cluster(*zones) as world:
        await world.create(ZONE_BUDGETS, BUDGET)
        text = await explain(world, f"{NAMES[0]}-0")

        assert "\neviction: " in text
        assert "[budget_zero]" in text


@pytest.mark.parametrize("acts", [True, False])
@in_virtual_time
async def test_si26_what_only_the_operator_knows_of_a_zone_that_has_left(acts: bool) -> None:
    """SI-26, D-76: read from a replica, for the rollout, for an eviction, and for budgets."""
    zones = [ZoneSpec(name=name, replicas=2, labels=APP, pod_labels=APP) for name in NAMES]
    async with observed_cluster(*zones) as world:
        spec: JsonObject = {"maxUnavailable": 1, "selector": {"matchLabels": dict(APP)}}
        await world.create(ZONE_BUDGETS, {**BUDGET, "spec": spec})
        process = world.sandbox.process()
        process.start()
        await process.wait_ready()
        world.sandbox.cluster.fail_pod(f"{NAMES[0]}-1")
        await VirtualClock().sleep(world.patience)
        await world.change(NAMES[0], {"metadata": {"labels": {GROUP_LABEL: None, "app": None}}})
        await world.set_image(NAMES[1])
        await VirtualClock().sleep(world.patience)
        described = await process.describe()
        assert described.operator is not None
        replica = replace(described.operator, is_acting=acts)
        own = msgspec.json.encode(replace(described, operator=replica))
        seen = await requesting(world, services=own).inspect()
        waits = [one.waits[0].code for one in seen.best.budgets]
        waits += [one.waits[0].code for one in seen.best.groups]
        assert waits == [Code.ZONE_LEFT_SHORT] * 2
        target = read_target([f"{NAMES[1]}-0"])
        lines = await draw_explanation(seen, target, StatusLayout(width=800))
        text = [render_line(line, 800, is_coloured=False) for line in lines]
        assert "it cannot go yet" in text[1]
        assert any(
            line.strip().startswith("first: ") and "[zone_left_short]" in line for line in text
        )
        assert text[-1].startswith("eviction: 1 pod not ready")
        assert text[-1].endswith("[zone_left_short]")


@pytest.mark.parametrize("is_reached", [False, True])
@in_virtual_time
async def test_an_eviction_is_not_called_allowed_where_budgets_may_not_be_read(
    is_reached: bool,
) -> None:
    async with observed_cluster(*ZONES) as world:
        process = world.sandbox.process()
        process.start()
        await process.wait_ready()
        own = msgspec.json.encode(await process.describe())
        services = own if is_reached else NotFound("no Service")
        denied = Denied("cannot list zoneawarepoddisruptionbudgets")
        seen = await requesting(
            world, zoneawarepoddisruptionbudgets=denied, services=services
        ).inspect()
        lines = await draw_explanation(
            seen, read_target([f"{NAMES[1]}-0"]), StatusLayout(width=800)
        )
        text = [render_line(line, 800, is_coloured=False) for line in lines]
        assert text[2] == f"eviction: budgets are left out: {denied}"
        assert text[3:] == [] if is_reached else text[3].startswith("operator not reached: ")


@pytest.mark.parametrize(
    ("words", "is_asked"),
    [
        (["explain", "a-0"], True),
        (["explain", "group/a"], True),
        (["explain", "mazr/a"], True),
        (["explain", "a-0", "-service="], False),
        (["explain", "rollout/a"], False),
        (["wait"], True),
        (["wait", "group/a"], True),
        (["wait", "-service=", "group/a"], False),
        (["wait", "rollout/a"], False),
        (["status"], True),
        (["status", "-service="], False),
    ],
)
async def test_the_operator_is_asked_what_only_it_knows(
    tmp_path: Path, words: list[str], is_asked: bool
) -> None:
    """D-76, SI-26: as by `status`; of releases it knows no more than their objects say."""
    async with FakeApi() as server:
        for path in ("apis/apps/v1/namespaces/mimir/statefulsets", "api/v1/namespaces/mimir/pods"):
            server.on("GET", f"/{path}", reply(EMPTY))
        config = write_kubeconfig(tmp_path / "config", server.url)
        await asyncio.to_thread(main, [*words, f"-kubeconfig={config}"])
        asked = any("/proxy/status.json" in request.path for request in server.requests)
        assert asked is is_asked


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (ExplainedObject("ingester-zone-d"), "; did you mean ingester-zone-"),
        (ExplainedObject("ingester-zone-a-7"), "; did you mean ingester-zone-a-"),
        (
            ExplainedObject("ingester-zone-a-0", ExplainedKind.SET),
            "; did you mean ingester-zone-a?",
        ),
        (
            ExplainedObject("x", ExplainedKind.SET),
            "; there are ingester-zone-a, ingester-zone-b and",
        ),
    ],
)
@in_virtual_time
async def test_a_name_that_is_not_there_is_answered_with_the_nearest(
    target: ExplainedObject, message: str
) -> None:
    async with observed_cluster(*ZONES) as world:
        with pytest.raises(InvalidInput, match=r"in a rollout group of namespace default") as found:
            await draw_explanation(await world.inspect(), target, StatusLayout(width=80))

        assert message in str(found.value)


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (["a-0"], ExplainedObject("a-0")),
        (["pod/a-0"], ExplainedObject("a-0", ExplainedKind.POD)),
        (["po", "a-0"], ExplainedObject("a-0", ExplainedKind.POD)),
        (["sts/a"], ExplainedObject("a", ExplainedKind.SET)),
        (["group/a"], ExplainedObject("a", ExplainedKind.GROUP)),
        (["StatefulSet", "a"], ExplainedObject("a", ExplainedKind.SET)),
    ],
)
def test_what_words_name(words: list[str], target: ExplainedObject) -> None:
    assert read_target(words) == target
