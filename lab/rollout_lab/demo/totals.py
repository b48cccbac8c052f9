"""What a story comes to in the end: pods replaced, time taken, and how much was down at a time.

Pure, from the history of the simulated world. Times are seconds.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_lab.demo.objects import PERSON, REPLICAS
from rollout_lab.demo.snapshot import is_ready, list_places
from rollout_lab.model.fields import controller_of, is_terminating, text
from rollout_lab.model.history import Called, Commit, PodCalled, Record
from rollout_operator.cli.render import Line, Style
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from rollout_operator.planning.wording import count

# Of the texts that differ; the last is the newest in the list of what happened.
MOST_REFUSALS: Final = 1
# What other operators look at the world once in.
POLL_S: Final = 5.0


class Restart(msgspec.Struct, frozen=True):
    """One replacement of a pod that is over: from its delete until the new pod counts."""

    zone: str
    begin: float
    end: float


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one story."""

    limit: int
    """How many pods of a zone may be unavailable."""
    took: float = 0.0
    """From the first act until the last replaced pod was ready."""
    restarts: tuple[Restart, ...] = ()
    deletes: int = 0
    """By the operator: a pod that never came up is deleted once more."""
    zones_taken: int = 0
    """The most zones of which the operator had pods down at the same time."""
    pods_down: int = 0
    """The most pods that one zone missed at the same time, whoever is to blame."""
    called: int = 0
    """Pods that were called to prepare for their end."""
    refusals: tuple[str, ...] = ()
    """What the API server said to the requests of people that it turned away."""
    evicted: int = 0
    """Evictions that people requested and that were granted."""
    has_pauses: bool = False
    """Whether the operator was told to wait in between: no comparison is fair then."""

    @property
    def is_kept(self) -> bool:
        """Return whether pods of two zones were never taken at the same time."""
        return self.zones_taken <= 1


def measure_floor(restarts: Iterable[Restart], limit: int) -> float:
    """Return what the restarts alone take, one zone after the other, `limit` at a time."""
    return sum(_pack(lengths, limit)[0] for lengths in _group_lengths(restarts).values())


def _group_lengths(restarts: Iterable[Restart]) -> dict[str, list[float]]:
    by_zone: dict[str, list[float]] = {}
    for restart in restarts:
        by_zone.setdefault(restart.zone, []).append(restart.end - restart.begin)
    return by_zone


def _pack(lengths: Iterable[float], slots: int, poll: float = 0.0) -> tuple[float, float]:
    """Return when works of these lengths are over, begun in this order, so many at a time.

    First when their end has been seen, by who looks at each multiple of `poll`; then when it is.
    """
    ends, over = [0.0] * slots, 0.0
    for length in lengths:
        over = max(over, ends[0] + length)
        heapq.heapreplace(ends, ends[0] + (math.ceil(length / poll) * poll if poll else length))
    return max(ends), over


def add_up(records: Iterable[Record], begin: timedelta, limit: int) -> Totals:
    """Return the figures of what has happened since `begin`."""
    state = _TotalsState(Totals(limit=limit), begin)
    for record in records:
        state.take(record)
    restarts = tuple(state.restarts)
    took = max((restart.end for restart in restarts), default=0.0)
    return replace(state.totals, restarts=restarts, took=took)


