"""A small world for tests of admission: configurations, attempts, and webhooks as functions."""

import asyncio
import base64
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from rollout_operator.kube.api import (
    MUTATING_WEBHOOKS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    JsonObject,
    Resource,
)
from rollout_operator.lab.admission.rules import Attempt
from rollout_operator.lab.admission.webhooks import Admission, HookCall, HookCaller
from rollout_operator.lab.model.history import History, Reviewed
from rollout_operator.lab.schemas.kinds import find_kind
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.manifests import created, part, workload
from tests.virtual_time import elapsed

Respond = Callable[[JsonObject], JsonObject]
"""From the request of a review to the response, without its uid."""

SETS = find_kind(STATEFULSETS)


class World:
    """An API server as far as admission sees it, with a webhook behind each path."""

    def __init__(self) -> None:
        self.history = History()
        self.hooks: HookCaller | None = self.answer
        self.elapsed = elapsed
        self.rng = random.Random(1)
        self.admission = Admission(self)
        self.configurations: Mapping[Resource, Sequence[JsonObject]] = {}
        self.responses: dict[str, Respond] = {}
        self.delays: dict[str, timedelta] = {}
        self.raw: dict[str, bytes] = {}
        self.failures: dict[str, OSError] = {}
        self.calls: list[HookCall] = []

    def register(
        self, *, validating: Sequence[JsonObject] = (), mutating: Sequence[JsonObject] = ()
    ) -> None:
        """Register one configuration for each webhook, named as its webhook's path."""
        self.configurations = {
            VALIDATING_WEBHOOKS: [_configuration(VALIDATING_WEBHOOKS, one) for one in validating],
            MUTATING_WEBHOOKS: [_configuration(MUTATING_WEBHOOKS, one) for one in mutating],
        }

    def list(self, resource: Resource, namespace: str) -> Sequence[JsonObject]:
        assert namespace == ""
        return self.configurations.get(resource, ())

    async def answer(self, call: HookCall) -> bytes:
        self.calls.append(call)
        path = call.path.partition("?")[0]
        call.taken_by.append(f"behind {path}")
        if path in self.delays:
            await asyncio.sleep(self.delays[path].total_seconds())
        if path in self.failures:
            raise self.failures[path]
        if path in self.raw:
            return self.raw[path]
        request = part(msgspec.json.decode(call.body, type=JsonObject), "request")
        response = self.responses.get(path, allow)(request)
        return review({"uid": request["uid"], **response})

    @property
    def paths(self) -> Sequence[str]:
        return [call.path.partition("?")[0] for call in self.calls]

    @property
    def questions(self) -> Sequence[JsonObject]:
        return [
            part(msgspec.json.decode(one.body, type=JsonObject), "request") for one in self.calls
        ]

    @property
    def reviewed(self) -> Sequence[Reviewed]:
        return self.history.list_all(Reviewed)


def review(response: JsonObject) -> bytes:
    """Return an AdmissionReview with a response."""
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(body)


def allow(_: JsonObject) -> JsonObject:
    return {"allowed": True}


def deny(**status: object) -> Respond:
    return lambda _: {"allowed": False, "status": status}


def patch(*steps: JsonObject) -> Respond:
    """Allow, and change the object by these steps."""
    coded = base64.b64encode(msgspec.json.encode(steps)).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": coded}


def annotate(key: str, value: str) -> Respond:
    """Allow, and set an annotation, whether or not there is any."""

    def respond(request: JsonObject) -> JsonObject:
        known = part(request, "object", "metadata").get("annotations", {})
        assert isinstance(known, dict)
        merged: JsonObject = {**known, key: value}
        step: JsonObject = {"op": "add", "path": "/metadata/annotations", "value": merged}
        return patch(step)(request)

    return respond


def hook(name: str, **fields: object) -> JsonObject:
    """Return a webhook that is asked about updates of StatefulSets and their scales."""
    return {
        "name": f"{name}.example.com",
        "clientConfig": {"service": {"name": "hooks", "namespace": "default", "path": f"/{name}"}},
        "rules": [rule()],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


def rule(**fields: object) -> JsonObject:
    return {
        "operations": ["UPDATE"],
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "resources": ["statefulsets", "statefulsets/scale"],
        **fields,
    }


def attempt(**fields: object) -> Attempt:
    """Return an update of a StatefulSet from three to two replicas; `fields` replace parts."""
    old = created(SETS, workload(replicas=3))
    new = copy_json(old)
    part(new, "spec")["replicas"] = 2
    parts: dict[str, object] = {
        "operation": "UPDATE",
        "kind": SETS,
        "subresource": "",
        "namespace": "default",
        "name": "a",
        "user": "jo",
        "call": 7,
        "old": old,
        "new": new,
        "dry_run": False,
        "options": {},
        "namespace_labels": {"kubernetes.io/metadata.name": "default"},
        **fields,
    }
    return Attempt(**parts)  # type: ignore[arg-type]  # each test names what it replaces


def _configuration(resource: Resource, webhook: JsonObject) -> JsonObject:
    name = str(webhook["name"]).partition(".")[0]
    return created(
        find_kind(resource), {"metadata": {"name": name}, "webhooks": [copy_json(webhook)]}
    )
