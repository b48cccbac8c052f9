"""Counts that the operator writes again because something else put them back (LI-11).

A contest begins with the first write of a count to a zone, and goes on with each further write of
the same count by the same process. The bound is on these: the first few may be quick.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Final

from tests.simulation.promises import Violation
from tests.simulation.views import Book, Write
from tests.world.history import Set

MINUTE: Final = timedelta(minutes=1)
# What other releases write at most.
PER_MINUTE: Final = 12
LONG: Final = timedelta(minutes=5)
# Between two writes of a contest that lasts for longer than that.
LONG_GAP: Final = timedelta(seconds=30)
# A count that stayed for so long was accepted: what comes after is another contest.
ACCEPTED: Final = timedelta(minutes=15)
# By clocks that run wrongly, twice as fast at worst.
SLACK: Final = 2
# So long after the other writer has given up the operator writes its count.
WRITTEN_WITHIN: Final = timedelta(minutes=5)
# Fewer writes of one count are no contest: a set is made anew, a person tries something.
LEAST: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """One count of one zone, written again and again."""

    zone: str
    replicas: int
    times: tuple[timedelta, ...]


def find_broken(book: Book) -> Iterator[Violation]:
    """Yield contests in which the operator writes too often."""
    for contest in list_contests(book):
        what = f"{contest.zone} was set to {contest.replicas}"
        for last in contest.times:
            count = sum(last - MINUTE / SLACK < one <= last for one in contest.times)
            if count > PER_MINUTE:
                text = f"{what} {count} times in half a minute, and something else put it back"
                yield Violation(invariant="LI-11", at=last, text=text)
                break
        for sooner, later in pairwise(contest.times):
            if later - contest.times[0] >= LONG * SLACK and later - sooner < LONG_GAP / SLACK:
                text = f"{what} again after {(later - sooner).total_seconds():.1f} s, though"
                text += " something else had put it back for minutes"
                yield Violation(invariant="LI-11", at=later, text=text)
                break


def list_contests(book: Book) -> list[Contest]:
    """Return the counts that a process of the operator has written at least three times in a row.

    Writes whose answer was lost are tried again in their own time, and are left out.
    """
    found: list[Contest] = []
    running: dict[str, list[Write]] = {}
    for write in book.writes:
        before, now = write.before, write.now
        if not isinstance(before, Set) or not isinstance(now, Set):
            continue
        if before.replicas == now.replicas or not book.is_operator(write.commit.actor):
            continue
        if _is_disturbed(book, write):
            continue
        last = running.get(now.uid, [])
        if last and not _goes_on(book, last[-1], write):
            found += _end(last)
            last = []
        running[now.uid] = [*last, write]
    for writes in running.values():
        found += _end(writes)
    return found


def _goes_on(book: Book, last: Write, write: Write) -> bool:
    assert isinstance(last.now, Set), "only writes of sets are kept"
    assert isinstance(write.now, Set), "only writes of sets are kept"
    is_same = last.now.replicas == write.now.replicas
    lives = [book.lives.find(one.commit.actor, one.at) for one in (last, write)]
    return is_same and lives[0] == lives[1] and write.at - last.at < ACCEPTED


def _is_disturbed(book: Book, write: Write) -> bool:
    called = book.calls.get(write.commit.call)
    begun = write.at if called is None else called.begun
    return bool(book.list_faults(write.commit.actor, begun - MINUTE / 60, write.at + MINUTE / 60))


def _end(writes: list[Write]) -> Iterator[Contest]:
    last = writes[-1].now
    if len(writes) >= LEAST and isinstance(last, Set):
        times = tuple(one.at for one in writes)
        yield Contest(zone=last.name, replicas=last.replicas, times=times)
