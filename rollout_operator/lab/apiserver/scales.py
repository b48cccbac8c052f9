"""The `scale` subresource (autoscaling/v1) of StatefulSets, Deployments, ReplicaSets and
ReplicaTemplates.
"""

from typing import Final

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.lab.model.fields import child, name_of, number, text, uid_of
from rollout_operator.lab.model.request import ApiRefusal, not_modelled
from rollout_operator.lab.schemas.invalid import Problems
from rollout_operator.lab.schemas.labels import render

SCALES: Final = Resource("autoscaling", "v1", "scales", "Scale")
_PLURALS: Final = {
    "StatefulSet": "statefulsets",
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
}
_CUSTOM: Final = frozenset({"ReplicaTemplate"})
_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def read_scale(obj: JsonObject) -> JsonObject:
    """Return the Scale of an object, as the subresource shows it.

    Raises Refusal (500) where a custom resource has no count.
    """
    if text(obj, "kind") in _CUSTOM and "replicas" not in child(obj, "spec"):
        raise _no_count()
    metadata, replicas = child(obj, "metadata"), number(obj, "spec", "replicas")
    status: JsonObject = {"replicas": number(obj, "status", "replicas")}
    # A custom resource has its selector as text.
    selector = render(child(obj, "spec", "selector")) or text(obj, "spec", "labelSelector")
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in _METADATA if key in metadata},
        # Left out by the real server where it is zero.
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def write_scale(obj: JsonObject, scale: JsonObject) -> JsonObject:
    """Return a new version of an object with what a Scale says: its replicas and version.

    Shares all else with `obj`. A Scale without a resourceVersion leaves it out: the write is
    unconditional. Raises Refusal (409 for another uid, 422 for negative replicas).
    """
    replicas = child(scale, "spec").get("replicas")
    if replicas is None:
        replicas = 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        not_modelled(f"a Scale whose spec.replicas is {replicas!r}")
    # Of a custom resource the object is judged, by its schema.
    if text(obj, "kind") not in _CUSTOM:
        problems = Problems()
        problems.negative("spec.replicas", replicas)
        problems.raise_if_any(SCALES, name_of(obj))
    _check_uid(obj, scale)
    metadata = {**child(obj, "metadata")}
    metadata.pop("resourceVersion", None)
    version = text(scale, "metadata", "resourceVersion")
    if version:
        metadata["resourceVersion"] = version
    return {**obj, "metadata": metadata, "spec": {**child(obj, "spec"), "replicas": replicas}}


def _no_count() -> ApiRefusal:
    why = 'the spec replicas field ".spec.replicas" does not exist'
    causes: list[JsonObject] = [{"message": why}]
    return ApiRefusal(500, "InternalError", f"Internal error occurred: {why}", causes=causes)


def _check_uid(obj: JsonObject, scale: JsonObject) -> None:
    uid = uid_of(scale)
    if uid and uid != uid_of(obj):
        plural = _PLURALS.get(text(obj, "kind"), "")
        if not plural:
            not_modelled(f"a Scale of another {text(obj, 'kind')}")
        raise ApiRefusal(
            409,
            "Conflict",
            f'Operation cannot be fulfilled on {plural}/scale.apps "{name_of(obj)}": '
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {uid_of(obj)}",
        )
