"""An hour of work without a pause: whether memory grows, the loop stalls, or a promise is broken.

The operator runs with webhooks and default flags on a real control plane. Its groups roll without
end, some at a time, each from the moment at which it is at rest again. A third of them are drained
in turn under budgets, another third are scaled, with zones that follow and pods that are prepared.
The metrics are scraped each second. The judge looks every minute at what happened since.
"""

import asyncio
import os
import re
import sys
import time
import urllib.request
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, count, cycle
from typing import Final

import aiohttp
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from benchmarks.figures import Figure, Result, median
from benchmarks.processes import Time, read_memory, read_time
from tests.system.hooked import TLS_FLAGS
from tests.system.zones import create_budgets, follow, prepared_zone
from tests.world.api import PODS, STATEFULSETS, ApiError, Json, Resource
from tests.world.assets import locate_assets
from tests.world.budgets import GROUP, grouped_zones, zone_budget
from tests.world.clients import CREATED, Drain, Route, Workload, list_victims
from tests.world.hooks import BUDGET_HOOKS, NO_DOWNSCALE, PREPARE_DOWNSCALE, Registration
from tests.world.kubelet import Behaviour
from tests.world.operatorproc import OPERATOR, OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.sets import Snapshot, create_zones, each_of, missing_adopted
from tests.world.webpods import WebPods
from tests.world.world import World

GROWTH: Final = 1.05
STALL_MS: Final = 100.0
# What the metric covers.
WINDOW_S: Final = 30
GROUPS: Final = 100
# About three pods a second, more than half of what two cores bear together with all the rest.
AT_ONCE: Final = 8
SETTLED: Final = timedelta(minutes=5)
PROBE: Final = "probe"
JUDGED_EVERY_S: Final = 60
REST_LIMIT: Final = timedelta(minutes=10)
RETRY: Final = timedelta(seconds=1)
_LAG: Final = re.compile(r"^rollout_operator_event_loop_lag_seconds (\S+)$", re.MULTILINE)
ERROR: Final = "level=error"
# Of one pod after the other, in seconds.
_SPANS: Final = cycle((1.5, 2.5, 3.5, 2.0, 3.0))


