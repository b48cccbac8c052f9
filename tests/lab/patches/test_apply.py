"""Merge patches and JSON patches at the simulated API server."""

import re

import pytest

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.request import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiRefusal,
    Body,
    NotModelled,
)
from rollout_operator.lab.patches.apply import apply_patch
from rollout_operator.lab.patches.json_patch import patched
from rollout_operator.lab.schemas.tidy import copy_json

DOC: JsonObject = {
    "kind": "Thing",
    "metadata": {"name": "a", "labels": {"x": "1", "y": "2"}},
    "spec": {"list": [1, 2, 3], "is": True, "a/b": 1, "m~n": 2},
}


def merged(patch: JsonObject) -> JsonObject:
    return changed(MERGE_PATCH, patch)


def changed(kind: str, body: Body) -> JsonObject:
    """Return the patched document; fails where the document was touched or is shared."""
    before = copy_json(DOC)
    result = apply_patch(DOC, kind, body)
    assert before == DOC
    assert result["metadata"] is not DOC["metadata"]
    return result


@pytest.mark.parametrize(
    ("patch", "path", "value"),
    [
        ({"spec": {"new": 1}}, "new", 1),
        ({"spec": {"list": [9]}}, "list", [9]),
        ({"spec": {"list": {"a": None, "b": 1}}}, "list", {"b": 1}),
        ({"spec": {"is": {"a": {"b": None}}}}, "is", {"a": {}}),
        ({"spec": {"list": None}}, "list", None),
        ({"spec": {"absent": None}}, "absent", None),
    ],
    ids=["add", "list is replaced", "list by object", "nulls in new", "remove", "remove absent"],
)
def test_merge_patch(patch: JsonObject, path: str, value: object) -> None:
    spec = merged(patch)["spec"]
    assert isinstance(spec, dict)
    assert spec.get(path) == value
    assert (path in spec) is (value is not None)


def test_a_merge_patch_leaves_the_rest_alone() -> None:
    result = merged({"metadata": {"labels": {"x": None, "z": "3"}}})
    assert result["metadata"] == {"name": "a", "labels": {"y": "2", "z": "3"}}
    assert result["spec"] == DOC["spec"]


def test_a_patch_is_not_shared_with_its_result() -> None:
    value: JsonObject = {"a": {"b": 1}}
    result = merged({"spec": value})
    assert isinstance(result["spec"], dict)
    assert result["spec"]["a"] is not value["a"]


@pytest.mark.parametrize(
    ("step", "path", "value"),
    [
        ({"op": "add", "path": "/spec/new", "value": {"a": 1}}, "new", {"a": 1}),
        ({"op": "add", "path": "/spec/list/1", "value": 9}, "list", [1, 9, 2, 3]),
        ({"op": "add", "path": "/spec/list/-", "value": 9}, "list", [1, 2, 3, 9]),
        ({"op": "add", "path": "/spec/list/-1", "value": 9}, "list", [1, 2, 3, 9]),
        ({"op": "add", "path": "/spec/a~1b", "value": 9}, "a/b", 9),
        ({"op": "add", "path": "/spec/m~0n", "value": 9}, "m~n", 9),
        ({"op": "remove", "path": "/spec/list/0"}, "list", [2, 3]),
        ({"op": "remove", "path": "/spec/is"}, "is", None),
        ({"op": "replace", "path": "/spec/list/-1", "value": 9}, "list", [1, 2, 9]),
        ({"op": "replace", "path": "/spec/absent", "value": 9}, "absent", 9),
        ({"op": "copy", "from": "/spec/list", "path": "/spec/c"}, "c", [1, 2, 3]),
        ({"op": "move", "from": "/spec/list/0", "path": "/spec/list/-"}, "list", [2, 3, 1]),
        ({"op": "test", "path": "/spec/absent", "value": None}, "absent", None),
        ({"op": "test", "path": "/spec/is", "value": True}, "is", True),
    ],
)
def test_json_patch(step: JsonObject, path: str, value: object) -> None:
    spec = changed(JSON_PATCH, [step])["spec"]
    assert isinstance(spec, dict)
    assert spec.get(path) == value


