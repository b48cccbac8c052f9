"""What decides besides StatefulSets and pods: it is kept, and the simulated operator obeys it."""

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace
from rollout_lab.admission.registrations import no_downscale, pod_eviction
from rollout_lab.model.fields import timestamp
from rollout_lab.nodes.nodes import node
from rollout_lab.schemas.kinds import NODES
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.dump import choose_objects
from rollout_lab.simulate.flags import read_settings
from rollout_lab.simulate.report import SimulationRun, render_text
from rollout_lab.simulate.times import choose_times
from rollout_lab.simulate.world import RunLimits, play
from rollout_lab.zones import ZoneSpec

from rollout_operator.cli.dumps import BadDump
from rollout_operator.kube.api import CONFIG_MAPS, JsonObject
from rollout_operator.model.names import DISRUPTION_RECORD, NAMESPACE_LABEL
from rollout_operator.model.outcome import Code
from tests.lab.simulate.dumps import NAMESPACE, Json, grow, pick, to_yaml
from tests.virtual_time import EPOCH

pytestmark = pytest.mark.thorough

LABELLED: Final = {"app": "ingester"}
GUARDED: Final = {"grafana.com/min-time-between-zones-downscale": "1h"}
PREPARED: Final = {"grafana.com/prepare-downscale": "true"}
MIRROR: Final = "grafana.com/rollout-mirror-replicas-from-resource"
HELD: Final = {"grafana.com/no-downscale": "true"}


def _simulate(objects: Sequence[Json], *words: str) -> SimulationRun:
    return simulate(read_settings(["-f", "-", *words]), to_yaml(objects), EPOCH)


def _story(run: SimulationRun) -> str:
    return " ".join(word for line in render_text(run) for word in line.split())


def _other(version: str, kind: str, name: str, **parts: object) -> Json:
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"u-{name}", "resourceVersion": "7"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def _budget(limit: int) -> Json:
    return _other(
        "rollout-operator.grafana.com/v1",
        "ZoneAwarePodDisruptionBudget",
        "ingesters",
        spec={"selector": {"matchLabels": LABELLED}, "maxUnavailable": limit},
        status={"observedGeneration": 1, "zones": 3, "pods": 9},
    )


def _configuration(body: JsonObject) -> Json:
    head = {"uid": "u", "resourceVersion": "7", **body["metadata"]}  # type: ignore[dict-item]
    return {**body, "metadata": head}


def _guarded() -> list[ZoneSpec]:
    """Return zones of which two pods may be down each, as far as the budget allows it."""
    return [
        ZoneSpec(name=f"zone-{letter}", max_unavailable=2, labels=LABELLED, pod_labels=LABELLED)
        for letter in "abc"
    ]


def test_rollouts_obey_the_budgets_of_the_input() -> None:
    """At most two pods of a zone by its annotation, one by the budget: one goes at a time."""
    objects = grow(*_guarded())

    free = _simulate(objects, "-change", "new template")
    bound = _simulate([*objects, _budget(1)], "-change", "new template")

    assert set(free.figures.most_down.values()) == {2}
    assert set(bound.figures.most_down.values()) == {1}
    assert len(bound.figures.deletes) == 9
    assert "ZoneAwarePodDisruptionBudget ingesters: maxUnavailable 1" in _story(bound)
    assert "left out" not in _story(bound)


@pytest.mark.parametrize("is_own", [True, False], ids=["of a rollout", "of an eviction"])
def test_a_delete_that_the_operator_was_about_to_make_is_made_at_once(is_own: bool) -> None:
    """Read between the record of a grant and the delete. That of an eviction is waited out."""
    objects = [*grow(*_guarded()), _budget(2)]
    head = pick(objects, "zone-a-0")["metadata"]
    record = {"uid": head["uid"], "by": "another", "at": timestamp(EPOCH), "lasts": "PT2S"}
    engine = "rollout" if is_own else "eviction"
    head["annotations"] = {DISRUPTION_RECORD: json.dumps({**record, "engine": engine})}

    run = _simulate(objects, "-change", "new template")

    order = ["zone-a-0", "zone-a-1", "zone-a-2"] if is_own else ["zone-a-1", "zone-a-0"]
    assert list(run.figures.deletes)[: len(order)] == order


def test_a_long_wait_of_a_budget_is_no_rest() -> None:
    """A pod counts as down for an hour after it is ready: its partition's next one waits for it."""
    budget = _budget(1)
    budget["spec"] |= {
        "podNamePartitionRegex": r"zone-[a-z]-([0-9]+)",
        "crossZoneEvictionDelay": "1h",
    }

    run = _simulate([*grow(*_guarded()), budget], "-change", "new template")

    assert len(run.figures.deletes) == 9
    assert run.play.moved_at > timedelta(hours=2)


