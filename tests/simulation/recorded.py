"""When zones were scaled down last, as the store says: on the sets, or in the zone tracker.

What a person writes there is the truth from then on (D-66). Read from the words of the documents:
nothing here is the operator's own reading.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import child
from rollout_operator.lab.world import EPOCH
from rollout_operator.model.names import LAST_DOWNSCALE
from tests.simulation.views import Book, Write, annotations
from tests.world.history import Set

NEVER: Final = timedelta.min
UNREADABLE: Final = timedelta.max


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the store says of one zone from some time on."""

    at: timedelta
    time: timedelta
    """When it was scaled down last, on the clock of the world; NEVER where nothing says so."""
    is_of_person: bool


@dataclass(slots=True)
class Recorded:
    """All entries by name of the zone, in order; each is another one than that before it."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)

    def list_at(self, at: timedelta) -> dict[str, timedelta]:
        """Return the time of each zone as the store says it at a time."""
        found = {name: [one for one in all_ if one.at <= at] for name, all_ in self.entries.items()}
        return {name: entries[-1].time for name, entries in found.items() if entries}

    def was_released(self, name: str, since: timedelta, until: timedelta, wait: timedelta) -> bool:
        """Tell whether a person made a downscale of a zone no reason to wait any more."""
        return any(
            one.is_of_person and since < one.at < until and until - wait >= one.time
            for one in self.entries.get(name, ())
        )

    def find_forbidden(
        self, name: str, known: timedelta, at: timedelta, wait: timedelta
    ) -> Entry | None:
        """Return what a person wrote, in time to be known, that lets others wait still."""
        entries = [one for one in self.entries.get(name, ()) if one.at <= at]
        if not entries or not entries[-1].is_of_person or entries[-1].at > known:
            return None
        last = entries[-1]
        return last if last.time != UNREADABLE and at - last.time < wait else None

    def add(self, name: str, entry: Entry) -> None:
        """Take what the store says now."""
        entries = self.entries.setdefault(name, [])
        if (entries[-1].time if entries else NEVER) != entry.time:
            entries.append(entry)


def read_recorded(book: Book) -> Recorded:
    """Return what the store said of all zones at all times."""
    recorded = Recorded()
    if book.maps:
        for commit in book.maps:
            data = child(commit.after or {}, "data")
            for name in {*recorded.entries, *data}:
                is_of_person = not book.is_operator(commit.actor)
                entry = Entry(at=commit.at, time=_read_entry(data, name), is_of_person=is_of_person)
                recorded.add(name, entry)
        return recorded
    for write in book.writes:
        if isinstance(write.now or write.before, Set):
            text = annotations(write.commit.after).get(LAST_DOWNSCALE)
            entry = Entry(
                at=write.at,
                time=NEVER if text is None else read_moment(str(text)),
                # An answer of a review is part of the write that it lets through.
                is_of_person=not book.is_operator(write.commit.actor) and not _is_scaled(write),
            )
            recorded.add(write.commit.name, entry)
    return recorded


def read_moment(text: str) -> timedelta:
    """Return a time on the clock of the world."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return UNREADABLE
    return (found if found.tzinfo else found.replace(tzinfo=UTC)) - EPOCH


def _is_scaled(write: Write) -> bool:
    before, now = write.before, write.now
    return isinstance(before, Set) and isinstance(now, Set) and before.replicas != now.replicas


def _read_entry(data: JsonObject, name: str) -> timedelta:
    if name not in data:
        return NEVER
    try:
        found = json.loads(str(data[name]))
    except ValueError:
        return UNREADABLE
    text = found.get("lastDownscaled") if isinstance(found, dict) else None
    return read_moment(text) if isinstance(text, str) else UNREADABLE
