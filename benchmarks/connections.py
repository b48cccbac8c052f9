"""What new connections cost the operator, and what those that never ask do to it and to others."""

import asyncio
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from benchmarks.figures import Figure, Result
from benchmarks.hooks import GUARDED, falling, open_bare, open_hooks
from benchmarks.processes import measure_in_child, read_memory
from benchmarks.questions import NO_DOWNSCALE_PATH, REFUSED, Kind
from benchmarks.tasks import Load, Task

PODS: Final = 50
# Replicas of the first of three sets.
REPLICAS: Final = (17, 16)
SILENT: Final = 5_000
GROWTH_MIB: Final = 64.0
CPU_US: Final = 1_500.0
LEAST_PER_S: Final = 500.0
P99_MS: Final = 80.0


async def measure(*, small: bool) -> Result:
    """Measure silence first, while the process is fresh, then connections that ask once."""
    silent, count, idle = (40, 10, 0.1) if small else (SILENT, 3_000, 3.0)
    figures: list[Figure] = []
    async with open_hooks(PODS, GUARDED) as hooks, open_bare(hooks.target) as bare:
        await asyncio.sleep(idle)
        resting = read_memory(hooks.operator.child.pid)["now"]
        figures.append(Figure(name="idle_mib", value=resting, means="resident memory before"))
        request = falling(Kind.SCALE, NO_DOWNSCALE_PATH, REPLICAS)
        load = hooks.load(request, REFUSED)
        for shakes_hands in (False, True):
            task = Task(load=replace(load, count=silent), shakes_hands=shakes_hands)
            measured = await measure_in_child("silence", task)
            figures += _describe_silence("greeted" if shakes_hands else "plain", measured, resting)
        floor = await _connect(replace(bare, request=request, count=count))
        figures += _describe_connections(await _connect(replace(load, count=count)), floor)
    setting = {"silent": silent, "asking": count, "pods": PODS}
    return Result(benchmark="connections", setting=setting, figures=figures)


async def _connect(load: Load) -> Mapping[str, float]:
    return await measure_in_child("handshakes", Task(load=load))


def _describe_silence(name: str, measured: Mapping[str, float], resting: float) -> list[Figure]:
    after = "silent after their handshake" if name == "greeted" else "that never begin with TLS"
    return [
        Figure(
            name=f"{name}_opened", value=measured["opened"], means=f"connections {after}, held open"
        ),
        Figure(name=f"{name}_opening_s", value=measured["opening_s"], means="time to open these"),
        Figure(
            name=f"{name}_growth_mib",
            value=max(measured["most_mib"] - resting, 0.0),
            means="the most resident memory of the operator meanwhile, beyond the idle one",
            at_most=GROWTH_MIB,
        ),
        Figure(
            name=f"{name}_asked",
            value=measured["count"] + measured["failed"],
            means="reviews asked meanwhile and after, each on a connection of its own",
        ),
        Figure(
            name=f"{name}_right",
            value=measured["right"],
            means="share of these that got the right answer",
            at_least=1.0,
        ),
        Figure(
            name=f"{name}_p50_ms",
            value=measured["p50_ms"],
            means="time of such a review, from connecting to its answer: half of them",
        ),
        Figure(name=f"{name}_max_ms", value=measured["max_ms"], means="the longest of them"),
    ]


def _describe_connections(ours: Mapping[str, float], bare: Mapping[str, float]) -> list[Figure]:
    return [
        Figure(
            name="new_cpu_us",
            value=ours["cpu_us"],
            means="processor time of the operator for a new connection with one review of a Scale",
            at_most=CPU_US,
        ),
        Figure(name="new_bare_cpu_us", value=bare["cpu_us"], means="the same of a bare server"),
        Figure(
            name="new_per_s",
            value=ours["per_s"],
            means="new connections a second, eight at a time",
            at_least=LEAST_PER_S,
        ),
        Figure(name="new_bare_per_s", value=bare["per_s"], means="the same of a bare server"),
        Figure(
            name="new_p99_ms",
            value=ours["p99_ms"],
            means="from connecting to the answer, as 99 of 100 are at most",
            at_most=P99_MS,
        ),
        Figure(
            name="new_right",
            value=ours["right"],
            means="share of right answers",
            at_least=1.0,
        ),
    ]
