"""Strategic merge patches: which lists merge, in which order, and what kubectl's directives do."""

import pytest

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.request import ApiRefusal, NotModelled
from rollout_operator.lab.patches.strategic_merge import merge_strategic
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.manifests import part

A: JsonObject = {"name": "a", "image": "a:1", "args": ["x"]}
B: JsonObject = {"name": "b", "image": "b:1"}
C: JsonObject = {"name": "c", "image": "c:1"}


def pod(**spec: object) -> JsonObject:
    return {"kind": "Pod", "metadata": {"finalizers": ["x", "y"]}, "spec": spec}


def merge(obj: JsonObject, patch: JsonObject) -> JsonObject:
    """Return the patched object; fails where an argument was touched."""
    before, given = copy_json(obj), copy_json(patch)
    result = merge_strategic(obj, patch)
    assert (obj, patch) == (before, given)
    return result


def containers(*patch: JsonObject, **more: object) -> object:
    spec: JsonObject = {"containers": [*patch], **more}
    return part(merge(pod(containers=[A, B, C]), {"spec": spec}), "spec")["containers"]


def test_containers_merge_by_name_and_their_lists_by_their_own_rules() -> None:
    assert containers({"name": "b", "image": "b:2"}) == [A, {**B, "image": "b:2"}, C]
    assert containers({"name": "a", "args": ["y"]}) == [{**A, "args": ["y"]}, B, C]


def test_what_is_new_stands_first_as_the_real_server_has_it() -> None:
    new: JsonObject = {"name": "d", "image": "d:1"}
    assert containers(new) == [new, A, B, C]


def test_an_order_that_is_asked_for_is_kept() -> None:
    order = [{"name": "c"}, {"name": "a"}, {"name": "b"}]
    assert containers({"name": "a", "image": "a:2"}, **{"$setElementOrder/containers": order}) == [
        C,
        {**A, "image": "a:2"},
        B,
    ]


def test_an_order_alone_moves_what_is_there() -> None:
    obj = pod(containers=[A, B, C])
    order: JsonObject = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}
    assert part(merge(obj, {"spec": order}), "spec")["containers"] == [B, A, C]


