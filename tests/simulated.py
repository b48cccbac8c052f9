"""A simulated API server alone, and clients of it: for parts of the operator without a process."""

import random
from typing import Any

from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.model.history import History
from rollout_lab.model.request import ApiRequest, api_version_of
from rollout_lab.network.client import SimulatedClient
from rollout_lab.network.faults import Faults, NoFaults
from rollout_lab.network.link import Link

from rollout_operator.kube.api import NAMESPACES, JsonObject, Resource
from rollout_operator.kube.rate_limit import RateLimiter
from tests.virtual_time import EPOCH, elapsed

ACTOR = "operator-1"


def open_api(*namespaces: str) -> SimulatedApi:
    """Return an API server with these namespaces; needs a running loop."""
    api = SimulatedApi(History(), elapsed=elapsed, epoch=EPOCH, rng=random.Random(1))
    for name in namespaces:
        put(api, NAMESPACES, name)
    return api


def open_client(api: SimulatedApi, faults: Faults | None = None) -> SimulatedClient:
    link = Link(ACTOR, faults=faults or NoFaults(), rng=random.Random(2))
    return SimulatedClient(api, link, name="acting", limits=RateLimiter(0, 0))


def put(
    api: SimulatedApi, resource: Resource, name: str, namespace: str = "", **fields: Any
) -> None:
    """Create an object as a person does; `status` is written after it."""
    place = {"namespace": namespace} if namespace else {}
    metadata: JsonObject = {"name": name, **place, **fields.pop("metadata", {})}
    head = {"apiVersion": api_version_of(resource), "kind": resource.kind, "metadata": metadata}
    request = ApiRequest(
        verb="create", resource=resource, namespace=namespace, body={**head, **fields}
    )
    answer = api.call_now(request)
    assert answer.is_ok, answer.message
    if status := fields.get("status"):
        api.call_now(
            ApiRequest(
                verb="patch",
                resource=resource,
                namespace=namespace,
                name=name,
                subresource="status",
                content_type="application/merge-patch+json",
                body={"status": status},
            )
        )
