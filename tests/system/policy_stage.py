"""MultiAZRollouts on the real control plane, for stories."""

from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import yaml
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.names import TOPOLOGY_KEYS
from tests.system.stage import PlaneStage
from tests.system.waits import show_columns, wait_true
from tests.world.api import EVENTS, Json, Resource
from tests.world.budgets import CRDS, install_kinds

POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
KIND: Final = "multiazrollouts.rollout.grafana.com"
PAUSE: Final = timedelta(seconds=2)
# Times of an audit log are those of arrival, and the server's clock has whole seconds.
BLUR: Final = timedelta(seconds=1)
BY_HAND: Final = """
phase: Paused
lastBatch:
  {number: 7, zone: nowhere, statefulSet: db-z, updateRevision: db-z-1,
   pods: [{name: db-z-0, uid: none}], startTime: "2999-01-01T00:00:00Z"}
"""


def _read(text: str) -> Any:
    return yaml.safe_load(f"{{{text}}}")


class PolicyStage(PlaneStage):
    """Three sets of one application, and policies of it."""

    is_older = False
    """The definition of the kind is not the one that is shipped."""

    async def close(self) -> None:
        await super().close()
        if self.is_older:
            await self.world.api.delete(CRDS, "", KIND)
            await install_kinds(self.world.api)

    async def do_kinds(self) -> None:
        await install_kinds(self.world.api)
        await self.world.grant("multi-az-rollouts")

    async def do_sets(self, group: str = "", replicas: str = "replicas=3") -> None:
        zones = [
            ZoneSpec(
                name=f"db-{letter}",
                group=group or None,
                replicas=int(replicas.removeprefix("replicas=")),
                labels={"app": "db", TOPOLOGY_KEYS[0]: f"us-west-2{letter}"},
            )
            for letter in "abc"
        ]
        self.names = await self.world.create(*zones)

    async def do_policy(self, name: str, spec: str = "") -> None:
        fields: Json = {
            "statefulSetSelector": {"matchLabels": {"app": "db"}},
            "rollingUpdate": {"intervalSeconds": int(PAUSE.total_seconds())},
            **_read(spec),
        }
        head: Json = {"apiVersion": POLICIES.api_version, "kind": MULTI_AZ_ROLLOUTS.kind}
        await self.world.post(POLICIES, {**head, "metadata": {"name": name}, "spec": fields})

    async def do_spec(self, name: str, spec: str) -> None:
        await self.world.patch(POLICIES, name, {"spec": _read(spec)})

    async def do_drop(self, name: str) -> None:
        await self.world.delete(POLICIES, name)

    async def do_hand(self) -> None:
        """Let a person write a status."""
        patch = {"status": yaml.safe_load(BY_HAND)}
        where = (POLICIES, self.world.namespace, "db")
        await self.world.api.patch(*where, patch, subresource="status")

    async def do_lose(self) -> None:
        """Remove the definition of the kind, and wait until the operator knows."""
        before = len(self.operator().log_lines())
        await self.world.api.delete(CRDS, "", KIND)
        self.is_older = False

        def is_reported() -> bool:
            return any(POLICIES.plural in line for line in self.operator().log_lines()[before:])

        await wait_true("a line about the kind", is_reported)
        assert self.operator().is_running

    async def do_older(self) -> None:
        """Let the definition be one of before `lastBatch`."""
        self.is_older = True
        definition = await self.world.api.get(CRDS, "", KIND)
        for version in definition["spec"]["versions"]:
            status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
            del status["properties"]["lastBatch"]
        await self.world.api.replace(CRDS, "", KIND, definition)

    async def do_rolled(self) -> None:
        await self.world.wait_rolled(self.names)

    async def _status(self, name: str = "db") -> Json:
        status: Json = (await self.world.get(POLICIES, name)).get("status", {})
        return status

    async def do_condition(self, kind: str, name: str = "db") -> str:
        conditions = (await self._status(name)).get("conditions", ())
        found = {one["type"]: f"{one['status']} {one['reason']}" for one in conditions}
        return found.get(kind, "-")

    async def do_batch(self, number: str) -> None:
        async def is_recorded() -> bool:
            batch = (await self._status()).get("lastBatch", {})
            return bool(batch.get("number", 0) >= int(number))

        await wait_true(f"batch {number} recorded", is_recorded)

    async def do_shows(self, *fields: str) -> str:
        status = await self._status()
        return " ".join(str(status.get(field)) for field in fields)

    async def do_column(self, name: str) -> str:
        return str((await show_columns(self.world, POLICIES))[name])

    async def do_pauses(self) -> str:
        """Say whether each delete came a pause after the one before."""
        times = [one.received for one in await self.world.judge.deletes() if one.uid]
        gaps = [after - before for before, after in pairwise(times)]
        return "kept" if min(gaps) >= (PAUSE - BLUR).total_seconds() else str(gaps)

    async def do_event(self, reason: str) -> str:
        """Return what Events of a reason are about."""
        events = await self.world.api.items(EVENTS, self.world.namespace)
        return " ".join(one["regarding"]["name"] for one in events if one["reason"] == reason)
