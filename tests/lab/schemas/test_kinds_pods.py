"""Pods at the simulated API server: what a new one gets, and what may change of it."""

import pytest

from rollout_operator.kube.api import PODS, JsonObject
from rollout_operator.lab.model.request import ApiRefusal, NotModelled
from rollout_operator.lab.schemas.kinds import find_kind
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.manifests import created, entry, part, pod, updated

KIND = find_kind(PODS)
MEMORY = {"memory": "1Gi"}
BOTH = {"cpu": "1", "memory": "1Gi"}


def test_a_new_pod_is_pending_whatever_its_creator_says() -> None:
    stored = created(KIND, pod() | {"status": {"phase": "Running"}})
    assert stored["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = part(stored, "spec")
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["enableServiceLinks"] is True
    assert part(stored, "metadata")["generation"] == 1


def test_a_new_pod_gets_what_the_servers_own_plugins_write() -> None:
    spec = part(created(KIND, pod()), "spec")
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert spec["tolerations"] == [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for state in ("not-ready", "unreachable")
    ]


def test_what_is_tolerated_already_is_not_added() -> None:
    given: JsonObject = {"operator": "Exists"}
    assert part(created(KIND, pod(tolerations=[given])), "spec")["tolerations"] == [given]


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": MEMORY}, "Burstable"),
        ({"limits": MEMORY}, "Burstable"),
        ({"limits": BOTH}, "Guaranteed"),
        ({"limits": BOTH, "requests": MEMORY}, "Guaranteed"),
        ({"limits": BOTH, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
def test_resources_make_a_quality(resources: JsonObject, quality: str) -> None:
    obj = pod()
    entry(obj, "spec", "containers")["resources"] = resources
    assert part(created(KIND, obj), "status")["qosClass"] == quality


def test_a_status_update_changes_neither_spec_nor_owners_nor_quality() -> None:
    old = created(KIND, pod())
    part(old, "metadata")["ownerReferences"] = [{"uid": "x", "kind": "StatefulSet", "name": "a"}]
    new = copy_json(old)
    part(new, "spec")["nodeName"] = "n"
    del part(new, "metadata")["ownerReferences"]
    new["status"] = {"phase": "Running", "podIP": "10.0.0.1", "reason": ""}
    stored = updated(KIND, old, new, "status")
    assert stored["spec"] is old["spec"]
    assert part(stored, "metadata") == part(old, "metadata")
    assert stored["status"] == {"phase": "Running", "podIP": "10.0.0.1", "qosClass": "BestEffort"}
    part(new, "status")["qosClass"] = "Guaranteed"
    with pytest.raises(ApiRefusal, match=r"qosClass: Invalid value: .*: field is immutable"):
        KIND.prepare_update(old, new, "status")


def test_a_status_is_stored_with_the_fields_that_are_never_left_out() -> None:
    old = created(KIND, pod())
    new = copy_json(old)
    new["status"] = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "ready": True}],
    }
    status = part(updated(KIND, old, new, "status"), "status")
    assert status["conditions"] == [
        {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    ]
    assert status["containerStatuses"] == [
        {
            "name": "main",
            "ready": True,
            "state": {},
            "lastState": {},
            "restartCount": 0,
            "image": "",
            "imageID": "",
        }
    ]


def test_an_update_of_the_pod_changes_no_status() -> None:
    old = created(KIND, pod())
    new = copy_json(old) | {"status": {"phase": "Failed"}}
    part(new, "metadata")["annotations"] = {"a": "b"}
    stored = updated(KIND, old, new)
    assert stored["status"] == old["status"]
    assert part(stored, "metadata")["annotations"] == {"a": "b"}
    assert part(stored, "metadata")["generation"] == 1


def test_an_image_may_change_and_raises_the_generation() -> None:
    old = created(KIND, pod())
    new = copy_json(old)
    entry(new, "spec", "containers")["image"] = "app:2"
    stored = updated(KIND, old, new)
    assert entry(stored, "spec", "containers")["image"] == "app:2"
    assert part(stored, "metadata")["generation"] == 2


@pytest.mark.parametrize(
    ("key", "value"), [("nodeName", "n"), ("restartPolicy", "Never"), ("hostNetwork", True)]
)
def test_other_fields_may_not_change(key: str, value: object) -> None:
    old = created(KIND, pod())
    new = copy_json(old)
    part(new, "spec")[key] = value
    with pytest.raises(ApiRefusal) as caught:
        KIND.prepare_update(old, new, "")
    assert caught.value.status == 422
    assert caught.value.message.startswith(
        'Pod "a-0" is invalid: spec: Forbidden: pod updates may not change fields other than '
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        "`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
        "negative)\n"
    )


def test_containers_may_not_come_or_go() -> None:
    old = created(KIND, pod())
    new = copy_json(old)
    part(new, "spec")["containers"] = [
        *([entry(old, "spec", "containers")] * 2),
    ]
    with pytest.raises(ApiRefusal, match="pod updates may not add or remove containers"):
        KIND.prepare_update(old, new, "")


def test_tolerations_may_only_be_added() -> None:
    old = created(KIND, pod())
    new = copy_json(old)
    added: JsonObject = {"key": "x", "operator": "Exists"}
    known = part(old, "spec")["tolerations"]
    assert isinstance(known, list)
    part(new, "spec")["tolerations"] = [*known, added]
    assert entry(updated(KIND, old, new), "spec", "tolerations", index=2) == added
    part(new, "spec")["tolerations"] = [added]
    with pytest.raises(NotModelled, match="takes tolerations away"):
        KIND.prepare_update(old, new, "")


def test_a_pod_without_containers_is_refused() -> None:
    with pytest.raises(ApiRefusal, match=r"spec.containers: Required value"):
        KIND.prepare_create(pod(containers=[]))
