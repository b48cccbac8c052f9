"""A simulated cluster with MultiAZRollouts: StatefulSets of zones, one process, what it deleted."""

from http import HTTPStatus
from typing import Any, Final

from rollout_lab.model.history import Called
from rollout_lab.model.request import STRATEGIC_PATCH, ApiRequest
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, NODES, PODS, STATEFULSETS, JsonObject
from rollout_operator.model.names import TOPOLOGY_KEYS
from tests.controllers.releases.world import ReleaseSandbox
from tests.judge.objects import read_pod

ON: Final = "-multi-az-rollouts.enabled"


class PolicyWorld(ReleaseSandbox):
    """What tests of policies do in a sandbox, and see of it."""

    flags = (ON,)

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
        await self.create(NODES, name, {}, labels={TOPOLOGY_KEYS[0]: zone})

    async def create_policy(self, name: str = "db", **spec: Any) -> None:
        """Create a policy over `app: db`."""
        selected = {"statefulSetSelector": {"matchLabels": {"app": "db"}}}
        await self.create(MULTI_AZ_ROLLOUTS, name, {**selected, **spec})

    async def edit_status(self, status: Any) -> None:
        """Write the whole status of a policy, whatever that may be."""
        held = await self.get(MULTI_AZ_ROLLOUTS, "db")
        body = {key: part for key, part in held.items() if key != "status"}
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

    def is_ready(self, name: str) -> bool:
        """Return whether a pod is ready, as the store has it."""
        found = self.sandbox.api.get(PODS, self.sandbox.namespace, name)
        return found is not None and read_pod(found).is_ready

    async def patch_set(self, name: str, patch: JsonObject) -> None:
        await self.patch(STATEFULSETS, name, patch, content=STRATEGIC_PATCH)

    async def roll_out(self, image: str = "v2", letters: str = "abc") -> None:
        """Give StatefulSets a new template."""
        pod = {"spec": {"containers": [{"name": "app", "image": image}]}}
        for letter in letters:
            await self.patch_set(f"db-{letter}", {"spec": {"template": pod}})

    def pods(self) -> list[str]:
        """Return the pods that processes deleted, in their order."""
        return [
            called.request.name
            for called in self.sandbox.history.list_all(Called)
            if called.actor.startswith("operator")
            and called.status == HTTPStatus.OK
            and (called.request.verb, called.request.resource) == ("delete", PODS)
        ]
