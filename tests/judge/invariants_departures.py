"""What is promised of zones that left their group, policy or budget while they were short: SI-26.

Checked at the commit of each delete, of each eviction that was allowed and of each downscale of
another zone. That a zone was short counts where it had been so for `known` when it left; what the
operator itself had let go there counts at once. A process that began later knows only the pods that
were left behind; one that was not told of what happened is excused.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.model.history import Commit, Fault

from tests.judge.book import Book, Write
from tests.judge.budgets import Rule
from tests.judge.deletes import Delete, get_span, map_deletes
from tests.judge.departures import (
    BUDGET,
    FASTEST,
    GROUP,
    HELD,
    POLICY,
    Circle,
    Departure,
    Departures,
    has_wrong_clock,
    list_events,
)
from tests.judge.downscales import PREPARE_PATH, Downscale, list_downscales, list_reviews
from tests.judge.invariants_budgets import Judge, JudgedDisruption
from tests.judge.invariants_downscales import get_first_requested
from tests.judge.objects import Pod, Set
from tests.judge.promises import Violation
from tests.judge.state import Disruption

# A watch that breaks, or is not proven alive, is opened anew or listed within so long.
BLIND: Final = timedelta(minutes=1)
LONGEST_BLIND: Final = timedelta(minutes=10)
NO_TIME: Final = timedelta(0)
WATCHED: Final = ("pods", "statefulsets")


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator did to a zone, or let others do."""

    text: str
    zone: str
    """The name of its StatefulSet."""
    az: str
    actor: str
    at: timedelta
    known: timedelta
    """What has lasted from then on had to be known."""


def list_broken(book: Book) -> Iterator[Violation]:
    """Yield what zones that had left forbid."""
    events = list_events(book)
    if not events:
        return
    history = _Departed(book)
    for event in events:
        if isinstance(event, Write):
            yield from history.judge(event)
        history.take(event)


