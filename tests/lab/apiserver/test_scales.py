"""The `scale` subresource and label selectors as text."""

import pytest

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.lab.apiserver.scales import read_scale, write_scale
from rollout_operator.lab.model.request import ApiRefusal, NotModelled
from rollout_operator.lab.schemas.kinds import find_kind
from rollout_operator.lab.schemas.labels import matches, render
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.manifests import created, part, workload

STORED = created(find_kind(STATEFULSETS), workload(replicas=3))


def test_a_scale_shows_what_the_real_one_shows() -> None:
    assert read_scale(STORED) == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "u-1",
            "resourceVersion": "5",
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {"replicas": 3},
        "status": {"replicas": 0, "selector": "app=a"},
    }


def test_zero_replicas_are_left_out_and_an_absent_number_means_zero() -> None:
    none = write_scale(STORED, {"spec": {}})
    assert part(none, "spec")["replicas"] == 0
    assert read_scale(none)["spec"] == {}


def test_a_scale_changes_the_number_alone_and_brings_its_version() -> None:
    before = copy_json(STORED)
    scaled = write_scale(STORED, {"metadata": {"resourceVersion": "4"}, "spec": {"replicas": 9}})
    assert before == STORED
    assert part(scaled, "metadata")["resourceVersion"] == "4"
    assert part(scaled, "spec") == {**part(STORED, "spec"), "replicas": 9}
    assert "resourceVersion" not in part(write_scale(STORED, {"spec": {}}), "metadata")


@pytest.mark.parametrize(
    ("scale", "status", "message"),
    [
        (
            {"spec": {"replicas": -1}},
            422,
            'Scale.autoscaling "a" is invalid: spec.replicas: Invalid value: -1: must be greater '
            "than or equal to 0",
        ),
        (
            {"metadata": {"uid": "other"}, "spec": {"replicas": 1}},
            409,
            'Operation cannot be fulfilled on statefulsets/scale.apps "a": Precondition failed: '
            "UID in precondition: other, UID in object meta: u-1",
        ),
    ],
    ids=["negative", "other uid"],
)
def test_a_scale_that_does_not_fit_is_refused(scale: JsonObject, status: int, message: str) -> None:
    with pytest.raises(ApiRefusal) as caught:
        write_scale(STORED, scale)
    assert (caught.value.status, caught.value.message) == (status, message)


def test_a_scale_of_a_word_is_not_modelled() -> None:
    with pytest.raises(NotModelled):
        write_scale(STORED, {"spec": {"replicas": "3"}})


EXPRESSIONS: list[JsonObject] = [
    {"key": "b", "operator": "In", "values": ["y", "x"]},
    {"key": "a", "operator": "Exists"},
    {"key": "d", "operator": "DoesNotExist"},
    {"key": "c", "operator": "NotIn", "values": ["z"]},
]


def test_a_selector_is_written_in_the_order_of_its_keys() -> None:
    selector: JsonObject = {"matchLabels": {"e": "f"}, "matchExpressions": EXPRESSIONS}
    assert render(selector) == "a,b in (x,y),c notin (z),!d,e=f"


@pytest.mark.parametrize(
    ("labels", "is_match"),
    [
        ({"a": "", "b": "x"}, True),
        ({"a": "", "b": "x", "c": "y"}, True),
        ({"b": "x"}, False),
        ({"a": ""}, False),
        ({"a": "", "b": "x", "c": "z"}, False),
        ({"a": "", "b": "x", "d": ""}, False),
    ],
)
def test_expressions_match(labels: dict[str, str], is_match: bool) -> None:
    assert matches({"matchExpressions": EXPRESSIONS}, labels) is is_match


def test_an_operator_that_nobody_knows_is_not_modelled() -> None:
    with pytest.raises(NotModelled, match="Near"):
        matches({"matchExpressions": [{"key": "a", "operator": "Near"}]}, {})
