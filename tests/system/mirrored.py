"""A ReplicaTemplate, which an autoscaler scales and zones mirror, in a world."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.zones import ZoneSpec

from tests.system.scaled import annotated
from tests.system.waits import wait_true
from tests.world.api import Json
from tests.world.budgets import REPLICA_TEMPLATES, install_kinds
from tests.world.observed import Request
from tests.world.world import World

MIRROR: Final = "grafana.com/rollout-mirror-replicas-from-resource-"
GROUP: Final = "rollout-operator.grafana.com"
SHOWN_LIMIT: Final = timedelta(seconds=30)


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """One ReplicaTemplate, as autoscalers and people see it."""

    world: World
    name: str = "demo"

    async def create(self, replicas: int) -> None:
        """Create it, and its kind where that is not there yet."""
        await install_kinds(self.world.api)
        body: Json = {
            "apiVersion": REPLICA_TEMPLATES.api_version,
            "kind": "ReplicaTemplate",
            "metadata": {"name": self.name},
            "spec": {"replicas": replicas},
        }
        await self.world.post(REPLICA_TEMPLATES, body)

    async def scale(self, replicas: int) -> None:
        """Scale it as an autoscaler does: its `scale` is read, changed and put back."""
        where = (REPLICA_TEMPLATES, self.world.namespace, self.name)
        found = await self.world.api.get(*where, "scale")
        found["spec"]["replicas"] = replicas
        await self.world.api.replace(*where, found, "scale")

    async def read_status(self) -> int | None:
        """Return `status.replicas`, None where there is none yet."""
        where = (REPLICA_TEMPLATES, self.world.namespace, self.name)
        count: int | None = (await self.world.api.get(*where)).get("status", {}).get("replicas")
        return count

    async def wait_status(self, replicas: int) -> None:
        """Wait until `status.replicas` is so many."""

        async def is_shown() -> bool:
            return await self.read_status() == replicas

        what = f"status.replicas of {self.name} {replicas}"
        await wait_true(what, is_shown, SHOWN_LIMIT)

    async def publications(self) -> list[Request]:
        """Return the operator's writes of the status."""
        calls = await self.world.judge.calls()
        return [each for each in calls if each.resource == "replicatemplates/status"]


def mirror(zone: ZoneSpec, name: str = "demo", **changes: str) -> ZoneSpec:
    """Return the zone as one that mirrors a ReplicaTemplate; `changes` by the keys' last words."""
    words: Mapping[str, str] = {
        "name": name,
        "kind": "ReplicaTemplate",
        "api_version": f"{GROUP}/v1",
        **changes,
    }
    return annotated(
        zone, {f"{MIRROR}{key.replace('_', '-')}": value for key, value in words.items()}
    )


async def grant_mirroring(world: World, *, may_watch: bool = True) -> None:
    """Grant what the component `mirroring` does, with its optional rule or without."""
    await world.grant("mirroring", verbs=() if may_watch else ("get", "patch"))
