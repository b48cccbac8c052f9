"""StatefulSets of rollout groups, as a person would write them."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import GROUP_LABEL, MAX_UNAVAILABLE, ON_DELETE, PARALLEL


class ZoneSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about one StatefulSet; the rest is the same everywhere."""

    name: str
    group: str | None = "ingester"
    replicas: int | None = 3
    """None leaves the field out, which means 1."""
    max_unavailable: str | int | None = None
    image: str = "v1"
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    pod_management: str = PARALLEL
    strategy: str = ON_DELETE
    first_ordinal: int = 0
    min_ready: timedelta = timedelta(0)
    node: str = ""
    """Bound from the start."""
    pod_labels: Mapping[str, str] = {}
    """Of the pods, beside their `name`."""
    node_selector: Mapping[str, str] = {}
    """Labels of the nodes that the pods may run on."""


def statefulset(zone: ZoneSpec, namespace: str = "default") -> JsonObject:
    """Return the StatefulSet of a zone as the API takes it."""
    labels: JsonObject = {"name": zone.name}
    annotations: JsonObject = dict(zone.annotations)
    if zone.max_unavailable is not None:
        annotations[MAX_UNAVAILABLE] = str(zone.max_unavailable)
    group: JsonObject = {} if zone.group is None else {GROUP_LABEL: zone.group}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": zone.name,
            "namespace": namespace,
            "labels": {**labels, **group, **zone.labels},
            "annotations": annotations,
        },
        "spec": _spec(zone, labels),
    }


def _spec(zone: ZoneSpec, labels: JsonObject) -> JsonObject:
    pod: JsonObject = {
        "containers": [{"name": "app", "image": zone.image}],
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }
    if zone.node:
        pod["nodeName"] = zone.node
    if zone.node_selector:
        pod["nodeSelector"] = dict(zone.node_selector)
    spec: JsonObject = {
        "serviceName": zone.name,
        "podManagementPolicy": zone.pod_management,
        "updateStrategy": {"type": zone.strategy},
        "minReadySeconds": int(zone.min_ready.total_seconds()),
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": {**labels, **zone.pod_labels}}, "spec": pod},
    }
    if zone.replicas is not None:
        spec["replicas"] = zone.replicas
    if zone.first_ordinal:
        spec["ordinals"] = {"start": zone.first_ordinal}
    return spec


def three_zones(
    group: str = "ingester",
    *,
    replicas: int = 3,
    max_unavailable: str | int | None = None,
    image: str = "v1",
    pod_management: str = PARALLEL,
) -> tuple[ZoneSpec, ...]:
    """Return the zones a, b and c of a group."""
    return tuple(
        ZoneSpec(
            name=f"{group}-zone-{letter}",
            group=group,
            replicas=replicas,
            max_unavailable=max_unavailable,
            image=image,
            pod_management=pod_management,
        )
        for letter in "abc"
    )
