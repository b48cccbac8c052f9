"""A simulated API server alone, without a cluster around it."""

import json
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import msgspec
from rollout_lab.admission.webhooks import HookCall, HookCaller
from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.apiserver.streams import Stream, StreamEvent
from rollout_lab.model.fields import child, text
from rollout_lab.model.history import Called, Commit, History
from rollout_lab.model.request import MERGE_PATCH, ApiAnswer, ApiRequest, Body, Verb
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import VALIDATING_WEBHOOKS, JsonObject, Resource
from tests.virtual_time import EPOCH, elapsed

NAMESPACE = "default"
CLUSTER_WIDE = ""


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """What a test requests beyond verb, kind and name."""

    body: Body = None
    query: Mapping[str, str] = {}
    subresource: str = ""
    content_type: str = MERGE_PATCH
    namespace: str = NAMESPACE
    user: str = "person"


NOTHING = Fields()


class Server:
    """The server of one test, on the time of the running loop, or on none."""

    def __init__(self, seed: int = 1) -> None:
        self.history = History()
        self.api = SimulatedApi(
            self.history, elapsed=_elapsed, epoch=EPOCH, rng=random.Random(seed)
        )

    def request(self, verb: Verb, resource: Resource, name: str, fields: Fields) -> ApiRequest:
        return ApiRequest(
            verb=verb,
            resource=resource,
            namespace=fields.namespace if resource.is_namespaced else "",
            name=name,
            subresource=fields.subresource,
            query=fields.query,
            body=fields.body,
            content_type=fields.content_type if verb == "patch" else "application/json",
            user=fields.user,
        )

    def send_request(
        self, verb: Verb, resource: Resource, name: str = "", fields: Fields = NOTHING
    ) -> ApiAnswer:
        """Send a request and return the answer, whatever it is."""
        return self.api.call_now(self.request(verb, resource, name, fields))

    async def call(
        self, verb: Verb, resource: Resource, name: str = "", fields: Fields = NOTHING
    ) -> ApiAnswer:
        """Send a request that may have to wait for webhooks."""
        return await self.api.call(self.request(verb, resource, name, fields))

    def create(self, resource: Resource, body: JsonObject) -> JsonObject:
        """Create an object and expect no refusal."""
        answer = self.send_request("create", resource, fields=Fields(body=body))
        assert answer.status == 201, answer.message
        return answer.body

    def guard(self, resource: Resource, *operations: str, decide: "Decide") -> None:
        """Have operations on a kind reviewed by a webhook."""
        self.api.hooks = answering(decide)
        self.create(VALIDATING_WEBHOOKS, hook_on(resource, *operations))

    def fetch(self, resource: Resource, name: str) -> JsonObject:
        """Return an object that must be there."""
        found = self.api.get(resource, NAMESPACE, name)
        assert found is not None, f"{resource.plural}/{name} is not there"
        return found

    def has(self, resource: Resource, name: str) -> bool:
        return self.api.get(resource, NAMESPACE, name) is not None

    def watch(self, resource: Resource, **query: str) -> Stream:
        return self.api.open_watch(self.request("watch", resource, "", Fields(query=query)))

    def commits(self) -> list[Commit]:
        return self.history.list_all(Commit)

    def calls(self) -> list[Called]:
        return self.history.list_all(Called)


def _elapsed() -> timedelta:
    try:
        return elapsed()
    except RuntimeError:
        return timedelta(0)


def version(obj: JsonObject) -> str:
    return text(obj, "metadata", "resourceVersion")


def uid(obj: JsonObject) -> str:
    return text(obj, "metadata", "uid")


def metadata(obj: JsonObject) -> JsonObject:
    return child(obj, "metadata")


def config_map(
    name: str = "c", *, data: Mapping[str, str] | None = None, **meta: object
) -> JsonObject:
    """Return the simplest of all objects."""
    return {"metadata": {"name": name, **meta}, "data": dict(data or {"key": "1"})}


def pod(name: str = "p", *, node: str = "node-1", **meta: object) -> JsonObject:
    """Return a pod, bound to a node from the start unless it is empty."""
    spec: JsonObject = {"containers": [{"name": "app", "image": "v1"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, **meta}, "spec": spec}


def zone(name: str = "a", **changes: object) -> JsonObject:
    """Return a StatefulSet."""
    obj = statefulset(ZoneSpec(name=name))
    spec = obj["spec"]
    assert isinstance(spec, dict)
    return {**obj, "spec": {**spec, **changes}}


def owned_by(owner: JsonObject) -> JsonObject:
    """Return the reference to an owner that controls."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": text(owner, "metadata", "name"),
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def drained(stream: Stream) -> list[StreamEvent]:
    """Return what is there to be read."""
    events = []
    while (event := stream.pop()) is not None:
        events.append(event)
    return events


def lines(stream: Stream) -> list[str]:
    """Return what is there to be read, as `TYPE name`."""
    return [f"{one.type} {text(one.object, 'metadata', 'name')}".strip() for one in drained(stream)]


Decide = Callable[[JsonObject], Awaitable[JsonObject]]
"""From the `request` of a review to the rest of the `response`."""


def answering(decide: Decide) -> HookCaller:
    """Return a caller of webhooks that reaches but this one."""

    async def call(call: HookCall) -> bytes:
        review = json.loads(call.body)
        response = {"uid": review["request"]["uid"], **await decide(review["request"])}
        return json.dumps({**review, "response": response}).encode()

    return call


def hook_on(resource: Resource, *operations: str, kind: str = "Validating") -> JsonObject:
    """Return a webhook configuration for operations on a kind and its subresources."""
    rule = {
        "apiGroups": [resource.group],
        "apiVersions": ["*"],
        "resources": [f"{resource.plural}/*", resource.plural],
        "operations": list(operations),
    }
    webhook = {
        "name": "judge.example.com",
        "rules": [rule],
        "clientConfig": {"url": "https://localhost:8443/judge"},
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "judge"},
        "webhooks": [webhook],
    }