def test_evictions_obey_the_native_budgets_of_the_input() -> None:
    """Counted anew as pods go and come: one at a time, whatever the status of the input says."""
    chosen = {"matchLabels": {"name": "zone-a"}}
    guard = _other(
        "policy/v1",
        "PodDisruptionBudget",
        "native",
        spec={"selector": chosen, "minAvailable": "60%"},
        status={"disruptionsAllowed": 2, "conditions": [{"type": "DisruptionAllowed"}]},
    )
    changes = [f"evict zone-a-{pod} at {at}" for pod, at in ((0, "1s"), (1, "2s"), (1, "5m"))]
    words = [word for change in changes for word in ("-change", change)]

    run = _simulate([*grow(), guard], *words)

    (refusal,) = run.figures.refusals
    assert "would violate the pod's disruption budget" in refusal
    assert "PodDisruptionBudget native: minAvailable 60%" in _story(run)
    assert run.figures.most_down["zone-a"] == 1


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"maxUnavailable": "NaN%"}, 'spec.maxUnavailable: "NaN%" is neither a count nor'),
        ({"minAvailable": "101%"}, 'spec.minAvailable: "101%" is neither a count nor'),
        ({"maxUnavailable": -5}, "spec.maxUnavailable: -5 is neither a count nor"),
        ({"minAvailable": 1, "maxUnavailable": 1}, "only one of minAvailable and maxUnavailable"),
    ],
)
def test_native_budgets_that_no_api_server_lets_in_are_named(bounds: Json, why: str) -> None:
    guard = _other("policy/v1", "PodDisruptionBudget", "native", spec={"selector": {}, **bounds})

    with pytest.raises(BadDump, match=f"^PodDisruptionBudget native: {re.escape(why)}"):
        choose_objects([*grow(), guard], "")


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("app=ingester", 'spec.selector: "app=ingester" is not a mapping'),
        ({"matchLabels": "all"}, 'spec.selector.matchLabels: "all" is not a mapping'),
        ({"matchLabels": {"app": 1}}, "spec.selector.matchLabels.app: 1 is not a text"),
        ({"matchExpressions": {}}, "spec.selector.matchExpressions: {} is not a list"),
    ],
)
def test_a_native_budget_with_a_selector_of_another_type_is_named(
    selector: object, why: str
) -> None:
    """It would silently guard no pod, or each one."""
    spec = {"selector": selector, "maxUnavailable": 1}
    guard = _other("policy/v1", "PodDisruptionBudget", "native", spec=spec)

    with pytest.raises(BadDump, match=f"^PodDisruptionBudget native: {re.escape(why)}"):
        choose_objects([*grow(), guard], "")


def test_the_operator_says_that_the_budget_is_used() -> None:
    settings = read_settings(["-f", "-", "-change", "new template"])
    dump = choose_objects([*grow(*_guarded()), _budget(1)], "")
    limits = RunLimits(span=timedelta(seconds=5))

    played = play(dump, settings, choose_times(dump, settings, EPOCH), EPOCH, limits)

    (group,) = played.description.groups
    assert Code.DISRUPTION_BUDGET_USED in {wait.code for wait in group.waits}


def test_the_zone_tracker_says_when_a_zone_was_scaled_down() -> None:
    """With it, annotations mean nothing; without it, the first downscale is free to go."""
    zones = [
        ZoneSpec(name=f"zone-{letter}", labels=PREPARED, annotations={**GUARDED, **PATHS})
        for letter in "ab"
    ]
    tracker = _other(
        "v1",
        "ConfigMap",
        "tracker",
        data={"zone-a": '{"lastDownscaled": "2026-01-02T03:00:00Z"}', "password": "hunter2"},
    )
    other = _other("v1", "ConfigMap", "settings", data={"password": "hunter2"})
    objects = [*grow(*zones), tracker, other]

    run = _simulate(objects, "-change", "scale zone-b to 2")

    (refusal,) = run.figures.refusals
    assert "zone-a" in refusal
    (kept,) = run.dump.others_of(CONFIG_MAPS)
    assert "hunter2" not in str(kept)
    assert "1 ConfigMap is left out: without effect here" in run.dump.left_out
    assert _simulate(grow(*zones), "-change", "scale zone-b to 2").figures.refusals == ()


PATHS: Final = {
    "grafana.com/prepare-downscale-http-path": "prepare",
    "grafana.com/prepare-downscale-http-port": "80",
}


