"""What is promised of zones that left while they were short: SI-26, D-82.

A zone leaves a group, a policy or a budget when its StatefulSet is deleted, is labelled otherwise,
or is no longer selected. It counts until a StatefulSet of its name is whole, or its time is over.

Checked at the commit of each delete, of each eviction that was allowed and of each downscale of
another zone. That a zone was short counts where it had been so for `known` when it left; what the
operator itself had let go there counts at once. A process that began later knows only the pods that
were left behind; one that was not told of what happened is excused.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
from rollout_lab.model.fields import is_terminating
from rollout_lab.model.history import Commit, Fault

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, ZONE_BUDGETS
from tests.judge.book import NO_TIME, Book, Disruption, ProcessRun, World, Write, in_order
from tests.judge.budgets import Judge, JudgedDisruption, Rule, read_rule
from tests.judge.deletes import Delete, get_span, map_deletes
from tests.judge.downscales import Downscale, get_first_requested, list_downscales
from tests.judge.objects import GROUP_LABELS, Pod, Set
from tests.judge.policies import Owned, PolicySpec, read_spec, share
from tests.judge.promises import Violation

HELD: Final = timedelta(minutes=10)
FASTEST: Final = 2  # a clock that is made to run wrongly runs twice as fast, or half as fast
GROUP: Final = "group"
POLICY: Final = MULTI_AZ_ROLLOUTS.plural
BUDGET: Final = ZONE_BUDGETS.plural


class Circle(NamedTuple):
    kind: str
    name: str


class Departure(msgspec.Struct):
    """A zone that left something while pods of it were not available."""

    circle: Circle
    zone: Set  # as it was last
    at: timedelta
    since: timedelta
    """When it began to leave: what goes with it in the foreground was no disruption before."""
    lacks: Mapping[str, timedelta]  # names of wanted pods, and since when each was not available
    disruptions: tuple[Disruption, ...]  # of the operator, that were not over
    down_since: dict[str, timedelta]
    """As `lacks`, as it is by now; some may have come back meanwhile, or gone."""
    az: str = ""  # its zone by the policy that it left, else empty
    ended_at: timedelta | None = None  # when a StatefulSet of its name was whole


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
        return [one for one in self.known if one.ended_at is None]

    def take(self, event: Write | Commit) -> None:
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
                # Without what a zone left nothing is counted.
                known = {POLICY: {*self._policies}, BUDGET: {*self._rules}}
                there = known.get(circle.kind)
                if (lacks or open_) and (there is None or circle.name in there):
                    since = self._going_since.get(uid, event.at)
                    left = Departure(circle, zone, event.at, since, lacks, tuple(open_), {**lacks})
                    left.az = owned[uid].zone if circle.kind == POLICY else ""
                    self.known.append(left)

    def _take_rules(self, commit: Commit) -> None:
        if commit.resource.plural == POLICY:
            self._policies.pop(commit.name, None)
            if commit.after is not None and not is_terminating(commit.after):
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


def list_events(book: Book) -> list[Write | Commit]:
    """Return what departures are read from, in order; nothing where no zone ever left."""
    has_left = any(isinstance(one.before, Set) and _moves(one) for one in book.writes)
    if not has_left and not any(
        one.before is not None and not book.is_operator(one.actor)
        for one in (*book.policies, *book.budgets)
    ):
        return []
    return in_order(*book.writes, *book.policies, *book.budgets)


def get_held_until(book: Book) -> timedelta:
    """Return until when zones that have left may hold others, at the latest.

    A process whose watch is behind may take one for short that was whole.
    """
    begins = [run.begun for run in book.runs.all]
    span = HELD * FASTEST if has_wrong_clock(book) else HELD
    departures = Departures(book)
    for event in list_events(book):
        departures.take(event)
    ends = [one.ended_at or max([one.at, *begins]) + span for one in departures.known]
    held_up = [one for one in book.faults if one.kind in ("delay_event", "freeze")]
    late = [one for one in held_up if any(plural in one.text for plural in WATCHED)]
    ends += [
        write.at + span
        for write in book.writes
        if isinstance(write.before, Set) and _moves(write)
        if any(one.at <= write.at < one.at + get_span(one) for one in late)
    ]
    return max(ends, default=timedelta(0))


def has_wrong_clock(book: Book) -> bool:
    return any(one.kind == "clock_rate" for one in book.faults)


def _moves(write: Write) -> bool:
    """Return whether a write may change what counts a set."""
    before, now = write.before, write.now
    if isinstance(before, Pod) or isinstance(now, Pod):
        return False
    return before is None or now is None or _place(before) != _place(now)


def _place(zone: Set) -> tuple[str, Mapping[str, str], bool]:
    return zone.uid, zone.labels, zone.is_terminating


# A watch that breaks, or is not proven alive, is opened anew or listed within so long.
BLIND: Final = timedelta(minutes=1)
LONGEST_BLIND: Final = timedelta(minutes=10)
WATCHED: Final = ("pods", "statefulsets")


class Act(msgspec.Struct, frozen=True):
    """What the operator did to a zone, or let others do."""

    text: str
    zone: str  # the name of its StatefulSet
    az: str
    actor: str
    at: timedelta
    known: timedelta  # what has lasted from then on had to be known
    decided: timedelta  # what the operator itself had done by then, too


def list_broken(book: Book) -> Iterator[Violation]:
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
        self._runs: dict[str, ProcessRun | None] = {}  # by UID of the pod that it deleted

    def take(self, event: Write | Commit) -> None:
        departures = self._departures
        departures.take(event)
        if not isinstance(event, Write):
            return
        self._judge.take(event)
        pod, delete = event.ended_pod, self._deletes.get(event.commit.call)
        if pod is not None and delete is not None and pod.owner in departures.world.sets:
            departures.world.open.append(Disruption(pod, event.at, delete.is_ghost))
            self._runs[pod.uid] = delete.run

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
        act = self._read_act(disruption, delete)
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
        reviews = downscale.reviews
        if not reviews or not downscale.removed:
            return
        known = get_first_requested(self._book, downscale) - self._book.promises.known
        at = downscale.at
        act = Act(downscale.text, zone.name, "", reviews[-1].actor, at, known, decided=at)
        if zone.group is not None and self._is_settled(zone, act):
            yield from self._judge_act(act, (Circle(GROUP, zone.group),))

    def _read_act(self, disruption: JudgedDisruption, delete: Delete | None) -> Act:
        zone, at = disruption.owner, disruption.at
        owned = self._departures.owned.get(zone.uid)
        az = "" if owned is None else owned.zone
        decided = at if delete is None else delete.cut(at)
        return Act(disruption.text, zone.name, az, disruption.actor, at, disruption.since, decided)

    def _is_settled(self, zone: Set, act: Act) -> bool:
        """Return whether it was long known what counts a zone itself."""
        return self._departures.moved_at.get(zone.uid, timedelta.min) <= act.known

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
        lacking = [
            name
            for name, since in departure.lacks.items()
            if since <= min(act.known, left_at) and name in departure.down_since
        ]
        runs = self._book.runs
        run = runs.find(act.actor, act.at) or runs.find(act.actor, act.known)
        ready_at = None if run is None else run.ready_at
        if run is not None and run.begun == timedelta(0) and ready_at is None:
            ready_at = run.begun  # its start was not seen
        if ready_at is None or ready_at > left_at:
            return [name for name in lacking if self._is_visible(departure, name, act)]
        first = min(departure.lacks.values(), default=departure.at) - LONGEST_BLIND
        faults = self._book.list_faults(act.actor, first, departure.at)
        if any(self._hides(one, departure) for one in faults):
            lacking = [name for name in lacking if self._is_visible(departure, name, act)]
        own = [
            one.pod.name
            for one in departure.disruptions
            if not one.is_ghost and one.begun <= min(departure.since, act.decided)
            if one.pod.name in departure.down_since
            if run is not None and self._runs.get(one.pod.uid) == run
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
        return circle.kind != GROUP or circle.name in map(pod.labels.get, GROUP_LABELS)

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
    return Violation("SI-26", act.at, f"{text} without {', '.join(names)}")


_KINDS: Final = {GROUP: "group", POLICY: "policy", BUDGET: "budget"}
