"""Secrets of an API server in memory: versions, conflicts, and faults that a test requests."""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping

from rollout_operator.kube.api import SECRETS, JsonObject, Resource
from rollout_operator.model.names import ApiError, Conflict, NotFound, UnknownOutcome

NAMESPACE = "prod"
NAME = "certificate"
MADE_BY_US = {"grafana.com/rollout-operator-certificate": "true"}


async def no_pause(verb: str) -> None:
    """Let a call through at once."""


class FakeSecrets:
    """One Secret. `calls` are the verbs as they came; `fail` is raised by every call while set."""

    def __init__(self, data: Mapping[str, bytes] | None = None, **metadata: object) -> None:
        """Hold what another client has stored; nothing where `data` is None."""
        self.body: JsonObject | None = None
        self.calls: list[str] = []
        self.fail: ApiError | None = None
        self.fail_writes: ApiError | None = None
        self.lose_answers = 0
        """So many writes are committed and not answered."""
        self.garbled = b""
        """What reads find, if anything, in place of the object."""
        self.pause: Callable[[str], Awaitable[None]] = no_pause
        self._version = 0
        if data is not None:
            self.put(data, **metadata)

    async def fetch(self, resource: Resource, namespace: str, name: str) -> bytes:
        await self._begin("get", resource, namespace)
        if self.garbled:
            return self.garbled
        if self.body is None:
            raise NotFound(f"secret {namespace}/{name} not found", status=404)
        return json.dumps(self.body).encode()

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        await self._begin("create", resource, namespace)
        if self.body is not None:
            raise Conflict("secret already exists", status=409)
        return self._commit({**body, "metadata": {**_metadata(body), "uid": "u-1"}})

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> bytes:
        await self._begin("update", resource, namespace)
        if self.body is None:
            raise NotFound("secret not found", status=404)
        if _metadata(body)["resourceVersion"] != _metadata(self.body)["resourceVersion"]:
            raise Conflict("secret was changed", status=409)
        return self._commit(body)

    def put(self, data: Mapping[str, bytes], **metadata: object) -> None:
        """Store data as another client would, whatever is there: in place of it, not beside it."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self.put_raw(encoded, **metadata)

    def put_raw(self, data: object, **metadata: object) -> None:
        """Store data as it is, not encoded."""
        head = {"name": NAME, "namespace": NAMESPACE, "uid": "u-1", **metadata}
        self._commit({"apiVersion": "v1", "kind": "Secret", "metadata": head, "data": data})

    @property
    def data(self) -> dict[str, bytes]:
        """Return what is stored now."""
        assert self.body is not None
        data = self.body["data"]
        assert isinstance(data, dict)
        return {key: base64.b64decode(value) for key, value in data.items()}

    @property
    def labels(self) -> object:
        """Return the labels that are stored now."""
        assert self.body is not None
        return _metadata(self.body).get("labels")

    @property
    def writes(self) -> int:
        """Return how many writes came, refused ones included."""
        return len([verb for verb in self.calls if verb != "get"])

    async def _begin(self, verb: str, resource: Resource, namespace: str) -> None:
        assert (resource, namespace) == (SECRETS, NAMESPACE)
        self.calls.append(verb)
        await self.pause(verb)
        fail = self.fail or (self.fail_writes if verb != "get" else None)
        if fail is not None:
            raise fail

    def _commit(self, body: JsonObject) -> bytes:
        self._version += 1
        head = {**_metadata(body), "resourceVersion": f"{self._version}"}
        self.body = {**body, "metadata": head}
        if self.lose_answers and self.calls and self.calls[-1] != "get":
            self.lose_answers -= 1
            raise UnknownOutcome("no answer")
        return json.dumps(self.body).encode()


def _metadata(body: JsonObject) -> dict[str, object]:
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return metadata