@pytest.mark.parametrize(
    ("version", "kind"), [("apps/v1", "Deployment"), ("example.com/v1beta1", "Sizing")]
)
def test_zones_mirror_whatever_has_a_count(version: str, kind: str) -> None:
    mirrors = {
        f"{MIRROR}-name": "sizes",
        f"{MIRROR}-kind": kind,
        f"{MIRROR}-api-version": version,
    }
    secret = {"replicas": 4, "template": {"spec": "hunter2"}}
    sized = _other(version, kind, "sizes", spec=secret, status={"replicas": 4})

    run = _simulate([*grow(ZoneSpec(name="zone-a", annotations=mirrors)), sized])

    assert "wants 4 pods instead of 3" in _story(run)
    assert "hunter2" not in str(run.dump)
    assert run.dump.left_out == ()


def test_all_four_webhooks_are_assumed_where_the_input_holds_none() -> None:
    objects = grow(ZoneSpec(name="zone-a", labels=HELD))

    run = _simulate(objects, "-change", "scale zone-a to 2")
    without = _simulate(objects, "-webhooks=false", "-change", "scale zone-a to 2")

    assert len(run.figures.refusals) == 1
    names = "no-downscale, prepare-downscale, pod-eviction, zpdb-validation"
    assert f"webhooks that the input does not tell of are registered: {names}" in _story(run)
    assert without.figures.refusals == ()
    assert f"does not tell of are not registered: {names}" in _story(without)


def test_webhooks_of_the_input_are_those_that_are_registered() -> None:
    """Of this operator, whatever else is in their configurations; the other kind is assumed."""
    objects = grow(ZoneSpec(name="zone-a", labels=HELD))
    eviction = _configuration(pod_eviction(NAMESPACE))
    eviction["webhooks"][0]["matchConditions"] = [{"name": "a", "expression": "hunter2"}]
    eviction["webhooks"][0]["clientConfig"]["caBundle"] = "hunter2"
    elsewhere = _configuration(no_downscale("test"))

    run = _simulate([*objects, eviction, elsewhere], "-change", "scale zone-a to 2")

    assert run.figures.refusals == ()
    assert "registered webhooks of the operator, as in the input: pod-eviction" in _story(run)
    assert "does not tell of are registered: prepare-downscale" in _story(run)
    assert "of no operator of this namespace" in " ".join(run.dump.left_out)
    assert "hunter2" not in str(run.dump)


def test_webhooks_that_are_registered_by_url_are_registered() -> None:
    """An operator outside the cluster; only a label says of which namespace it is."""
    objects = grow(ZoneSpec(name="zone-a", labels=HELD))
    ours, unknown = _configuration(no_downscale(NAMESPACE)), _configuration(pod_eviction(NAMESPACE))
    ours["metadata"]["labels"] = {NAMESPACE_LABEL: NAMESPACE}
    unknown["metadata"]["labels"] = {}
    for one in (ours, unknown):
        path = one["webhooks"][0]["clientConfig"]["service"]["path"]
        one["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:8443{path}"}

    run = _simulate([*objects, ours, unknown], "-change", "scale zone-a to 2")

    assert len(run.figures.refusals) == 1
    assert "of the operator, as in the input: no-downscale webhooks that" in _story(run)


def test_nodes_are_kept_as_far_as_they_take_pods() -> None:
    open_node: Json = dict(node("node-1", {"topology.kubernetes.io/zone": "a"}))
    closed: Json = dict(node("node-2", {}))
    closed["spec"] = {"unschedulable": True, "providerID": "hunter2"}
    for one in (open_node, closed):
        one["metadata"] |= {"uid": "u", "resourceVersion": "7"}

    dump = choose_objects([*grow(), open_node, closed], "")

    specs = [one["spec"] for one in dump.others_of(NODES)]
    assert specs == [{}, {"unschedulable": True}]
    assert "hunter2" not in str(dump)


def test_what_decides_elsewhere_is_left_out_with_the_reason() -> None:
    budget = _budget(1)
    budget["metadata"]["namespace"] = "test"
    scaler = _other("autoscaling/v2", "HorizontalPodAutoscaler", "h", spec={})

    assert choose_objects([*grow(), budget, scaler], "").left_out == (
        "1 HorizontalPodAutoscaler is left out: what it scales stays as it is, unless a change"
        " scales it",
        "1 ZoneAwarePodDisruptionBudget is left out: of another namespace",
    )


def test_an_eviction_that_a_budget_has_room_for_crosses_no_bound() -> None:
    objects = grow(*(replace(zone, max_unavailable=1) for zone in _guarded()))
    evictions = ("-change", "evict zone-a-0", "-change", "evict zone-a-1")

    run = _simulate([*objects, _budget(2)], *evictions)
    unbound = _simulate(objects, *evictions)

    assert [one.text for one in run.figures.crossings] == []
    assert [one.text for one in unbound.figures.crossings] == [
        "zone-a-1 is number 2 down of zone-a, of 1 allowed"
    ]
