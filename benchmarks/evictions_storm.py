"""A storm of evictions through a real API server: how many it decides, and who pays for it.

The webhook is registered with the failure policy Fail, the operator runs with default flags under
the shipped Role. All pods of three zones are evicted again and again, far more often than their
budget allows; what the API server itself takes for each is told beside what the operator takes.
"""

import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from benchmarks.evicting import read_cpu
from benchmarks.evictions_drain import NAME, hold
from benchmarks.figures import Figure, Result
from benchmarks.processes import measure_in_child, read_time
from benchmarks.tasks import Storm, Task
from tests.system.hooked import Hooked
from tests.world.assets import locate_assets
from tests.world.budgets import grouped_zones
from tests.world.clients import list_victims
from tests.world.kubelet import Behaviour, always
from tests.world.plane import ADMIN, ControlPlane
from tests.world.world import World

PODS: Final = Behaviour(
    ready_after=timedelta(milliseconds=500), terminates_after=timedelta(milliseconds=200)
)
# Of the issue: 2,000 evictions over 200 pods.
ZONE_PODS: Final = 66
COUNT: Final = 2_000

# D-55
CPU_US: Final = 1_000.0
LEAST_PER_S: Final = 300.0
P99_MS: Final = 1_000.0


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One storm; seconds of processor time."""

    answers: Mapping[str, float]
    operator: float
    starved: float
    """For how long the operator wanted a core and had none."""
    server: float
    violations: int


async def measure(*, small: bool) -> Result:
    """Measure one storm. Raises NoControlPlaneError."""
    replicas, count = (2, 40) if small else (ZONE_PODS, COUNT)
    async with (
        ControlPlane(locate_assets()).running() as plane,
        World(plane, plane.folder, always(PODS)) as world,
    ):
        zones = grouped_zones(NAME, replicas=replicas)
        run = await _storm(world, await hold(world, zones, 1), count)
    setting = {"pods": replicas * 3, "evictions": count, "connections": 64, "max_unavailable": 1}
    return Result(benchmark="evictions_storm", setting=setting, figures=describe(run))


async def _storm(world: World, held: Hooked, count: int) -> Run:
    plane = world.plane
    zones = [zone.name for zone in grouped_zones(NAME, replicas=1)]
    storm = Storm(
        port=plane.port,
        token=plane.tokens[ADMIN],
        namespace=world.namespace,
        pods=tuple(pod.name for pod in await list_victims(world.api, world.namespace, zones)),
        count=count,
    )
    operator, server = held.operator.child.pid, plane.child("kube-apiserver").pid
    before, server_before = read_time(operator), read_cpu(server)
    answers = await measure_in_child("storm", Task(storm=storm))
    after, server_after = read_time(operator), read_cpu(server)
    violations = await world.judge.violations()
    for one in violations:  # a count alone helps nobody
        sys.stderr.write(f"evictions_storm: {one}\n")
    return Run(
        answers=answers,
        operator=after.cpu - before.cpu,
        starved=after.starved - before.starved,
        server=server_after - server_before,
        violations=len(violations),
    )


def describe(run: Run) -> list[Figure]:
    """Return the figures of a storm."""
    answers, count = run.answers, run.answers["count"]
    return [
        Figure(
            name="per_s",
            value=answers["per_s"],
            means="evictions answered a second, 64 at a time; all processes share the machine",
            at_least=LEAST_PER_S,
        ),
        Figure(name="p50_ms", value=answers["p50_ms"], means="time of the half of them"),
        Figure(
            name="p99_ms",
            value=answers["p99_ms"],
            means="as 99 of 100 take at most",
            at_most=P99_MS,
        ),
        Figure(name="max_ms", value=answers["max_ms"], means="the longest"),
        Figure(
            name="cpu_us",
            value=run.operator * 1e6 / count,
            means="processor time of the operator for each, grants and all events included",
            at_most=CPU_US,
        ),
        Figure(
            name="server_cpu_us",
            value=run.server * 1e6 / count,
            means="processor time of the API server for each, and for all else meanwhile",
        ),
        Figure(
            name="share_of_server",
            value=run.server / (run.server + run.operator),
            means="share of the API server in what both took",
        ),
        Figure(
            name="starved_us",
            value=run.starved * 1e6 / count,
            means="for how long of each the operator wanted a core and had none",
        ),
        *_describe_answers(run),
    ]


def _describe_answers(run: Run) -> list[Figure]:
    answers = run.answers
    return [
        Figure(name="allowed", value=answers["allowed"], means="evictions that were allowed"),
        Figure(name="refused", value=answers["refused"], means="refused, to be tried again"),
        Figure(name="absent", value=answers["absent"], means="of pods that were away just then"),
        Figure(
            name="others",
            value=answers["others"],
            means="answers of any other kind: such a one ends a drain",
            at_most=0,
        ),
        Figure(
            name="violations",
            value=run.violations,
            means="safety invariants that a judge saw broken",
            at_most=0,
        ),
    ]
