"""How long a drain of all pods takes, by what the restarts of the pods alone take.

All pods of three zones are evicted side by side, as if all nodes were drained at once; whoever is
refused asks again after half a second, a sixth of a restart. The budget lets one pod go at a time,
in a second drain five of one zone. All times come from the audit log of a real API server, where
the webhook is registered with failure policy Fail; a judge that watches from outside counts broken
promises.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from benchmarks.figures import Figure, Result
from benchmarks.processes import read_time
from benchmarks.rollout import open_plane
from benchmarks.timeline import Json, Rollout, read_rollout
from tests.system.hooked import Hooked, hook_up
from tests.system.zones import OTHER, create_budgets
from tests.world.budgets import GROUP, grouped_zones, zone_budget
from tests.world.clients import CREATED, Drain, list_victims
from tests.world.hooks import BUDGET_HOOKS
from tests.world.kubelet import Behaviour, always
from tests.world.plane import ControlPlane
from tests.world.world import World

NAME: Final = "ingester"
# By how many pods of a zone the budget lets go at a time.
RATIO: Final = {1: 1.1, 5: 1.15}
PODS: Final = Behaviour(
    ready_after=timedelta(milliseconds=2_500), terminates_after=timedelta(milliseconds=500)
)
REPLICAS: Final = 10
# kubectl waits for 5 s where a restart takes minutes: the last of a zone wait longest.
RETRY: Final = timedelta(milliseconds=500)
DRAINED_LIMIT: Final = timedelta(minutes=5)
_DRAINER: Final = "drainer"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One drain; seconds."""

    rollout: Rollout
    began: float
    requested: int
    unexpected: int
    cpu: float
    violations: int

    @property
    def wall(self) -> float:
        """Return the time from the first eviction until the last pod counts as back."""
        return max(each.end for each in self.rollout.restarts) - self.began


async def measure(*, small: bool) -> Result:
    """Measure one drain for each limit. Raises NoControlPlaneError."""
    replicas, limits = (1, (1,)) if small else (REPLICAS, tuple(RATIO))
    figures: list[Figure] = []
    async with open_plane() as plane:
        for limit in limits:
            figures += describe(await _drain(plane, replicas, limit), limit)
    setting = {
        "zones": 3,
        "replicas": replicas,
        "limits": list(limits),
        "retry_s": RETRY.total_seconds(),
        "pod_ready_after_s": PODS.ready_after.total_seconds(),
        "pod_terminates_after_s": PODS.terminates_after.total_seconds(),
    }
    return Result(benchmark="evictions_drain", setting=setting, figures=figures)


async def _drain(plane: ControlPlane, replicas: int, limit: int) -> Run:
    async with World(plane, plane.folder, always(PODS)) as world:
        zones = grouped_zones(NAME, replicas=replicas)
        names = [zone.name for zone in zones]
        held = await hold(world, zones, limit)
        before, offset = read_time(held.operator.child.pid), plane.audit_size()
        drain = Drain(world.api, world.namespace, retry=RETRY)
        await drain.run(await list_victims(world.api, world.namespace, names), DRAINED_LIMIT)
        await world.wait_ready(names)
        cpu = read_time(held.operator.child.pid).cpu - before.cpu
        violations = await world.judge.violations()  # the audit log is whole after that
        entries = [
            entry
            for entry in plane.read_audit(offset)[0]
            if entry.get("objectRef", {}).get("namespace") == world.namespace
        ]
        return Run(
            rollout=read_drain(entries, names, limit),
            began=min(map(_received, filter(_is_eviction, entries))),
            requested=len(drain.answers),
            unexpected=len(drain.unexpected()),
            cpu=cpu,
            violations=len(violations),
        )


async def hold(world: World, zones: Sequence[ZoneSpec], limit: int) -> Hooked:
    """Create zones under a budget, and return once their evictions are reviewed."""
    await create_budgets(world, [zone_budget(NAME, {GROUP: NAME}, maxUnavailable=limit)])
    probe = ZoneSpec(name=OTHER, group=None, replicas=1)
    return await hook_up(world, probe, *zones, registration={"hooks": BUDGET_HOOKS})


def read_drain(entries: Iterable[Json], zones: Iterable[str], limit: int) -> Rollout:
    """Return what the audit log tells: an eviction is read as the delete that it is.

    It begins when it is answered: the time until then is the operator's, not the pod's.
    """
    return read_rollout(_with_deletes(entries), _DRAINER, zones, limit)


def _with_deletes(entries: Iterable[Json]) -> Iterator[Json]:
    for entry in entries:
        if not _is_eviction(entry):
            yield entry
        elif entry["responseStatus"]["code"] in CREATED:
            target = {key: each for key, each in entry["objectRef"].items() if key != "subresource"}
            yield entry | {
                "verb": "delete",
                "user": {"username": _DRAINER},
                "objectRef": target,
                "requestReceivedTimestamp": entry["stageTimestamp"],
            }


def _is_eviction(entry: Json) -> bool:
    target: Json = entry["objectRef"]
    return bool(entry["verb"] == "create" and target.get("subresource") == "eviction")


def _received(entry: Json) -> float:
    return datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()


def describe(run: Run, limit: int) -> list[Figure]:
    """Return the figures of a drain, named by the limit that it kept."""
    evicted = len(run.rollout.restarts)
    figures = [
        Figure(
            name="wall_s",
            value=run.wall,
            means="from the first eviction that was asked for until the last pod counts as back",
        ),
        Figure(
            name="floor_s",
            value=run.rollout.floor,
            means="what the restarts alone took, one zone after the other, as many at a time as the"
            " budget allows, each from when its eviction was answered until its zone counts it",
        ),
        Figure(
            name="ratio",
            value=run.wall / run.rollout.floor,
            means="the first of these by the second",
            at_most=RATIO[limit],
        ),
        Figure(name="evicted", value=evicted, means="evicted pods"),
        Figure(
            name="asked_per_pod", value=run.requested / evicted, means="evictions asked for each"
        ),
        Figure(
            name="cpu_ms_per_pod",
            value=run.cpu * 1000 / evicted,
            means="processor time of the operator for each, refusals and events included",
        ),
        Figure(
            name="unexpected",
            value=run.unexpected,
            means="answers after which a drain would give up",
            at_most=0,
        ),
        Figure(
            name="zones_short",
            value=run.rollout.zones_short,
            means="the most zones with a pod down at any time",
            at_most=1,
        ),
        Figure(
            name="pods_down",
            value=run.rollout.pods_down,
            means="the most pods of a zone down at any time",
            at_most=limit,
        ),
        Figure(
            name="violations",
            value=run.violations,
            means="safety invariants that a judge saw broken",
            at_most=0,
        ),
    ]
    return [replace(one, name=f"limit_{limit}_{one.name}") for one in figures]