class _TotalsState(msgspec.Struct):
    """The state of the world while its history is read."""

    totals: Totals
    begin: timedelta
    restarts: list[Restart] = []
    _called: set[str] = set()
    _wanted: dict[str, tuple[str, ...]] = {}
    """The places of each zone."""
    _ready: set[str] = set()
    _taken: dict[str, tuple[str, float]] = {}
    """The zone, and when the operator deleted it, of each pod that is not back yet."""

    def take(self, record: Record) -> None:
        """Move on by one record; those of most kinds change no figure."""
        match record:
            case Commit():
                self._move(record)
            case _ if record.at < self.begin:
                return
            case Called(actor=actor, status=status) if actor == PERSON and status >= 400:
                refusals = (*self.totals.refusals, record.message)
                self.totals = replace(self.totals, refusals=refusals)
            case Called(actor=actor, request=request) if actor == PERSON:
                evicted = self.totals.evicted + (request.subresource == "eviction")
                self.totals = replace(self.totals, evicted=evicted)
            case PodCalled(method="POST"):
                self._called.add(record.uid)
                self.totals = replace(self.totals, called=len(self._called))

    def _move(self, record: Commit) -> None:
        if record.resource == STATEFULSETS:
            self._wanted[record.name] = list_places(record.after) if record.after else ()
        elif record.resource == PODS:
            self._move_pod(record)
        if record.at >= self.begin:
            self._record_down()

    def _move_pod(self, record: Commit) -> None:
        at = (record.at - self.begin).total_seconds()
        before, after = record.before, record.after
        if record.actor in REPLICAS and before is not None and _is_going(after):
            self._record_delete(before, at)
            self._taken.setdefault(record.name, (text(controller_of(before), "name"), at))
        if after is None or not is_ready(after):
            self._ready.discard(record.name)
            return
        self._ready.add(record.name)
        if record.name in self._taken:
            zone, begin = self._taken.pop(record.name)
            if begin >= 0:
                self.restarts.append(Restart(zone, begin, at))

    def _record_delete(self, before: JsonObject, at: float) -> None:
        if at >= 0 and not is_terminating(before):
            self.totals = replace(self.totals, deletes=self.totals.deletes + 1)

    def _record_down(self) -> None:
        down = [sum(place not in self._ready for place in each) for each in self._wanted.values()]
        zones = {zone for zone, _ in self._taken.values()}
        self.totals = replace(
            self.totals,
            pods_down=max(self.totals.pods_down, *down, 0),
            zones_taken=max(self.totals.zones_taken, len(zones)),
        )


def _is_going(pod: JsonObject | None) -> bool:
    return pod is None or is_terminating(pod)


def measure_polled(restarts: Sequence[Restart], limit: int) -> float:
    """Return what it would take at least if what has happened were seen every five seconds.

    It ends as the story does, when the last pod is ready, and not when that is seen.
    """
    last = max(restarts, key=lambda restart: restart.end).zone
    packed = {
        zone: _pack(lengths, limit, POLL_S) for zone, lengths in _group_lengths(restarts).items()
    }
    return sum(over if zone == last else seen for zone, (seen, over) in packed.items())


def draw_totals(totals: Totals) -> list[Line]:
    """Return the figures as sentences, a line each."""
    lines: list[Line] = []
    if totals.restarts:
        pods = count(len(totals.restarts), "pod")
        floor = measure_floor(totals.restarts, totals.limit)
        if totals.deletes > len(totals.restarts):
            pods = f"{pods} ({count(totals.deletes, 'delete')})"
        lone = f"; their restarts alone take {floor:.1f} s"
        lines.append(((f"{pods} replaced in {totals.took:.1f} s", Style.BOLD), (lone, Style.PLAIN)))
        if not totals.has_pauses:
            polled = measure_polled(totals.restarts, totals.limit)
            lines.append(
                _plain(f"an operator that looks every {POLL_S:g} s needs {polled:.1f} s or more")
            )
        lines += _draw_down(totals)
    if totals.evicted:
        lines.append(_bold(f"{count(totals.evicted, 'pod')} evicted"))
    if totals.called:
        lines.append(_bold(f"{count(totals.called, 'pod')} called to prepare"))
    if totals.refusals:
        lines.append(_bold(f"{count(len(totals.refusals), 'request')} refused"))
        # What is requested again every other second is refused in much the same words.
        texts = list(dict.fromkeys(totals.refusals))
        lines += [_plain(text) for text in texts[:MOST_REFUSALS]]
        if len(texts) > MOST_REFUSALS:
            lines.append(_plain(f"... ({len(texts) - MOST_REFUSALS} more)"))
    return lines or [_bold("nothing was replaced")]


def _draw_down(totals: Totals) -> list[Line]:
    down = f"at most {count(totals.pods_down, 'pod')} of a zone down at a time"
    together = (
        ("the operator never took pods of two zones at a time", Style.GREEN)
        if totals.is_kept
        else (f"the operator took pods of {totals.zones_taken} zones at a time", Style.RED)
    )
    return [_plain(f"{down} ({totals.limit} allowed)"), (together,)]


def _bold(sentence: str) -> Line:
    return ((sentence, Style.BOLD),)


def _plain(sentence: str) -> Line:
    return ((sentence, Style.PLAIN),)
