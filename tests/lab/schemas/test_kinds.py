"""Workloads at the simulated API server: defaults, generation, what may not change and why not."""

import pytest

from rollout_operator.kube.api import STATEFULSETS, JsonObject, Resource
from rollout_operator.lab.model.request import ApiRefusal
from rollout_operator.lab.schemas.kinds import KINDS, find_kind
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.manifests import created, entry, part, workload

SETS = find_kind(STATEFULSETS)


def test_a_statefulset_gets_what_the_real_server_writes() -> None:
    spec = part(created(SETS, workload()), "spec")
    template = spec.pop("template")
    assert spec == {
        "replicas": 1,
        "serviceName": "",
        "selector": {"matchLabels": {"app": "a"}},
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }
    assert template == {
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "app:1",
                    "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "resources": {},
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {},
        },
    }


def test_a_status_and_a_generation_are_not_for_its_creator_to_say() -> None:
    obj = workload() | {"status": {"replicas": 7}}
    part(obj, "metadata")["generation"] = 9
    stored = created(SETS, obj)
    assert stored["status"] == {"replicas": 0, "availableReplicas": 0}
    assert part(stored, "metadata")["generation"] == 1


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"type": "OnDelete"}, {"type": "OnDelete"}),
        ({"type": "RollingUpdate"}, {"type": "RollingUpdate"}),
        (
            {"rollingUpdate": {"partition": 2}},
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
        ),
        (
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}},
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        ),
    ],
    ids=["on delete", "no inner part", "partition", "gated field is dropped"],
)
def test_update_strategies_are_filled_in_only_so_far(given: JsonObject, stored: JsonObject) -> None:
    spec = part(created(SETS, workload(updateStrategy=given)), "spec")
    assert spec["updateStrategy"] == stored


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("host:5000/app", "Always"),
        ("app:1", "IfNotPresent"),
        ("host:5000/app:1", "IfNotPresent"),
        ("app@sha256:0", "IfNotPresent"),
        ("app:latest@sha256:0", "Always"),
    ],
)
def test_an_image_decides_whether_it_is_always_pulled(image: str, policy: str) -> None:
    obj = workload()
    entry(obj, "spec", "template", "spec", "containers")["image"] = image
    stored = created(SETS, obj)
    assert entry(stored, "spec", "template", "spec", "containers")["imagePullPolicy"] == policy


def test_probes_ports_volumes_and_claims_are_filled_in() -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    obj = workload(volumeClaimTemplates=[claim])
    inner = part(obj, "spec", "template", "spec")
    inner["volumes"] = [{"name": "tmp"}, {"name": "cert", "secret": {"secretName": "c"}}]
    entry(obj, "spec", "template", "spec", "containers").update(
        ports=[{"containerPort": 80}],
        readinessProbe={"httpGet": {"port": 80}},
        env=[{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    )
    stored = created(SETS, obj)
    container = entry(stored, "spec", "template", "spec", "containers")
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["readinessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert part(entry(container, "env"), "valueFrom", "fieldRef")["apiVersion"] == "v1"
    assert part(stored, "spec", "template", "spec")["volumes"] == [
        {"name": "tmp", "emptyDir": {}},
        {"name": "cert", "secret": {"secretName": "c", "defaultMode": 420}},
    ]
    assert part(stored, "spec")["volumeClaimTemplates"] == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem",
                "resources": {},
            },
            "status": {"phase": "Pending"},
        }
    ]


