"""What is too much for a simulation is refused before anything is made of it."""

from collections.abc import Callable

import pytest
from rollout_lab.simulate.dump import choose_objects

from rollout_operator.cli.dumps import BadDump
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


LATE = "9999-12-31T23:59:59Z"
SPOILED: tuple[tuple[str, Callable[[Json], object], str], ...] = (
    (
        "zone-a-0",
        lambda pod: pod["metadata"].update(creationTimestamp=LATE),
        f"Pod zone-a-0: metadata.creationTimestamp: {LATE}: after the year 9000",
    ),
    (
        "zone-a-0",
        lambda pod: pod["status"].update(startTime=LATE),
        f"Pod zone-a-0: status.startTime: {LATE}: after the year 9000",
    ),
    (
        "zone-a-0",
        lambda pod: pod["status"].update(conditions=[{"lastTransitionTime": LATE}]),
        f"Pod zone-a-0: status.conditions[0].lastTransitionTime: {LATE}: after the year 9000",
    ),
    (
        "zone-a-0",
        lambda pod: pod["metadata"].update(deletionGracePeriodSeconds=10**15),
        "Pod zone-a-0: metadata.deletionGracePeriodSeconds: 1000000000000000 is more than"
        " 2147483647",
    ),
    (
        "zone-a",
        lambda sts: sts["metadata"].update(annotations={"x": "A" * 300_000}),
        "StatefulSet zone-a: metadata.annotations: 300001 bytes are more than the 262144 that the"
        " API server takes",
    ),
    (
        "zone-a-0",
        lambda pod: pod["status"].update(message="A" * 4_000_000),
        "are more than the 3145728 of any request",
    ),
)


@pytest.mark.parametrize(("name", "spoil", "why"), SPOILED)
def test_sizes_and_times_that_no_cluster_has_are_refused(
    name: str, spoil: Callable[[Json], object], why: str
) -> None:
    objects = grow()
    spoil(pick(objects, name))

    with pytest.raises(BadDump) as refused:
        choose_objects(objects, "")

    assert why in str(refused.value)


def test_annotations_may_speak_of_any_time() -> None:
    objects = grow()
    pick(objects, "zone-a-0")["metadata"].setdefault("annotations", {})["someTime"] = LATE

    assert choose_objects(objects, "").pods
