"""What a look at a rollout costs that a budget holds back, beside what planning it costs.

Three zones, of which the first is to be rolled out and one pod of it is down already: as many as
the budget allows. Each event of such a group plans it, and asks the gate for every outdated pod.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from benchmarks.figures import Figure, Result, median
from benchmarks.plans import NOW, make_group
from benchmarks.processes import measure_in_child
from benchmarks.tasks import Task
from rollout_operator.aio.clock import LoopClock
from rollout_operator.guards.arbiter import Arbiter, ArbiterContext, BudgetCatalog
from rollout_operator.guards.grants import DisruptionRequest, InFlight, OwnDeletes, Recorder
from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.names import Uid, Unreachable
from rollout_operator.model.objects import Group, Pod, StatefulSet, Unreadable, Zone
from rollout_operator.planning.rollout import plan_group
from rollout_operator.telemetry.metrics import Metrics

# Replicas of a zone.
SIZES: Final = (100, 600)
ROUNDS: Final = 5
PATTERN: Final = ".*-([0-9]+)"
MODES: Final = {"zone": "", "partition": PATTERN}
# Planning looks at each pod once, and so does the gate; by partition, each has a reason of its own.
RATIOS: Final = {"zone": 4.0, "partition": 20.0}
# By pod; what noise alone may make of nothing.
GROWTH: Final = 1.5


async def measure(*, small: bool) -> Result:
    """Measure in a child of its own, where nothing else is in memory."""
    repeats = 1 if small else 20
    measured = await measure_in_child("held", Task(count=repeats))
    few, many = SIZES
    figures: list[Figure] = []
    for mode in MODES:
        figures += [
            Figure(
                name=f"{mode}_3x{size}_us",
                value=measured[f"{mode}_{size}"],
                means=f"processor time of asking the gate for {size} pods of one zone of three,"
                f" under a budget by {mode}",
            )
            for size in SIZES
        ]
        figures.append(
            Figure(
                name=f"{mode}_by_plan",
                value=measured[f"{mode}_{many}"] / measured[f"plan_{many}"],
                means="the last of these by what planning the same group costs",
                at_most=RATIOS[mode],
            )
        )
        figures.append(
            Figure(
                name=f"{mode}_growth",
                value=measured[f"{mode}_{many}"] / measured[f"{mode}_{few}"] * few / many,
                means="the last by the first, for each pod: 1 where the work grows with the pods",
                at_most=GROWTH,
            )
        )
    return Result(benchmark="held", setting={"repeats": repeats}, figures=figures)


async def measure_held(task: Task) -> dict[str, float]:
    """Measure inside of a child; microseconds by mode and size."""
    found: dict[str, float] = {}
    for size in SIZES:
        group = make_held_group(size)
        plans = [_time_plan(group, task.count) for _ in range(ROUNDS)]
        found[f"plan_{size}"] = median(plans) * 1e6
        for mode, pattern in MODES.items():
            gate, requests = make_gate(group, pattern), list_requests(group)
            rounds = [await _time_gate(gate, requests, task.count) for _ in range(ROUNDS)]
            found[f"{mode}_{size}"] = median(rounds) * 1e6
    return found


def make_held_group(size: int) -> Group:
    """Return a group whose first zone is outdated; its peers have just become ready."""
    first, *others = make_group(size, size).zones
    started = replace(
        first.pods[0], is_ready=False, ready_since=None, why_not_ready="not ready", is_starting=True
    )
    lately = [
        Zone(sts=zone.sts, pods=tuple(replace(pod, ready_since=NOW) for pod in zone.pods))
        for zone in others
    ]
    zones = (Zone(sts=first.sts, pods=(started, *first.pods[1:])), *lately)
    return Group(name=make_group(1, 0).name, zones=zones, now=NOW, deletions={})


def make_gate(group: Group, pattern: str) -> Arbiter:
    """Return the gate of one process whose caches show a group, under one budget."""
    clock, metrics = LoopClock(), Metrics()
    sets, pods, catalog = StatefulSetStore(), PodStore(), BudgetCatalog(metrics)
    sets.replace_all([zone.sts for zone in group.zones])
    pods.replace_all([pod for zone in group.zones for pod in zone.pods])
    budget = Budget(
        namespace=group.zones[0].sts.namespace,
        name="held",
        uid=Uid("held"),
        resource_version="1",
        pattern=pattern,
        delay=timedelta(minutes=20) if pattern else timedelta(0),
    )
    catalog.on_change(None, budget)
    in_flight = InFlight(pods, OwnDeletes(pods, clock), clock)
    nowhere = _Nowhere()
    return Arbiter(
        ArbiterContext(
            budgets=catalog, find_lack=lambda engine: None, sets=sets, pods=pods, reader=nowhere,
            in_flight=in_flight, recorder=Recorder(nowhere, clock, "held"),
            find_downscale=lambda sets: None, age=lambda: timedelta(0), now=lambda: NOW,
            clock=clock, metrics=metrics,
        )
    )  # fmt: skip


def list_requests(group: Group) -> list[DisruptionRequest]:
    """Return what a rollout asks for: all pods of the first zone but the one that is down."""
    return [
        DisruptionRequest(pod=pod, engine=DisruptionSource.ROLLOUT, limit=1)
        for pod in group.zones[0].pods
        if pod.is_ready
    ]


class _Nowhere:
    """No API server: what the caches show is enough for a refusal."""

    async def fetch_pods(self, sets: Sequence[StatefulSet]) -> Sequence[Pod | Unreadable]:
        raise Unreachable("nothing is asked for")

    async def wait_turn_to_patch(self, resource: Resource, namespace: str, name: str) -> None:
        """Wait for nothing."""

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        subresource: str = "",
        *,
        has_turn: bool = False,
    ) -> bytes:
        raise Unreachable("nothing is written")


def _time_plan(group: Group, repeats: int) -> float:
    begin = time.process_time()
    for _ in range(repeats):
        plan_group(group)
    return (time.process_time() - begin) / repeats


async def _time_gate(gate: Arbiter, requests: Sequence[DisruptionRequest], repeats: int) -> float:
    begin = time.process_time()
    for _ in range(repeats):
        refusals = await gate.assess_all(requests)
        if None in refusals:
            raise RuntimeError("a pod that is to be held may go")
    return (time.process_time() - begin) / repeats