class _Departed:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._departures = Departures(book)
        self._judge = Judge(book)
        self._deletes = map_deletes(book)
        downscales = (one for one in list_downscales(book) if one.must_prepare)
        self._downscales: Mapping[int, Downscale] = {
            one.write.commit.revision: one for one in downscales
        }
        self._held = HELD / FASTEST if has_wrong_clock(book) else HELD

    def take(self, event: Write | Commit) -> None:
        """Move on by one event."""
        departures = self._departures
        departures.take(event)
        if not isinstance(event, Write):
            return
        self._judge.take(event)
        pod, delete = event.ended_pod, self._deletes.get(event.commit.call)
        if pod is not None and delete is not None and pod.owner in departures.world.sets:
            departures.world.open.append(
                Disruption(pod=pod, begun=event.at, is_ghost=delete.is_ghost)
            )

    def judge(self, write: Write) -> Iterator[Violation]:
        """Yield what a write breaks, before it is taken."""
        if not self._departures.lasting:
            return
        if (downscale := self._downscales.get(write.commit.revision)) is not None:
            yield from self._judge_downscale(downscale)
        pod, delete = write.ended_pod, self._deletes.get(write.commit.call)
        if pod is None or not self._departures.world.is_available(pod.name):
            return  # what is down already is no disruption
        since = write.at - self._book.promises.known
        disruption = self._judge.find(
            self._departures.world, write, None if delete is None else delete.cut(since)
        )
        if disruption is not None:
            yield from self._judge_pod(pod, disruption, delete)

    def _judge_pod(
        self, pod: Pod, disruption: JudgedDisruption, delete: Delete | None
    ) -> Iterator[Violation]:
        act = self._read_act(disruption.text, disruption.owner, disruption)
        found: list[Violation] = []
        if delete is not None and self._is_settled(disruption.owner, act):
            found += self._judge_act(act, self._list_circles(disruption.owner))
        if not found:
            rules = self._judge.list_rules(disruption)
            broken = [self._list_under(rule, act, pod, delete) for rule in rules]
            found += broken[-1] if broken and all(broken) else []
        yield from found[:1]

    def _judge_downscale(self, downscale: Downscale) -> Iterator[Violation]:
        zone = downscale.before
        reviews = [
            one
            for one in list_reviews(self._book, PREPARE_PATH)
            if downscale.called is not None and one.call == downscale.called.number
        ]
        if not reviews or not downscale.removed:
            return
        act = Act(
            text=downscale.text,
            zone=zone.name,
            az="",
            actor=reviews[-1].actor,
            at=downscale.at,
            known=get_first_requested(self._book, downscale) - self._book.promises.known,
        )
        if zone.group is not None and self._is_settled(zone, act):
            yield from self._judge_act(act, (Circle(GROUP, zone.group),))

    def _read_act(self, text: str, zone: Set, disruption: JudgedDisruption) -> Act:
        owned = self._departures.owned.get(zone.uid)
        return Act(
            text=text,
            zone=zone.name,
            az="" if owned is None else owned.zone,
            actor=disruption.actor,
            at=disruption.at,
            known=disruption.since,
        )

    def _is_settled(self, zone: Set, act: Act) -> bool:
        """Return whether it was long known what counts a zone itself."""
        moved_at = self._departures.moved_at.get(zone.uid)
        return moved_at is None or moved_at <= act.known

    def _list_circles(self, zone: Set) -> list[Circle]:
        """Return what decides about deletes of a zone: its policy, else its group."""
        circles = self._departures.circles.get(zone.uid, frozenset())
        policies = [one for one in circles if one.kind == POLICY]
        return policies or [one for one in circles if one.kind == GROUP]

    def _judge_act(self, act: Act, circles: Collection[Circle]) -> Iterator[Violation]:
        for departure in self._departures.lasting:
            if departure.circle in circles and (names := self._list_lacking(departure, act)):
                yield _broken(act, departure, names)

    def _list_under(self, rule: Rule, act: Act, pod: Pod, delete: Delete | None) -> list[Violation]:
        """Return what an eviction breaks under a budget, and a delete under one by partition."""
        if delete is not None and not rule.pattern:
            return []
        found, partition = [], rule.name_partition(pod.name)
        for departure in self._departures.lasting:
            circle, labels = departure.circle, departure.zone.labels
            if circle.kind != BUDGET or (circle.name != rule.name and not rule.selects(labels)):
                continue
            names = [
                name
                for name in self._list_lacking(departure, act)
                if not rule.pattern or rule.name_partition(name) == partition
            ]
            if names and (not rule.pattern or len(names) >= rule.maximum):
                found.append(_broken(act, departure, names))
        return found

    def _list_lacking(self, departure: Departure, act: Act) -> list[str]:
        """Return the pods that a departed zone lacks, as far as who acts had to know it."""
        is_own = departure.zone.name == act.zone or (act.az and departure.az == act.az)
        if is_own or act.at >= departure.at + self._held:
            return []
        promises = self._book.promises
        left_at = departure.since - (NO_TIME if promises.is_observed else promises.known)
        limit = min(act.known, left_at)
        lacking = [
            name
            for name, since in departure.lacks.items()
            if since <= limit and name in departure.down_since
        ]
        runs = self._book.runs
        run = runs.find(act.actor, act.at) or runs.find(act.actor, act.known)
        ready_at = None if run is None else run.ready_at
        if run is not None and run.begun == timedelta(0) and ready_at is None:
            ready_at = run.begun  # its start was not seen
        if ready_at is None or ready_at > left_at:
            return [name for name in lacking if self._is_visible(departure, name, act)]
        if any(self._hides(one, departure) for one in self._list_faults(departure, act)):
            lacking = [name for name in lacking if self._is_visible(departure, name, act)]
        own = [
            one.pod.name
            for one in departure.disruptions
            if not one.is_ghost and one.begun <= departure.since
            if one.pod.name in departure.down_since
            if run is not None and run.holds(one.begun)
        ]
        return sorted({*lacking, *own})

    def _is_visible(self, departure: Departure, name: str, act: Act) -> bool:
        """Return whether a pod that was left behind shows by itself that it is down."""
        world, circle = self._departures.world, departure.circle
        pod = world.pods.get(name)
        if pod is None or pod.owner in world.sets or circle.kind == POLICY:
            return False
        if departure.down_since.get(name, act.at) > act.known:
            return False
        if circle.kind == GROUP:
            return circle.name in (
                pod.labels.get("rollout-group"),
                pod.labels.get("grafana.com/rollout-group"),
            )
        return True

    def _list_faults(self, departure: Departure, act: Act) -> list[Fault]:
        first = min(departure.lacks.values(), default=departure.at)
        return self._book.list_faults(act.actor, first - LONGEST_BLIND, departure.at)

    def _hides(self, fault: Fault, departure: Departure) -> bool:
        """Return whether a fault may have kept from a process what a zone lacked when it left."""
        left_at = departure.since - self._book.promises.known
        if fault.kind == "partition":
            return fault.at > left_at - LONGEST_BLIND
        if not any(plural in fault.text for plural in WATCHED):
            return False
        if fault.kind in ("delay_event", "freeze"):
            return fault.at + get_span(fault) > left_at
        if fault.kind in ("drop_event", "spoil_event"):
            return departure.zone.name in fault.text
        is_of_view = "event" in fault.text or "list " in fault.text or "watch " in fault.text
        return is_of_view and fault.at > departure.since - BLIND


def _broken(act: Act, departure: Departure, names: list[str]) -> Violation:
    passed = (act.at - departure.at).total_seconds()
    kind, name = departure.circle
    text = f"{act.text} {passed:.1f} s after {departure.zone.name} left the {_KINDS[kind]} {name}"
    return Violation(invariant="SI-26", at=act.at, text=f"{text} without {', '.join(names)}")


_KINDS: Final = {GROUP: "group", POLICY: "policy", BUDGET: "budget"}
