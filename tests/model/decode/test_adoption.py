"""StatefulSets as clusters and as files in Git have them."""

from typing import Any

import msgspec
import pytest
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.model.adoption import AdoptableSet, RolloutProgress
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.names import DecodeError

AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                        {
                            "key": "topology.kubernetes.io/zone",
                            "operator": "In",
                            "values": ["eu-1a"],
                        },
                    ]
                }
            ]
        }
    }
}


def test_a_set_of_a_cluster() -> None:
    tree: dict[str, Any] = statefulset(
        ZoneSpec(name="db-a", group=None, node_selector={"disk": "fast"}), "prod"
    )
    tree["metadata"] |= {"generation": 4}
    tree["metadata"]["ownerReferences"] = [
        {"kind": "Shelf", "name": "x", "uid": "1"},
        {"kind": "SearchCluster", "name": "main", "uid": "2", "controller": True},
    ]
    tree["metadata"]["managedFields"] = [
        {"manager": "helm", "fieldsV1": {"f:spec": {"f:template": {}}}},
        {"manager": "vm-operator", "fieldsV1": {"f:spec": {"f:selector": {}}}},
        {"manager": "kubelet"},
    ]
    tree["spec"]["template"]["spec"]["affinity"] = AFFINITY
    tree["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    tree["status"] = {"observedGeneration": 4, "replicas": 3, "updateRevision": "x"}

    found = decode_adoptable(msgspec.json.encode(tree))

    assert (found.namespace, found.name, found.generation) == ("prod", "db-a", 4)
    assert found.node_selector == {"disk": "fast"}
    assert found.node_terms == (
        {"kubernetes.io/arch": ("amd64",), "topology.kubernetes.io/zone": ("eu-1a",)},
    )
    assert found.partition == 2
    assert found.selector == tree["spec"]["selector"]["matchLabels"]
    assert found.image == tree["spec"]["template"]["spec"]["containers"][0]["image"] != ""
    assert (found.controller, found.writers) == ("SearchCluster main", ("vm-operator",))
    assert found.pod_labels == {"name": "db-a"}
    assert found.status == RolloutProgress(observed_generation=4, replicas=3, update_revision="x")


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([[("zone", "In", ["a", "b"]), ("zone", "In", ["b", "c"])]], ({"zone": ("b",)},)),
        ([[("zone", "In", ["a"])], [("zone", "NotIn", ["b"])]], ({"zone": ("a",)}, {})),
        ([[], None], ({}, {})),
    ],
)
def test_every_term_of_an_affinity_is_kept(terms: Any, expected: Any) -> None:
    """MAZ-15: what a term permits in all its expressions, and that it permits any zone."""
    nodes = [
        {
            "matchExpressions": term
            and [{"key": key, "operator": how, "values": values} for key, how, values in term]
        }
        for term in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": nodes}}
    spec = {"template": {"spec": {"affinity": {"nodeAffinity": required}}}}
    tree = {"kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}

    assert decode_adoptable(msgspec.json.encode(tree)).node_terms == expected


def test_a_manifest_need_not_say_much() -> None:
    tree = {"kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"template": {}}}

    assert decode_adoptable(msgspec.json.encode(tree)) == AdoptableSet(name="db")
    assert AdoptableSet(name="db").partition == 0


def test_what_is_no_set_is_named() -> None:
    tree = {"kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"replicas": "three"}}

    with pytest.raises(DecodeError, match="db"):
        decode_adoptable(msgspec.json.encode(tree))


@pytest.mark.parametrize("written", [{"partition": None}, {"maxUnavailable": "25%"}, {}, None])
def test_a_rolling_update_is_kept_as_it_is_written(written: Any) -> None:
    """The way back writes it again: a key more would change what a manifest leaves open."""
    found = decode_adoptable(_partitioned(written))

    assert (found.rolling_update, found.partition) == (written, 0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("2", 'expected int | null, got str: "2"'),
        ([2], "expected int | null, got array"),
        (True, "expected int | null, got bool: true"),
        (-1, "expected int >= 0: -1"),
    ],
)
def test_a_partition_that_is_no_ordinal_is_refused_with_its_field(value: Any, message: str) -> None:
    """Taken as 0 it would hide that pods are held back, which `OnDelete` cannot."""
    field = "spec.updateStrategy.rollingUpdate.partition"

    with pytest.raises(DecodeError) as error:
        decode_adoptable(_partitioned({"partition": value}))

    assert str(error.value) == f"StatefulSet prod/db: {field}: {message}"


def _partitioned(written: Any) -> bytes:
    spec = {"template": {}, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": written}}
    head = {"namespace": "prod", "name": "db"}
    return msgspec.json.encode({"kind": "StatefulSet", "metadata": head, "spec": spec})
