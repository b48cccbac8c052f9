"""What release rollouts cost that have nothing to do: requests, memory and CPU time.

The operator runs as it is installed, on a fake API server with Rollouts whose releases are done;
once with releases and once without them, so that the rest of the process is left out. A write or a
look-up in a registry would show: the server counts requests, the process its look-ups.
"""

import asyncio
import re
from collections import Counter
from typing import Final

import msgspec

from benchmarks.figures import Figure, Result
from benchmarks.processes import open_server, read_memory, read_time
from benchmarks.server import Traits
from tests.world.operatorproc import OperatorProcess

ON: Final = "-releases.enabled"
COUNT: Final = 1_000
PODS: Final = 50
# After the start each Rollout is decided once, and after that once a minute.
SETTLED_S: Final = 15.0
IDLE_S: Final = 60.0
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
# Whether schedules of the cluster may be listed: nothing is written by that.
REQUESTED: Final = "create selfsubjectaccessreviews"
ROLLOUT_BYTES: Final = 30_000.0
CPU_MS: Final = 2.0
_LOOK_UPS: Final = re.compile(
    r"^rollout_operator_release_registry_requests_total\{.*\} (\S+)$", re.M
)


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """What a process was seen to do and to take while nothing changed."""

    rss_mib: float
    cpu_s: float
    """Of its main thread."""
    requests: Counter[str]
    look_ups: float
    """In registries, since its start."""
    known: int
    """Rollouts that it tells of."""


async def measure(*, small: bool) -> Result:
    """Measure the process without releases, then with them."""
    count, settled, idle = (3, 1.0, 0.5) if small else (COUNT, SETTLED_S, IDLE_S)
    without = await _measure(count, settled, idle)
    with_them = await _measure(count, settled, idle, ON)
    return Result(
        benchmark="releases",
        setting={"rollouts": count, "pods": PODS, "idle_s": idle},
        figures=describe(count, idle, without, with_them),
    )


async def _measure(count: int, settled: float, idle: float, *flags: str) -> Idle:
    async with (
        open_server(PODS, traits=Traits(releases=count)) as target,
        OperatorProcess(target.launch(*flags)) as operator,
    ):
        await operator.wait_ready()
        before, writes = await target.fetch_counts(), -1
        while writes != (writes := _count_writes(before)):  # a busy machine takes its time
            await asyncio.sleep(settled)
            before = await target.fetch_counts()
        begin = read_time(operator.child.pid)
        await asyncio.sleep(idle)
        after, end = await target.fetch_counts(), read_time(operator.child.pid)
        page = await operator.metrics()
        return Idle(
            rss_mib=read_memory(operator.child.pid)["now"],
            cpu_s=end.cpu - begin.cpu,
            requests=after - before,
            look_ups=sum(float(one) for one in _LOOK_UPS.findall(page)),
            known=page.count("rollout_operator_release_info{"),
        )


def describe(count: int, idle: float, without: Idle, with_them: Idle) -> list[Figure]:
    """Return the figures of so many Rollouts in so many seconds."""
    more_ms = (with_them.cpu_s - without.cpu_s) * 1000 / count
    return [
        *_describe_requests(with_them),
        Figure(name="rss_off_mib", value=without.rss_mib, means="resident memory, releases off"),
        Figure(name="rss_on_mib", value=with_them.rss_mib, means="the same, releases on"),
        Figure(
            name="memory_ratio",
            value=with_them.rss_mib / without.rss_mib,
            means="memory with releases by that without them",
        ),
        Figure(
            name="bytes_per_rollout",
            value=(with_them.rss_mib - without.rss_mib) * 2**20 / count,
            means="what releases add for each Rollout: it, its policy, repository, gate and source,"
            " and their code",
            at_most=ROLLOUT_BYTES,
        ),
        Figure(
            name="cpu_ms_per_rollout_and_minute",
            value=more_ms * 60 / idle,
            means="CPU time that each Rollout adds to an idle minute",
            at_most=CPU_MS,
        ),
        Figure(
            name="cpu_share",
            value=with_them.cpu_s / idle,
            means="of one core, with releases, while idle",
        ),
        Figure(
            name="cpu_ratio",
            value=with_them.cpu_s / without.cpu_s,
            means="CPU time while idle with releases by that without them",
        ),
    ]


def _count_writes(requests: Counter[str]) -> int:
    return sum(
        times for what, times in requests.items() if what.split()[0] in WRITES and what != REQUESTED
    )


def _describe_requests(found: Idle) -> list[Figure]:
    writes = _count_writes(found.requests)
    return [
        Figure(name="known", value=found.known, means="Rollouts that the process tells of"),
        Figure(name="writes", value=writes, means="writes to the API server while idle", at_most=0),
        Figure(
            name="reads",
            value=sum(
                times
                for what, times in found.requests.items()
                if what.split()[0] in ("get", "list")
            ),
            means="reads of the API server while idle, watches left out",
        ),
        Figure(
            name="look_ups",
            value=found.look_ups,
            means="requests to registries since the start, where all is on record",
            at_most=0,
        ),
    ]
