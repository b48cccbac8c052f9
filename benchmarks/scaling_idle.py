"""What groups cost that have nothing to do: requests of an idle minute, with and without webhooks.

On the simulated cluster, where time passes at once: ten groups, each of which mirrors an object of
its own. The API server there ends watches when it was asked to, as a real one does.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rollout_lab.model.history import Called
from rollout_lab.virtual_loop.loop import VirtualTimeLoop

from benchmarks.figures import Figure, Result
from rollout_operator.telemetry import logs
from tests.operator.stage import OPERATOR, OperatorStage

GROUPS: Final = 10
MOST: Final = 6.0
# Before that: first lists, first readings, and what is told of them.
SETTLED: Final = timedelta(minutes=10)
WRITES: Final = frozenset({"create", "update", "patch", "delete"})


async def measure(*, small: bool) -> Result:
    """Count requests, in virtual time."""
    groups, minutes = (2, 10) if small else (GROUPS, 60)
    figures: list[Figure] = []
    for name, has_webhooks in (("plain", False), ("webhooks", True)):
        # A loop of its own in a thread of its own: this one is running.
        requested = await asyncio.to_thread(_idle, groups, minutes, has_webhooks)
        figures += describe(name, requested, minutes)
    setting = {"groups": groups, "zones": 2, "minutes": minutes}
    return Result(benchmark="scaling_idle", setting=setting, figures=figures)


def describe(name: str, requested: Counter[tuple[str, str]], minutes: int) -> Sequence[Figure]:
    """Return the figures of requests by verb and resource in so many minutes."""
    writes = sum(count for (verb, _), count in requested.items() if verb in WRITES)
    watches = sum(count for (verb, _), count in requested.items() if verb == "watch")
    reads = sum(requested.values()) - writes - watches
    figures = [
        Figure(
            name=f"{name}_requests_per_minute",
            value=(reads + writes) / minutes,
            means="requests to the API server while nothing changes, watches left out",
            at_most=MOST,
        ),
        Figure(
            name=f"{name}_writes_per_minute",
            value=writes / minutes,
            means="of these, writes",
            at_most=0.0,
        ),
        Figure(
            name=f"{name}_watches_per_minute",
            value=watches / minutes,
            means="watches that were opened anew besides, those of the groups together",
        ),
    ]
    return figures + [
        Figure(
            name=f"{name}_{verb}_{plural}_per_minute",
            value=count / minutes,
            means=f"of all: {verb} {plural}",
        )
        for (verb, plural), count in sorted(requested.items())
    ]


def _idle(groups: int, minutes: int, has_webhooks: bool) -> Counter[tuple[str, str]]:
    logs.configure(level="error")
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(_count(groups, minutes, has_webhooks))
    finally:
        logs.configure()


async def _count(groups: int, minutes: int, has_webhooks: bool) -> Counter[tuple[str, str]]:
    stage = OperatorStage(has_webhooks=has_webhooks)
    async with stage.stack:
        await stage.set_up()
        await stage.act(f"groups {groups}; start > wait")
        await asyncio.sleep(SETTLED.total_seconds())
        stage.take(Called)
        await asyncio.sleep(minutes * 60)
        return Counter(
            (one.request.verb, one.request.resource.plural)
            for one in stage.take(Called)
            if one.actor == OPERATOR
        )