def test_what_says_nothing_is_not_stored() -> None:
    obj = workload(minReadySeconds=0, volumeClaimTemplates=[], nonsense=1) | {"more": True}
    part(obj, "metadata").update(
        labels={}, annotations=None, finalizers=[], managedFields=[{}], nonsense=1
    )
    stored = created(SETS, obj)
    assert set(part(stored, "metadata")) == {
        *("name", "namespace", "generation", "uid", "resourceVersion", "creationTimestamp")
    }
    assert {"minReadySeconds", "volumeClaimTemplates", "nonsense"}.isdisjoint(part(stored, "spec"))
    assert set(stored) == {"apiVersion", "kind", "metadata", "spec", "status"}


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (
            workload(replicas=-1),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            workload(minReadySeconds=-2),
            "spec.minReadySeconds: Invalid value: -2: must be greater than or equal to 0",
        ),
        (
            workload(ordinals={"start": -1}),
            "spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            workload(selector=None),
            "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: "
            '{"app":"a"}: `selector` does not match template `labels`]',
        ),
        (
            workload(selector={"matchLabels": {"app": "b"}}),
            'spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match '
            "template `labels`",
        ),
        (
            workload(podManagementPolicy="All"),
            'spec.podManagementPolicy: Invalid value: "All": must be '
            "'OrderedReady' or 'Parallel'",
        ),
        (
            workload(persistentVolumeClaimRetentionPolicy={"whenScaled": "Keep"}),
            'spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Keep": '
            'supported values: "Retain", "Delete"',
        ),
        (
            workload(replicas=-1, minReadySeconds=-1),
            "[spec.replicas: Invalid value: -1: must be greater than or equal to 0, "
            "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0]",
        ),
    ],
    ids=[
        *("replicas", "min ready", "ordinals", "no selector", "selector", "policy", "retention"),
        "two findings",
    ],
)
def test_a_statefulset_that_makes_no_sense_is_refused(obj: JsonObject, message: str) -> None:
    with pytest.raises(ApiRefusal) as caught:
        SETS.prepare_create(copy_json(obj))
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")
    assert caught.value.message == f'StatefulSet.apps "a" is invalid: {message}'


def test_a_refusal_names_its_causes() -> None:
    with pytest.raises(ApiRefusal) as caught:
        SETS.prepare_create(workload(replicas=-1))
    assert caught.value.causes == (
        {
            "reason": "FieldValueInvalid",
            "message": "Invalid value: -1: must be greater than or equal to 0",
            "field": "spec.replicas",
        },
    )


def test_a_name_must_be_a_dns_label() -> None:
    obj = workload()
    part(obj, "metadata")["name"] = "a.b"
    with pytest.raises(
        ApiRefusal, match=r'metadata\.name: Invalid value: "a\.b": a lowercase RFC 1123'
    ):
        SETS.prepare_create(obj)


def test_labels_must_be_labels() -> None:
    obj = workload()
    part(obj, "metadata")["labels"] = {"a b": "c d"}
    with pytest.raises(ApiRefusal) as caught:
        SETS.prepare_create(obj)
    assert 'metadata.labels: Invalid value: "a b": name part must consist' in caught.value.message
    assert 'metadata.labels: Invalid value: "c d": a valid label must be' in caught.value.message


def test_a_number_that_is_none_cannot_be_read() -> None:
    with pytest.raises(ApiRefusal, match="cannot unmarshal bool"):
        SETS.prepare_create(workload(replicas=True))
    with pytest.raises(ApiRefusal) as caught:
        SETS.prepare_create(workload(replicas="3"))
    assert (caught.value.status, caught.value.message) == (
        400,
        'StatefulSet in version "apps/v1" cannot be handled as a StatefulSet: json: cannot '
        "unmarshal string into Go struct field .spec.replicas of type int32",
    )


@pytest.mark.parametrize(
    "resource",
    [
        Resource("apps", "v1", "daemonsets", "DaemonSet"),
        Resource("apps", "v1beta1", "statefulsets", "StatefulSet"),
    ],
    ids=["kind", "version"],
)
def test_what_nobody_knows_is_not_found(resource: Resource) -> None:
    with pytest.raises(ApiRefusal) as caught:
        find_kind(resource)
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
    assert caught.value.message == "the server could not find the requested resource"


def test_kinds_stand_under_their_own_names() -> None:
    for (group, plural), kind in KINDS.items():
        assert (kind.resource.group, kind.resource.plural) == (group, plural)
        assert find_kind(kind.resource) is kind
