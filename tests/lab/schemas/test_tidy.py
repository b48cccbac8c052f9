"""JSON as the simulated API server gives it back: what vanishes, and what is whose."""

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.schemas.tidy import copy_head, tidied_fields, tidied_metadata


def test_what_says_nothing_vanishes_at_any_depth() -> None:
    """Nulls everywhere; zeros and empty values only where the type leaves them out."""
    given: JsonObject = {
        "replicas": 0,
        "paused": False,
        "minReadySeconds": 0,
        "message": "",
        "gone": None,
        "containers": [{"name": "a", "command": [], "image": None, "resources": {}}],
        "selector": {"matchLabels": {}},
    }
    assert tidied_fields(given) == {
        "replicas": 0,
        "containers": [{"name": "a", "resources": {}}],
        "selector": {},
    }


def test_in_maps_of_texts_names_mean_nothing_and_null_is_empty() -> None:
    given: JsonObject = {"labels": {"message": "", "reason": None}, "data": {}}
    assert tidied_fields(given) == {"labels": {"message": "", "reason": ""}}


def test_metadata_loses_what_is_unknown_or_empty() -> None:
    given: JsonObject = {"name": "a", "uid": "", "managedFields": [{}], "odd": 1, "labels": {}}
    assert tidied_metadata({"metadata": given}) == {"name": "a"}
    assert tidied_metadata({}) == tidied_metadata({"metadata": "odd"}) == {}


def test_nothing_of_what_was_given_is_changed_or_shared() -> None:
    inner: JsonObject = {"labels": {"a": "b"}, "ports": [{"name": "x", "gone": None}]}
    kept = tidied_fields({"template": inner})
    assert inner == {"labels": {"a": "b"}, "ports": [{"name": "x", "gone": None}]}
    template = kept["template"]
    assert isinstance(template, dict)
    for key in ("labels", "ports"):
        assert template[key] is not inner[key]


def test_the_head_of_a_copy_is_its_own() -> None:
    spec: JsonObject = {"replicas": 1}
    obj: JsonObject = {"metadata": {"name": "a"}, "spec": spec}
    copy = copy_head(obj)
    assert copy == obj
    assert copy["metadata"] is not obj["metadata"]
    assert copy["spec"] is spec
    assert copy_head({"spec": spec}) == {"spec": spec}
