"""What the simulated controllers read of objects: fields, members of a set, counts, zones."""

from datetime import UTC, datetime, timedelta

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.controllers.members import (
    new_pod,
)
from rollout_operator.lab.model.fields import (
    child,
    children,
    controller_of,
    moment_of,
    number,
    text,
    timestamp,
)
from rollout_operator.lab.nodes.behaviour import (
    BROKEN,
    DEFAULT,
    Behaviour,
    StartKind,
    by_image,
    image_of,
)
from rollout_operator.lab.zones import ZoneSpec, statefulset, three_zones

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_what_is_absent_or_of_another_type_is_empty() -> None:
    obj: JsonObject = {"a": {"b": 1, "c": "x", "d": [{"e": 2}, 3]}}
    assert child(obj, "a", "b") == child(obj, "z", "z") == {}
    assert (text(obj, "a", "c"), text(obj, "a", "b"), text(obj, "z", "c")) == ("x", "", "")
    assert (number(obj, "a", "b"), number(obj, "a", "z", default=7)) == (1, 7)
    assert children(obj, "a", "d") == [{"e": 2}]
    assert children(obj, "a", "c") == []


def test_times_are_whole_seconds() -> None:
    assert timestamp(NOW + timedelta(milliseconds=999)) == "2026-01-02T03:04:05Z"
    assert moment_of("2026-01-02T03:04:05Z") == NOW


def test_only_the_controlling_owner_counts() -> None:
    owner = {"uid": "u", "controller": True}
    obj: JsonObject = {"metadata": {"ownerReferences": [{"uid": "other"}, owner]}}
    assert controller_of(obj) == owner
    assert controller_of({"metadata": {}}) == {}


def test_zones_say_what_they_are_told() -> None:
    zones = three_zones("store", replicas=5, max_unavailable=2, pod_management="OrderedReady")
    assert [zone.name for zone in zones] == ["store-zone-a", "store-zone-b", "store-zone-c"]
    sts = statefulset(zones[0], "prod")
    assert child(sts, "metadata")["namespace"] == "prod"
    assert child(sts, "metadata", "annotations") == {"rollout-max-unavailable": "2"}
    assert child(sts, "metadata", "labels")["rollout-group"] == "store"
    assert number(sts, "spec", "replicas") == 5
    bare = statefulset(ZoneSpec(name="web", group=None, replicas=None, node="here"))
    assert "replicas" not in child(bare, "spec")
    assert child(bare, "metadata", "labels") == {"name": "web"}
    assert text(bare, "spec", "template", "spec", "nodeName") == "here"


def test_behaviours_are_chosen_by_image() -> None:
    sts = statefulset(ZoneSpec(name="web", image="v7"))
    pod = new_pod(sts, child(sts, "spec", "template"), "r", 0)
    assert image_of(pod) == "v7"
    broken = Behaviour(prepare=BROKEN)
    assert by_image({"v7": broken})(pod) is broken
    assert by_image({"v8": broken})(pod) == Behaviour()
    bad = statefulset(ZoneSpec(name="web", image="bad"))
    assert (
        DEFAULT(new_pod(bad, child(bad, "spec", "template"), "r", 0)).kind is StartKind.CRASH_LOOP
    )
    assert image_of({}) == ""
