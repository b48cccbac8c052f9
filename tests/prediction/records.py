"""Dumps that were taken, with what came after each: kept in a folder, to be run again."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.prediction.comparison import Going

RECORDS: Final = "moments.json"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A dump, what was still to be requested then, and what came."""

    kind: str
    """Of the plan."""
    seed: int
    at: float
    """Seconds since the run began."""
    dump: Path
    changes: tuple[str, ...]
    terminates_after: float
    """Seconds."""
    happened: tuple[Going, ...]

    @property
    def name(self) -> str:
        """Return what it is called in a report."""
        return f"{self.kind}/{self.seed} after {self.at:.1f} s"


def keep(moments: Iterable[Moment], folder: Path) -> None:
    """Copy dumps into a folder, with all that is known of them."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = []
    for number, moment in enumerate(moments):
        path = folder / f"{number:03}-{moment.kind}-{moment.seed}.json"
        # With its time, by which the command knows how old the pods are.
        shutil.copy2(moment.dump, path)
        kept.append(replace(moment, dump=path))
    (folder / RECORDS).write_bytes(msgspec.json.encode(kept, enc_hook=str))


def read(folder: Path) -> list[Moment]:
    """Return what `keep` wrote."""
    content = (folder / RECORDS).read_bytes()
    return msgspec.json.decode(content, type=list[Moment], dec_hook=lambda kind, text: kind(text))
