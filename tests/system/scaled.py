"""Groups whose counts move by themselves: zones that follow, mirror or wait, and their settings.

Beside `guarded`, which has the webhooks: here are the annotations, the ReplicaTemplate that an
autoscaler scales, the waits for counts, and when each count was stored, on the judge's clock.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from tests.judge.objects import Set
from tests.system.guarded import Guarded
from tests.world.api import Json
from tests.world.budgets import REPLICA_TEMPLATES, install_kinds
from tests.world.clients import Route
from tests.world.sets import Missing, Snapshot, missing_ready
from tests.world.world import World

LEADING: Final = "grafana.com/rollout-downscale-leader"
MIRROR: Final = "grafana.com/rollout-mirror-replicas-from-resource-"
GROUP: Final = "rollout-operator.grafana.com"
SHOWN_LIMIT: Final = timedelta(seconds=30)
WAIT_LIMIT: Final = timedelta(seconds=60)


def follow(zone: ZoneSpec, leading: str) -> ZoneSpec:
    """Return the zone as one that follows another."""
    return annotated(zone, {LEADING: leading})


def annotated(zone: ZoneSpec, annotations: Mapping[str, str]) -> ZoneSpec:
    """Return the zone with some more annotations."""
    return replace(zone, annotations={**zone.annotations, **annotations})


async def wait_counts(world: World, counts: Mapping[str, int]) -> Snapshot:
    """Wait until each set wants so many pods and has them, all ready."""

    def check(now: Snapshot) -> Missing:
        for name, count in counts.items():
            found = now.sets[name]["spec"]["replicas"] if name in now.sets else "none"
            if found != count:
                return f"{name} wants {found}, not {count}"
            if missing := missing_ready(now, name):
                return missing
        return ""

    return await world.wait_until(check, WAIT_LIMIT)


async def wait_wanted(world: World, counts: Mapping[str, int]) -> Snapshot:
    """Wait until each set wants so many pods, whether it has them or not."""

    def check(now: Snapshot) -> Missing:
        found = {name: now.sets[name]["spec"]["replicas"] for name in counts if name in now.sets}
        return "" if found == counts else f"{found}, not {counts}"

    return await world.wait_until(check, WAIT_LIMIT)


async def scale(guarded: Guarded, name: str, replicas: int) -> None:
    """Scale a set as `kubectl scale` does; it must be granted."""
    answer = await guarded.workload(name).scale(replicas, Route.SCALE_MERGE)
    assert answer.status == 200, answer


def steps(world: World, *names: str) -> list[tuple[str, int, int]]:
    """Return all changes of the counts of these sets in their order: name, from, to."""
    found = [(name, before, now) for name, before, now, _ in _list_steps(world)]
    return [each for each in found if each[0] in names]


def gaps(world: World, *names: str) -> list[timedelta]:
    """Return the times between successive downscales of these sets."""
    times = [at for name, before, now, at in _list_steps(world) if name in names and now < before]
    return [timedelta(seconds=later - earlier) for earlier, later in pairwise(times)]


def _list_steps(world: World) -> Iterator[tuple[str, int, int, float]]:
    for change in world.judge.changes:
        match change.before, change.now:
            case Set() as before, Set() as now if now.replicas != before.replicas:
                yield now.name, before.replicas, now.replicas, change.at.total_seconds()


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
