"""The counts that the operator itself has written: what each rests on, and what was wanted then.

Read once; what they break is judged in `invariants_scaling`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from rollout_operator.kube.api import PODS, STATEFULSETS
from rollout_operator.lab.model.fields import number
from rollout_operator.lab.model.history import Called
from tests.simulation.deletes import find_sent, is_live
from tests.simulation.views import Book, Write
from tests.simulation.wishes import Wish, read_wish
from tests.world.history import Set

# So long may a cache be behind that nobody has proven to be: upscales and readings of references
# rest on one. The longest of the faults of events, and some.
_V = TypeVar("_V")
OLDEST_VIEW: Final = timedelta(minutes=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One count that the operator has written."""

    write: Write
    before: Set
    now: Set
    called: Called
    wish: Wish
    """What the set said when it was written."""
    sent_at: timedelta
    looked_at: timedelta | None
    """When the newest live look at sets and pods began before it was sent, None without one."""

    @property
    def at(self) -> timedelta:
        """Return when it was committed."""
        return self.write.at

    @property
    def is_downscale(self) -> bool:
        """Tell whether pods go."""
        return self.now.replicas < self.before.replicas

    @property
    def text(self) -> str:
        """Return it in words."""
        return f"{self.before.name} was set from {self.before.replicas} to {self.now.replicas}"

    @property
    def decided(self) -> tuple[timedelta, timedelta]:
        """Return the span in which it was decided: from the live look on until it was sent."""
        begin = self.sent_at if self.looked_at is None else self.looked_at
        return begin, self.sent_at

    def known(self, span: timedelta) -> timedelta:
        """Return when a fact must have begun to be one that the operator had to know."""
        return min(self.sent_at - span, self.sent_at if self.looked_at is None else self.looked_at)


def list_scalings(book: Book) -> list[Scaling]:
    """Return the counts that the operator has written, in order."""
    return list(_list(book))


def list_counts(book: Book, name: str, span: tuple[timedelta, timedelta]) -> set[int]:
    """Return the counts that the sets of a name had at any moment of a span."""
    writes = [one for one in book.writes if isinstance(one.now, Set) and one.now.name == name]
    return _between(
        [(one.at, one.now.replicas) for one in writes if isinstance(one.now, Set)], span
    )


def list_forced(book: Book, uid: str, span: tuple[timedelta, timedelta]) -> set[int | None]:
    """Return what people forced for a set at any moment of a span, None for nothing."""
    writes = [one for one in book.writes if isinstance(one.now, Set) and one.now.uid == uid]
    return _between([(one.at, read_wish(one.commit.after).forced) for one in writes], span)


def list_template_counts(book: Book, name: str, span: tuple[timedelta, timedelta]) -> set[int]:
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
                    sent_at = find_sent(book, called)
                    yield Scaling(
                        write=write,
                        before=before,
                        now=now,
                        called=called,
                        wish=read_wish(write.commit.before),
                        sent_at=sent_at,
                        looked_at=_find_look(book, called, sent_at),
                    )


def _find_look(book: Book, called: Called, sent_at: timedelta) -> timedelta | None:
    """Return when the newest live look began whose lists of both kinds had been answered."""
    newest: dict[str, timedelta] = {}
    for one in book.own_calls:
        request = one.request
        is_look = request.verb == "list" and one.status < 400 and is_live(one)
        if is_look and one.actor == called.actor and one.at <= sent_at:
            newest[request.resource.plural] = one.begun
    times = [newest.get(one.plural) for one in (STATEFULSETS, PODS)]
    return None if None in times else min(one for one in times if one is not None)


def _between(states: list[tuple[timedelta, _V]], span: tuple[timedelta, timedelta]) -> set[_V]:
    """Return the states that held at any moment of a span."""
    begin, end = span
    before = [value for at, value in states if at <= begin][-1:]
    return {*before, *(value for at, value in states if begin < at <= end)}
