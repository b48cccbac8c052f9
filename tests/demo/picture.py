"""What there is to see of a rollout, read from API objects and from the operator's log.

Pure: objects and lines in, frozen data out. How it looks is decided in `drawing`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final

from tests.world.api import Json
from tests.world.kubelet import image_of
from tests.world.sets import Snapshot, is_ready

OLD_IMAGE: Final = "v1"
NEW_IMAGE: Final = "v2"

# One key of a record: a bare word, or a JSON string.
_PAIR: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


class State(Enum):
    """What the place of one pod shows."""

    OLD = auto()
    """Ready, on the old template."""
    BROKEN = auto()
    """Not ready, on the old template."""
    ENDING = auto()
    """Told to end, and still there."""
    GONE = auto()
    """No pod of that name exists."""
    STARTING = auto()
    """On the new template, not ready yet."""
    NEW = auto()
    """Ready, on the new template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One zone."""

    name: str
    cells: tuple[State, ...]
    ready: int = 0
    """As the StatefulSet's status counts."""
    current: str = ""
    """`status.currentRevision` without the name of the set."""
    update: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One reason that the operator gave."""

    at: float
    """Seconds since the new template."""
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All there is to see at one moment."""

    title: str
    elapsed: float
    """Seconds since the new template."""
    rows: tuple[Row, ...] = ()
    notes: tuple[Note, ...] = ()
    """In the order in which they were given."""

    @property
    def cells(self) -> list[State]:
        """Return the pods of all zones."""
        return [cell for row in self.rows for cell in row.cells]


def read_rows(now: Snapshot, names: Sequence[str]) -> tuple[Row, ...]:
    """Return the rows of those zones that exist."""
    return tuple(_read_row(now, name) for name in names if name in now.sets)


def _read_row(now: Snapshot, name: str) -> Row:
    found = now.sets[name]
    status = found["status"]
    pods = {pod["metadata"]["name"]: pod for pod in now.pods_of(name)}
    return Row(
        name=name,
        cells=tuple(read_state(pods.get(f"{name}-{n}")) for n in range(found["spec"]["replicas"])),
        ready=status.get("readyReplicas", 0),
        current=status.get("currentRevision", "").removeprefix(f"{name}-"),
        update=status.get("updateRevision", "").removeprefix(f"{name}-"),
    )


def read_state(pod: Json | None) -> State:
    """Return the state of a pod's place, None where there is no pod."""
    if pod is None:
        return State.GONE
    if "deletionTimestamp" in pod["metadata"]:
        return State.ENDING
    if image_of(pod) == NEW_IMAGE:
        return State.NEW if is_ready(pod) else State.STARTING
    return State.OLD if is_ready(pod) else State.BROKEN


def read_notes(lines: Iterable[str], begin: datetime) -> Iterator[Note]:
    """Yield the reasons among the operator's log lines that were given at `begin` or later."""
    for line in lines:
        keys = _read_keys(line)
        if "reason" not in keys:
            continue
        at = (datetime.fromisoformat(keys["ts"]) - begin).total_seconds()
        if at >= 0:
            yield Note(at=at, code=keys["reason"], text=_sentence(keys))


def _read_keys(line: str) -> dict[str, str]:
    return {
        key: str(json.loads(value)) if value.startswith('"') else value
        for key, value in _PAIR.findall(line)
    }


def _sentence(keys: dict[str, str]) -> str:
    # A revision that is recorded has no sentence of its own: its code says why.
    act = f"{keys.get('zone', '')}: {keys['msg'].lower()} {keys.get('revision', '')}"
    return keys.get("why") or act.strip()
