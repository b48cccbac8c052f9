"""StatefulSets as clusters and as files in Git have them."""

from typing import Any

import msgspec
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.model.adoption import RolloutProgress
from rollout_operator.model.decode.adoption import decode_adoptable

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
