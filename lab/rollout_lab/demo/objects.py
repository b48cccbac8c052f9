"""The objects of a story, and the changes that people make to them.

Pure: what a person would write into a file or type, as the API server takes it.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_lab.admission.registrations import REGISTRATIONS
from rollout_lab.demo.flags import DemoSettings
from rollout_lab.model.request import MERGE_PATCH, STRATEGIC_PATCH, ApiRequest
from rollout_lab.nodes.nodes import node
from rollout_lab.schemas.kinds import NODES, REPLICA_TEMPLATES
from rollout_lab.zones import ZoneSpec, statefulset
from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    GROUP_LABEL,
    LEADING_ZONE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    NO_DOWNSCALE,
    PAUSED,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from rollout_operator.model.units import format_duration

NODES_OF_A_ZONE: Final = 2
GROUP: Final = "ingester"
NAMESPACE: Final = "demo"
# Who the people of the stories are, for the API server and for the reader.
PERSON: Final = "you"
OPERATOR: Final = "operator-1"
REPLICAS: Final = (OPERATOR, "operator-2")
FIRST: Final = "v1"

# By these a budget knows pods and StatefulSets.
SELECTED: Final[dict[str, str]] = {GROUP_LABEL: GROUP}

GUARDED: Final[dict[str, str]] = {NO_DOWNSCALE: "true"}
PREPARED: Final[dict[str, str]] = {
    PREPARE_DOWNSCALE: "true",
    MIN_TIME_BETWEEN_DOWNSCALES: "12h",
}
# In a cluster these are hours.
APART: Final = timedelta(seconds=5)
FOLLOWING: Final[dict[str, str]] = {
    PREPARE_DOWNSCALE: "true",
    MIN_TIME_BETWEEN_DOWNSCALES: format_duration(APART),
}
# Of all zones: no label of theirs, but what they have the replicas of.
MIRRORED: Final[dict[str, str]] = {}
PAUSE_OF_POLICY: Final = timedelta(seconds=2)
DELAY: Final = timedelta(seconds=8)
_MIRROR: Final[dict[str, str]] = {
    MIRROR_NAME: GROUP,
    MIRROR_KIND: REPLICA_TEMPLATES.kind,
    MIRROR_API_VERSION: f"{REPLICA_TEMPLATES.group}/{REPLICA_TEMPLATES.version}",
    DOWNSCALE_DELAY: format_duration(DELAY),
    DOWNSCALE_DELAY_URL: "http://pod:8080/prepare-delayed-downscale",
}
_ZONE_LABEL: Final = "topology.kubernetes.io/zone"
_PREPARE_AT: Final[dict[str, str]] = {PREPARE_PATH: "prepare-shutdown", PREPARE_PORT: "8080"}


def create_zone(
    settings: DemoSettings,
    name: str,
    labels: Mapping[str, str],
    leading: str = "",
) -> ApiRequest:
    """Return the request that creates the StatefulSet of one zone; it may follow another.

    Its pods run on the zone's own nodes, and budgets know them.
    """
    annotations = dict(_PREPARE_AT if PREPARE_DOWNSCALE in labels else {})
    if labels is MIRRORED:
        annotations |= _MIRROR
    if leading:
        annotations[LEADING_ZONE] = leading
    zone = ZoneSpec(
        name=name,
        group=GROUP,
        replicas=settings.pods,
        max_unavailable=settings.limit,
        image=FIRST,
        labels=labels,
        annotations=annotations,
        pod_labels=SELECTED,
        node_selector=select_nodes(name),
    )
    return _create(STATEFULSETS, NAMESPACE, statefulset(zone, NAMESPACE))


def create_template(replicas: int) -> ApiRequest:
    """Return the request that creates the object whose replicas all zones have."""
    template: JsonObject = {
        "apiVersion": _MIRROR[MIRROR_API_VERSION],
        "kind": REPLICA_TEMPLATES.kind,
        "metadata": {"name": GROUP},
        "spec": {"replicas": replicas, "labelSelector": f"{GROUP_LABEL}={GROUP}"},
    }
    return _create(REPLICA_TEMPLATES, NAMESPACE, template)


def scale_template(replicas: int) -> ApiRequest:
    """Return the request that scales this object."""
    return replace(scale(GROUP, replicas), resource=REPLICA_TEMPLATES)


def create_policy(settings: DemoSettings) -> ApiRequest:
    """Return the request that creates the policy over the group: its last zone goes first."""
    policy: JsonObject = {
        "apiVersion": f"{MULTI_AZ_ROLLOUTS.group}/{MULTI_AZ_ROLLOUTS.version}",
        "kind": MULTI_AZ_ROLLOUTS.kind,
        "metadata": {"name": GROUP},
        "spec": {
            "statefulSetSelector": {"matchLabels": SELECTED},
            "rollingUpdate": {
                "maxUnavailable": settings.limit,
                "intervalSeconds": round(PAUSE_OF_POLICY.total_seconds()),
            },
            "azOrder": [*reversed(settings.names)],
        },
    }
    return _create(MULTI_AZ_ROLLOUTS, NAMESPACE, policy)


def select_nodes(zone: str) -> dict[str, str]:
    """Return the labels of the nodes of a zone."""
    return {_ZONE_LABEL: zone}


def create_webhook(hook: str) -> ApiRequest:
    """Return the request by which the API server calls one of the operator's webhooks."""
    obj = REGISTRATIONS[hook](NAMESPACE)
    is_mutating = obj["kind"] == MUTATING_WEBHOOKS.kind
    return _create(MUTATING_WEBHOOKS if is_mutating else VALIDATING_WEBHOOKS, "", obj)


