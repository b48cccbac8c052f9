"""What a story comes to in the end: pods replaced, time taken, and how much was down at a time.

Pure, from the history of the simulated world.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta

import msgspec

from rollout_lab.controllers.members import ordinals_of
from rollout_lab.demo.objects import PERSON, is_operator
from rollout_lab.model.fields import controller_of, is_terminating, text
from rollout_lab.model.history import Called, Commit, PodCalled, Record
from rollout_lab.trace.lines import is_ready
from rollout_operator.cli.render import Line, Style
from rollout_operator.kube.api import PODS, STATEFULSETS
from rollout_operator.planning.wording import count


class Totals(msgspec.Struct, kw_only=True):
    """The figures of one story, from `begin` on."""

    begin: timedelta
    limit: int
    """How many pods of a zone may be unavailable."""
    took: timedelta = timedelta(0)
    """Until the last replaced pod was ready."""
    replaced: int = 0
    deletes: int = 0
    """By the operator: a pod that never came up is deleted once more."""
    zones_taken: int = 0
    """The most zones of which the operator had pods down at the same time."""
    pods_down: int = 0
    """The most pods that one zone missed at the same time, whoever is to blame."""
    evicted: int = 0
    called: set[str] = set()
    """Pods that were called to prepare for their end."""
    refusals: list[str] = []
    """What the API server said to the requests of people that it turned away."""
    _wanted: dict[str, tuple[str, ...]] = {}
    """The places of each zone."""
    _ready: set[str] = set()
    _taken: dict[str, str] = {}
    """The zone of each pod that the operator deleted and that is not back yet."""

    @property
    def is_kept(self) -> bool:
        """Return whether pods of two zones were never taken at the same time."""
        return self.zones_taken <= 1

    def take(self, record: Record) -> None:
        """Move on by one record; those of most kinds change no figure."""
        match record:
            case Commit():
                self._move(record)
            case _ if record.at < self.begin:
                pass
            case Called(status=status) if record.actor == PERSON and status >= 400:
                self.refusals.append(record.message)
            case Called() if record.actor == PERSON:
                self.evicted += record.request.subresource == "eviction"
            case PodCalled(method="POST"):
                self.called.add(record.uid)

    def _move(self, record: Commit) -> None:
        if record.resource == STATEFULSETS:
            ordinals = ordinals_of(record.after) if record.after else ()
            self._wanted[record.name] = tuple(f"{record.name}-{number}" for number in ordinals)
        elif record.resource == PODS:
            self._move_pod(record)
        if record.at >= self.begin:
            down = (sum(pod not in self._ready for pod in pods) for pods in self._wanted.values())
            self.pods_down = max(self.pods_down, *down, 0)
            self.zones_taken = max(self.zones_taken, len({*self._taken.values()}))

    def _move_pod(self, record: Commit) -> None:
        before, after, is_late = record.before, record.after, record.at >= self.begin
        is_going = after is None or is_terminating(after)
        if before is not None and is_going and is_operator(record.actor) and is_late:
            self.deletes += not is_terminating(before)
            self._taken.setdefault(record.name, text(controller_of(before), "name"))
        if after is None or is_going or not is_ready(after):
            self._ready.discard(record.name)
            return
        self._ready.add(record.name)
        if self._taken.pop(record.name, ""):
            self.replaced += 1
            self.took = record.at - self.begin


def add_up(records: Iterable[Record], begin: timedelta, limit: int) -> Totals:
    """Return the figures of what has happened since `begin`."""
    totals = Totals(begin=begin, limit=limit)
    for record in records:
        totals.take(record)
    return totals


def draw_totals(totals: Totals) -> Iterator[Line]:
    """Yield the figures as sentences, a line each."""
    if totals.replaced:
        pods = count(totals.replaced, "pod")
        if totals.deletes > totals.replaced:
            pods = f"{pods} ({count(totals.deletes, 'delete')})"
        took = f"{pods} replaced in {totals.took.total_seconds():.1f} s"
        down = f"; at most {count(totals.pods_down, 'pod')} of a zone down at a time"
        yield ((took, Style.BOLD), (f"{down} ({totals.limit} allowed)", Style.PLAIN))
        if totals.is_kept:
            yield (("the operator never took pods of two zones at a time", Style.GREEN),)
        else:
            taken = f"the operator took pods of {totals.zones_taken} zones at a time"
            yield ((taken, Style.RED),)
    rest = (
        (totals.evicted, "pod", "evicted"),
        (len(totals.called), "pod", "called to prepare"),
        (len(totals.refusals), "request", "refused"),
    )
    for number, noun, what in rest:
        if number:
            yield ((f"{count(number, noun)} {what}", Style.BOLD),)
    # What is requested again every other second is refused in much the same words.
    for refusal in totals.refusals[:1]:
        yield ((refusal, Style.PLAIN),)
    if not totals.replaced and not any(number for number, _, _ in rest):
        yield (("nothing was replaced", Style.BOLD),)
