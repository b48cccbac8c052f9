"""Updates of workloads at the simulated API server: generation, status, what may not change."""

import pytest

from rollout_operator.kube.api import DEPLOYMENTS, REPLICASETS, STATEFULSETS, JsonObject, Resource
from rollout_operator.lab.model.request import ApiRefusal
from rollout_operator.lab.schemas.kinds import CONTROLLER_REVISIONS, find_kind
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.manifests import created, part, updated, workload

SETS = find_kind(STATEFULSETS)
FROZEN = (
    'StatefulSet.apps "a" is invalid: spec: Forbidden: updates to statefulset spec for fields '
    "other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
    "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("replicas",), 5),
        (("minReadySeconds",), 5),
        (("ordinals",), {"start": 1}),
        (("updateStrategy",), {"type": "OnDelete"}),
        (("revisionHistoryLimit",), 2),
        (("template", "metadata"), {"labels": {"app": "a", "b": "c"}}),
    ],
)
def test_a_change_of_the_spec_raises_the_generation(path: tuple[str, ...], value: object) -> None:
    old = created(SETS, workload())
    new = copy_json(old)
    part(new, "spec", *path[:-1])[path[-1]] = value
    stored = updated(SETS, old, new)
    assert part(stored, "metadata")["generation"] == 2
    assert part(stored, "spec", *path[:-1])[path[-1]] == value


@pytest.mark.parametrize("key", ["selector", "serviceName", "podManagementPolicy"])
def test_what_may_not_change_is_refused_in_the_words_of_the_real_server(key: str) -> None:
    other = {
        "selector": {"matchLabels": {"app": "a", "b": "c"}},
        "serviceName": "other",
        "podManagementPolicy": "Parallel",
    }
    old = created(SETS, workload(template=workload_template({"app": "a", "b": "c"})))
    new = copy_json(old)
    part(new, "spec")[key] = other[key]
    with pytest.raises(ApiRefusal) as caught:
        SETS.prepare_update(old, new, "")
    assert (caught.value.status, caught.value.message) == (422, FROZEN)


def workload_template(labels: JsonObject) -> JsonObject:
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    }


def test_metadata_and_no_change_leave_the_generation_alone() -> None:
    old = created(SETS, workload())
    new = copy_json(old)
    part(new, "metadata")["annotations"] = {"a": "b"}
    part(new, "metadata")["generation"] = 77
    assert part(updated(SETS, old, new), "metadata")["generation"] == 1
    assert updated(SETS, old, copy_json(old)) == old


def test_an_update_without_defaults_is_no_change() -> None:
    old = created(SETS, workload())
    stored = updated(SETS, old, workload() | {"metadata": {"name": "a", "namespace": "default"}})
    assert stored["spec"] is old["spec"]
    assert part(stored, "metadata")["uid"] == "u-1"
    assert part(stored, "metadata")["creationTimestamp"] == "2026-01-02T03:04:05Z"


def test_an_update_cannot_say_a_status_and_a_status_update_no_spec() -> None:
    old = created(SETS, workload(replicas=3))
    new = copy_json(old)
    new["status"] = {"replicas": 3, "readyReplicas": 0, "currentRevision": "a-1"}
    part(new, "spec")["replicas"] = 9
    assert updated(SETS, old, new)["status"] == {"replicas": 0, "availableReplicas": 0}
    stored = updated(SETS, old, new, "status")
    assert stored["spec"] == old["spec"]
    assert stored["status"] == {"replicas": 3, "availableReplicas": 0, "currentRevision": "a-1"}
    assert part(stored, "metadata")["generation"] == 1


def test_a_status_update_takes_labels_along() -> None:
    old = created(SETS, workload())
    new = copy_json(old)
    part(new, "metadata")["labels"] = {"a": "b"}
    assert part(updated(SETS, old, new, "status"), "metadata")["labels"] == {"a": "b"}


def test_a_status_must_add_up() -> None:
    old = created(SETS, workload())
    new = copy_json(old) | {"status": {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3}}
    with pytest.raises(ApiRefusal) as caught:
        SETS.prepare_update(old, new, "status")
    for line in (
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 3: cannot be greater than status.readyReplicas",
    ):
        assert line in caught.value.message


@pytest.mark.parametrize("key", ["name", "namespace", "uid"])
def test_who_an_object_is_cannot_change(key: str) -> None:
    old = created(SETS, workload())
    new = copy_json(old)
    part(new, "metadata")[key] = "other"
    with pytest.raises(ApiRefusal) as caught:
        SETS.prepare_update(old, new, "")
    assert f'metadata.{key}: Invalid value: "other": field is immutable' in caught.value.message


def test_an_object_that_goes_takes_no_new_finalizer_and_stays_going() -> None:
    old = created(SETS, workload())
    part(old, "metadata").update(
        deletionTimestamp="2026-01-02T03:05:05Z", finalizers=["x.io/a", "x.io/b"]
    )
    new = copy_json(old)
    del part(new, "metadata")["deletionTimestamp"]
    part(new, "metadata")["finalizers"] = ["x.io/a"]
    assert part(updated(SETS, old, new), "metadata")["deletionTimestamp"] == "2026-01-02T03:05:05Z"
    part(new, "metadata")["finalizers"] = ["x.io/c"]
    with pytest.raises(
        ApiRefusal, match="no new finalizers can be added if the object is being del"
    ):
        SETS.prepare_update(old, new, "")


def test_deployments_count_annotations_and_keep_labels_of_a_status_update() -> None:
    kind = find_kind(DEPLOYMENTS)
    old = created(kind, workload("Deployment"))
    assert part(old, "spec")["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert part(old, "spec")["progressDeadlineSeconds"] == 600
    new = copy_json(old)
    part(new, "metadata").update(annotations={"a": "b"}, labels={"c": "d"})
    assert part(updated(kind, old, new), "metadata")["generation"] == 2
    assert "labels" not in part(updated(kind, old, new, "status"), "metadata")
    part(new, "spec")["replicas"] = 4
    assert part(updated(kind, old, new), "metadata")["generation"] == 2


@pytest.mark.parametrize("resource", [DEPLOYMENTS, REPLICASETS], ids=lambda one: one.kind)
def test_the_selector_of_other_workloads_is_immutable(resource: Resource) -> None:
    kind = find_kind(resource)
    old = created(kind, workload(resource.kind))
    assert part(old, "spec")["replicas"] == 1
    new = copy_json(old)
    part(new, "spec")["selector"] = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    with pytest.raises(ApiRefusal, match="field is immutable"):
        kind.prepare_update(old, new, "")


def test_a_controller_revision_keeps_its_data_as_it_is() -> None:
    kind = find_kind(CONTROLLER_REVISIONS)
    data: JsonObject = {"spec": {"template": {"labels": {}, "nothing": None, "$patch": "replace"}}}
    obj: JsonObject = {"metadata": {"name": "a-1", "namespace": "default"}, "data": data}
    old = created(kind, obj)
    assert (old["data"], old["revision"]) == (data, 0)
    assert "generation" not in part(old, "metadata")
    assert updated(kind, old, old | {"revision": 2})["revision"] == 2
    with pytest.raises(ApiRefusal, match=r"data: Invalid value: .*: field is immutable"):
        kind.prepare_update(old, copy_json(old) | {"data": {}}, "")
    with pytest.raises(ApiRefusal, match="data: Required value: data is mandatory"):
        kind.prepare_create({"metadata": {"name": "a-2", "namespace": "default"}})
