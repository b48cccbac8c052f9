"""The demo itself: three zones, the operator as a process, a new template, and the judge's word."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from rollout_operator.lab.demo.drawing import Line
from rollout_operator.lab.demo.picture import DemoNote, Picture, ZoneRow
from rollout_operator.lab.demo.screen import Screen
from rollout_operator.lab.zones import ZoneSpec
from tests.demo.figures import Record, measure
from tests.demo.picture import NEW_IMAGE, OLD_IMAGE, read_notes, read_rows
from tests.demo.summary import draw_failure, draw_summary
from tests.world.kubelet import Behaviour, always
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.scene import World
from tests.world.sets import Missing, Snapshot, missing_adopted, set_image, wait_ready, wait_until

ZONES: Final = ("zone-a", "zone-b", "zone-c")
GROUP: Final = "ingester"
# Between two looks at the clock and at the operator's log.
TICK: Final = timedelta(milliseconds=100)
# What is shown of the log of an operator that has ended.
TAIL_LINES: Final = 6
# A rollout that takes so many times its pods' own time will not end.
PATIENCE: Final = 5
SPARE: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is rolled out."""

    replicas: int = 3
    """Pods in each of the zones."""
    limit: int = 1
    """How many pods of a zone may be unavailable."""
    ready_after: timedelta = timedelta(seconds=1)
    terminates_after: timedelta = timedelta(milliseconds=300)

    @property
    def patience(self) -> timedelta:
        """Return after how long the rollout counts as stuck."""
        restart = self.ready_after + self.terminates_after
        return SPARE + PATIENCE * len(ZONES) * self.replicas * restart

    @property
    def zones(self) -> list[ZoneSpec]:
        """Return the zones as they are before."""
        return [
            ZoneSpec(
                name=name,
                group=GROUP,
                replicas=self.replicas,
                max_unavailable=self.limit,
                image=OLD_IMAGE,
            )
            for name in ZONES
        ]


class OperatorEndedError(Exception):
    """The operator is gone in the middle of the rollout; the text is the end of its log."""


@dataclass(slots=True)
class Stage:
    """Gathers what there is to see, and has it shown."""

    title: str
    operator: OperatorProcess
    screen: Screen
    begin: float = field(default_factory=time.monotonic)
    """On the clock of the judge."""
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    """On the clock of the log."""
    rows: tuple[ZoneRow, ...] = ()
    notes: list[DemoNote] = field(default_factory=list)
    _lines: int = 0

    def look(self, now: Snapshot) -> Missing:
        """Show a new state and return what it lacks to be rolled out."""
        rows = read_rows(now, ZONES)
        # Sets and pods are listed one after the other: without pods, the list is still to come.
        if now.pods and len(rows) == len(ZONES):
            self.rows = rows
            self.show()
        return next(filter(None, (missing_adopted(now, name) for name in ZONES)), "")

    async def tick(self) -> None:
        """Show the time and the operator's words for ever. Raises OperatorEndedError."""
        while True:
            await asyncio.sleep(TICK.total_seconds())
            if not self.operator.is_running:
                ended = self.operator.child
                raise OperatorEndedError(
                    f"the operator has ended with {ended.exit_code}\n{ended.tail(TAIL_LINES)}"
                )
            self.show()

    def show(self) -> None:
        """Show what is known now."""
        self.screen.show(self.picture())

    def picture(self) -> Picture:
        """Return what is known now, the newest of the log included."""
        lines = self.operator.log_lines()[self._lines :]
        self._lines += len(lines)
        self.notes += read_notes(lines, self.begun)
        return Picture(
            title=self.title,
            elapsed=time.monotonic() - self.begin,
            goal=NEW_IMAGE,
            rows=self.rows,
            notes=tuple(self.notes),
            heading="The operator says:",
        )


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
    pods = Behaviour(ready_after=settings.ready_after, terminates_after=settings.terminates_after)
    async with World(plane, plane.folder, always(pods)) as world:
        with _step(screen, f"{len(ZONES)} StatefulSets of {settings.replicas} pods"):
            await world.create(*settings.zones)
        with _step(screen, "the operator, a process under the shipped Role"):
            operator = await world.operator()
        screen.tell(f"  now a new template for all zones: {OLD_IMAGE} -> {NEW_IMAGE}\n\n")
        before = await wait_ready(world.api, world.namespace, ZONES)
        stage = Stage(_title(settings), operator, screen, rows=read_rows(before, ZONES))
        with screen:
            return await _roll(world, settings, stage)


async def _roll(world: World, settings: Settings, stage: Stage) -> bool:
    stage.show()
    await set_image(world.api, world.namespace, ZONES, NEW_IMAGE)
    trouble = await _watch(world, settings, stage)
    record = Record(
        begin=stage.begin,
        deletes=await world.judge.deletes(),
        restarts=await world.judge.restarts(),
        violations=await world.judge.violations(),
        changes=world.judge.changes,
    )
    stage.screen.finish(stage.picture(), _summary(record, settings, trouble))
    return not trouble and not record.violations


def _summary(record: Record, settings: Settings, trouble: str) -> list[Line]:
    if trouble:
        return draw_failure(trouble, record.violations)
    return draw_summary(measure(record, settings.limit))


async def _watch(world: World, settings: Settings, stage: Stage) -> str:
    """Show the rollout until it is over; return what went wrong, empty if nothing did."""
    trouble = ""
    try:
        async with asyncio.TaskGroup() as tasks:
            ticks = tasks.create_task(stage.tick(), name="demo-ticks")
            await wait_until(world.api, world.namespace, stage.look, settings.patience)
            ticks.cancel()
    except* (TimeoutError, OperatorEndedError) as failed:
        trouble = "\n".join(str(error) for error in failed.exceptions)
    return trouble


def _title(settings: Settings) -> str:
    return (
        f"{len(ZONES)} zones of {settings.replicas} pods,"
        f" at most {settings.limit} unavailable in one zone"
    )


@contextmanager
def _step(screen: Screen, what: str) -> Iterator[None]:
    """Tell of a step of the set-up, and how long it took."""
    begin = time.monotonic()
    screen.tell(f"  {what + ' ':.<60} ")
    yield
    screen.tell(f"{time.monotonic() - begin:.1f} s\n")
