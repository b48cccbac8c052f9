"""A history as text: a story for people, and one hash by which two runs are compared.

What is worth a line is decided in `lines`.
"""

import hashlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import timedelta
from typing import Final

import msgspec

from rollout_lab.model.history import Commit, History, Record, Said
from rollout_lab.trace.lines import TraceLine, list_lines, strip_time

WIDTH: Final = 100
# Wide enough for most names; a longer name is cut in the middle.
WIDEST_NAME: Final = 24
# What refuses a downscale needs four; a reason that needs more says the same of many pods.
MOST_ROWS: Final = 4
# Alike lines this far apart are two events to whoever reads them.
FOLD_WITHIN: Final = timedelta(seconds=10)


def render_story(
    history: History, *, begin: timedelta = timedelta(0), width: int = WIDTH
) -> list[str]:
    """Return a run as lines of at most so many columns: time, who, and what happened."""
    shown = [line for line in list_lines(history.records) if line.at >= begin]
    return render_lines(shown, width)


def render_lines(lines: Iterable[TraceLine], width: int, names: int = 0) -> list[str]:
    """Return lines folded and aligned; names of actors have at least so many columns."""
    return _align(_fold(lines), width, names)


def render_tail(history: History, at: timedelta, lines: int = 40) -> list[str]:
    """Return the last lines of the story up to a time: what led to what happened then."""
    shown = [line for line in list_lines(history.records) if line.at <= at]
    folded = list(_fold(shown))
    return _align(folded[-lines:], WIDTH)


def trace_hash(history: History) -> str:
    """Return the SHA-256 of all records in order; runs of one seed share it."""
    lines = _ENCODER.encode_lines([_plain(record) for record in history.records])
    return hashlib.sha256(lines).hexdigest()


class _Folded(msgspec.Struct):
    """Lines that say the same of several pods, or several times."""

    first: TraceLine
    whats: list[str]
    last_at: timedelta
    count: int = 1

    def takes(self, line: TraceLine) -> bool:
        is_alike = (line.who, line.text) == (self.first.who, self.first.text)
        return is_alike and line.at - self.last_at <= FOLD_WITHIN

    def add(self, line: TraceLine) -> None:
        self.count += 1
        self.last_at = line.at
        if line.what not in self.whats:
            self.whats.append(line.what)

    @property
    def text(self) -> str:
        subject = ", ".join(what for what in self.whats if what)
        times = f" ({self.count} times)" if self.count > len(self.whats) else ""
        return f"{subject} {self.first.text}{times}".lstrip()


def _fold(lines: Iterable[TraceLine]) -> Iterator[_Folded]:
    unfinished: _Folded | None = None
    for line in lines:
        if unfinished is not None and unfinished.takes(line):
            unfinished.add(line)
            continue
        if unfinished is not None:
            yield unfinished
        unfinished = _Folded(line, [line.what], line.at)
    if unfinished is not None:
        yield unfinished


def _align(lines: Iterable[_Folded], width: int, least: int = 0) -> list[str]:
    shown = list(lines)
    longest = max((len(folded.first.who) for folded in shown), default=0)
    names = min(max(longest, least), WIDEST_NAME)
    return [row for folded in shown for row in _rows(folded, names, width)]


def _rows(line: _Folded, names: int, width: int) -> list[str]:
    """Return a line in as many rows as it needs, the others under the first."""
    head = f"{_time(line.first.at)}  {_name(line.first.who, names)}  "
    rows = textwrap.wrap(
        line.text,
        width - len(head),
        max_lines=MOST_ROWS,
        placeholder=" ...",
        break_on_hyphens=False,
    )
    return [f"{head if not place else ' ' * len(head)}{row}" for place, row in enumerate(rows)]


def _time(at: timedelta) -> str:
    tenths = round(at.total_seconds() * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest / 10:04.1f}"


def _name(who: str, width: int) -> str:
    return who.ljust(width) if len(who) <= width else f"{who[: width - 11]}..{who[-9:]}"


def _plain(record: Record) -> object:
    """Return what counts: an object before a write is what an earlier write has left."""
    match record:
        case Commit():
            place = (record.resource.plural, record.namespace, record.name, record.actor)
            return ("Commit", record.at, record.revision, place, record.call, record.after)
        case Said():
            return ("Said", record.at, record.actor, strip_time(record.text))
        case _:
            return (type(record).__name__, record)


def _encode(value: object) -> object:
    """Return what JSON can carry, always in the same order."""
    match value:
        case Mapping():
            return dict(value)
        case Set():
            return sorted(value)
        case _:
            raise NotImplementedError(f"{type(value).__name__} in a history")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_encode, order="deterministic")
