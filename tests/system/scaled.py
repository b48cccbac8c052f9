"""Groups whose counts move by themselves: zones that follow, and what their settings are.

Beside `guarded`, which has the webhooks: here are the annotations, the waits for counts, and when
each count was stored, on the judge's clock.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Final

from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from tests.judge.objects import Set
from tests.system.guarded import Guarded, prepared_zone
from tests.world.api import CONFIG_MAPS, Json
from tests.world.clients import Route
from tests.world.sets import Missing, Snapshot, missing_ready
from tests.world.webpods import DELAYED_PATH, WebPods
from tests.world.world import World

LEADING: Final = "grafana.com/rollout-downscale-leader"
WHEN_READY: Final = "grafana.com/rollout-upscale-only-when-leader-ready"
FORCE: Final = "grafana.com/rollout-force-replicas"
TRACKED: Final = ("-use-zone-tracker",)
TRACKER: Final = "rollout-operator-zone-tracker"
_LONG_AGO: Final = '{"lastDownscaled":"2020-01-01T00:00:00Z"}'
WAIT_LIMIT: Final = timedelta(seconds=60)


def chain(pods: WebPods, group: str, *, replicas: int, wait: str = "") -> list[ZoneSpec]:
    """Return zones a, b and c of prepared pods, each of which follows the one before."""
    names = [f"{group}-{letter}" for letter in "abc"]
    zones = [ZoneSpec(name=name, group=group, replicas=replicas) for name in names]
    led = [zones[0], *(follow(zone, name) for name, zone in zip(names, zones[1:], strict=False))]
    return [prepared_zone(pods, zone, wait=wait) for zone in led]


def follow(zone: ZoneSpec, leading: str) -> ZoneSpec:
    """Return the zone as one that follows another."""
    return annotated(zone, {LEADING: leading})


def annotated(zone: ZoneSpec, annotations: Mapping[str, str]) -> ZoneSpec:
    """Return the zone with some more annotations."""
    return replace(zone, annotations={**zone.annotations, **annotations})


async def track(world: World, names: Iterable[str]) -> None:
    """Grant what `-use-zone-tracker` needs, and let these zones be downscaled long ago."""
    await world.grant("zone-tracker")
    body: Json = {"metadata": {"name": TRACKER}, "data": dict.fromkeys(names, _LONG_AGO)}
    await world.post(CONFIG_MAPS, body)


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


def stored_at(world: World, name: str, replicas: int) -> float:
    """Return when a set was last given a count."""
    return [at for one, _, now, at in _list_steps(world) if (one, now) == (name, replicas)][-1]


def gaps(world: World, *names: str) -> list[timedelta]:
    """Return the times between successive downscales of these sets."""
    times = [at for name, before, now, at in _list_steps(world) if name in names and now < before]
    return [timedelta(seconds=later - earlier) for earlier, later in pairwise(times)]


async def assert_judged(guarded: Guarded) -> None:
    """Raise BrokenPromise as `Guarded.assert_judged`, where pods also have a delay's endpoint."""
    await guarded.assert_judged(DELAYED_PATH)


def _list_steps(world: World) -> Iterator[tuple[str, int, int, float]]:
    for change in world.judge.changes:
        match change.before, change.now:
            case Set() as before, Set() as now if now.replicas != before.replicas:
                yield now.name, before.replicas, now.replicas, change.at.total_seconds()
