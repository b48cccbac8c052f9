"""`python -m tests.prediction`: does `simulate` foresee what a real control plane then does?

Plays rollouts, drains and downscales, takes dumps at random moments, lets each run go on to its
end, and compares the pods that went, and why, with what `simulate` said of the dump. Exit code 1
where fewer than 95 of 100 agree.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.prediction.comparison import (
    ForecastFailedError,
    Going,
    Match,
    compare,
    describe,
    foresee,
)
from tests.prediction.plans import KINDS, make_plan
from tests.prediction.runs import Moment, keep, play, read
from tests.world.assets import locate_assets
from tests.world.plane import ControlPlane
from tests.world.world import World

SIDE_BY_SIDE: Final = 3
FORECASTS: Final = 2
PER_RUN: Final = 8
WANTED: Final = 0.95


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One dump, what was said of it, and how near that came."""

    moment: Moment
    foreseen: Sequence[Going]
    match: Match


async def compare_moment(moment: Moment) -> Compared:
    """Run `simulate` on a dump, and compare."""
    ends = f"-terminates-after={moment.terminates_after:.2f}s"
    try:
        foreseen = await foresee(moment.dump, moment.changes, [ends])
    except ForecastFailedError as error:
        sys.stderr.write(f"{error}\n")
        return Compared(moment=moment, foreseen=(), match=Match.FAILED)
    return Compared(moment=moment, foreseen=foreseen, match=compare(foreseen, moment.happened))


async def gather(plane: ControlPlane, options: argparse.Namespace) -> list[Moment]:
    """Play plans until there are enough dumps."""
    found: list[Moment] = []
    seeds = iter(range(options.seed, options.seed + 10 * options.dumps))

    async def play_on() -> None:
        while len(found) < options.dumps:
            plan = make_plan(next(seeds), options.kind)
            folder = plane.folder / plan.name.replace("/", "-")
            folder.mkdir()
            begun = time.monotonic()
            async with World(plane, folder) as world:
                found.extend(await play(world, plan, options.per_run))
            sys.stderr.write(f"{plan.name}: {time.monotonic() - begun:.0f} s\n")

    async with asyncio.TaskGroup() as tasks:
        for number in range(SIDE_BY_SIDE):
            tasks.create_task(play_on(), name=f"lane-{number}")
    return found[: options.dumps]


async def compare_all(moments: Iterable[Moment]) -> list[Compared]:
    turns = asyncio.Semaphore(FORECASTS)

    async def in_turn(moment: Moment) -> Compared:
        async with turns:
            return await compare_moment(moment)

    return await asyncio.gather(*(in_turn(each) for each in moments))


def render(found: Sequence[Compared]) -> Iterator[str]:
    """Yield the page: each that differs with its first difference, then the figures."""
    for each in found:
        if not each.match.agrees:
            moment = each.moment
            yield f"{moment.name}: {each.match}"
            yield f"  {moment.dump.name}, changes {list(moment.changes)}"
            yield from describe(each.foreseen, moment.happened)
    by_kind = Counter(each.moment.kind for each in found)
    same = Counter(each.moment.kind for each in found if each.match.agrees)
    for kind, number in sorted(by_kind.items()):
        yield f"{kind:18} {same[kind]} of {number}"
    gone = sum(len(each.moment.happened) for each in found)
    yield f"{same.total()} of {len(found)} dumps foreseen whole; {gone} pods went after them"
    for match, number in Counter(each.match for each in found).most_common():
        yield f"{number:4} {match}"


async def _run(options: argparse.Namespace) -> list[Compared]:
    if options.again:
        return await compare_all(read(options.again))
    async with ControlPlane(locate_assets(sys.stderr.write)).running() as plane:
        moments = await gather(plane, options)
        if options.keep:
            keep(moments, options.keep)
        return await compare_all(moments)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prediction", description=__doc__)
    parser.add_argument("--dumps", type=int, default=100)
    parser.add_argument("--per-run", type=int, default=PER_RUN)
    parser.add_argument("--seed", type=int, default=0, help="of the first plan")
    parser.add_argument("--kind", choices=KINDS, default="", help="instead of each in turn")
    parser.add_argument("--keep", type=Path, help="a folder for the dumps")
    parser.add_argument("--again", type=Path, help="compare what was kept, and play nothing")
    found = asyncio.run(_run(parser.parse_args(words)))
    sys.stdout.writelines(f"{line}\n" for line in render(found))
    return 0 if sum(each.match.agrees for each in found) >= WANTED * len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
