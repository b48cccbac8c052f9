"""An API server of a few dictionaries, for tests of the shell: objects as JSON, scripted failures.

It keeps versions, preconditions and label selectors; pods that are deleted are gone at once, unless
a test scripts an error for the call.
"""

import copy
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from rollout_lab.apiserver.store import read_selection
from rollout_lab.schemas.patches import merge, patched

from rollout_operator.kube.api import JsonObject, Page, Precondition, Resource
from rollout_operator.model.names import ApiError, Conflict, NotFound, UnknownOutcome

Json = dict[str, Any]


async def _at_once(call: str) -> None:
    """Wait for nothing."""


def set_json(
    name: str,
    *,
    replicas: int = 3,
    ready: int | None = None,
    current: str = "old",
    update: str = "new",
    max_unavailable: str | None = None,
    labels: dict[str, str] | None = None,
    selector: dict[str, str] | None = None,
    generation: int = 1,
    observed: int = 1,
) -> Json:
    """Return a StatefulSet whose status is settled."""
    ready = replicas if ready is None else ready
    annotations = {} if max_unavailable is None else {"rollout-max-unavailable": max_unavailable}
    match = selector or {"rollout-group": "ingester", "name": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "namespace": "test",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": generation,
            "labels": labels or {"rollout-group": "ingester"},
            "annotations": annotations,
        },
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": match},
            "template": {"metadata": {"labels": match}},
            "updateStrategy": {"type": "OnDelete"},
        },
        "status": {
            "observedGeneration": observed,
            "replicas": replicas,
            "readyReplicas": ready,
            "updatedReplicas": replicas,
            "availableReplicas": ready,
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": 0,
        },
    }


def pod_json(
    zone: str, ordinal: int, *, revision: str = "old", ready: bool = True, owner: str | None = None
) -> Json:
    """Return a pod of a zone, ready or crash-looping."""
    name = f"{zone}-{ordinal}"
    state: Json = {"running": {}} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "test",
            "name": name,
            "uid": f"uid-{name}-{revision}",
            "resourceVersion": "1",
            "labels": {
                "rollout-group": "ingester",
                "name": zone,
                "controller-revision-hash": revision,
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "StatefulSet",
                    "name": zone,
                    "uid": owner or f"uid-{zone}",
                    "controller": True,
                }
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True" if ready else "False",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                }
            ],
            "containerStatuses": [{"name": "main", "ready": ready, "state": state}],
        },
    }


