"""Pods and StatefulSets as an API server sends them, with all that nobody here reads.

A pod is about 10 kB, as pods of databases are: long argument lists, several volumes, and the
managed fields of two writers. All are ready and up to date: nothing is to be done with them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

Json = dict[str, Any]

NAMESPACE: Final = "bench"
ZONES: Final = "abc"
# Pods of a zone in small groups, of which a large namespace has many.
ZONE_PODS: Final = 10
# Objects are older than the list that holds them, events are younger. All have ten digits.
OBJECT_VERSION: Final = 1_000_000_000
LIST_VERSION: Final = 2_000_000_000

BUDGETS: Final = "zoneawarepoddisruptionbudgets"
BUDGETS_VERSION: Final = "rollout-operator.grafana.com/v1"

REVISION: Final = "7d9c6b5f44"
_FLAGS: Final = 28
_TIME: Final = "2026-01-01T12:00:00Z"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Which set and which of its pods."""

    group: int
    zone: str
    ordinal: int = 0

    @property
    def set_name(self) -> str:
        """Return the name of the StatefulSet."""
        return f"store-{self.group}-zone-{self.zone}"

    @property
    def set_uid(self) -> str:
        """Return its UID, of the length that they have."""
        return f"5e7f0000-0000-4000-8000-{self.group:011d}{self.zone}"

    @property
    def pod_name(self) -> str:
        """Return the name of the pod."""
        return f"{self.set_name}-{self.ordinal}"

    @property
    def pod_uid(self) -> str:
        """Return its UID."""
        return f"b0d00000-{self.ordinal:04d}-4000-8000-{self.group:011d}{self.zone}"


def list_places(pods: int, zone_pods: int = ZONE_PODS) -> list[list[Place]]:
    """Return the places of so many pods, by set: groups of three zones of nearly equal size."""
    groups = max(round(pods / (zone_pods * len(ZONES))), 1)
    sets = [(group, zone) for group in range(groups) for zone in ZONES]
    size, rest = divmod(pods, len(sets))
    return [
        [Place(group=group, zone=zone, ordinal=each) for each in range(size + (index < rest))]
        for index, (group, zone) in enumerate(sets)
    ]


def encode_pod(
    place: Place, version: int = OBJECT_VERSION, *, is_ready: bool = True, ip: str = ""
) -> bytes:
    """Return a pod as an item of a list or the object of an event."""
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": _pod_metadata(place, version),
        "spec": _pod_spec(place),
        "status": _pod_status(place, is_ready=is_ready) | ({"podIP": ip} if ip else {}),
    }
    return msgspec.json.encode(pod)


def encode_set(
    place: Place,
    replicas: int,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> bytes:
    """Return the StatefulSet of a place: rolled out and whole."""
    return msgspec.json.encode(make_set(place, replicas, labels or {}, annotations or {}))


def make_set(
    place: Place, replicas: int, more_labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Json:
    """Return the same as a tree."""
    name, revision = place.set_name, f"{place.set_name}-{REVISION}"
    labels = {"name": name, "rollout-group": f"store-{place.group}"}
    return {
        "kind": "StatefulSet",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": place.set_uid,
            "resourceVersion": f"{OBJECT_VERSION}",
            "generation": 3,
            "creationTimestamp": _TIME,
            "labels": labels | dict(more_labels),
            "annotations": {"rollout-max-unavailable": "3", **annotations},
            "managedFields": _managed_fields("kube-controller-manager"),
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"name": name}},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(place)},
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 10,
        },
        "status": {
            "observedGeneration": 3,
            "replicas": replicas,
            "readyReplicas": replicas,
            "currentReplicas": replicas,
            "updatedReplicas": replicas,
            "availableReplicas": replicas,
            "currentRevision": revision,
            "updateRevision": revision,
            "collisionCount": 0,
        },
    }


