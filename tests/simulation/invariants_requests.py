"""What is promised of how much a process asks for, at rest and under contention: LI-11, D-65.

Judged with the default rate limits, on what arrives at the API server. Reads are allowed to lead to
nothing for some minutes, as often as the limits let them pass; then only at the pace at which what
fails for long is tried again.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from rollout_operator.lab.model.history import Called
from tests.simulation.promises import Violation
from tests.simulation.views import Book
from tests.world.history import Set

MINUTE: Final = timedelta(minutes=1)
# Five a second and ten at once; some more for what was on its way, and for a process begun anew.
MOST_A_MINUTE: Final = 360
# What fails for so long is tried twice a minute, with two lists each.
FAILING: Final = timedelta(minutes=5)
READS_OF_A_GROUP: Final = 4
# Informers, references that cannot be watched, deletes that are read back.
OTHER_READS: Final = 30
WRITES: Final = frozenset({"create", "update", "patch", "delete"})


def find_broken(book: Book) -> Iterator[Violation]:
    """Yield the minutes in which a process asked for too much; the first one of each kind."""
    calls: dict[str, list[Called]] = defaultdict(list)
    for called in sorted(book.own_calls, key=lambda one: one.begun):
        if called.request.verb != "watch":
            calls[called.actor].append(called)
    groups = {write.now.group for write in book.writes if isinstance(write.now, Set)}
    most = READS_OF_A_GROUP * len(groups - {None}) + OTHER_READS
    for actor, own in calls.items():
        yield from _find_too_many(actor, own)
        if not book.reviews:  # else people decide how much is read
            yield from _find_fruitless(actor, own, most)


def _find_too_many(actor: str, calls: Iterable[Called]) -> Iterator[Violation]:
    """The flags bound the process for each API group."""
    lately: dict[str, deque[timedelta]] = defaultdict(deque)
    for called in calls:
        group = called.request.resource.group
        times = lately[group]
        times.append(called.begun)
        while times[0] < called.begun - MINUTE:
            times.popleft()
        if len(times) > MOST_A_MINUTE:
            text = f'{len(times)} requests for API group "{group}" by {actor} in a minute'
            yield Violation(invariant="LI-11", at=called.begun, text=text)
            return


def _find_fruitless(actor: str, calls: Iterable[Called], most: int) -> Iterator[Violation]:
    """Reads lead to a write, or become rare."""
    wrote_at, lately = timedelta(0), deque[timedelta]()
    for called in calls:
        if called.request.verb in WRITES:
            wrote_at = called.begun
            lately.clear()
        elif called.begun - wrote_at > FAILING:
            lately.append(called.begun)
            while lately[0] < called.begun - MINUTE:
                lately.popleft()
            if len(lately) > most:
                text = f"{len(lately)} reads by {actor} in a minute, and no write for"
                text += f" {(called.begun - wrote_at).total_seconds():.0f} s"
                yield Violation(invariant="LI-11", at=called.begun, text=text)
                return