MISFITS: list[tuple[JsonObject, str]] = [
    (
        {"op": "add", "path": "/status/a", "value": 1},
        'add operation does not apply: doc is missing path: "/status/a": missing value',
    ),
    (
        {"op": "add", "path": "/spec/list/9", "value": 1},
        "error in add for path: '/spec/list/9': Unable to access invalid index: 9: invalid index "
        "referenced",
    ),
    (
        {"op": "remove", "path": "/spec/absent"},
        "error in remove for path: '/spec/absent': Unable to remove nonexistent key: absent: "
        "missing value",
    ),
    (
        {"op": "replace", "path": "/status/a", "value": 1},
        "replace operation does not apply: doc is missing path: /status/a: missing value",
    ),
    (
        {"op": "replace", "path": "/spec/list/3", "value": 1},
        "replace operation does not apply: doc is missing key: /spec/list/3: missing value",
    ),
    ({"op": "test", "path": "/spec/is", "value": 1}, "testing value /spec/is failed: test failed"),
    (
        {"op": "test", "path": "/metadata/name", "value": "b"},
        "testing value /metadata/name failed: test failed",
    ),
    (
        {"op": "move", "from": "/spec/absent", "path": "/spec/x"},
        "error in remove for path: '/spec/absent': Unable to remove nonexistent key: absent: "
        "missing value",
    ),
    ({"op": "copy", "path": "/spec/x"}, "copy operation failed to decode from: missing value"),
    ({"op": "add", "value": 1}, "add operation failed to decode path: missing value"),
    ({"op": "swap", "path": "/spec"}, "Unexpected kind: swap"),
]


@pytest.mark.parametrize(("step", "text"), MISFITS, ids=[text[:40] for _, text in MISFITS])
def test_a_step_that_does_not_apply(step: JsonObject, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        patched(DOC, [step])
    with pytest.raises(ApiRefusal) as refused:
        apply_patch(DOC, JSON_PATCH, [step])
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")
    assert refused.value.message == (
        "the server rejected our request due to an error in our request"
    )


def test_steps_build_on_each_other_and_change_nothing_where_one_fails() -> None:
    steps: list[JsonObject] = [
        {"op": "add", "path": "/spec/new", "value": {}},
        {"op": "add", "path": "/spec/new/a", "value": 1},
    ]
    first = copy_json(steps[0])
    assert isinstance(changed(JSON_PATCH, steps)["spec"], dict)
    assert steps[0] == first, "the patch was changed"
    with pytest.raises(ApiRefusal):
        changed(JSON_PATCH, [*steps, {"op": "test", "path": "/spec/new/a", "value": 2}])


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (
            JSON_PATCH,
            {},
            "error decoding patch: json: cannot unmarshal object into Go value of type "
            "[]handlers.jsonPatchOp",
        ),
        (
            MERGE_PATCH,
            [],
            "error decoding patch: json: cannot unmarshal array into Go value of type "
            "map[string]interface {}",
        ),
    ],
    ids=["object for steps", "steps for object"],
)
def test_a_body_of_the_wrong_form_is_a_bad_request(kind: str, body: Body, message: str) -> None:
    with pytest.raises(ApiRefusal) as caught:
        apply_patch(DOC, kind, body)
    assert (caught.value.status, caught.value.message) == (400, message)


@pytest.mark.parametrize("kind", [MERGE_PATCH, STRATEGIC_PATCH])
def test_a_result_that_cannot_be_read_is_invalid(kind: str) -> None:
    with pytest.raises(ApiRefusal) as caught:
        apply_patch(DOC, kind, {"metadata": {"labels": {"x": 1}}})
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")
    assert caught.value.causes[0]["field"] == "patch"


def test_what_is_no_patch_is_refused_and_server_side_apply_is_not_modelled() -> None:
    with pytest.raises(ApiRefusal) as caught:
        apply_patch(DOC, "application/json", {})
    assert caught.value.status == 415
    assert caught.value.message == "415: Unsupported Media Type"
    with pytest.raises(NotModelled, match="apply"):
        apply_patch(DOC, "application/apply-patch+yaml", {})
    with pytest.raises(NotModelled, match="whole document"):
        apply_patch(DOC, JSON_PATCH, [{"op": "replace", "path": "", "value": {}}])


def test_a_content_type_may_have_parameters() -> None:
    assert apply_patch(DOC, f"{STRATEGIC_PATCH}; charset=utf-8", {"a": 1})["a"] == 1


def test_too_many_steps_are_too_large() -> None:
    steps: list[JsonObject] = [{"op": "test", "path": "/spec/is", "value": True}] * 10_001
    with pytest.raises(ApiRefusal, match="is 10000, got 10001"):
        apply_patch(DOC, JSON_PATCH, steps)
