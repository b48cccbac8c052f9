"""How much memory the operator takes, and what of it is the cache.

The operator runs as it is installed, with default flags, on a fake API server; the pods are idle.
The cache is measured in another process by the memory that Python itself hands out, so that a
figure of it does not depend on how the allocator keeps what was freed.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import Mapping
from typing import Final

from benchmarks.figures import Figure, Result
from benchmarks.pipeline import open_pipeline
from benchmarks.processes import measure_in_child, open_server, read_memory, read_time
from benchmarks.tasks import Loop, Task
from rollout_operator.aio.tasks import TaskStack
from tests.world.operatorproc import TLS_FLAG, OperatorProcess

# By number of pods, without webhooks.
RSS_MIB: Final = {0: 52.0, 200: 54.0, 5_000: 62.0}
POD_BYTES: Final = 4096.0
# By number of pods, on a free core.
READY_S: Final = {200: 0.35}
SIZES: Final = (0, 50, 200, 5_000)


async def measure(*, small: bool) -> Result:
    """Measure the process at several sizes, then the cache alone."""
    sizes, idle = ((0, 6, 60), 0.1) if small else (SIZES, 20.0)
    few, many = sizes[1], sizes[-1]
    at = {pods: await _measure_process(pods, idle) for pods in sizes}
    hooked = await _measure_process(few, idle, TLS_FLAG)
    async with open_server(many) as target:
        # Not uvloop: buffers of its own would be missing, or counted, by chance.
        cache = await measure_in_child("cache", Task(target=target, loop=Loop.ASYNCIO))
    figures = [
        *(figure for pods in sizes for figure in _describe_process(pods, idle, at[pods])),
        *_describe_process(few, idle, hooked, "_webhooks"),
        *(figure for pods in sizes for figure in _describe_ready(pods, at[pods])),
        Figure(
            name="resident_bytes_per_pod",
            value=(at[many]["idle"] - at[few]["idle"]) * 2**20 / (many - few),
            means=f"growth of resident memory from {few} to {many} pods, by pod",
        ),
        Figure(
            name="cache_bytes_per_pod",
            value=cache["bytes"] / many,
            means="what Python has handed out for the filled cache of pods, indexes included",
            at_most=POD_BYTES,
        ),
    ]
    setting = {"pods": list(sizes), "idle_s": idle}
    return Result(benchmark="memory", setting=setting, figures=figures)


async def _measure_process(pods: int, idle: float, *flags: str) -> Mapping[str, float]:
    async with open_server(pods) as target, OperatorProcess(target.launch(*flags)) as operator:
        ready = await operator.wait_ready()
        time = read_time(operator.child.pid)
        synced = read_memory(operator.child.pid)
        await asyncio.sleep(idle)
        later = read_memory(operator.child.pid)
        return {
            "ready_s": ready.total_seconds(),
            "ready_unstarved_s": ready.total_seconds() - time.starved,
            "ready_cpu_s": time.cpu,
            "synced": synced["now"],
            "idle": later["now"],
            "most": later["most"],
        }


def _describe_process(
    pods: int, idle: float, measured: Mapping[str, float], served: str = ""
) -> list[Figure]:
    limit = None if served else RSS_MIB.get(pods)
    return [
        Figure(
            name=f"rss_{pods}_pods{served}_synced_mib",
            value=measured["synced"],
            means=f"resident memory as soon as the operator is ready, {pods} pods,"
            f" webhooks {'on' if served else 'off'}",
            at_most=limit,
        ),
        Figure(
            name=f"rss_{pods}_pods{served}_idle_mib",
            value=measured["idle"],
            means=f"the same after {idle:g} s without an event",
            at_most=limit,
        ),
        Figure(
            name=f"rss_{pods}_pods{served}_most_mib",
            value=measured["most"],
            means="the most it ever was until then",
        ),
    ]


def _describe_ready(pods: int, measured: Mapping[str, float]) -> list[Figure]:
    return [
        Figure(
            name=f"ready_{pods}_pods_s",
            value=measured["ready_s"],
            means=f"from the start of the process until /ready says yes, {pods} pods",
        ),
        Figure(
            name=f"ready_{pods}_pods_unstarved_s",
            value=measured["ready_unstarved_s"],
            means="of these, without the time for which it wanted a core and had none: what a"
            " free core would show",
            at_most=READY_S.get(pods),
        ),
        Figure(
            name=f"ready_{pods}_pods_cpu_s",
            value=measured["ready_cpu_s"],
            means="of these, the processor time of the operator",
        ),
    ]


async def measure_cache(task: Task) -> Mapping[str, float]:
    """Measure inside of a child: what is there after the pods that was not there before."""
    async with open_pipeline(task.server) as pipeline, TaskStack() as tasks:
        tasks.start("statefulset informer", pipeline.sets.run())
        await pipeline.sets.wait_synced()
        gc.collect()
        tracemalloc.start()
        tasks.start("pod informer", pipeline.pods.run())
        await pipeline.pods.wait_synced()
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return {"bytes": float(held)}
