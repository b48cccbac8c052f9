"""What counts in the input of `simulate`, what is left out, and what is kept of each object."""

import json
from typing import Any

import pytest
from rollout_lab.simulate.dump import Dump, choose_objects
from rollout_lab.zones import ZoneSpec

from rollout_operator.cli.dumps import BadDump
from tests.lab.simulate.dumps import Json, grow, pick

SECRET = "hunter2"


def test_pods_are_in_the_order_of_their_ordinals() -> None:
    dump = choose_objects(grow(ZoneSpec(name="zone-a", replicas=11)), "")

    assert [one.decoded.name for one in dump.pods][-2:] == ["zone-a-9", "zone-a-10"]


def test_everything_that_the_operator_sees_is_kept() -> None:
    objects = grow(ZoneSpec(name="zone-a", max_unavailable="50%", first_ordinal=3))
    pick(objects, "zone-a")["metadata"]["annotations"]["grafana.com/rollout-paused"] = "true"

    (found,) = choose_objects(objects, "").sets

    sts = found.decoded
    assert (sts.replicas, sts.first_ordinal, sts.strategy) == (3, 3, "OnDelete")
    assert dict(sts.annotations) == {
        "rollout-max-unavailable": "50%",
        "grafana.com/rollout-paused": "true",
    }
    status = pick(objects, "zone-a")["status"]
    assert sts.update_revision == status["updateRevision"] != ""
    assert found.places == ("zone-a-3", "zone-a-4", "zone-a-5")


def test_what_is_not_read_goes_no_further() -> None:
    """Environment, commands, volumes, copies of the whole object: secrets may be in any of them."""
    objects = grow()
    for one in objects:
        spec = one["spec"].get("template", one)["spec"]
        spec["containers"][0] |= {"env": [{"name": "A", "value": SECRET}], "args": [SECRET]}
        spec["volumes"] = [{"name": SECRET, "emptyDir": {}}]
        spec["priorityClassName"] = SECRET
        key = "kubectl.kubernetes.io/last-applied-configuration"
        one["metadata"].setdefault("annotations", {})[key] = SECRET
    objects.append({"apiVersion": "v1", "kind": "Secret", "data": {"a": SECRET}})

    dump = choose_objects(objects, "")

    kept = json.dumps([*(one.obj for one in dump.sets), *(one.obj for one in dump.pods)])
    assert SECRET not in kept + str(dump)
    assert dump.left_out == ("1 Secret is left out: without effect here",)


def test_replicas_that_are_no_number_are_shown() -> None:
    objects = grow()
    pick(objects, "zone-a")["spec"]["replicas"] = "three"

    with pytest.raises(
        BadDump, match=r'^StatefulSet zone-a: spec\.replicas: "three" is not a whole'
    ):
        choose_objects(objects, "")


def test_what_is_left_out_is_counted() -> None:
    objects = grow()
    alone = pick(grow(ZoneSpec(name="other", group=None)), "other")
    stray = pick(grow(ZoneSpec(name="other")), "other-0")
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    old: Json = {"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "d"}}

    dump = choose_objects([*objects, alone, stray, service, service, old], "")

    assert dump.left_out == (
        "1 Deployment is left out: without effect here",
        "1 Pod is left out: of no StatefulSet of a rollout group here",
        "2 Services are left out: without effect here",
        "1 StatefulSet is left out: in no rollout group of this namespace",
    )
    assert len(dump.pods) == 9


def test_one_namespace_is_chosen() -> None:
    objects = grow()
    others = _move(grow(), "test")

    with pytest.raises(BadDump, match="in prod and test: choose one with -namespace"):
        choose_objects([*objects, *others], "")
    assert choose_objects([*objects, *others], "test").namespace == "test"
    assert len(choose_objects([*objects, *others], "prod").pods) == 9
    with pytest.raises(BadDump, match="-namespace=dev: no rollout group there, but in prod"):
        choose_objects(objects, "dev")


def test_the_newest_time_is_found() -> None:
    """What stands in the input has happened before it was read."""
    objects = grow()
    pick(objects, "zone-b-1")["status"]["conditions"][0]["lastTransitionTime"] = (
        "2031-01-02T03:04:05Z"
    )
    pick(objects, "zone-b-2")["status"]["conditions"][0]["lastTransitionTime"] = None

    newest = choose_objects(objects, "").newest

    assert newest is not None
    assert newest.isoformat() == "2031-01-02T03:04:05+00:00"


def _move(objects: list[Json], namespace: str) -> list[Json]:
    for one in objects:
        one["metadata"]["namespace"] = namespace
        one["metadata"]["uid"] += "-moved"
        for owner in one["metadata"].get("ownerReferences", ()):
            owner["uid"] += "-moved"
    return objects


def _without_uid(objects: list[Json]) -> list[Json]:
    del pick(objects, "zone-a")["metadata"]["uid"]
    return objects


def _with(objects: list[Json], name: str, part: str, **values: Any) -> list[Json]:
    pick(objects, name)[part].update(values)
    return objects


@pytest.mark.parametrize(
    ("objects", "complaint"),
    [
        pytest.param([], r"^there is no StatefulSet of apps/v1: pass what `kubectl", id="nothing"),
        pytest.param(
            [{"apiVersion": "v1", "kind": "Pod"}, {"kind": "Secret"}],
            "no StatefulSet of apps/v1 among 1 Pod, 1 Secret",
            id="no set",
        ),
        pytest.param(
            grow(ZoneSpec(name="zone-a", group=None)),
            "zone-a: no label rollout-group",
            id="no group",
        ),
        pytest.param(
            [one for one in grow() if one["kind"] != "Pod"],
            "status of zone-a, zone-b and zone-c counts 9 pods, and the input has none",
            id="forgotten pods",
        ),
        pytest.param(
            [*grow(), *grow()],
            "input holds StatefulSet zone-a, zone-b and zone-c twice",
            id="twice",
        ),
        pytest.param(
            _without_uid(grow()),
            "StatefulSet zone-a: metadata.uid is missing, so that no API server has it",
            id="what was applied, not what is there",
        ),
        pytest.param(
            _with(grow(), "zone-a", "spec", replicas="three"), "replicas", id="a field in vain"
        ),
        pytest.param(
            _with(grow(), "zone-a-0", "status", phase=7), "phase", id="a pod that is no pod"
        ),
    ],
)
def test_what_cannot_be_used_is_refused(objects: list[Json], complaint: str) -> None:
    with pytest.raises(BadDump, match=complaint):
        choose_objects(objects, "")


def test_names_of_pods_that_are_missing_may_be_used() -> None:
    """A pod that has no node, or that the controller has not made yet, may fail later."""
    objects = [one for one in grow() if one["metadata"]["name"] != "zone-a-2"]

    dump: Dump = choose_objects(objects, "")

    assert "zone-a-2" in dump.names().pods
