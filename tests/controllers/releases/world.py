"""A simulated cluster with the kinds of releases: one process, and what it writes."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Self

from rollout_lab.model.request import MERGE_PATCH, ApiRequest, Verb
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox

from rollout_operator.kube.api import JsonObject, Resource
from tests.virtual_time import VirtualClock

ON: Final = ("-releases.enabled", "-releases.metadata=none")


class ReleaseSandbox:
    """What tests of releases do in a sandbox, and see of it."""

    flags: Sequence[str] = ON

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    @classmethod
    @asynccontextmanager
    async def opened(cls, **more: Any) -> AsyncIterator[Self]:
        """Give one in a cluster of its own; `more` is for the cluster."""
        async with Sandbox(**more) as sandbox:
            yield cls(sandbox)

    async def start(self, *args: str, name: str = "operator-1", **how: Any) -> SimulatedProcess:
        """Start a process that makes releases happen."""
        process = self.sandbox.process(name, args=(*self.flags, *args), **how)
        process.start()
        await process.wait_ready()
        return process

    async def sleep(self, seconds: float) -> None:
        await VirtualClock().sleep(timedelta(seconds=seconds))

    async def create(
        self, resource: Resource, name: str, spec: Mapping[str, object], **metadata: object
    ) -> None:
        """Create an object; `metadata` are its other fields there."""
        namespace = metadata.pop("namespace", self.sandbox.namespace)
        head = {"name": name, **({"namespace": namespace} if resource.is_namespaced else {})}
        body: JsonObject = {
            "apiVersion": "/".join(filter(None, (resource.group, resource.version))),
            "kind": resource.kind,
            "metadata": {**head, **metadata},
            "spec": dict(spec),
        }
        await self.send(resource, body=body, namespace=str(namespace))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: JsonObject,
        part: str = "",
        namespace: str = "",
        content: str = MERGE_PATCH,
    ) -> None:
        """Change an object as a person does."""
        target = f"{name}/{part}"
        await self.send(
            resource, target, verb="patch", body=patch, namespace=namespace, content=content
        )

    async def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        await self.send(resource, name, verb="delete", namespace=namespace)

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Any:
        """Return an object as the store has it."""
        return await self.send(resource, name, verb="get", namespace=namespace)

    async def get_status(self, resource: Resource, name: str, namespace: str = "") -> Any:
        return (await self.get(resource, name, namespace)).get("status", {})

    def list_all(self, resource: Resource, namespace: str = "") -> Sequence[Any]:
        return self.sandbox.api.list(resource, namespace)

    async def send(
        self,
        resource: Resource,
        target: str = "",
        *,
        verb: Verb = "create",
        body: JsonObject | None = None,
        namespace: str = "",
        content: str = "application/json",
    ) -> Any:
        """Call the API server for an object, or a part of it: `db/status`."""
        name, _, part = target.partition("/")
        request = ApiRequest(
            verb=verb,
            resource=resource,
            namespace=(namespace or self.sandbox.namespace) if resource.is_namespaced else "",
            name=name,
            subresource=part,
            content_type=content,
            body=body,
        )
        return (await self.sandbox.call(request)).body
