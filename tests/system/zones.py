"""Zones as tests have them on the real control plane, and the records that pods of them carry.

A zone may be prepared before a downscale, follow another, or mirror a ReplicaTemplate.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from tests.world.api import Json
from tests.world.budgets import REPLICA_TEMPLATES, ZONE_BUDGETS, install_kinds
from tests.world.webpods import PodCall, WebPods
from tests.world.world import World

NO_DOWNSCALE: Final = "grafana.com/no-downscale"
PREPARE: Final = "grafana.com/prepare-downscale"
LAST_DOWNSCALE: Final = "grafana.com/last-downscale"
MIN_TIME: Final = "grafana.com/min-time-between-zones-downscale"
LEADING: Final = "grafana.com/rollout-downscale-leader"
MIRROR: Final = "grafana.com/rollout-mirror-replicas-from-resource-"
RECORDS: Final = frozenset(
    ("grafana.com/rollout-operator-disruption", "grafana.com/rollout-operator-downscale")
)
GROUP: Final = "rollout-operator.grafana.com"
PATH: Final = "ingester/prepare-shutdown"
OTHER: Final = "other"
"""A set that no budget selects, by which it is proven that webhooks are called."""


async def create_budgets(world: World, budgets: Iterable[Json]) -> None:
    """Create budgets; the kind is installed where it is not."""
    await install_kinds(world.api)
    for one in budgets:
        await world.post(ZONE_BUDGETS, one)


def has_record(pod: Json) -> bool:
    """Say whether a pod carries the record of a disruption or of a downscale."""
    return not RECORDS.isdisjoint(pod["metadata"].get("annotations", {}))


def is_called(calls: Sequence[PodCall]) -> bool:
    """Say whether a pod, after all these calls, has confirmed last that it stays."""
    return bool(calls) and calls[-1].method == "DELETE" and calls[-1].is_success


def is_of_now(stamp: str) -> bool:
    """Say whether a text is a time of this minute, RFC 3339 in UTC with whole seconds."""
    try:
        at = datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return False
    return abs(datetime.now(UTC) - at) < timedelta(minutes=1)


def read_stamp(zone: Json | None) -> str:
    """Return when a set says that it was scaled down last; empty where it does not."""
    annotations = zone["metadata"].get("annotations", {}) if zone else {}
    return str(annotations.get(LAST_DOWNSCALE, ""))


def prepared_zone(pods: WebPods, zone: ZoneSpec, *, wait: str = "") -> ZoneSpec:
    """Return the zone with all that makes its pods be prepared before a downscale."""
    labels = {PREPARE: "true", **({MIN_TIME: wait} if wait else {})}
    annotations = {f"{PREPARE}-http-path": PATH, f"{PREPARE}-http-port": f"{pods.port}"}
    return replace(annotated(zone, annotations), labels={**(zone.labels or {}), **labels})


def annotated(zone: ZoneSpec, annotations: Mapping[str, str]) -> ZoneSpec:
    return replace(zone, annotations={**(zone.annotations or {}), **annotations})


def follow(zone: ZoneSpec, leading: str) -> ZoneSpec:
    return annotated(zone, {LEADING: leading})


def mirror(zone: ZoneSpec) -> ZoneSpec:
    """Return the zone as one that mirrors the ReplicaTemplate `demo`."""
    words = {"name": "demo", "kind": "ReplicaTemplate", "api-version": f"{GROUP}/v1"}
    return annotated(zone, {f"{MIRROR}{key}": value for key, value in words.items()})


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
        found = await self.world.get(REPLICA_TEMPLATES, self.name)
        count: int | None = found.get("status", {}).get("replicas")
        return count
