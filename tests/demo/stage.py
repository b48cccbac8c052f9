"""What there is to see of the cluster, and how a rollout of it is waited for."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from rollout_lab.demo.screen import Picture, Screen
from rollout_lab.trace.lines import TraceLine, read_log_line

from rollout_operator.model.description import Description, Phase
from rollout_operator.model.outcome import Code
from rollout_operator.planning.text import Line
from tests.world.operatorproc import OperatorProcess
from tests.world.sets import Missing, Snapshot
from tests.world.world import World

OLD_IMAGE: Final = "v1"
ZONES: Final = ("zone-a", "zone-b", "zone-c")
# Between two reads of the operator's page and of its log.
TICK: Final = timedelta(milliseconds=100)
LIMIT: Final = timedelta(minutes=10)
# The operator reads what the cluster shows some moments later.
SETTLES_IN: Final = timedelta(seconds=3)

Holds = Callable[[Snapshot], bool]


class OperatorEndedError(Exception):
    """The operator is gone in the middle of the rollout; the text is the end of its log."""


@dataclass(slots=True)
class Stage:
    """Gathers what there is to see, and has it shown."""

    world: World
    operator: OperatorProcess
    screen: Screen
    seen: Snapshot = field(default_factory=Snapshot)
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    _begin: float = field(default_factory=time.monotonic)
    _own: list[TraceLine] = field(default_factory=list)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _now: Description | None = None

    async def follow(self) -> None:
        """Take in each new state of the cluster for ever. Raises TimeoutError after LIMIT."""
        await self.world.wait_until(self._observe, LIMIT)

    async def tick(self) -> None:
        """Show what the operator says for ever. Raises OperatorEndedError."""
        while True:
            await asyncio.sleep(TICK.total_seconds())
            if not self.operator.is_running:
                raise OperatorEndedError(f"the operator has ended\n{self.operator.child.tail()}")
            await self.look()
            self.screen.show(self.picture())

    async def look(self) -> None:
        """Take in how the operator describes the namespace."""
        _, page = await self.operator.fetch("/status.json")
        self._now = msgspec.json.decode(page, type=Description)

    async def look_last(self) -> None:
        """Look until the operator has seen what the cluster shows, or for a few seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLES_IN.total_seconds()):
                await self.look()
                while self._now and any(
                    one.phase is not Phase.ROLLED_OUT for one in self._now.groups
                ):
                    await asyncio.sleep(TICK.total_seconds())
                    await self.look()

    async def until(self, holds: Holds) -> None:
        while not (all(zone in self.seen.sets for zone in ZONES) and holds(self.seen)):
            self._moved.clear()
            await self._moved.wait()

    def say(self, text: str) -> None:
        self._own.append(TraceLine(at=self._elapsed(), who="you", text=text))

    def picture(self, *end: Line) -> Picture:
        """Return what is known now, the newest of the log included."""
        said = read_lines(self.operator.log_lines(), self.begun)
        return Picture(
            title="A new image for all zones: one zone after the other",
            elapsed=self._elapsed().total_seconds(),
            now=self._now,
            lines=tuple(sorted((*self._own, *said), key=lambda line: line.at)),
            end=end,
        )

    def _elapsed(self) -> timedelta:
        return timedelta(seconds=time.monotonic() - self._begin)

    def _observe(self, now: Snapshot) -> Missing:
        self.seen = now
        self._moved.set()
        return "the rollout goes on"


def read_lines(log: Iterable[str], begin: datetime) -> Iterator[TraceLine]:
    """Yield what the operator's log says at `begin` or later of its deeds and its reasons."""
    last = ""
    for each in log:
        line = read_log_line(each)
        # A status that is behind catches up at once.
        if line is None or line.is_mute or line.keys.get("reason") == Code.STATUS_BEHIND:
            continue
        at, text = datetime.fromisoformat(line.keys["ts"]) - begin, line.render()
        if at >= timedelta(0) and text != last:
            last = text
            yield TraceLine(at=at, who="operator", text=text)
