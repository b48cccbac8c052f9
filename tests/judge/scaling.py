"""The counts that the operator itself has written: what each rests on, and what was wanted then.

Read once; what they break is judged in `invariants_scaling`.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import msgspec
from rollout_lab.model.fields import child, number
from rollout_lab.model.history import Called
from rollout_lab.world import EPOCH

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from rollout_operator.model.names import LAST_DOWNSCALE
from tests.judge.book import Book, Write, annotations
from tests.judge.deletes import get_sent, is_live
from tests.judge.desired import DesiredReplicas, read_desired
from tests.judge.objects import Set

# So long may a cache be behind without proof: upscales and readings of references
# rest on one. The longest of the faults of events, and some.
_V = TypeVar("_V")
OLDEST_SNAPSHOT: Final = timedelta(minutes=6)


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """One count that the operator has written."""

    write: Write
    before: Set
    now: Set
    called: Called
    desired: DesiredReplicas
    """What the set said when it was written."""
    sent_at: timedelta
    read_at: timedelta | None
    """When the newest live read of sets and pods began before it was sent, None without one."""

    @property
    def at(self) -> timedelta:
        """Return when it was committed."""
        return self.write.at

    @property
    def is_downscale(self) -> bool:
        """Return whether pods go."""
        return self.now.replicas < self.before.replicas

    @property
    def text(self) -> str:
        """Return it in words."""
        return f"{self.before.name} was set from {self.before.replicas} to {self.now.replicas}"

    @property
    def decided(self) -> tuple[timedelta, timedelta]:
        """Return the span in which it was decided: from the live read on until it was sent."""
        begin = self.sent_at if self.read_at is None else self.read_at
        return begin, self.sent_at

    def known(self, span: timedelta) -> timedelta:
        """Return when a fact must have begun to be one that the operator had to know."""
        return min(self.sent_at - span, self.sent_at if self.read_at is None else self.read_at)


def list_scalings(book: Book) -> list[Scaling]:
    """Return the counts that the operator has written, in order."""
    return list(_list(book))


def collect_replicas(book: Book, name: str, span: tuple[timedelta, timedelta]) -> set[int]:
    """Return the counts that the sets of a name had at any moment of a span."""
    writes = [one for one in book.writes if isinstance(one.now, Set) and one.now.name == name]
    return _between(
        [(one.at, one.now.replicas) for one in writes if isinstance(one.now, Set)], span
    )


def collect_forced(book: Book, uid: str, span: tuple[timedelta, timedelta]) -> set[int | None]:
    """Return what people forced for a set at any moment of a span, None for nothing."""
    writes = [one for one in book.writes if isinstance(one.now, Set) and one.now.uid == uid]
    return _between([(one.at, read_desired(one.commit.after).forced) for one in writes], span)


def collect_template_replicas(book: Book, name: str, span: tuple[timedelta, timedelta]) -> set[int]:
    """Return the counts that a ReplicaTemplate wanted at any moment of a span."""
    return _between(
        [
            (one.at, number(one.after, "spec", "replicas", default=1))
            for one in book.templates
            if one.name == name and one.after is not None
        ],
        span,
    )


def _list(book: Book) -> Iterator[Scaling]:
    for write in book.writes:
        called = book.calls.get(write.commit.call)
        match write.before, write.now:
            case Set() as before, Set() as now if called and before.replicas != now.replicas:
                if book.is_operator(write.commit.actor):
                    sent_at = get_sent(book, called)
                    yield Scaling(
                        write=write,
                        before=before,
                        now=now,
                        called=called,
                        desired=read_desired(write.commit.before),
                        sent_at=sent_at,
                        read_at=_find_live_read(book, called, sent_at),
                    )


def _find_live_read(book: Book, called: Called, sent_at: timedelta) -> timedelta | None:
    """Return when the newest live read began whose lists of both kinds had been answered."""
    newest: dict[str, timedelta] = {}
    for one in book.own_calls:
        request = one.request
        is_live_list = request.verb == "list" and one.status < 400 and is_live(one)
        if is_live_list and one.actor == called.actor and one.at <= sent_at:
            newest[request.resource.plural] = one.begun
    times = [newest.get(one.plural) for one in (STATEFULSETS, PODS)]
    return None if None in times else min(one for one in times if one is not None)


def _between(states: list[tuple[timedelta, _V]], span: tuple[timedelta, timedelta]) -> set[_V]:
    """Return the states that held at any moment of a span."""
    begin, end = span
    before = [value for at, value in states if at <= begin][-1:]
    return {*before, *(value for at, value in states if begin < at <= end)}


NEVER: Final = timedelta.min
UNREADABLE: Final = timedelta.max


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the store says of one zone from some time on."""

    at: timedelta
    time: timedelta
    """When it was scaled down last, on the clock of the world; NEVER where nothing says so."""
    is_of_person: bool


class Recorded(msgspec.Struct):
    """All entries by name of the zone, in order; each is another than that before it."""

    entries: dict[str, list[Entry]] = {}

    def map_replicas_at(self, at: timedelta) -> dict[str, timedelta]:
        """Return the time of each zone as the store says it at a time."""
        found = {name: [one for one in all_ if one.at <= at] for name, all_ in self.entries.items()}
        return {name: entries[-1].time for name, entries in found.items() if entries}

    def was_released(self, name: str, since: timedelta, until: timedelta, wait: timedelta) -> bool:
        """Return whether a person made a downscale of a zone no reason to wait any more."""
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
