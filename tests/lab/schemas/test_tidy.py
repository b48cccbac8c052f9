"""JSON as the simulated API server returns it: what vanishes, and which field is whose."""

from rollout_lab.schemas.tidy import tidied_fields, tidied_metadata

from rollout_operator.kube.api import JsonObject


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
