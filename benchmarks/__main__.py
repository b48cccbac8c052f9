"""Run benchmarks by name, all but the long ones without: a line of JSON each, or explanations too.

`hour=3` works for so many minutes, `rollout=3` has so many pods in a zone, `reviews=16` so many
connections.
A missed target is no failure. A benchmark that cannot run is: exit code 1, after all others.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from benchmarks import (
    connections,
    crowd,
    events,
    evictions,
    evictions_drain,
    evictions_storm,
    held,
    hostile,
    hour,
    memory,
    namespaces,
    plans,
    prepare,
    releases,
    reviews,
    rollout,
    scaling_delays,
    scaling_idle,
    scaling_up,
    start,
    sync,
    watchers,
)
from benchmarks.figures import Result, render_explanation, render_line
from tests.world.assets import NoControlPlaneError


class Measure(Protocol):
    """A benchmark. `small` is for a look at whether it works: its figures mean nothing."""

    def __call__(self, *, small: bool) -> Awaitable[Result]: ...


class SizedMeasure(Protocol):
    """One that can be run at another size."""

    def __call__(self, *, small: bool, size: int = ...) -> Awaitable[Result]: ...


BENCHMARKS: Final[Mapping[str, Measure]] = {
    "rollout": rollout.measure,
    "memory": memory.measure,
    "namespaces": namespaces.measure,
    "start": start.measure,
    "sync": sync.measure,
    "events": events.measure,
    "plans": plans.measure,
    "crowd": crowd.measure,
    "held": held.measure,
    "reviews": reviews.measure,
    "connections": connections.measure,
    "watchers": watchers.measure,
    "hostile": hostile.measure,
    "prepare": prepare.measure,
    "evictions": evictions.measure,
    "evictions_storm": evictions_storm.measure,
    "evictions_drain": evictions_drain.measure,
    "scaling_up": scaling_up.measure,
    "scaling_delays": scaling_delays.measure,
    "scaling_idle": scaling_idle.measure,
    "releases": releases.measure,
    "hour": hour.measure,
}
SIZED: Final[Mapping[str, SizedMeasure]] = {
    "hour": hour.measure,
    "reviews": reviews.measure,
    "rollout": rollout.measure,
}
# They run where they are named.
LONG: Final = frozenset({"hour"})


def main(argv: Sequence[str], write: Callable[[str], object] = sys.stdout.write) -> int:
    """Run what `argv` names; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--explain", action="store_true", help="say in words what each figure is")
    parser.add_argument("--small", action="store_true", help="tiny sizes: only to see that it runs")
    parser.add_argument("--runs", type=int, default=1, help="how often each, a line each time")
    given = parser.parse_args(argv)
    named = given.names or [name for name in BENCHMARKS if name not in LONG]
    unknown = {name for name in named if _find(name) is None}
    if unknown:
        parser.error(
            f"no benchmark is called {', '.join(sorted(unknown))}: -h lists the names, and only"
            f" {', '.join(SIZED)} take a size, a number from 1 on as in {min(SIZED)}=3"
        )
    if given.runs < 1:
        parser.error(f"--runs must be at least 1: {given.runs}")
    failed = False
    for name in (name for name in named for _ in range(given.runs)):
        try:
            result = asyncio.run(_run(name, small=given.small))
        except NoControlPlaneError as error:
            sys.stderr.write(f"{name}: {error}\n")
            failed = True
            continue
        write(f"{render_line(result)}\n")
        sys.stdout.flush()
        if given.explain:
            sys.stderr.write(f"{render_explanation(result)}\n")
    return int(failed)


def _find(name: str) -> Measure | None:
    """Return the benchmark of a name, perhaps of another size; None where there is none."""
    name, is_sized, size = name.partition("=")
    if not is_sized:
        return BENCHMARKS.get(name)
    is_size = name in SIZED and size.isdecimal() and int(size) > 0
    return partial(SIZED[name], size=int(size)) if is_size else None


async def _run(name: str, *, small: bool) -> Result:
    measure = _find(name)
    assert measure is not None, "looked up before"
    return await measure(small=small)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