@dataclass(slots=True, kw_only=True)
class Hour:
    """The work, and what has been seen of it so far."""

    world: World
    operator: OperatorProcess
    pods: WebPods
    sets: Mapping[str, Sequence[str]]
    """StatefulSets by group."""
    snapshot: Snapshot = field(default_factory=Snapshot)
    memory: list[float] = field(default_factory=list)
    """In MiB, second by second."""
    lags: list[float] = field(default_factory=list)
    """Longest delays of the event loop in half a minute, in seconds."""
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    async def run(self, seconds: float) -> Time:
        """Work for so many seconds; return what the operator took of the processor."""
        groups, pid, loop = list(self.sets), self.operator.child.pid, asyncio.get_running_loop()
        before, begin = read_time(pid), loop.time()
        await self.world.judge.forget()
        async with asyncio.TaskGroup() as tasks:
            acts = [
                *(self._follow(kind) for kind in (STATEFULSETS, PODS)),
                self._roll(),
                self._drain(groups[::3]),
                self._scale(groups[1::3]),
                self._judge(),
            ]
            running = [tasks.create_task(act) for act in acts]
            for second in range(1, round(seconds) + 1):
                # Not in this loop, in which the judge sometimes computes for seconds.
                lag = _LAG.search(await asyncio.to_thread(_scrape, self.operator.port))
                assert lag is not None, "always there"
                self.lags.append(float(lag[1]))
                self.memory.append(read_memory(pid)["now"])
                await asyncio.sleep(begin + second - loop.time())
            for one in running:
                one.cancel()
        await self._judge_now()
        lines, after = self.operator.log_lines(), read_time(pid)
        self.counts.update(line.partition(" ")[0] for line in lines)
        for bad in (*self.violations, *(line for line in lines if line.startswith(ERROR))):
            sys.stderr.write(f"hour: {bad}\n")  # a count alone helps nobody
        return Time(after.cpu - before.cpu, after.starved - before.starved)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Count what fails, and go on: nothing else is to end an hour."""
        try:
            yield
        except* (ApiError, aiohttp.ClientError, TimeoutError) as errors:
            self.counts["failed"] += 1
            sys.stderr.write(f"hour: {errors.exceptions}\n")

    async def _follow(self, kind: Resource) -> None:
        async for event in self.world.api.follow(kind, self.world.namespace):
            self.snapshot.take(kind, event)

    async def _roll(self) -> None:
        """Give groups that are at rest a new template, so that some always roll."""
        images, waiting, rolling = count(2), deque(self.sets), set[str]()
        while True:
            rested = {
                name
                for name in rolling
                if not each_of(self.sets[name], missing_adopted)(self.snapshot)
            }
            rolling -= rested
            waiting.extend(sorted(rested))
            while waiting and len(rolling) < AT_ONCE:
                rolling.add(name := waiting.popleft())
                with self._failing():
                    await self.world.set_image(self.sets[name], f"v{next(images)}")
            await asyncio.sleep(1)

    async def _drain(self, groups: Sequence[str]) -> None:
        """Evict all pods of one group after the other."""
        where = (self.world.api, self.world.namespace)
        for group in cycle(groups):
            drain = Drain(*where, retry=RETRY)
            with self._failing():
                await drain.run(await list_victims(*where, self.sets[group]), REST_LIMIT)
            self.counts["refused"] += len(drain.refusals())
            self.counts["unexpected"] += len(drain.unexpected())

    async def _scale(self, groups: Sequence[str]) -> None:
        """Raise, then lower the count of each leading zone; a downscale may be rejected."""
        for replicas, group in ((many, one) for many in cycle((3, 2)) for one in groups):
            zone = Workload(
                api=self.world.api, namespace=self.world.namespace, name=self.sets[group][0]
            )
            with self._failing():
                answer = await zone.scale(replicas, Route.SCALE_MERGE)
                self.counts["scaled" if answer.status in CREATED else "unscaled"] += 1
            await asyncio.sleep(RETRY.total_seconds())

    async def _judge(self) -> None:
        while True:
            await asyncio.sleep(JUDGED_EVERY_S)
            with self._failing():
                await self._judge_now()

    async def _judge_now(self) -> None:
        """Judge what has happened since the last time."""
        judge, begin = self.world.judge, time.process_time()
        found = [*await judge.violations(), *await judge.downscale_violations(self.pods.calls)]
        self.violations += [str(one) for one in found]
        self.counts["replaced"] += sum(one.is_done for one in await judge.deletes())
        self.counts["evicted"] += sum(one.is_done for one in await judge.evictions())
        self.pods.calls.clear()
        await judge.forget()
        took, longest = time.process_time() - begin, max(self.lags[-JUDGED_EVERY_S:])
        said = f"{self.memory[-1]:.1f} MiB, longest delay {longest:.3f} s, judged in {took:.1f} s"
        sys.stderr.write(f"hour: {len(self.memory)} s: {said}, {dict(self.counts)}\n")


async def measure(*, small: bool, size: int = 60) -> Result:
    """Work for so many minutes. Raises NoControlPlaneError."""
    groups, seconds = (3, 10.0) if small else (GROUPS, size * 60.0)
    plane = ControlPlane(locate_assets())
    try:
        await plane.start()
        async with World(plane, plane.folder, _choose) as world, _open(world, groups) as hour:
            figures = describe(hour, await hour.run(seconds))
    finally:
        await plane.stop()
    setting = {"groups": groups, "at_once": AT_ONCE, "zones": 3, "seconds": seconds}
    return Result(benchmark="hour", setting=setting, figures=figures)


def _choose(_: Json) -> Behaviour:
    """Return the behaviour of a pod that is ready again two to four seconds after its delete."""
    ready = timedelta(seconds=next(_SPANS))
    return Behaviour(ready_after=ready, terminates_after=timedelta(milliseconds=500))


@asynccontextmanager
async def _open(world: World, groups: int) -> AsyncIterator[Hour]:
    """Create all groups, and the operator once they are ready."""
    pods = await world.serve_pods()
    names = [f"g{number:02}" for number in range(groups)]
    budgets = [zone_budget(name, {GROUP: name}, maxUnavailable=1) for name in names[::3]]
    await create_budgets(world, budgets)
    for component in ("webhooks", "scaling"):
        await world.grant(component)
    zones = {name: grouped_zones(name, replicas=2) for name in names}
    for name in names[1::3]:
        a, b, c = (prepared_zone(pods, one, wait="1s") for one in zones[name])
        zones[name] = (a, follow(b, a.name), follow(c, b.name))
    every = [ZoneSpec(name=PROBE, group=None, replicas=1), *chain(*zones.values())]
    created = await create_zones(world.api, world.namespace, every)
    await world.wait_until(each_of(created, missing_adopted), REST_LIMIT)
    async with OperatorProcess(replace(world.launch(*TLS_FLAGS), command=OPERATOR)) as operator:
        await operator.wait_ready()
        _prefer(operator.child.pid)
        hooks = (NO_DOWNSCALE, PREPARE_DOWNSCALE, *BUDGET_HOOKS)
        await world.register(Registration(port=operator.tls_port, hooks=hooks), PROBE)
        sets = {name: [one.name for one in some] for name, some in zones.items()}
        yield Hour(world=world, operator=operator, pods=pods, sets=sets)


def _scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        return str(page.read(), "utf-8")


def _prefer(pid: int) -> None:
    """Let others on the machine not show as stalls of the operator, where that is permitted."""
    with suppress(OSError, AttributeError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # each can hold up all others
            os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(1))


def describe(seen: Hour, used: Time) -> list[Figure]:
    """Return the figures; memory is the median of half a minute."""
    counts, settled = seen.counts, min(int(SETTLED.total_seconds()), len(seen.memory) // 2)
    early, late = (median(part[-WINDOW_S:]) for part in (seen.memory[:settled], seen.memory))
    stall = max(seen.lags[WINDOW_S:] or seen.lags) * 1000
    cpu = used.cpu * 1000 / max(counts["replaced"] + counts["evicted"], 1)
    rows: list[tuple[str, float, str, float | None]] = [
        ("early_mib", early, "resident memory after five minutes", None),
        ("late_mib", late, "the same at the end", None),
        ("growth", late / early, "the second of these by the first", GROWTH),
        (
            "stall_ms",
            stall,
            "longest delay of the event loop, as the operator measures it",
            STALL_MS,
        ),
        ("replaced", counts["replaced"], "pods that rollouts replaced", None),
        ("evicted", counts["evicted"], "pods that drains evicted", None),
        ("refused", counts["refused"], "evictions that had to be repeated", None),
        ("unexpected", counts["unexpected"], "answers after which a drain would give up", 0),
        ("failed", counts["failed"], "requests and waits of the benchmark that failed", None),
        ("scaled", counts["scaled"], "accepted counts of leading zones", None),
        ("unscaled", counts["unscaled"], "rejected ones", None),
        ("cpu_ms_per_pod", cpu, "processor time of the operator for each, with all else", None),
        ("cpu_s", used.cpu, "processor time of the operator", None),
        ("starved_s", used.starved, "for how long it wanted a core and had none", None),
        ("errors", counts[ERROR], "errors in its log", 0),
        ("warnings", counts["level=warn"], "warnings in its log", None),
        ("violations", len(seen.violations), "safety invariants that a judge saw broken", 0),
    ]
    return [
        Figure(name=name, value=value, means=means, at_most=at_most)
        for name, value, means, at_most in rows
    ]