def test_a_patch_must_be_in_the_order_it_asks_for() -> None:
    with pytest.raises(ApiRefusal) as caught:
        containers(B, A, **{"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}]})
    assert caught.value.status == 500
    assert "doesn't match $setElementOrder list" in caught.value.message


def test_an_item_goes_by_a_directive_and_a_list_is_replaced_by_one() -> None:
    assert containers({"name": "b", "$patch": "delete"}) == [A, C]
    assert containers({"$patch": "replace"}, {"name": "d"}) == [{"name": "d"}]


@pytest.mark.parametrize(
    ("key", "merge_key"),
    [
        ("volumes", "name"),
        ("initContainers", "name"),
        ("imagePullSecrets", "name"),
        ("hostAliases", "ip"),
    ],
)
def test_lists_of_a_pod_merge_by_their_keys(key: str, merge_key: str) -> None:
    obj = pod(**{key: [{merge_key: "1", "a": 1}, {merge_key: "2"}]})
    spec = part(merge(obj, {"spec": {key: [{merge_key: "1", "b": 2}]}}), "spec")
    assert spec[key] == [{merge_key: "1", "a": 1, "b": 2}, {merge_key: "2"}]


def test_lists_within_a_container_merge_too() -> None:
    before: JsonObject = {
        "name": "a",
        "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
        "ports": [{"containerPort": 80, "name": "http"}],
        "volumeMounts": [{"mountPath": "/a", "name": "v"}],
    }
    change: JsonObject = {
        "name": "a",
        "env": [{"name": "Y", "value": None}],
        "ports": [{"containerPort": 80, "protocol": "UDP"}],
        "volumeMounts": [{"mountPath": "/a", "readOnly": True}],
    }
    result = merge(pod(containers=[before]), {"spec": {"containers": [change]}})
    assert part(result, "spec")["containers"] == [
        {
            "name": "a",
            "env": [{"name": "X", "value": "1"}, {"name": "Y"}],
            "ports": [{"containerPort": 80, "name": "http", "protocol": "UDP"}],
            "volumeMounts": [{"mountPath": "/a", "name": "v", "readOnly": True}],
        }
    ]


def test_conditions_merge_by_type() -> None:
    obj: JsonObject = {
        "kind": "Pod",
        "status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]},
    }
    change: JsonObject = {"status": {"conditions": [{"type": "A", "status": "False"}]}}
    assert part(merge(obj, change), "status")["conditions"] == [
        {"type": "A", "status": "False"},
        {"type": "B"},
    ]


def test_owners_merge_by_uid_and_finalizers_as_a_set() -> None:
    obj = pod()
    part(obj, "metadata")["ownerReferences"] = [{"uid": "1", "name": "a"}]
    change: JsonObject = {
        "finalizers": ["z", "x"],
        "ownerReferences": [{"uid": "1", "controller": True}],
    }
    metadata = part(merge(obj, {"metadata": change}), "metadata")
    assert metadata["ownerReferences"] == [{"uid": "1", "name": "a", "controller": True}]
    assert metadata["finalizers"] == ["z", "x", "y"]


def test_values_go_from_a_set_by_a_parallel_list() -> None:
    change: JsonObject = {"$deleteFromPrimitiveList/finalizers": ["x", "absent"]}
    assert part(merge(pod(), {"metadata": change}), "metadata")["finalizers"] == ["y"]
    change["$setElementOrder/finalizers"] = ["y"]
    assert part(merge(pod(), {"metadata": change}), "metadata")["finalizers"] == ["y"]


@pytest.mark.parametrize("key", ["tolerations", "readinessGates", "unheardOf"])
def test_lists_without_a_key_are_replaced(key: str) -> None:
    obj = pod(**{key: [{"name": "a"}, {"name": "b"}]})
    assert part(merge(obj, {"spec": {key: [{"name": "c"}]}}), "spec")[key] == [{"name": "c"}]


def test_maps_merge_lose_their_nulls_and_obey_directives() -> None:
    obj = pod(nodeSelector={"a": "1", "b": "2"})
    for change, after in (
        ({"a": None, "c": "3"}, {"b": "2", "c": "3"}),
        ({"$patch": "replace", "d": "4"}, {"d": "4"}),
        ({"$patch": "delete"}, {}),
        ({"$retainKeys": ["b"], "b": "5"}, {"b": "5"}),
    ):
        given: JsonObject = {"spec": {"nodeSelector": change}}
        assert part(merge(obj, given), "spec")["nodeSelector"] == after


def test_what_is_not_there_takes_the_patch_without_nulls_and_directives() -> None:
    change: JsonObject = {"a": {"b": None, "c": 1}, "d": [{"name": "x", "$patch": "delete"}]}
    assert part(merge(pod(), {"spec": {"new": change}}), "spec")["new"] == {"a": {"c": 1}, "d": []}
    assert "gone" not in part(merge(pod(), {"spec": {"gone": {"$patch": "delete"}}}), "spec")


def test_a_service_merges_ports_by_their_number() -> None:
    obj: JsonObject = {"kind": "Service", "spec": {"ports": [{"port": 80, "name": "a"}]}}
    change: JsonObject = {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}
    assert part(merge(obj, change), "spec")["ports"] == [
        {"port": 80, "name": "a", "targetPort": 8080}
    ]


def test_a_budgets_selector_is_replaced() -> None:
    obj: JsonObject = {
        "kind": "PodDisruptionBudget",
        "spec": {"selector": {"matchLabels": {"a": "b"}}},
    }
    change: JsonObject = {"selector": {"matchLabels": {"c": "d"}}}
    assert merge(obj, {"spec": change})["spec"] == change


@pytest.mark.parametrize(
    ("patch", "status"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, 500),
        ({"spec": {"containers": ["x"]}}, 500),
        ({"spec": {"nodeSelector": {"$patch": "swap"}}}, 500),
        ({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}, 500),
        ({"spec": {"nodeSelector": {"$retainKeys": ["b"], "c": "1"}}}, 400),
        ({"spec": {"nodeSelector": {"$retainKeys": "b"}}}, 400),
        ({"spec": {"$setElementOrder/containers": "a"}}, 400),
    ],
)
def test_a_patch_that_makes_no_sense_is_refused(patch: JsonObject, status: int) -> None:
    with pytest.raises(ApiRefusal) as caught:
        merge(pod(containers=[A], nodeSelector={"a": "b"}), patch)
    assert caught.value.status == status


def test_an_order_of_a_list_without_a_key_is_not_modelled() -> None:
    with pytest.raises(NotModelled, match="tolerations"):
        merge(pod(), {"spec": {"$setElementOrder/tolerations": []}})