def change_version(name: str, version: str) -> ApiRequest:
    """Return the request that gives a zone a new template."""
    containers = [{"name": "app", "image": version}]
    return _patch(
        name, {"spec": {"template": {"spec": {"containers": containers}}}}, STRATEGIC_PATCH
    )


def pause(name: str, *, is_paused: bool) -> ApiRequest:
    """Return the request that pauses a zone, or releases it."""
    return _patch(name, {"metadata": {"annotations": {PAUSED: "true" if is_paused else None}}})


def allow_downscale(name: str) -> ApiRequest:
    """Return the request that takes the label away which forbids it."""
    return _patch(name, {"metadata": {"labels": {NO_DOWNSCALE: None}}})


def scale(name: str, replicas: int) -> ApiRequest:
    """Return the request of `kubectl scale`."""
    return replace(_patch(name, {"spec": {"replicas": replicas}}), subresource="scale")


def name_node(zone: str, number: int) -> str:
    """Return the name of a node of a zone, counted from 1."""
    return f"node-{zone.removeprefix('zone-')}{number}"


def set_up_nodes(zones: Sequence[str], limit: int) -> list[ApiRequest]:
    """Return the requests that make nodes, the budget, and the webhook that evictions pass."""
    nodes = [
        node(name_node(zone, number), select_nodes(zone))
        for zone in zones
        for number in range(1, NODES_OF_A_ZONE + 1)
    ]
    budget: JsonObject = {
        "apiVersion": f"{ZONE_BUDGETS.group}/{ZONE_BUDGETS.version}",
        "kind": ZONE_BUDGETS.kind,
        "metadata": {"name": GROUP},
        "spec": {"selector": {"matchLabels": SELECTED}, "maxUnavailable": limit},
    }
    # Of a single zone a budget has nothing to tell apart.
    budgets = [budget] if len(zones) > 1 else []
    return [
        *(_create(NODES, "", node) for node in nodes),
        *(_create(ZONE_BUDGETS, NAMESPACE, budget) for budget in budgets),
        create_webhook("pod-eviction"),
    ]


def cordon(name: str, *, is_cordoned: bool = True) -> ApiRequest:
    """Return the request by which a node takes no new pods, or takes them again."""
    body: JsonObject = {"spec": {"unschedulable": is_cordoned or None}}
    return replace(_patch(name, body), resource=NODES, namespace="")


def _create(resource: Resource, namespace: str, obj: JsonObject) -> ApiRequest:
    return ApiRequest(verb="create", resource=resource, namespace=namespace, body=obj, user=PERSON)


def _patch(name: str, body: JsonObject, content_type: str = MERGE_PATCH) -> ApiRequest:
    return ApiRequest(
        verb="patch",
        resource=STATEFULSETS,
        namespace=NAMESPACE,
        name=name,
        body=body,
        content_type=content_type,
        user=PERSON,
    )
