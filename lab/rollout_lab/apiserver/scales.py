"""The `scale` subresource (autoscaling/v1) of StatefulSets and ReplicaTemplates."""

from typing import Final

from rollout_lab.model.fields import child, name_of, number, text, uid_of
from rollout_lab.model.request import ApiRefusal
from rollout_lab.schemas.labels import render
from rollout_lab.schemas.refusals import check_not_negative, expect
from rollout_operator.kube.api import JsonObject

_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def read_scale(obj: JsonObject) -> JsonObject:
    """Return the Scale of an object, as the subresource shows it.

    Raises Refusal (500) where a custom resource has no count.
    """
    if "replicas" not in child(obj, "spec"):
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
    unconditional. Raises NotModelled for what no server would take.
    """
    replicas = child(scale, "spec").get("replicas")
    if replicas is None:
        replicas = 0
    expect(type(replicas) is int, "spec.replicas of a Scale", replicas)
    check_not_negative("Scale.autoscaling", name_of(obj), "spec.replicas", replicas)
    expect(uid_of(scale) in ("", uid_of(obj)), "a Scale of another object", uid_of(scale))
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
