"""What the decision on an eviction costs: of a pod under a budget that is used up, and of others.

The budget is of three zones of 66 pods, of which one in the last zone is not ready: every pod of
the others is looked at for each answer. With the default flags; a bare server in the same run
answers the same requests with fixed bytes. What a grant costs is measured in `evictions_storm`.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from msgspec.structs import replace

from benchmarks.figures import Figure, Result
from benchmarks.hooks import open_bare, open_hooks
from benchmarks.objects import Place
from benchmarks.processes import measure_in_child
from benchmarks.questions import ALLOWED, TRY_AGAIN, make_eviction
from benchmarks.server import Traits
from benchmarks.tasks import Load, Task

ZONE_PODS: Final = 66
# The first is under a budget; beside it is one that is not, and as many as a large namespace has.
GROUPS: Final = (2, 11)

# D-55
CPU_US: Final = 1_000.0
LEAST_PER_S: Final = 300.0
# What noise alone may make of nothing.
GROWTH: Final = 1.25

Measured = Mapping[str, float]


async def measure(*, small: bool) -> Result:
    """Measure refusals in a small and in a large namespace, and pods that no budget selects."""
    zone_pods, groups, seconds = (3, (2, 3), 0.05) if small else (ZONE_PODS, GROUPS, 3.0)
    traits = Traits(
        zone_pods=zone_pods,
        budgeted=(0,),
        unready=(Place(group=0, zone="c", ordinal=zone_pods - 1).pod_name,),
    )
    refused = make_eviction(Place(group=0, zone="a"))
    unselected = make_eviction(Place(group=1, zone="a"))
    few, many = (each * 3 * zone_pods for each in groups)
    small_runs = await _saturate(
        few, traits, Load(port=0, pid=0, request=refused, expected=TRY_AGAIN, seconds=seconds),
        Load(port=0, pid=0, request=unselected, expected=ALLOWED, seconds=seconds),
    )  # fmt: skip
    large_runs = await _saturate(
        many, traits, Load(port=0, pid=0, request=refused, expected=TRY_AGAIN, seconds=seconds)
    )
    (bare, ours, other), (large_bare, large) = small_runs, large_runs
    figures = [
        *_describe("refused", f"evictions refused under a budget of {zone_pods * 3} pods", ours),
        *_describe("unselected", "evictions of pods that no budget selects", other),
        *_compare(bare, ours, large_bare, large),
    ]
    setting = {"budget_pods": zone_pods * 3, "pods": few, "many_pods": many, "seconds": seconds}
    return Result(benchmark="evictions", setting=setting, figures=figures)


async def _saturate(pods: int, traits: Traits, *loads: Load) -> list[Measured]:
    """Return what a bare server made of the first load, and the operator of each."""
    async with AsyncExitStack() as stack:
        hooks = await stack.enter_async_context(open_hooks(pods, traits))
        bare = await stack.enter_async_context(open_bare(hooks.target))
        requested = [replace(bare, request=loads[0].request, seconds=loads[0].seconds)]
        requested += [
            replace(hooks.load(each.request, each.expected), seconds=each.seconds) for each in loads
        ]
        return [await measure_in_child("saturation", Task(load=each)) for each in requested]


def _describe(name: str, label: str, run: Measured) -> list[Figure]:
    return [
        Figure(
            name=f"{name}_cpu_us",
            value=run["cpu_us"],
            means=f"processor time of the operator for one of many {label}",
            at_most=CPU_US,
        ),
        Figure(
            name=f"{name}_per_s",
            value=run["per_s"],
            means=f"{label} a second, asked again at once on every connection",
            at_least=LEAST_PER_S,
        ),
        Figure(name=f"{name}_p99_ms", value=run["p99_ms"], means="as 99 of 100 take at most"),
        Figure(
            name=f"{name}_right",
            value=run["right"],
            means="share of right answers",
            at_least=1.0,
        ),
    ]


def _compare(bare: Measured, ours: Measured, large_bare: Measured, large: Measured) -> list[Figure]:
    # Each by the bare server beside it: what else the machine does changes from one to the other.
    few, many = (
        one["cpu_us"] / floor["cpu_us"] for one, floor in ((ours, bare), (large, large_bare))
    )
    return [
        Figure(
            name="bare_cpu_us",
            value=bare["cpu_us"],
            means="processor time of a bare server for the same requests",
        ),
        Figure(
            name="cpu_by_bare",
            value=few,
            means="processor time of a refusal by that of the bare server",
        ),
        Figure(
            name="many_cpu_us",
            value=large["cpu_us"],
            means="processor time of the same refusal in a namespace of many more pods",
            at_most=CPU_US,
        ),
        Figure(
            name="growth",
            value=many / few,
            means="the latter by that of the small namespace, each by a bare server beside it: the"
            " pods of others cost nothing",
            at_most=GROWTH,
        ),
        Figure(
            name="many_right",
            value=large["right"],
            means="share of right answers there",
            at_least=1.0,
        ),
    ]
