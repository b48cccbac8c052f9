"""What is too much for a simulation is refused before anything is made of it."""

import pytest

from rollout_operator.lab.simulate.dump import choose_objects
from rollout_operator.lab.simulate.input import BadDump
from tests.lab.simulate.dumps import NAMESPACE, Json, grow, pick


def test_replicas_that_no_simulation_takes_are_refused() -> None:
    objects = grow()
    pick(objects, "zone-b")["spec"]["replicas"] = 1_000_000_000

    with pytest.raises(BadDump) as refused:
        choose_objects(objects, "")

    assert str(refused.value) == (
        "StatefulSet zone-b: spec.replicas: 1000000000 beside 3 of other StatefulSets is more than"
        " the 10000 that a simulation takes in all"
    )


def test_replicas_of_all_statefulsets_count_together() -> None:
    objects = grow()
    for zone, replicas in (("zone-a", 5000), ("zone-b", 4997)):
        pick(objects, zone)["spec"]["replicas"] = replicas

    assert len(choose_objects(objects, "").sets) == 3
    pick(objects, "zone-b")["spec"]["replicas"] = 4998
    with pytest.raises(
        BadDump, match=r"zone-c: spec\.replicas: 3 beside 9998 of other StatefulSets"
    ):
        choose_objects(objects, "")


def test_counts_that_zones_follow_are_bounded_too() -> None:
    template: Json = {
        "apiVersion": "rollout-operator.grafana.com/v1",
        "kind": "ReplicaTemplate",
        "metadata": {"name": "all", "namespace": NAMESPACE, "uid": "t", "resourceVersion": "1"},
        "spec": {"replicas": 10_001, "labelSelector": "a=b"},
    }

    with pytest.raises(
        BadDump, match=r"ReplicaTemplate all: spec\.replicas: 10001 is more than the"
    ):
        choose_objects([*grow(), template], "")
