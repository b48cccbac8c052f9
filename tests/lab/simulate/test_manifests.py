"""Manifests as `adopt -f` takes them: what an API server would add is filled in."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from rollout_lab.zones import statefulset

from rollout_operator.cli.dumps import BadDump
from rollout_operator.cli.main import main
from rollout_operator.model.names import ExitCode
from tests.lab.simulate.dumps import NAMESPACE, THREE, Json, grow, pick, to_yaml
from tests.lab.simulate.policy_dumps import render_words, run_changes

NINE = [f"zone-{zone}-{ordinal}" for zone in "abc" for ordinal in range(3)]
APP = {"app": "ingester"}
BUDGET: Json = {
    "apiVersion": "rollout-operator.grafana.com/v1",
    "kind": "ZoneAwarePodDisruptionBudget",
    "metadata": {"name": "ingester"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": APP}},
}


def manifests(*, namespace: str = "") -> list[Json]:
    """Return what a person writes of three zones."""
    found: list[Json] = []
    for zone in THREE:
        sts: Json = statefulset(replace(zone, pod_labels=APP, labels=APP), namespace)
        if not namespace:
            del sts["metadata"]["namespace"]
        found.append(sts)
    return found


@pytest.mark.parametrize(
    ("objects", "flags", "namespace"),
    [
        pytest.param(manifests(), "", "default", id="no namespace"),
        pytest.param(manifests(), "-namespace dev", "dev", id="a namespace that is chosen"),
        pytest.param(manifests(namespace="prod"), "", "prod", id="a namespace"),
        pytest.param([*manifests(namespace="prod")[:1], *manifests()[1:]], "", "prod",
                     id="one that names it for all"),
        pytest.param([*manifests(), BUDGET], "", "default", id="with a budget"),
        pytest.param([{**sts, "status": {"replicas": 0, "availableReplicas": 0}}
                      for sts in manifests()], "", "default", id="as kubectl create writes them"),
        pytest.param([{**sts, "metadata": {**sts["metadata"], "creationTimestamp": None}}
                      for sts in manifests()], "", "default", id="with a null"),
        pytest.param([*manifests(), {**BUDGET, "kind": "Other", "metadata": None}], "", "default",
                     id="beside what nobody knows"),
    ],
)  # fmt: skip
def test_manifests_are_played_as_if_they_ran(
    objects: list[Json], flags: str, namespace: str
) -> None:
    run = run_changes(objects, "new template", flags=flags)

    assert (run.dump.namespace, run.exit_code) == (namespace, ExitCode.DONE)
    assert (sorted(run.figures.deletes), run.figures.overlaps) == (NINE, ())
    words = render_words(run)
    assert "the manifests of zone-a, zone-b and zone-c say is applied, and all pods are" in words
    assert "a new pod of ingester is ready after 30s a pod ends within 10s" in words
    assert words.count("instead of") == 3, "of the revision before there is one"


def test_a_drain_finds_the_pods_of_manifests() -> None:
    run = run_changes([*manifests(), BUDGET], "drain zone zone-a", "drain zone zone-b")

    assert [one.is_open for one in run.figures.evictions] == [False] * len(run.figures.evictions)
    assert (run.exit_code, run.figures.overlaps) == (ExitCode.DONE, ())


def test_a_manifest_beside_what_runs() -> None:
    """Pods that were read count as they are; those of the manifest are made up."""
    there = [one for one in grow() if not one["metadata"]["name"].startswith("zone-c")]
    run = run_changes([*there, manifests()[2]], "new template zone-c")

    assert run.dump.namespace == NAMESPACE
    assert sorted(run.figures.deletes) == NINE[6:]


def test_what_was_read_of_a_cluster_is_no_manifest() -> None:
    """Its pods were there, and it is not known which they were."""
    objects = grow()
    del pick(objects, "zone-a")["metadata"]["uid"]

    with pytest.raises(BadDump, match=r"StatefulSet zone-a: metadata\.uid is missing"):
        run_changes(objects, "new template")


def _put(*path: str, value: object) -> Callable[[Json], None]:
    def put(sts: Json) -> None:
        part: Any = sts
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value

    return put


POD = ("spec", "template", "spec")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (_put("spec", value=None), "StatefulSet zone-a: spec is missing"),
        (_put("spec", "template", value=None), "StatefulSet zone-a: spec.template is missing"),
        (_put("spec", "template", value="x"),
         'StatefulSet zone-a: spec.template: "x" is not a mapping'),
        (_put(*POD, value=[]), "StatefulSet zone-a: spec.template.spec: [] is not a mapping"),
        (_put(*POD, "containers", value=[]),
         "StatefulSet zone-a: spec.template.spec.containers: []: the API server would refuse it"),
        (_put("spec", "selector", value={"matchLabels": {"no": "pod"}}),
         'StatefulSet zone-a: spec.selector: {"matchLabels": {"no": "pod"}}: the API server'),
        (_put("spec", "selector", "matchExpressions",
              value=[{"key": "name", "operator": "Like", "values": ["zone"]}]),
         'StatefulSet zone-a: matchExpressions.operator: "Like": the API server would refuse it'),
        (_put("metadata", "name", value="zöne-ä\0"),
         'StatefulSet zöne-ä\\x00: metadata.name: "z\\u00f6ne-\\u00e4\\u0000": the API server'),
        (_put("metadata", "name", value="a.b"), 'StatefulSet a.b: metadata.name: "a.b": the API'),
        (_put("metadata", "name", value=5), "a StatefulSet: metadata.name: 5 is not the name"),
        (_put("metadata", "name", value=None), "a StatefulSet: metadata.name: null is not the"),
        (_put("metadata", "labels", "rollout-group", value=5),
         "StatefulSet zone-a: metadata.labels[rollout-group]: 5 is no text: write it in quotes"),
        (_put("metadata", "labels", "rollout-group", value=True),
         "StatefulSet zone-a: metadata.labels[rollout-group]: true is no text: write it in quotes"),
        (_put("metadata", "labels", "rollout-group", value={"a": "b"}),
         "StatefulSet zone-a: metadata.labels[rollout-group]: {\"a\":\"b\"} is no text"),
        (_put("metadata", "annotations", "rollout-max-unavailable", value=2),
         "StatefulSet default/zone-a: metadata.annotations[rollout-max-unavailable]: expected str"),
        (_put("metadata", "labels", "x", value="a b"),
         'StatefulSet zone-a: metadata.labels: "a b": the API server would refuse it'),
        (_put("spec", "updateStrategy", value="OnDelete"),
         "StatefulSet default/zone-a: spec.updateStrategy: expected object | null, got str"),
        (_put("spec", "replicas", value=-1), "StatefulSet default/zone-a: spec.replicas: expected"),
        (_put("spec", "replicas", value=10**8), "StatefulSet zone-a: spec.replicas: 100000000 is"),
    ],
)  # fmt: skip
def test_a_bad_field_is_one_line_with_object_field_and_value(
    spoil: Callable[[Json], None], complaint: str, tmp_path: Any, capsys: Any
) -> None:
    objects = manifests()
    spoil(objects[0])
    path = tmp_path / "zones.yaml"
    path.write_bytes(to_yaml(objects))

    assert main(["simulate", "-f", str(path), "-change", "new template"]) == ExitCode.FAILED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"rollout-operator: {complaint}")
    assert shown.err.count("\n") == 1


def _rename(objects: Sequence[Json], group: str) -> list[Json]:
    """Return three more zones of another group."""
    for sts in objects:
        sts["metadata"]["name"] = sts["metadata"]["name"].replace("zone", group)
        sts["metadata"]["labels"]["rollout-group"] = group
    return list(objects)


@pytest.mark.parametrize(
    ("change", "folded"),
    [
        ("new template zone-a", True),
        ("pod zone-b-1 fails", True),
        ("scale zone-a to 4", True),
        ("pause ingester", True),
        ("drain zone zone-a", True),
        ("new template store-a", False),
        ("new template", False),
        ("kill operator", False),
    ],
)
def test_a_group_that_no_change_is_about_takes_one_line(change: str, folded: bool) -> None:
    words = render_words(run_changes([*manifests(), *_rename(manifests(), "store")], change))

    line = "Rollout group store: 3 StatefulSets, 9 pods, all ready at the update revision"
    assert (line in words) == folded
    assert ("Rollout group store in namespace default: store-a" in words) != folded