class FakeClient:
    """Reader and Writer over dictionaries."""

    def __init__(self, sets: Sequence[Json], pods: Sequence[Json]) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        for one in sets:
            self.objects["statefulsets", _name(one)] = copy.deepcopy(one)
        for one in pods:
            self.objects["pods", _name(one)] = copy.deepcopy(one)
        self.deleted: list[str] = []
        self.status_writes: list[Json] = []
        self.calls: list[str] = []
        self.patches: list[JsonObject | Sequence[JsonObject]] = []
        self.lost: set[str] = set()
        """Writes that are carried out and get no answer."""
        self.fail_delete: dict[str, deque[ApiError]] = {}
        """Errors of the next deletes of an object, by name; it stays."""
        self.before: Callable[[str], None] = lambda call: None
        """Called with every call before it is served: a test changes the world here."""
        self.pause: Callable[[str], Awaitable[None]] = _at_once
        """Awaited after that: a test lets others go first here."""
        self.turn: Callable[[str], Awaitable[None]] = _at_once
        """Awaited for the turn to read a kind: a test makes a limiter of it."""

    async def wait_turn(self, resource: Resource, namespace: str) -> None:
        await self.turn(resource.plural)

    async def wait_turn_to_patch(self, resource: Resource, namespace: str, name: str) -> None:
        await self.turn(f"patch {resource.plural}")

    async def fetch(
        self, resource: Resource, namespace: str, name: str, subresource: str = "", **_: object
    ) -> bytes:
        assert not subresource, "this client knows of none"
        await self._record(f"get {resource.plural}/{name}")
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise NotFound(f"{resource.plural} {name} not found", status=404)
        return msgspec.json.encode(found)

    async def fetch_page(
        self,
        resource: Resource,
        namespace: str,
        *,
        selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        token: str = "",
        **_: object,
    ) -> Page:
        assert not field_selector, "this client knows of none"
        await self._record(f"list {resource.plural} {selector}")
        requested = read_selection(resource, {"labelSelector": selector})
        found = [
            msgspec.Raw(msgspec.json.encode(one))
            for (plural, _), one in self.objects.items()
            if plural == resource.plural and requested.takes(one)
        ]
        start = int(token or 0)
        rest = str(start + limit) if start + limit < len(found) else ""
        return Page(items=found[start : start + limit], resource_version="9", next_token=rest)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        precondition: Precondition,
        sent_within: timedelta | None = None,
    ) -> None:
        await self._record(f"delete {resource.plural}/{name}")
        errors = self.fail_delete.get(name)
        if errors:
            raise errors.popleft()
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise NotFound(f"{resource.plural} {name} not found", status=404)
        held = meta_of(found)
        if (held["uid"], held["resourceVersion"]) != (
            precondition.uid,
            precondition.resource_version,
        ):
            raise Conflict("precondition failed", status=409)
        del self.objects[resource.plural, name]
        self.deleted.append(name)

    async def replace_status(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> None:
        await self._record(f"put {resource.plural}/{name}/status")
        held = self.objects[resource.plural, name]
        if meta_of(held)["resourceVersion"] != meta_of(body)["resourceVersion"]:
            raise Conflict("the object has changed", status=409)
        self.status_writes.append(copy.deepcopy(body))
        held["status"] = body["status"]

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        name = _name(body)
        await self._record(f"post {resource.plural}/{name}")
        if (resource.plural, name) in self.objects:
            raise Conflict(f"{resource.plural} {name} exists", status=409)
        made = {**body, "metadata": {**meta_of(body), "uid": f"u-{name}"}}
        return self._answer(f"post {resource.plural}/{name}", self._write(resource, name, made))

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> bytes:
        await self._record(f"put {resource.plural}/{name}")
        held = self._held(resource, name)
        if meta_of(held)["resourceVersion"] != meta_of(body)["resourceVersion"]:
            raise Conflict("the object has changed", status=409)
        written = self._write(resource, name, copy.deepcopy(body))
        return self._answer(f"put {resource.plural}/{name}", written)

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        subresource: str = "",
        **_: object,
    ) -> bytes:
        """Patch as the API does: identity in metadata, and `test` steps, are preconditions."""
        self.patches.append(patch)
        place = (resource.plural, subresource, name) if subresource else (resource.plural, name)
        await self._record(f"patch {'/'.join(place)}")
        held = self._held(resource, name)
        if isinstance(patch, dict):
            wanted = patch.get("metadata")
            wanted = wanted if isinstance(wanted, dict) else {}
            for key in ("uid", "resourceVersion"):
                if wanted.get(key, meta_of(held)[key]) != meta_of(held)[key]:
                    raise Conflict(f"metadata.{key} is another one", status=409)
            made = copy.deepcopy(merge(held, patch))
        else:
            made = apply_steps(held, patch)
        return self._answer(f"patch {'/'.join(place)}", self._write(resource, name, made))

    def _answer(self, call: str, body: bytes) -> bytes:
        if call in self.lost:
            raise UnknownOutcome(f"{call}: no answer")
        return body

    def _held(self, resource: Resource, name: str) -> Json:
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise NotFound(f"{resource.plural} {name} not found", status=404)
        return found

    def _write(self, resource: Resource, name: str, one: Json) -> bytes:
        """Store a new version of an object and return it."""
        version = int(str(meta_of(one).get("resourceVersion", 0))) + 1
        meta_of(one)["resourceVersion"] = str(version)
        self.objects[resource.plural, name] = one
        return msgspec.json.encode(one)

    def put(self, plural: str, one: Json) -> None:
        """Replace an object without an event."""
        self.objects[plural, _name(one)] = copy.deepcopy(one)

    async def _record(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)
        await self.pause(call)


def apply_steps(held: Json, steps: Sequence[JsonObject]) -> Json:
    """Return an object with a JSON patch applied. Raises Conflict where it does not hold."""
    try:
        return patched(held, list(steps))
    except ValueError as error:
        raise Conflict(f"{_name(held)}: {error}", status=422) from error


def meta_of(one: Json) -> Json:
    """Return an object's metadata."""
    meta = one["metadata"]
    assert isinstance(meta, dict)
    return meta


def _name(one: Json) -> str:
    return str(meta_of(one)["name"])
