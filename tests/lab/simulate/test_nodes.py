"""Nodes of a copy: where pods come back, drains, and an operator that is killed meanwhile."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest
from msgspec.structs import replace
from rollout_lab.drains import Draining
from rollout_lab.model.history import Called, Commit, History, Reviewed, Said
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.nodes.nodes import LONE_NODE, node_of
from rollout_lab.schemas.kinds import BUDGETS
from rollout_lab.simulate.nodes import ELSEWHERE, drop_repeats
from rollout_lab.simulate.report import SimulationRun
from rollout_lab.simulate.world import OPERATOR, NotPlayed
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.aio.tasks import Children
from rollout_operator.kube.api import PODS, STATEFULSETS
from rollout_operator.model.names import ExitCode
from tests.lab.simulate.dumps import THREE, Json, grow, pick
from tests.lab.simulate.test_world import NINE, _ends, _simulate, _story
from tests.virtual_time import in_virtual_time

pytestmark = pytest.mark.thorough

SELECTED = {"rollout-group": "ingester"}
_BUDGET: Json = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}


def _spread() -> list[Json]:
    """Return three zones on two nodes each: ordinal 2 has a node for itself."""
    objects = grow(*(replace(zone, pod_labels=SELECTED) for zone in THREE))
    for name in NINE:
        node = f"node-{name[5]}{2 if name.endswith('2') else 1}"
        pick(objects, name)["spec"]["nodeName"] = node
    return objects


def _nodes(simulated: SimulationRun) -> dict[str, str]:
    """Return the node that each pod has in the end, empty for none."""
    last = {
        one.name: one.after
        for one in simulated.play.history.list_all(Commit)
        if one.resource == PODS
    }
    return {name: node_of(pod) for name, pod in last.items() if pod is not None}


def _evicted(simulated: SimulationRun) -> list[tuple[float, str, int]]:
    return [
        (round(one.at.total_seconds()), one.request.name, one.status)
        for one in simulated.play.history.list_all(Called)
        if one.request.subresource == "eviction"
    ]


def _reviews(simulated: SimulationRun) -> list[str]:
    return [one.path.partition("?")[0] for one in simulated.play.history.list_all(Reviewed)]


def test_an_eviction_is_reviewed_and_the_pod_comes_back_to_its_node() -> None:
    simulated = _simulate(_spread(), "evict zone-b-1 at 5s")

    assert _evicted(simulated) == [(5, "zone-b-1", 201)]
    assert _reviews(simulated) == ["/admission/pod-eviction"]
    assert _nodes(simulated)["zone-b-1"] == "node-b1"
    assert simulated.figures.deletes == ()
    assert simulated.figures.most_down["zone-b"] == 1
    assert "api-server zone-b-1 eviction allowed by the webhook" in _story(simulated)


def test_several_nodes_are_drained_in_the_order_given() -> None:
    """One after the other, as kubectl does it, and all are cordoned before."""
    simulated = _simulate(_spread(), "drain node-c2 node-b1 at 1m")

    evicted = [(name, at) for at, name, _ in _evicted(simulated)]
    assert [evicted[0][0], *sorted(dict(evicted[1:]))] == ["zone-c-2", "zone-b-0", "zone-b-1"]
    assert evicted[1][1] > evicted[0][1]
    assert {_nodes(simulated)[name] for name in ("zone-c-2", "zone-b-0", "zone-b-1")} == {ELSEWHERE}


def test_a_drained_node_loses_its_pods_and_gets_none_back() -> None:
    simulated = _simulate(_spread(), "drain node-b1 at 1m", flags="-terminates-after 20s")

    assert sorted(_evicted(simulated)) == [(60, "zone-b-0", 201), (60, "zone-b-1", 201)]
    changed = {name: node for name, node in _nodes(simulated).items() if node == ELSEWHERE}
    assert sorted(changed) == ["zone-b-0", "zone-b-1"]
    drained = [line for line in _story(simulated).splitlines() if "node-b1 is drained" in line]
    assert [line.partition(" ")[0] for line in drained] == ["0:01:21.0"]
    assert "all ready at the update revision" in _ends(simulated)
    assert simulated.play.undone == ()


def test_a_zone_is_drained_node_by_node() -> None:
    simulated = _simulate(_spread(), "drain zone zone-b", flags="-terminates-after 10s")

    assert sorted(_evicted(simulated)[:2]) == [(0, "zone-b-0", 201), (0, "zone-b-1", 201)]
    assert _evicted(simulated)[2:] == [(11, "zone-b-2", 201)], "after the first node is empty"
    assert {_nodes(simulated)[f"zone-b-{one}"] for one in range(3)} == {ELSEWHERE}
    assert {_nodes(simulated)["zone-a-0"], _nodes(simulated)["zone-c-2"]} == {"node-a1", "node-c2"}


def test_a_cordon_moves_what_is_replaced_and_nothing_else() -> None:
    simulated = _simulate(_spread(), "cordon node-a1", "cordon zone zone-c", "evict zone-a-0")

    assert _evicted(simulated) == [(0, "zone-a-0", 201)]
    moved = sorted(name for name, node in _nodes(simulated).items() if node == ELSEWHERE)
    assert moved == ["zone-a-0"]

    rolled = _simulate(_spread(), "cordon zone zone-c", "new template")
    moved = sorted(name for name, node in _nodes(rolled).items() if node == ELSEWHERE)
    assert moved == ["zone-c-0", "zone-c-1", "zone-c-2"]


def test_without_room_pods_wait_until_there_is_some() -> None:
    simulated = _simulate(
        _spread(), "no room for 2 pods", "drain node-b1", "no room for 1 pod at 5m"
    )

    story = _story(simulated)
    assert re.search(r"0:00:10\.\d scheduler no room for zone-b-[01]: it waits for a node", story)
    assert sorted(_nodes(simulated).values()).count("") == 1
    ready = [line for line in story.splitlines() if re.search(r"zone-b-[01] ready", line)]
    assert len(ready) == 1
    assert ready[0] > "0:05:00"
    assert "Unschedulable" in _ends(simulated)


def test_room_that_comes_back_is_for_all() -> None:
    simulated = _simulate(
        _spread(), "no room for 1 pod", "new template", "no room for 0 pods at 1h"
    )

    assert list(simulated.figures.deletes) == NINE
    assert simulated.play.moved_at > timedelta(hours=1)
    deleted = [one for one in simulated.play.history.list_all(Called) if one.request.name in NINE]
    assert deleted[-1].at > timedelta(hours=1), "one that waits holds up the others"
    assert sorted(simulated.figures.deletes) == NINE


def test_a_new_revision_waits_for_room_as_it_crashes_after_that() -> None:
    simulated = _simulate(
        _spread(), "no room for 1 pod", "bad template", "no room for 0 pods at 5m"
    )

    assert "zone-a-0 (CrashLoopBackOff)" in _ends(simulated)


def test_a_killed_operator_comes_back_and_goes_on() -> None:
    simulated = _simulate(_spread(), "new template", "kill operator at 1s")

    assert sorted(simulated.figures.deletes) == NINE
    story = _story(simulated)
    assert "operator *** killed by you" in story
    assert "0:00:11.0 operator is started again by the kubelet" in story


def test_evictions_without_an_operator_are_refused_and_a_drain_gives_up() -> None:
    simulated = _simulate(_spread(), "kill operator", "drain node-b2 at 1s", "evict zone-a-0 at 2s")

    assert _evicted(simulated) == [(1, "zone-b-2", 500), (2, "zone-a-0", 500)]
    refused, left = simulated.play.undone
    assert refused.startswith("evict zone-a-0 at 2s was refused: ")
    assert left.startswith(
        "drain node-b2 at 1s has ended without zone-b-2: Internal error occurred"
    )
    assert left in _ends(simulated)
    assert "drain node-b2 at 1s gives up on zone-b-2" in _story(simulated)
    assert "2 requests refused" in _story(simulated)


@pytest.mark.parametrize("name", ["ingester", "zone-b"])
def test_a_group_is_paused_as_a_whole(name: str) -> None:
    simulated = _simulate(_spread(), f"pause {name}", "new template", f"resume {name} at 1h")

    late = [
        one.request.name
        for one in simulated.play.history.list_all(Called)
        if one.request.verb == "delete" and one.actor == OPERATOR
        if one.at > timedelta(hours=1)
    ]
    assert late == (NINE if name == "ingester" else NINE[3:6])


def _budget(name: str, kind: str, version: str, **spec: object) -> Json:
    head = {"name": name, "namespace": "prod", "uid": name, "resourceVersion": "7"}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {**head, "generation": 1},
        "spec": {"selector": {"matchLabels": SELECTED}, **spec},
    }


ZONE_BUDGET = _budget(
    "zones",
    "ZoneAwarePodDisruptionBudget",
    "rollout-operator.grafana.com/v1",
    maxUnavailable=1,
)
NATIVE = partial(_budget, kind="PodDisruptionBudget", version="policy/v1")


def test_an_eviction_and_a_scaling_that_are_refused_are_not_done() -> None:
    """The group is rolled out, but what a script requested did not happen."""
    objects = [*_spread(), NATIVE("full", maxUnavailable=0)]
    pick(objects, "zone-a")["metadata"]["labels"]["grafana.com/no-downscale"] = "true"

    simulated = _simulate(objects, "evict zone-b-1", "scale zone-a to 1")

    assert [line.partition(":")[0] for line in simulated.play.undone] == [
        "evict zone-b-1 was refused",
        "scale zone-a to 1 was refused",
    ]
    assert "has the label 'grafana.com/no-downscale=true'" in _ends(simulated)
    assert "The disruption budget full needs 9 healthy pods and has 9 currently" in _ends(simulated)
    assert "the eviction of zone-b-1 was never allowed, in " in _story(simulated)
    assert simulated.exit_code is ExitCode.NEEDS_A_PERSON


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(ZONE_BUDGET, id="of zones"),
        pytest.param(NATIVE("native", minAvailable=8), id="native"),
    ],
)
def test_a_drain_goes_on_as_budgets_allow(budget: Json) -> None:
    simulated = _simulate([*_spread(), budget], "drain node-b1", flags="-ready-after 20s")

    times = {name: at for at, name, status in _evicted(simulated) if status == 201}
    assert sorted(times) == ["zone-b-0", "zone-b-1"]
    # 10 s to end and 20 s to be ready, then the next question.
    assert 30 <= max(times.values()) - min(times.values()) <= 35
    assert simulated.figures.most_down["zone-b"] == 1
    assert 1 <= len(simulated.figures.refusals) <= 5
    assert "429" in _story(simulated)


def test_a_drain_tells_of_each_pod_once_for_each_zone_that_is_in_the_way() -> None:
    """Not again for each state of the pod that is down, nor for each place in the line."""
    objects = [*_spread(), ZONE_BUDGET]
    for name in NINE:
        pick(objects, name)["spec"]["nodeName"] = "node-1"

    simulated = _simulate(objects, "drain node-1", flags="-ready-after 20s")

    lines = [line for line in _story(simulated).split("0:0") if "eviction refused" in line]
    assert len(lines) <= 2 * len(NINE)
    assert not any(" ahead" in line or "in line" in line for line in lines)
    assert "obeys budget zones: at most 1 unavailable" in _story(simulated)
    assert len([one for one in _evicted(simulated) if one[2] == 201]) == len(NINE)


def test_a_drain_that_a_budget_never_allows_is_not_done() -> None:
    simulated = _simulate([*_spread(), NATIVE("never", maxUnavailable=0)], "drain node-b1")

    assert [status for _, _, status in _evicted(simulated)] == [429, 429], (
        "each refusal is printed once"
    )
    assert len(simulated.play.undone) == 2
    assert not simulated.play.is_cut


def test_what_is_not_modelled_beside_the_story_ends_it() -> None:
    budgets = [NATIVE(name, maxUnavailable=1) for name in ("one", "two")]

    with pytest.raises(NotPlayed, match="an eviction under several budgets"):
        _simulate([*_spread(), *budgets], "drain node-b1")


@asynccontextmanager
async def _guarded() -> AsyncIterator[Sandbox]:
    """Give a world with two pods on a node, below a native budget that allows nothing."""
    async with Sandbox() as sandbox:
        here = partial(ApiRequest, verb="create", namespace=sandbox.namespace)
        zone = ZoneSpec(name="zone-a", replicas=2)
        await sandbox.call(here(resource=STATEFULSETS, body=statefulset(zone)))
        await asyncio.sleep(10)
        spec = {"selector": {"matchLabels": {"name": "zone-a"}}, "maxUnavailable": 0}
        budget: Json = {"metadata": {"name": "all"}, "spec": spec}
        await sandbox.call(here(resource=BUDGETS, body={**_BUDGET, **budget}))
        status = {"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 2}
        patch = here(resource=BUDGETS, name="all", subresource="status", body={"status": status})
        await sandbox.call(replace(patch, verb="patch", content_type=MERGE_PATCH))
        yield sandbox


def _drain(sandbox: Sandbox) -> Draining:
    return Draining(sandbox=sandbox, what="drain it", nodes=(LONE_NODE,), actor="you")


def _requested(sandbox: Sandbox, pod: str) -> list[float]:
    """Return the times between two evictions of a pod that were requested."""
    times = [
        one.at.total_seconds()
        for one in sandbox.history.list_all(Called)
        if (one.request.name, one.request.subresource) == (pod, "eviction")
    ]
    return [round(later - sooner, 1) for sooner, later in pairwise(times)]


@in_virtual_time
async def test_a_refused_eviction_is_requested_again_every_five_seconds() -> None:
    async with _guarded() as sandbox, asyncio.TaskGroup() as tasks:
        drain = _drain(sandbox)
        tasks.create_task(drain.run())
        await asyncio.sleep(28)

        assert _requested(sandbox, "zone-a-0") == _requested(sandbox, "zone-a-1") == [5.0] * 5
        rest = list(drain.describe_rest())
        assert [one.partition(": ")[0] for one in rest] == [
            "drain it goes on, without zone-a-0",
            "drain it goes on, without zone-a-1",
        ]

        gone = ApiRequest(verb="delete", resource=BUDGETS, name="all", namespace="default")
        await sandbox.call(gone)
        await asyncio.sleep(10)
        assert list(drain.describe_rest()) == []
        assert [one.text for one in sandbox.history.list_all(Said)] == ["node-1 is drained"]


@in_virtual_time
async def test_what_is_refused_for_hours_is_requested_less_often() -> None:
    """Half a day is no reason for 8,640 requests."""
    async with _guarded() as sandbox, Children() as tasks:
        task = tasks.create_task(_drain(sandbox).run())
        await asyncio.sleep(12 * 3600)
        task.cancel()

        pauses = _requested(sandbox, "zone-a-0")
        assert pauses[:700] == [5.0] * 700
        assert max(pauses) < 61
        assert len(pauses) < 3000


@in_virtual_time
async def test_refusals_in_the_same_words_are_reported_once() -> None:
    async with _guarded() as sandbox, Children() as tasks:
        task = tasks.create_task(_drain(sandbox).run())
        await asyncio.sleep(60)
        task.cancel()

        kept = History(records=list(drop_repeats(sandbox.history.records)))
        evictions = [one for one in kept.list_all(Called) if one.request.subresource]
        assert [one.request.name for one in evictions if one.status == 429] == [
            "zone-a-0",
            "zone-a-1",
        ]
        others = [one for one in sandbox.history.records if not isinstance(one, Called)]
        assert [one for one in kept.records if not isinstance(one, Called)] == others
