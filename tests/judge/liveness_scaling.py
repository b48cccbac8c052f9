"""What must come to pass of counts once all faults are over: every zone has the count it should.

Within the times that zones wait for one another and that pods request (LI-01); what the object
that zones mirror gets replicas too. Nothing is written after it: that is seen by `liveness`. Pods
that said since when they are prepared, and stay, are un-prepared (LI-05).
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.model.fields import child
from rollout_lab.model.history import Commit

from rollout_operator.kube.api import JsonObject
from tests.judge.book import Book
from tests.judge.desired import list_miscounted, read_desired
from tests.judge.invariants_requests import WRITTEN_WITHIN, list_contests
from tests.judge.objects import Set, read_set
from tests.judge.promises import Violation

# For each zone: until an allowed downscale cannot persist, and pods were un-prepared.
PER_ZONE: Final = timedelta(seconds=36 + 60)


class Replicas(msgspec.Struct):
    """Where the counts of a history have ended."""

    sets: dict[str, JsonObject] = {}
    """By name."""
    templates: dict[str, JsonObject] = {}
    requested_at: timedelta = timedelta(0)
    """When people last changed what is wanted."""
    moved_at: timedelta = timedelta(0)
    """When replicas were last written, or reported."""

    @property
    def bound(self) -> timedelta:
        """Return how long counts may take from zone to zone, when nothing else is in the way."""
        sets = [read_set(one) for one in self.sets.values()]
        waits = max((one.min_time for one in sets), default=timedelta(0))
        delays = [read_desired(one).delay for one in self.sets.values()]
        return len(sets) * (waits + PER_ZONE) + sum(delays, timedelta(0))


def read_counts(book: Book) -> Replicas:
    """Return where the counts of a history have ended."""
    counts = Replicas()
    sets = [one.commit for one in book.writes if isinstance(one.now or one.before, Set)]
    for held, commits in ((counts.sets, sets), (counts.templates, book.templates)):
        for commit in commits:
            _take(book, counts, held, commit)
    return counts


def list_called_late(
    book: Book, begin: timedelta, stays_since: Mapping[str, timedelta]
) -> Iterator[Violation]:
    """Yield pods that were called, and un-prepared too late; `begin`: when all was well.

    `stays_since` has the pods that exist and stay, by UID. LI-05.
    """
    counts = read_counts(book)
    begin = max(begin, counts.requested_at, counts.moved_at)
    called: dict[str, timedelta] = {}
    for call in sorted(book.delay_calls, key=lambda one: one.at):
        if call.uid not in stays_since:
            continue
        # A pod that does not listen cannot be called: the next attempt has its time from then on.
        is_deaf = not call.acted and call.uid in called
        if is_deaf or (call.acted and call.method == "POST"):
            called[call.uid] = call.at
        if not call.acted or call.method == "POST":
            continue
        due = max(called.pop(call.uid, call.at), begin, stays_since[call.uid]) + PER_ZONE
        if call.at > due:
            late = (call.at - due).total_seconds()
            text = f"{call.pod} was told {late:.0f} s too late that it stays"
            yield Violation(invariant="LI-05", at=call.at, text=text)


def judge_counts(book: Book, begin: timedelta, slack: timedelta) -> Iterator[Violation | str]:
    """Yield what did not come to pass, and as text what is not known yet.

    `begin` is when all was well, `slack` what pods and lost events may take beside.
    """
    counts = read_counts(book)
    if not any(read_desired(one).is_ours for one in counts.sets.values()):
        return
    begin, bound = max(begin, counts.requested_at), counts.bound + slack
    if list_contests(book):
        bound += WRITTEN_WITHIN
    missing = "; ".join(list_miscounted([*counts.sets.values()], [*counts.templates.values()]))
    if missing and book.ended_at - begin < bound:
        left = (bound - (book.ended_at - begin)).total_seconds()
        yield f"the run ended {left:.0f} s before counts had to be right: {missing}"
    elif missing:
        yield Violation(invariant="LI-01", at=book.ended_at, text=missing)
    elif counts.moved_at - begin > bound:
        took = (counts.moved_at - begin).total_seconds()
        text = f"counts were right only {took:.0f} s after all was well, bound"
        text += f" {bound.total_seconds():.0f} s"
        yield Violation(invariant="LI-01", at=counts.moved_at, text=text)


def _take(book: Book, counts: Replicas, held: dict[str, JsonObject], commit: Commit) -> None:
    before = held.pop(commit.name, None)
    if commit.after is not None:
        held[commit.name] = commit.after
    if _wish(before) != _wish(commit.after):
        counts.moved_at = max(counts.moved_at, commit.at)
        if not book.is_operator(commit.actor):
            counts.requested_at = max(counts.requested_at, commit.at)
    elif commit in book.templates:
        counts.moved_at = max(counts.moved_at, commit.at)


def _wish(found: JsonObject | None) -> object:
    """Return what any actor says of the replicas, without what controllers keep for themselves."""
    if found is None:
        return None
    return child(found, "spec").get("replicas"), read_desired(found)
