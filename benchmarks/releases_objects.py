"""Release rollouts at rest, as an API server sends them: each with its status, and all it needs.

Each Rollout has an image policy and an image repository, a gate, and an OCIRepository that has the
tag already. What the registry says of the release is on record.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from benchmarks.objects import NAMESPACE, OBJECT_VERSION
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import Resource

Json = dict[str, Any]

TAG: Final = "1.0.0"
DIGEST: Final = "sha256:" + "0" * 64
# In minutes after that, an ended bake has no more to wait for.
_TIME: Final = "2026-01-01T12:00:00Z"
# Nothing listens there: a look-up fails at once, and is counted.
_IMAGE: Final = "127.0.0.1:1/app"
# In the order of a status, as the operator writes it for a release without bake.
_CONDITIONS: Final = (
    (
        "Ready",
        "True",
        "RolloutSucceeded",
        f"version {TAG} Succeeded; Automatic deployment; no bake is configured",
    ),
    ("ReleasesUpdated", "True", "ReleasesUpdated", "what the image policy selects is on record"),
    ("GatesPassing", "True", "NoReleaseCandidates", "no release is newer than the current one"),
    ("DeploymentBlocked", "False", "HealthChecksHealthy", "no HealthCheck is unhealthy"),
    ("BakeFailureDisabled", "False", "Normal", "failures count"),
    ("Reconciling", "False", "Idle", ""),
    ("Stalled", "False", "Idle", ""),
)


def encode_releases(count: int) -> Mapping[str, Sequence[bytes]]:
    """Return the objects of so many Rollouts, by plural."""
    makers = {
        kinds.ROLLOUTS: _make_rollout,
        kinds.ROLLOUT_GATES: _make_gate,
        kinds.IMAGE_POLICIES[0]: _make_policy,
        kinds.IMAGE_REPOSITORIES[0]: _make_repository,
        kinds.OCI_REPOSITORIES[0]: _make_source,
    }
    return {
        resource.plural: [
            _encode(resource, number, make(name_release(number))) for number in range(count)
        ]
        for resource, make in makers.items()
    }


def name_release(number: int) -> str:
    """Return the name of all objects of one Rollout."""
    return f"app-{number}"


def list_roots() -> list[str]:
    """Return the paths below which the kinds of releases are, in the versions that are served."""
    served = (
        kinds.ROLLOUTS,
        kinds.IMAGE_POLICIES[0],
        kinds.OCI_REPOSITORIES[0],
        kinds.KUSTOMIZATIONS[0],
    )
    return [f"/apis/{one.group}/{one.version}" for one in served]


def _encode(resource: Resource, number: int, body: Json) -> bytes:
    metadata = {
        "name": name_release(number),
        "namespace": NAMESPACE,
        "uid": f"{resource.plural}-{number}",
        "resourceVersion": f"{OBJECT_VERSION + number}",
        "creationTimestamp": _TIME,
        "generation": 1,
        **body.pop("metadata", {}),
    }
    head = {"apiVersion": f"{resource.group}/{resource.version}", "kind": resource.kind}
    return msgspec.json.encode({**head, "metadata": metadata, **body})


def _make_rollout(name: str) -> Json:
    version = {"tag": TAG, "digest": DIGEST, "revision": TAG, "created": _TIME}
    entry = {
        "version": version,
        "timestamp": _TIME,
        "id": 1,
        "message": "Automatic deployment",
        "triggeredBy": {"kind": "System", "name": "rollout-controller"},
        "bakeStatus": "Succeeded",
        "bakeStatusMessage": "no bake is configured",
    }
    status = {
        "observedGeneration": 1,
        "conditions": [_make_condition(*one) for one in _CONDITIONS],
        "history": [entry],
        "availableReleases": [version],
        "availableReleasesCount": 1,
        "gates": [{"name": name, "passing": True, "message": "the gate is passing"}],
    }
    annotations = {"rollout.kuberik.com/wait-for-flux": "false"}
    spec = {"releasesImagePolicy": {"name": name}}
    return {"metadata": {"annotations": annotations}, "spec": spec, "status": status}


def _make_condition(kind: str, status: str, reason: str, message: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": _TIME,
        "observedGeneration": 1,
    }


def _make_gate(name: str) -> Json:
    return {"spec": {"rolloutRef": {"name": name}, "passing": True}}


def _make_policy(name: str) -> Json:
    latest = {"name": _IMAGE, "tag": TAG, "digest": DIGEST}
    spec = {"imageRepositoryRef": {"name": name}, "policy": {"semver": {"range": "*"}}}
    return {"spec": spec, "status": {"latestRef": latest}}


def _make_repository(name: str) -> Json:
    return {"spec": {"image": _IMAGE, "insecure": True, "interval": "1m"}}


def _make_source(name: str) -> Json:
    owned = {
        "manager": f"rollout-controller/{name}",
        "operation": "Apply",
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "time": _TIME,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:ref": {"f:tag": {}}}},
    }
    annotations = {"rollout.kuberik.com/rollout": name}
    return {
        "metadata": {"annotations": annotations, "managedFields": [owned]},
        "spec": {"interval": "1m", "url": f"oci://{_IMAGE}", "ref": {"tag": TAG}},
    }
