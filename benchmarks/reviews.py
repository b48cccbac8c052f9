"""What a review costs: of a StatefulSet and of its Scale, as fast as possible and at a pace.

All are refusals by the label, with the default flags, so that each is logged. A bare server in the
same run answers the same requests with fixed bytes. Processor time is that of the server alone and
the figure to trust: all processes share the machine.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from benchmarks.figures import Figure, Result
from benchmarks.hooks import GUARDED, Hooks, falling, open_bare, open_hooks
from benchmarks.processes import measure_in_child
from benchmarks.questions import NO_DOWNSCALE_PATH, REFUSED, Kind
from benchmarks.tasks import Load, Task

PODS: Final = 50
PACE: Final = 500.0
# By a bare server's: what a microsecond is worth differs from machine to machine.
COST: Final = 4.0
P99_MS: Final = 5.0
LEAST_PER_S: Final = 2_500.0
LEAST_SHARE: Final = 0.25

_LABELS: Final = {
    Kind.OBJECT: "reviews of a StatefulSet",
    Kind.SCALE: "reviews of a Scale whose StatefulSet is in the cache",
}
Measured = Mapping[str, float]


async def measure(*, small: bool, size: int = 32) -> Result:
    """Measure both kinds over so many connections, bare and ours in turn."""
    pods, seconds = (6, 0.05) if small else (PODS, 4.0)
    figures: list[Figure] = []
    sizes: dict[str, int] = {}
    async with open_hooks(pods, GUARDED) as hooks, open_bare(hooks.target) as bare:
        bare = replace(bare, connections=size)
        for kind in Kind:
            request = falling(kind, NO_DOWNSCALE_PATH, _count(pods))
            sizes[f"{kind}_bytes"] = len(request)
            floor = await _saturate(replace(bare, request=request, seconds=seconds))
            load = replace(hooks.load(request, REFUSED), seconds=seconds, per_s=PACE)
            load = replace(load, connections=size)
            figures += _describe_saturation(kind, await _saturate(load), floor)
            figures += await _measure_pace(kind, hooks, load, replace(bare, request=request))
    setting = {"pods": pods, "seconds": seconds, "connections": size, "pace_per_s": PACE, **sizes}
    return Result(benchmark="reviews", setting=setting, figures=figures)


def _count(pods: int) -> tuple[int, int]:
    size = -(-pods // 3)
    return size, size - 1


async def _saturate(load: Load) -> Measured:
    return await measure_in_child("saturation", Task(load=load))


async def _measure_pace(kind: Kind, hooks: Hooks, load: Load, bare: Load) -> list[Figure]:
    bare = replace(bare, seconds=load.seconds, per_s=load.per_s)
    floor = await measure_in_child("pace", Task(load=bare))
    before = await hooks.target.fetch_counts()
    paced = await measure_in_child("pace", Task(load=load))
    requested = await hooks.target.fetch_counts() - before
    # A watch that is opened anew every 40 s is no read for a review.
    reads = sum(requested[what] for what in ("get statefulsets", "list statefulsets"))
    return _describe_pace(kind, paced, floor, reads)


def _describe_saturation(kind: Kind, ours: Measured, bare: Measured) -> list[Figure]:
    label = _LABELS[kind]
    return [
        Figure(
            name=f"{kind}_cpu_us",
            value=ours["cpu_us"],
            means=f"processor time of the operator for one of many {label}",
        ),
        Figure(
            name=f"{kind}_bare_cpu_us",
            value=bare["cpu_us"],
            means="processor time of a bare server for the same",
        ),
        Figure(
            name=f"{kind}_cost",
            value=ours["cpu_us"] / bare["cpu_us"],
            means="the former by the latter",
            at_most=COST,
        ),
        Figure(
            name=f"{kind}_per_s",
            value=ours["per_s"],
            means=f"{label} a second, asked again at once on every connection",
            at_least=LEAST_PER_S,
        ),
        Figure(name=f"{kind}_bare_per_s", value=bare["per_s"], means="the same of a bare server"),
        Figure(
            name=f"{kind}_share_of_bare",
            value=ours["per_s"] / bare["per_s"],
            means="the former by the latter",
            at_least=LEAST_SHARE,
        ),
        Figure(name=f"{kind}_p50_ms", value=ours["p50_ms"], means="time of the half of these"),
        Figure(name=f"{kind}_p99_ms", value=ours["p99_ms"], means="as 99 of 100 are at most"),
        Figure(
            name=f"{kind}_starved_us",
            value=ours["starved_us"],
            means="for how long of one the operator wanted a core and had none",
        ),
        Figure(name=f"{kind}_right", value=ours["right"], means="share of right answers"),
    ]


def _describe_pace(kind: Kind, paced: Measured, bare: Measured, reads: int) -> list[Figure]:
    at = f"at {PACE:g} {_LABELS[kind]} a second"
    return [
        Figure(
            name=f"{kind}_paced_cpu_us",
            value=paced["cpu_us"],
            means=f"processor time of the operator for each, {at}: at that pace, most of it goes"
            " into waking up and into filling the caches of the processor again",
        ),
        Figure(
            name=f"{kind}_paced_bare_cpu_us",
            value=bare["cpu_us"],
            means="processor time of a bare server for the same",
        ),
        Figure(
            name=f"{kind}_paced_p50_ms",
            value=paced["p50_ms"],
            means=f"from when a request is due until its answer is there, {at}: half of them",
        ),
        Figure(
            name=f"{kind}_paced_p99_ms",
            value=paced["p99_ms"],
            means="the same, as 99 of 100 are at most",
            at_most=P99_MS,
        ),
        Figure(
            name=f"{kind}_paced_bare_p99_ms",
            value=bare["p99_ms"],
            means="the same of a bare server: what the machine was able to",
        ),
        Figure(
            name=f"{kind}_paced_starved_us",
            value=paced["starved_us"],
            means="for how long of one the operator wanted a core and had none",
        ),
        Figure(
            name=f"{kind}_paced_right",
            value=paced["right"],
            means="share of right answers: all must be refused, by the label",
            at_least=1.0,
        ),
        Figure(
            name=f"{kind}_paced_api_reads",
            value=reads,
            means="requests to the API server about StatefulSets meanwhile",
            at_most=0,
        ),
    ]
