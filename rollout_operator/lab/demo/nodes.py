"""The nodes, the budget and the evictions of the story in which a node is drained.

Pure: what a person would write into a file, and what `kubectl drain` sends.
"""

from collections.abc import Sequence
from typing import Final

from rollout_operator.kube.api import PODS, VALIDATING_WEBHOOKS, ZONE_BUDGETS, JsonObject
from rollout_operator.lab.admission.registrations import pod_eviction
from rollout_operator.lab.demo.objects import (
    GROUP,
    NAMESPACE,
    PERSON,
    SELECTED,
    select_nodes,
)
from rollout_operator.lab.model.request import MERGE_PATCH, ApiRequest
from rollout_operator.lab.nodes.nodes import node
from rollout_operator.lab.schemas.kinds import NODES

NODES_OF_A_ZONE: Final = 2


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
    return [
        *(ApiRequest(verb="create", resource=NODES, body=one, user=PERSON) for one in nodes),
        ApiRequest(
            verb="create", resource=ZONE_BUDGETS, namespace=NAMESPACE, body=budget, user=PERSON
        ),
        ApiRequest(
            verb="create",
            resource=VALIDATING_WEBHOOKS,
            body=pod_eviction(NAMESPACE),
            user=PERSON,
        ),
    ]


def cordon(name: str) -> ApiRequest:
    """Return the request by which a node takes no new pods."""
    return ApiRequest(
        verb="patch",
        resource=NODES,
        name=name,
        body={"spec": {"unschedulable": True}},
        content_type=MERGE_PATCH,
        user=PERSON,
    )


def evict(pod: str) -> ApiRequest:
    """Return the request that asks for the eviction of a pod."""
    body: JsonObject = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": NAMESPACE},
    }
    return ApiRequest(
        verb="create",
        resource=PODS,
        namespace=NAMESPACE,
        name=pod,
        subresource="eviction",
        body=body,
        user=PERSON,
    )
