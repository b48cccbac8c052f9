"""`make demo-cluster`: a rollout over three zones on a real control plane, to be watched.

0: rolled out, and the judge saw nothing wrong. 1: otherwise. 130: interrupted; 141: nobody reads.
"""

import argparse
import asyncio
import io
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from rollout_operator.lab.demo.drawing import MOST_PODS, Line, Style
from rollout_operator.lab.demo.picture import DemoNote, Picture, ZoneRow, read_row
from rollout_operator.lab.demo.screen import Screen, choose_screen
from rollout_operator.lab.end import end_by_signal
from rollout_operator.lab.zones import ZoneSpec
from rollout_operator.model.exit_codes import ExitCode
from tests.world.assets import NoControlPlaneError, find_assets
from tests.world.kubelet import Behaviour, always
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.scene import World
from tests.world.sets import Missing, Snapshot, missing_adopted

OLD_IMAGE: Final = "v1"
NEW_IMAGE: Final = "v2"
ZONES: Final = ("zone-a", "zone-b", "zone-c")
# Between two looks at the clock and at the operator's log.
TICK: Final = timedelta(milliseconds=100)
LIMIT: Final = timedelta(minutes=10)
# One key of a log line: a bare word, or a JSON string.
_PAIR: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is rolled out."""

    replicas: int = 3
    """Pods in each of the zones."""
    limit: int = 1
    """How many pods of a zone may be unavailable."""
    ready_after: timedelta = timedelta(seconds=1)


class OperatorEndedError(Exception):
    """The operator is gone in the middle of the rollout; the text is the end of its log."""


@dataclass(slots=True)
class Stage:
    """Gathers what there is to see, and has it shown."""

    title: str
    operator: OperatorProcess
    screen: Screen
    begin: float = field(default_factory=time.monotonic)
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    rows: tuple[ZoneRow, ...] = ()

    def observe(self, now: Snapshot) -> Missing:
        """Show a new state and return what it lacks to be rolled out."""
        # Sets and pods are listed one after the other: without pods, the list is still to come.
        if now.pods and len(now.sets) == len(ZONES):
            pods = {
                zone: {pod["metadata"]["name"]: pod for pod in now.pods_of(zone)} for zone in ZONES
            }
            self.rows = tuple(read_row(now.sets[zone], pods[zone]) for zone in ZONES)
            self.screen.show(self.picture())
        return next(filter(None, (missing_adopted(now, zone) for zone in ZONES)), "")

    async def tick(self) -> None:
        """Show the time and the operator's reasons for ever. Raises OperatorEndedError."""
        while True:
            await asyncio.sleep(TICK.total_seconds())
            if not self.operator.is_running:
                raise OperatorEndedError(f"the operator has ended\n{self.operator.child.tail()}")
            self.screen.show(self.picture())

    def picture(self) -> Picture:
        """Return what is known now, the newest of the log included."""
        return Picture(
            title=self.title,
            elapsed=time.monotonic() - self.begin,
            goal=NEW_IMAGE,
            rows=self.rows,
            notes=tuple(read_notes(self.operator.log_lines(), self.begun)),
            heading="The operator says:",
        )


def read_notes(lines: Iterable[str], begin: datetime) -> Iterator[DemoNote]:
    """Yield the reasons among the operator's log lines that were given at `begin` or later."""
    for line in lines:
        keys = {
            key: str(json.loads(value)) if value.startswith('"') else value
            for key, value in _PAIR.findall(line)
        }
        if "reason" not in keys:
            continue
        at = (datetime.fromisoformat(keys["ts"]) - begin).total_seconds()
        # A revision that is recorded has no sentence of its own: its code says why.
        act = f"{keys.get('zone', '')}: {keys['msg'].lower()} {keys.get('revision', '')}"
        if at >= 0:
            text = f"{keys['reason']}: {keys.get('why') or act.strip()}"
            yield DemoNote(at=at, who="operator", text=text)


async def run(plane: ControlPlane, settings: Settings, screen: Screen) -> bool:
    """Start a control plane, show a rollout on it, and remove every trace; return as `present`."""
    try:
        with _step(screen, "etcd, API server and controller manager"):
            await plane.start()
        return await present(plane, settings, screen)
    finally:
        await plane.stop()


async def present(plane: ControlPlane, settings: Settings, screen: Screen) -> bool:
    """Show a rollout on a running control plane; return whether it was as it should be."""
    pods = Behaviour(ready_after=settings.ready_after)
    zones = [
        ZoneSpec(
            name=name,
            replicas=settings.replicas,
            max_unavailable=settings.limit,
            image=OLD_IMAGE,
        )
        for name in ZONES
    ]
    async with World(plane, plane.folder, always(pods)) as world:
        with _step(screen, f"{len(ZONES)} StatefulSets of {settings.replicas} pods"):
            await world.create(*zones)
        with _step(screen, "the operator, a process under the shipped Role"):
            operator = await world.operator()
        screen.tell(f"  now a new template for all zones: {OLD_IMAGE} -> {NEW_IMAGE}\n\n")
        limits = f"at most {settings.limit} unavailable in one zone"
        title = f"{len(ZONES)} zones of {settings.replicas} pods, {limits}"
        with screen:
            return await _roll(world, Stage(title, operator, screen))


async def _roll(world: World, stage: Stage) -> bool:
    stage.observe(await world.wait_ready(ZONES))
    await world.set_image(ZONES, NEW_IMAGE)
    trouble = ""
    try:
        async with asyncio.TaskGroup() as tasks:
            ticks = tasks.create_task(stage.tick(), name="demo-ticks")
            await world.wait_until(stage.observe, LIMIT)
            ticks.cancel()
    except* (TimeoutError, OperatorEndedError) as failed:
        trouble = "\n".join(str(error) for error in failed.exceptions)
    deletes = [one.is_done for one in await world.judge.deletes()]
    broken = [f"{one.invariant}: {one.text}" for one in await world.judge.violations()]
    summary: list[Line] = [
        ((f"deletes {sum(deletes)}, refused {len(deletes) - sum(deletes)}", Style.PLAIN),),
        ((f"judge {len(broken)} broken" if broken else "judge clean", Style.BOLD),),
        *(((text, Style.RED),) for text in (*broken, *trouble.splitlines())),
    ]
    stage.screen.finish(stage.picture(), summary)
    return not trouble and not broken


@contextmanager
def _step(screen: Screen, what: str) -> Iterator[None]:
    """Show a step of the set-up, and how long it took."""
    begin = time.monotonic()
    screen.tell(f"  {what + ' ':.<60} ")
    yield
    screen.tell(f"{time.monotonic() - begin:.1f} s\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    counts = range(1, MOST_PODS + 1)
    texts = {"--replicas": "pods in each of the three zones", "--limit": "rollout-max-unavailable"}
    for flag, default in (("--replicas", 3), ("--limit", 1)):
        parser.add_argument(
            flag, type=int, choices=counts, default=default, metavar="N", help=texts[flag]
        )
    parser.add_argument("--plain", action="store_true", help="a line for each change")
    options = parser.parse_args(words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    screen = choose_screen(sys.stdout, os.environ, is_plain=options.plain)
    try:
        screen.tell("A rollout on a real control plane:\n")
        plane = ControlPlane(find_assets(screen.tell))
        settings = Settings(replicas=options.replicas, limit=options.limit)
        return asyncio.run(end_by_signal(run(plane, settings, screen)))
    except NoControlPlaneError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
