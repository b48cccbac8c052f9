"""What there is to see of a rollout on a control plane: its objects, and the operator's log.

Pure: objects and lines in, frozen data out. How it looks is decided in the package, in
`lab.demo.drawing`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from rollout_operator.lab.demo.picture import DemoNote, ZoneRow, read_row
from tests.world.sets import Snapshot

OLD_IMAGE: Final = "v1"
NEW_IMAGE: Final = "v2"

# One key of a record: a bare word, or a JSON string.
_PAIR: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


def read_rows(now: Snapshot, names: Sequence[str]) -> tuple[ZoneRow, ...]:
    """Return the rows of those zones that exist."""
    return tuple(
        read_row(now.sets[name], {pod["metadata"]["name"]: pod for pod in now.pods_of(name)})
        for name in names
        if name in now.sets
    )


def read_notes(lines: Iterable[str], begin: datetime) -> Iterator[DemoNote]:
    """Yield the reasons among the operator's log lines that were given at `begin` or later."""
    for line in lines:
        keys = _read_keys(line)
        if "reason" not in keys:
            continue
        at = (datetime.fromisoformat(keys["ts"]) - begin).total_seconds()
        if at >= 0:
            yield DemoNote(at=at, who="operator", text=f"{keys['reason']}: {_sentence(keys)}")


def _read_keys(line: str) -> dict[str, str]:
    return {
        key: str(json.loads(value)) if value.startswith('"') else value
        for key, value in _PAIR.findall(line)
    }


def _sentence(keys: dict[str, str]) -> str:
    # A revision that is recorded has no sentence of its own: its code says why.
    act = f"{keys.get('zone', '')}: {keys['msg'].lower()} {keys.get('revision', '')}"
    return keys.get("why") or act.strip()