def encode_budget(group: int) -> bytes:
    """Return the disruption budget of a group: one pod of one zone at a time."""
    budget = {
        "kind": "ZoneAwarePodDisruptionBudget",
        "apiVersion": BUDGETS_VERSION,
        "metadata": {
            "name": f"store-{group}",
            "namespace": NAMESPACE,
            "uid": f"b1d90000-0000-4000-8000-{group:012d}",
            "resourceVersion": f"{OBJECT_VERSION}",
            "generation": 1,
            "creationTimestamp": _TIME,
        },
        "spec": {
            "selector": {"matchLabels": {"rollout-group": f"store-{group}"}},
            "maxUnavailable": 1,
        },
    }
    return msgspec.json.encode(budget)


def _pod_metadata(place: Place, version: int) -> Json:
    return {
        "name": place.pod_name,
        "generateName": f"{place.set_name}-",
        "namespace": NAMESPACE,
        "uid": place.pod_uid,
        "resourceVersion": f"{version}",
        "creationTimestamp": _TIME,
        "labels": {
            "app.kubernetes.io/component": "store",
            "app.kubernetes.io/part-of": "metrics",
            "apps.kubernetes.io/pod-index": f"{place.ordinal}",
            "controller-revision-hash": f"{place.set_name}-{REVISION}",
            "name": place.set_name,
            "rollout-group": f"store-{place.group}",
            "statefulset.kubernetes.io/pod-name": place.pod_name,
        },
        "annotations": {
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            "checksum/config": "9b74c9897bac770ffc029102a200c5de" * 2,
        },
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": place.set_name,
                "uid": place.set_uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "managedFields": _managed_fields("kube-controller-manager") + _managed_fields("kubelet"),
    }


def _managed_fields(manager: str) -> list[Json]:
    names = ("f:args", "f:env", "f:image", "f:livenessProbe", "f:name", "f:ports", "f:resources")
    container: Json = {"f:" + name: {".": {}} | {key: {} for key in names} for name in "abc"}
    return [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": _TIME,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:annotations": {".": {}}, "f:labels": {".": {}, "f:name": {}}},
                "f:spec": {"f:containers": container, "f:volumes": container, "f:affinity": {}},
            },
            "subresource": "status",
        }
    ]


def _pod_spec(place: Place) -> Json:
    flags = [f"-store.ring.option-number-{number}=value-{number:06d}" for number in range(_FLAGS)]
    probe = {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10}
    return {
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{place.pod_name}"}},
            {"name": "config", "configMap": {"name": "store", "defaultMode": 420}},
            {"name": "overrides", "configMap": {"name": "overrides", "defaultMode": 420}},
        ],
        "containers": [_container("store", flags, probe), _container("proxy", flags[:10], probe)],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 1200,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "store",
        "nodeName": f"node-{place.zone}-{place.ordinal}",
        "hostname": place.pod_name,
        "subdomain": place.set_name,
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
    }


def _container(name: str, flags: list[str], probe: Json) -> Json:
    return {
        "name": name,
        "image": f"registry.example/{name}:1.2.3",
        "args": flags,
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": f"OPTION_{number}", "value": f"{number:032d}"} for number in range(len(flags))
        ],
        "resources": {
            "limits": {"memory": "32Gi"},
            "requests": {"cpu": "4", "memory": "16Gi"},
        },
        "volumeMounts": [
            {"name": each, "mountPath": f"/var/{each}"} for each in ("data", "config", "overrides")
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "imagePullPolicy": "IfNotPresent",
    }


def _pod_status(place: Place, *, is_ready: bool) -> Json:
    flags = {
        "PodReadyToStartContainers": True,
        "Initialized": True,
        "Ready": is_ready,
        "ContainersReady": is_ready,
        "PodScheduled": True,
    }
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": f"{flag}", "lastProbeTime": None, "lastTransitionTime": _TIME}
            for kind, flag in flags.items()
        ],
        "hostIP": "10.0.0.1",
        "podIP": f"10.1.{place.group % 256}.{place.ordinal % 256}",
        "startTime": _TIME,
        "containerStatuses": [
            {
                "name": name,
                "state": {"running": {"startedAt": _TIME}},
                "lastState": {},
                "ready": is_ready,
                "restartCount": 0,
                "image": f"registry.example/{name}:1.2.3",
                "imageID": f"registry.example/{name}@sha256:{'0' * 64}",
                "containerID": f"containerd://{'1' * 64}",
                "started": True,
            }
            for name in ("store", "proxy")
        ],
        "qosClass": "Burstable",
    }
