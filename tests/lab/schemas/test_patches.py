"""What patches of the simulated API server leave alone, and which of them it does not know.

What each makes of an object is compared by the contract.
"""

import pytest
from rollout_lab.model.request import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiRefusal,
    Body,
    NotModelled,
)
from rollout_lab.schemas.patches import apply_patch
from rollout_lab.schemas.tidy import copy_json

from rollout_operator.kube.api import JsonObject

DOC: JsonObject = {
    "kind": "Thing",
    "metadata": {"name": "a", "labels": {"x": "1", "y": "2"}, "finalizers": ["x.org/a"]},
    "spec": {
        "list": [1, 2, 3],
        "is": True,
        "containers": [{"name": "a"}, {"name": "b"}],
        "text": "J\u00fcrgen",
        "texts": {"a": ["<b>"]},
    },
}


def changed(kind: str, body: Body) -> JsonObject:
    """Return the patched spec; fails where the document was touched or is shared."""
    before = copy_json(DOC)
    result = apply_patch(DOC, kind, body)
    assert before == DOC
    assert result["metadata"] is not DOC["metadata"]
    spec = result["spec"]
    assert isinstance(spec, dict)
    return spec


def test_steps_pass_items_of_lists_and_distinguish_true_from_one() -> None:
    step: JsonObject = {"op": "replace", "path": "/spec/containers/-1/image", "value": "v2"}
    test: JsonObject = {"op": "test", "path": "/spec/is", "value": True}
    assert changed(JSON_PATCH, [step, test])["containers"] == [
        {"name": "a"},
        {"name": "b", "image": "v2"},
    ]


@pytest.mark.parametrize(
    "step",
    [
        {"op": "add", "path": "/spec/containers/9/image", "value": 1},
        {"op": "add", "path": "/spec/containers/x/image", "value": 1},
        {"op": "add", "path": "/status/a", "value": 1},
        {"op": "remove", "path": "/spec/absent"},
        {"op": "test", "path": "/spec/is", "value": 1},
        {"op": "test", "path": "/spec/text", "value": "J\u00fcrgen"},
        {"op": "test", "path": "/spec/texts", "value": {"a": ["<b>"]}},
    ],
)
def test_a_step_that_does_not_apply_leaves_all_as_it_was(step: JsonObject) -> None:
    with pytest.raises(ApiRefusal, match="422 Invalid: the server rejected our request"):
        changed(JSON_PATCH, [{"op": "add", "path": "/spec/new", "value": {}}, step])


def test_a_patch_is_not_shared_with_its_result() -> None:
    value: JsonObject = {"a": {"b": 1}}
    assert changed(MERGE_PATCH, {"spec": value})["a"] is not value["a"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON_PATCH, {}),
        (MERGE_PATCH, []),
        ("application/apply-patch+yaml", {}),
        (MERGE_PATCH, {"metadata": {"labels": {"x": 1}}}),
        (JSON_PATCH, [{"op": "replace", "path": "", "value": {}}]),
        (JSON_PATCH, [{"op": "add", "path": "/spec/list/-", "value": 4}]),
        (JSON_PATCH, [{"op": "remove", "path": "/spec/list/0"}]),
        (JSON_PATCH, [{"op": "move", "from": "/spec/is", "path": "/spec/was"}]),
        (STRATEGIC_PATCH, {"spec": {"$retainKeys": ["is"]}}),
        (STRATEGIC_PATCH, {"spec": {"new": {"$patch": "replace"}}}),
        (STRATEGIC_PATCH, {"spec": {"list": [4]}}),
        (STRATEGIC_PATCH, {"metadata": {"finalizers": ["x.org/b"]}}),
        (STRATEGIC_PATCH, {"spec": {"containers": [{"image": "v2"}]}}),
        (STRATEGIC_PATCH, {"spec": {"containers": [{"name": "a", "$patch": "replace"}]}}),
        (STRATEGIC_PATCH, {"spec": {"containers": [{"name": "b"}, {"name": "a"}]}}),
        (STRATEGIC_PATCH, {"spec": {"containers": [{"name": "a"}, {"name": "new"}]}}),
    ],
)
def test_what_is_never_sent_is_not_modelled(kind: str, body: Body) -> None:
    with pytest.raises(NotModelled):
        apply_patch(DOC, kind, body)


def test_lists_of_custom_resources_merge_by_no_key() -> None:
    with pytest.raises(NotModelled, match="of a ReplicaTemplate"):
        apply_patch({**DOC, "kind": "ReplicaTemplate"}, STRATEGIC_PATCH, {"spec": {}})
