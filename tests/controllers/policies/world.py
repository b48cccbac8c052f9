"""A simulated cluster with MultiAZRollouts: StatefulSets of zones, one process, what it deleted."""

from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final

from rollout_lab.model.history import Called
from rollout_lab.model.request import MERGE_PATCH, STRATEGIC_PATCH, ApiRequest
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    NODES,
    PODS,
    STATEFULSETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import TOPOLOGY_KEYS
from tests.judge.objects import read_pod
from tests.virtual_time import VirtualClock

ON: Final = "-multi-az-rollouts.enabled"


class PolicyWorld:
    """What tests of policies do in a sandbox, and see of it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    async def create_zones(
        self, letters: str = "abc", *, group: str | None = None, replicas: int = 3, **fields: Any
    ) -> None:
        """Create a StatefulSet `db-LETTER` in each zone, and wait until its pods are ready."""
        for letter in letters:
            labels = {"app": "db", TOPOLOGY_KEYS[0]: f"us-west-2{letter}"}
            given = {"labels": labels, **fields}
            zone = ZoneSpec(name=f"db-{letter}", group=group, replicas=replicas, **given)
            body = statefulset(zone, self.sandbox.namespace)
            await self._call("create", STATEFULSETS, body=body)
        await self.sleep(60)

    async def create_node(self, name: str, zone: str) -> None:
        """Create a node of a zone."""
        meta = {"name": name, "labels": {TOPOLOGY_KEYS[0]: zone}}
        body: JsonObject = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        await self.sandbox.call(ApiRequest(verb="create", resource=NODES, body=body))

    async def create_policy(self, name: str = "db", **spec: Any) -> None:
        """Create a policy over `app: db`."""
        body: JsonObject = {
            "apiVersion": "rollout.grafana.com/v1alpha1",
            "kind": "MultiAZRollout",
            "metadata": {"name": name, "namespace": self.sandbox.namespace},
            "spec": {"statefulSetSelector": {"matchLabels": {"app": "db"}}, **spec},
        }
        await self._call("create", MULTI_AZ_ROLLOUTS, body=body)

    async def create(self, resource: Resource, body: JsonObject) -> None:
        """Create any other object of the namespace."""
        await self._call("create", resource, body=body)

    async def patch_policy(self, patch: JsonObject, name: str = "db", part: str = "") -> None:
        await self._patch(MULTI_AZ_ROLLOUTS, name, patch, MERGE_PATCH, part)

    async def delete_policy(self, name: str = "db") -> None:
        await self._call("delete", MULTI_AZ_ROLLOUTS, name=name)

    async def edit_status(self, status: Any) -> None:
        """Write the whole status of a policy, whatever that may be."""
        body = {key: part for key, part in (await self.get("db")).items() if key != "status"}
        if status is not None:
            body["status"] = status
        await self.sandbox.call(
            ApiRequest(
                verb="update",
                resource=MULTI_AZ_ROLLOUTS,
                namespace=self.sandbox.namespace,
                name="db",
                subresource="status",
                body=body,
            )
        )

    async def delete_set(self, name: str) -> None:
        await self._call("delete", STATEFULSETS, name=name)

    async def delete_pod(self, name: str) -> None:
        """Delete a pod as a person does."""
        await self._call("delete", PODS, name=name)

    def is_ready(self, name: str) -> bool:
        """Return whether a pod is ready, as the store has it."""
        found = self.sandbox.api.get(PODS, self.sandbox.namespace, name)
        return found is not None and read_pod(found).is_ready

    async def patch_set(self, name: str, patch: JsonObject) -> None:
        await self._patch(STATEFULSETS, name, patch, STRATEGIC_PATCH)

    async def roll_out(self, image: str = "v2", letters: str = "abc") -> None:
        """Give StatefulSets a new template."""
        pod = {"spec": {"containers": [{"name": "app", "image": image}]}}
        for letter in letters:
            await self.patch_set(f"db-{letter}", {"spec": {"template": pod}})

    async def start(self, *args: str, name: str = "operator-1", **how: Any) -> SimulatedProcess:
        """Start a process that obeys policies."""
        process = self.sandbox.process(name, args=(ON, *args), **how)
        process.start()
        await process.wait_ready()
        return process

    async def sleep(self, seconds: float) -> None:
        await VirtualClock().sleep(timedelta(seconds=seconds))

    async def get(self, name: str = "db", resource: Resource = MULTI_AZ_ROLLOUTS) -> Any:
        """Return an object as the store has it."""
        return await self._call("get", resource, name=name)

    def pods(self) -> list[str]:
        """Return the pods that processes deleted, in their order."""
        return [
            called.request.name
            for called in self.sandbox.history.list_all(Called)
            if called.actor.startswith("operator")
            and called.status == HTTPStatus.OK
            and (called.request.verb, called.request.resource) == ("delete", PODS)
        ]

    async def _patch(
        self, resource: Resource, name: str, patch: JsonObject, content: str, part: str = ""
    ) -> None:
        await self.sandbox.call(
            ApiRequest(
                verb="patch",
                resource=resource,
                namespace=self.sandbox.namespace,
                name=name,
                subresource=part,
                content_type=content,
                body=patch,
            )
        )

    async def _call(
        self, verb: Any, resource: Resource, *, name: str = "", body: JsonObject | None = None
    ) -> Any:
        answer = await self.sandbox.call(
            ApiRequest(
                verb=verb,
                resource=resource,
                namespace=self.sandbox.namespace,
                name=name,
                body=body,
            )
        )
        return answer.body
