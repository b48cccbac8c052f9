"""What there is to see of the cluster, and the ways in which a story waits and acts."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec.structs import replace
from rollout_lab.demo.screen import Screen
from rollout_lab.demo.snapshot import (
    DemoEntry,
    DemoSnapshot,
    ZoneRow,
    list_places,
    read_cell,
    read_row,
)

from rollout_operator.model.outcome import Code
from tests.world.operatorproc import OperatorProcess
from tests.world.sets import Missing, Snapshot
from tests.world.world import World

OLD_IMAGE: Final = "v1"
ZONES: Final = ("zone-a", "zone-b", "zone-c")
PERSON: Final = "you"
# Between two reads of the clock and of the operator's log.
TICK: Final = timedelta(milliseconds=100)
LIMIT: Final = timedelta(minutes=10)
# One key of a log line: a bare word, or a JSON string.
_PAIR: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')

Shown = Callable[[Sequence[ZoneRow]], bool]


class OperatorEndedError(Exception):
    """The operator is gone in the middle of the story; the text is the end of its log."""


@dataclass(slots=True)
class Stage:
    """Gathers what there is to see, and has it shown."""

    title: str
    world: World
    operator: OperatorProcess
    screen: Screen
    goal: str
    """The version that the pods are to have in the end."""
    rows: tuple[ZoneRow, ...] = ()
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    _begin: float = field(default_factory=time.monotonic)
    _own: list[DemoEntry] = field(default_factory=list)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        """Show each new state of the cluster for ever. Raises TimeoutError after LIMIT."""
        await self.world.wait_until(self._observe, LIMIT)

    async def tick(self) -> None:
        """Show the time and the operator's reasons for ever. Raises OperatorEndedError."""
        while True:
            await asyncio.sleep(TICK.total_seconds())
            if not self.operator.is_running:
                raise OperatorEndedError(f"the operator has ended\n{self.operator.child.tail()}")
            self.screen.show(self.snapshot())

    async def until(self, is_shown: Shown) -> None:
        """Wait until the zones look so."""
        while not (self.rows and is_shown(self.rows)):
            self._moved.clear()
            await self._moved.wait()

    async def act(self, text: str, deed: Awaitable[object]) -> None:
        """Do what a person does, and say it."""
        self.say(text)
        await deed

    def say(self, text: str, actor: str = PERSON) -> None:
        """Add a line to what happens."""
        self._own.append(DemoEntry(at=time.monotonic() - self._begin, who=actor, text=text))

    async def change_image(self, image: str, text: str) -> None:
        """Give all zones another image."""
        self.goal = image
        await self.act(text, self.world.set_image(ZONES, image))

    def snapshot(self) -> DemoSnapshot:
        """Return what is known now, the newest of the log included."""
        said = read_entries(self.operator.log_lines(), self.begun)
        return DemoSnapshot(
            title=self.title,
            elapsed=time.monotonic() - self._begin,
            goal=self.goal,
            rows=self.rows,
            entries=tuple(sorted((*self._own, *said), key=lambda entry: entry.at)),
        )

    def _observe(self, now: Snapshot) -> Missing:
        # Sets and pods are listed one after the other: without pods, the list is still to come.
        if now.pods and all(zone in now.sets for zone in ZONES):
            self.rows = tuple(self._read_row(now, zone) for zone in ZONES)
            self._moved.set()
            self.screen.show(self.snapshot())
        return "the story goes on"

    def _read_row(self, now: Snapshot, zone: str) -> ZoneRow:
        pods = {pod["metadata"]["name"]: pod for pod in now.pods_of(zone)}
        places = list_places(now.sets[zone])
        # Until the templates have the new version, no pod is new.
        cells = tuple(read_cell(pods.get(place), self.goal) for place in places)
        return replace(read_row(now.sets[zone], pods), cells=cells)


def read_entries(lines: Iterable[str], begin: datetime) -> Iterator[DemoEntry]:
    """Yield what the operator's log says at `begin` or later of its deeds and its reasons."""
    last = ""
    for line in lines:
        keys = {
            key: str(json.loads(value)) if value.startswith('"') else value
            for key, value in _PAIR.findall(line)
        }
        text = _word(keys)
        if not text:
            continue
        at = (datetime.fromisoformat(keys["ts"]) - begin).total_seconds()
        if at >= 0 and text != last:
            last = text
            yield DemoEntry(at=at, who="operator", text=text)


def _word(keys: dict[str, str]) -> str:
    """Return a line of the log in plain words: the sentence, without the code for machines.

    Empty where there is nothing to say: a status that is behind catches up at once.
    """
    match keys.get("msg"):
        case "Terminating pod":
            return f"deletes {keys['pod']}: {keys['why']}"
        case "Recording revision":
            return f"{keys['zone']} is done"
        case _ if keys.get("reason") == Code.STATUS_BEHIND:
            return ""
        case _:
            return keys.get("why", "")
