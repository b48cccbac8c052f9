"""Zones that left while they were short: what counted them, what they lacked, until when (D-82).

A zone leaves a group, a policy or a budget when its StatefulSet is deleted, is labelled otherwise,
or is no longer selected. It counts until a StatefulSet of its name is whole, or its time is over.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
from rollout_lab.model.history import Commit

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, ZONE_BUDGETS
from tests.judge.book import Book, Write
from tests.judge.budgets import Rule, read_rule
from tests.judge.objects import Pod, Set
from tests.judge.policies import Owned, PolicySpec, read_spec, share
from tests.judge.state import Disruption, World

HELD: Final = timedelta(minutes=10)
# A clock that is made to run wrongly runs twice as fast, or half as fast.
FASTEST: Final = 2
GROUP: Final = "group"
POLICY: Final = MULTI_AZ_ROLLOUTS.plural
BUDGET: Final = ZONE_BUDGETS.plural


class Circle(NamedTuple):
    """What counts zones: a group, a policy, or a budget."""

    kind: str
    name: str


class Departure(msgspec.Struct, kw_only=True):
    """A zone that left something while pods of it were not available."""

    circle: Circle
    zone: Set
    """As it was last."""
    az: str
    """Its zone by the policy that it left, else empty."""
    at: timedelta
    since: timedelta
    """When it began to leave: what goes with it in the foreground was no disruption before."""
    lacks: Mapping[str, timedelta]
    """Names of wanted pods, and since when each was not available."""
    disruptions: tuple[Disruption, ...]
    """Of the operator, that were not over."""
    down_since: dict[str, timedelta]
    """As `lacks`, as it is by now; some may have come back meanwhile, or gone."""
    ended_at: timedelta | None = None
    """When a StatefulSet of its name was whole."""


class Departures:
    """Follows all writes of a history, in order, and knows who left what."""

    def __init__(self, book: Book) -> None:
        self.world = World(spares_new=not book.promises.is_observed)
        self.known: list[Departure] = []
        """All, in the order in which they left."""
        self.owned: Mapping[str, Owned] = {}
        """By UID, the sets of policies."""
        self.circles: dict[str, frozenset[Circle]] = {}
        """By UID, what counts each set."""
        self.moved_at: dict[str, timedelta] = {}
        """By UID, when that changed last."""
        self._going_since: dict[str, timedelta] = {}
        """By UID, when a set was told to go that waits for its pods."""
        self._policies: dict[str, PolicySpec] = {}
        self._rules: dict[str, Rule] = {}

    @property
    def lasting(self) -> list[Departure]:
        """Return those of which no StatefulSet has been whole since."""
        return [one for one in self.known if one.ended_at is None]

    def take(self, event: Write | Commit) -> None:
        """Move on by one write, of a pod, a set, a policy or a budget."""
        if isinstance(event, Write) and isinstance(event.now, Set) and event.now.is_terminating:
            self._going_since.setdefault(event.now.uid, event.at)
        if isinstance(event, Write) and not _moves(event):
            self.world.take(event)
        else:
            self._take_move(event)
        for one in self.lasting:
            self._follow(one, event.at)

    def _take_move(self, event: Write | Commit) -> None:
        world = self.world
        sets, shorts, disruptions = dict(world.sets), dict(world.short_since), list(world.open)
        circles, owned = self.circles, self.owned
        if isinstance(event, Write):
            world.take(event)
        else:
            self._take_rules(event)
        self.owned = share(self._policies.values(), world.sets.values())
        self.circles = {
            zone.uid: frozenset(self._list_circles(zone)) for zone in world.sets.values()
        }
        for uid, before in circles.items():
            now = self.circles.get(uid, frozenset())
            if now != before:
                self.moved_at[uid] = event.at
            zone, open_ = sets[uid], [one for one in disruptions if one.pod.owner == uid]
            lacks = {name: shorts[name] for name in zone.pod_names if name in shorts}
            for circle in sorted(before - now):
                if (lacks or open_) and self._is_there(circle):
                    self.known.append(
                        Departure(
                            circle=circle,
                            zone=zone,
                            az=owned[uid].zone if circle.kind == POLICY else "",
                            at=event.at,
                            since=self._going_since.get(uid, event.at),
                            lacks=lacks,
                            disruptions=tuple(open_),
                            down_since=dict(lacks),
                        )
                    )

    def _take_rules(self, commit: Commit) -> None:
        if commit.resource.plural == POLICY:
            self._policies.pop(commit.name, None)
            if commit.after is not None and "deletionTimestamp" not in _metadata(commit):
                self._policies[commit.name] = read_spec(commit.after)
        elif commit.after is None:
            self._rules.pop(commit.name, None)
        elif (rule := read_rule(commit.after)) is not None:
            self._rules[commit.name] = rule

    def _list_circles(self, zone: Set) -> Iterator[Circle]:
        if zone.group is not None:
            yield Circle(GROUP, zone.group)
        if (owned := self.owned.get(zone.uid)) is not None:
            yield Circle(POLICY, owned.policy.name)
        for name, rule in self._rules.items():
            if rule.selects(zone.labels):
                yield Circle(BUDGET, name)

    def _is_there(self, circle: Circle) -> bool:
        """Return whether what a zone left is there still; without it nothing is counted."""
        if circle.kind == POLICY:
            return circle.name in self._policies
        return circle.kind == GROUP or circle.name in self._rules

    def _follow(self, departure: Departure, at: timedelta) -> None:
        world, zone = self.world, departure.zone
        back = [one for one in world.sets.values() if one.name == zone.name]
        names = back[-1].pod_names if back else zone.pod_names
        if all(world.is_available(name) or name in world.unused for name in names):
            departure.ended_at = at
        for name in zone.pod_names:
            if world.is_available(name):
                departure.down_since.pop(name, None)
            else:
                departure.down_since.setdefault(name, at)


def list_departures(book: Book) -> list[Departure]:
    """Return all zones of a history that left while they were short."""
    departures = Departures(book)
    for event in list_events(book):
        departures.take(event)
    return departures.known


def list_events(book: Book) -> list[Write | Commit]:
    """Return what departures are read from, in order; nothing where no zone ever left."""
    if not any(_is_left(one) for one in book.writes) and not _are_changed(book):
        return []
    events: list[Write | Commit] = [*book.writes, *book.policies, *book.budgets]
    events.sort(key=lambda one: (one.commit if isinstance(one, Write) else one).revision)
    return events


def get_held_until(book: Book) -> timedelta:
    """Return until when zones that have left may hold others, at the latest."""
    begins = [run.begun for runs in book.runs.by_actor.values() for run in runs]
    span = HELD * FASTEST if has_wrong_clock(book) else HELD
    return max(
        (
            max([one.at, *begins]) + span if one.ended_at is None else one.ended_at
            for one in list_departures(book)
        ),
        default=timedelta(0),
    )


def has_wrong_clock(book: Book) -> bool:
    """Return whether the clock of a process was made to run wrongly."""
    return any(one.kind == "clock_rate" for one in book.faults)


def _moves(write: Write) -> bool:
    """Return whether a write may change what counts a set."""
    before, now = write.before, write.now
    if isinstance(before, Pod) or isinstance(now, Pod):
        return False
    return before is None or now is None or _place(before) != _place(now)


def _place(zone: Set) -> tuple[str, Mapping[str, str], bool]:
    return zone.uid, zone.labels, zone.is_terminating


def _is_left(write: Write) -> bool:
    return isinstance(write.before, Set) and _moves(write)


def _are_changed(book: Book) -> bool:
    """Return whether a policy or a budget was written by a person once it was there."""
    return any(
        one.before is not None and not book.is_operator(one.actor)
        for one in (*book.policies, *book.budgets)
    )


def _metadata(commit: Commit) -> Mapping[str, object]:
    found = (commit.after or {}).get("metadata")
    return found if isinstance(found, dict) else {}
