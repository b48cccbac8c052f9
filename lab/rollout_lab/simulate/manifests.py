"""Manifests that no API server has seen yet, as it would store them once their pods are ready."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from rollout_lab.controllers.members import new_pod, ordinals_of
from rollout_lab.controllers.revisions import new_revision
from rollout_lab.model.fields import child, name_of, namespace_of, number, text, timestamp, uid_of
from rollout_lab.nodes.pod_status import Shape, StatusPlace, next_status
from rollout_lab.schemas.kinds import NODES
from rollout_lab.simulate.deciding import WEBHOOKS
from rollout_operator.cli.dumps import is_of
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject

# Where `kubectl apply` puts what names none.
_DEFAULT: Final = "default"
# So long ago they were applied: no pod is new any more, and none waits for `minReadySeconds`.
_AGE: Final = timedelta(days=1)
_UID: Final = "manifest-"
_IP: Final = "10.255.1.1"
# A pod without UID tells not which set has made it; the others have no namespace.
_UNFILLED: Final = (PODS, NODES, *WEBHOOKS)


def fill_in(objects: Sequence[JsonObject], namespace: str, now: datetime) -> list[JsonObject]:
    """Return objects with the metadata that manifests lack.

    Manifests that name no namespace are in `namespace`; empty: where the other StatefulSets are.
    """
    there = {namespace_of(obj) for obj in objects if is_of(obj, STATEFULSETS)} - {""}
    home = namespace or (there.pop() if len(there) == 1 else _DEFAULT)
    stamp = timestamp(now - _AGE)
    return [_fill_in(obj, home, stamp) if _is_manifest(obj) else obj for obj in objects]


def is_filled_in(obj: JsonObject) -> bool:
    """Return whether an object comes from a manifest."""
    return uid_of(obj).startswith(_UID)


def make_pods(sts: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """Return a StatefulSet that was filled in, with the status of a whole one, and its pods."""
    revision = name_of(new_revision(sts, 1, 0))
    stamp = text(sts, "metadata", "creationTimestamp")
    pods: list[JsonObject] = []
    for ordinal in ordinals_of(sts):
        pod = new_pod(sts, child(sts, "spec", "template"), revision, ordinal)
        made = {"uid": f"{uid_of(sts)}-{ordinal}", "resourceVersion": "1"}
        head = {**child(pod, "metadata"), **made, "creationTimestamp": stamp}
        # A pod without a node would end at once.
        pod["spec"] = {**child(pod, "spec"), "nodeName": f"node-of-{name_of(pod)}"}
        status = next_status(pod, Shape.READY, StatusPlace(ip=_IP, now=stamp))
        pods.append({**pod, "metadata": head, "status": status})
    counts = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
    status = {
        **dict.fromkeys((*counts, "currentReplicas"), len(pods)),
        **dict.fromkeys(("currentRevision", "updateRevision"), revision),
        "observedGeneration": number(sts, "metadata", "generation"),
    }
    return {**sts, "status": status}, pods


def _is_manifest(obj: JsonObject) -> bool:
    """Return whether a person has written it: an API server would have given a UID.

    One with replicas in its status was read from a cluster, and has lost what it had there.
    """
    is_stored = uid_of(obj) or not name_of(obj) or number(obj, "status", "replicas")
    return not is_stored and not any(is_of(obj, resource) for resource in _UNFILLED)


def _fill_in(obj: JsonObject, namespace: str, stamp: str) -> JsonObject:
    place = namespace_of(obj) or namespace
    made: JsonObject = {
        "uid": f"{_UID}{obj.get('kind')}-{place}-{name_of(obj)}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": stamp,
    }
    # `kubectl create --dry-run -o yaml` writes a null.
    given = {key: value for key, value in child(obj, "metadata").items() if value is not None}
    return {**obj, "metadata": {**made, **given, "namespace": place}}
