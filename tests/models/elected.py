"""The model of `grants` under a Lease, and what would have to hold to grant without a list.

A Lease takes steps away and adds none: a process that was frozen is one that makes no step, what it
had sent is a late call, and a process that saw another process elected begins anew, as killed. So
what is proven of processes that all act at any time is proven of those that are elected.

That ends where the Lease stands in for the list. Two such short cuts are tried, and neither is
built: one decides by the cache of the process that leads, one by the cache of any process once it
shows the process's own record, and with it all that was written before. See docs/budgets.md.

What is modelled beside `grants`, and how:
- A Lease lapses at any moment. Another process takes it only after that: spans on two clocks are
  taken to be right. A process that has lapsed may renew as long as no other has taken the Lease.
- The cache of the process that leads is as old as it likes. It shows all pods as of one moment, or
  where events are lost, some pods older than others.
- A pod may fail by itself. It is known to a grant whose record was written after that.
"""

from enum import Enum, auto
from functools import cache
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from tests.models.grants import NAMES, PODS, Grants, Phase, Pod, Setup, State, put, put_request
from tests.models.search import Model, Step, Steps, Walk, explore, replaced

# Steps that send something anew: a process that does not lead makes none of them.
_SENT: Final = frozenset({"reserve", "reclaim"})


class Lead(Enum):
    """What a process is, by the Lease."""

    FOLLOWS = auto()
    LEADS = auto()
    LAPSED = auto()  # it led, its time is over, and no other process has taken the Lease
    SUPERSEDED = auto()  # another process has taken it; this one does not know yet
    OUTSIDE = auto()  # it takes no part, and acts as if there were no other process


class ShortCut(Enum):
    """What stands in for the list."""

    LEASE = auto()  # the process leads: what its cache shows counts
    OWN_RECORD = auto()  # its cache shows its own record


class Gap(Enum):
    """What a short cut rests on, left out."""

    KEEPS_OLD_CACHE = auto()  # it does not list after it was elected
    ANSWERS_UNELECTED = auto()  # the Lease is not read again before the answer
    FORGETS_EARLY = auto()  # own grants are forgotten before the cache shows what came of them
    HAS_OUTSIDER = auto()  # the other process takes no part in the election
    LOSES_EVENTS = auto()  # a watch may skip an event


class ElectedState(NamedTuple):
    base: State
    leads: tuple[Lead, ...]
    shows: tuple[bool, ...]  # by pod: whether the cache of who leads shows it as going
    shown: tuple[bool, ...]  # by pod: whether that cache shows the record that was written last
    before: tuple[frozenset[int], ...]
    """By pod: which others were down when its record was written, and have not been up since."""
    is_broken: bool = False
    """Whether a pod was allowed to go although it was known that another one is down."""


class Elections(msgspec.Struct, frozen=True, kw_only=True):
    """Which process gets which request, under a Lease."""

    setup: Setup
    short_cut: ShortCut | None = None
    has_accidents: bool = False
    """Pods fail by themselves: then only what is known of them counts as broken."""
    gaps: frozenset[Gap] = msgspec.field(default_factory=frozenset)


class ElectedGrants:
    """The steps of grants by processes that elect one of them."""

    def __init__(self, elections: Elections) -> None:
        self._elections = elections
        self._gaps = elections.gaps
        self._grants = Grants(elections.setup)
        # Many states differ in the Lease and the caches alone.
        self._base_steps = cache(lambda base: tuple(self._grants.steps(base)))

    @property
    def model(self) -> Model[ElectedState]:
        base = self._grants.model.start
        none = (False,) * len(base.pods)
        last = Lead.OUTSIDE if Gap.HAS_OUTSIDER in self._gaps else Lead.FOLLOWS
        leads = (*(Lead.FOLLOWS for _ in base.processes[1:]), last)
        before = (frozenset[int](),) * len(base.pods)
        start = ElectedState(base, leads, none, none, before)
        return Model(start=start, steps=self.steps, name_fault=self.name_fault)

    def name_fault(self, state: ElectedState) -> str:
        """Return what is wrong: SI-01, SI-03 to SI-05, and SI-02 where pods fail."""
        if self._elections.has_accidents:
            return "a pod may go beside one that was known to be down" if state.is_broken else ""
        return self._grants.name_fault(state.base)

    def steps(self, state: ElectedState) -> Steps[ElectedState]:
        for step, base in self._base_steps(state.base):
            if self._may(state, step):
                yield step, self._follow(state, step, base)
        for index, lead in enumerate(state.leads):
            yield from self._elect(state, index, lead)
            if lead is Lead.LEADS and self._elections.short_cut is not None:
                yield from self._watch(state, index)
                yield from self._cut_short(state, index)
        if self._elections.has_accidents:
            for place, pod in enumerate(state.base.pods):
                if pod.is_up:
                    base = put(state.base, place, Pod(is_up=False))
                    yield Step("cluster", "fail", PODS[place]), state._replace(base=base)

    def _may(self, state: ElectedState, step: Step) -> bool:
        """Return whether the Lease, and what is remembered for a short cut, lets a step happen."""
        if step.actor not in NAMES:
            return True
        lead = state.leads[NAMES.index(step.actor)]
        if step.verb == "forget":
            place = PODS.index(step.what)
            is_shown = state.base.pods[place].is_up or state.shows[place]
            # An own grant is remembered until the cache shows what came of it.
            forgets = self._elections.short_cut is None or Gap.FORGETS_EARLY in self._gaps
            return is_shown or lead is Lead.OUTSIDE or forgets
        if lead in (Lead.LEADS, Lead.OUTSIDE):
            return True
        may_answer = Gap.ANSWERS_UNELECTED in self._gaps or self._elections.short_cut is None
        return step.verb not in _SENT and (step.verb != "allow" or may_answer)

    def _follow(self, state: ElectedState, step: Step, base: State) -> ElectedState:
        after = state._replace(base=base)
        if step.actor in NAMES and step.verb.startswith("be killed"):
            index = NAMES.index(step.actor)
            if state.leads[index] is not Lead.OUTSIDE:
                after = _turn(after, index, Lead.FOLLOWS)
                if {Lead.LEADS, Lead.LAPSED} & {*after.leads}:
                    return after
                # States count as one that differ in a cache by which no process decides.
                none = (False,) * len(after.shows)
                return after._replace(shows=none, shown=none)
        if self._elections.short_cut is not None and step.verb == "record":
            place = PODS.index(step.what)
            after = after._replace(shown=replaced(state.shown, place, False))
        if self._elections.has_accidents:
            return self._judge(after, step)
        return after

    def _judge(self, state: ElectedState, step: Step) -> ElectedState:
        """Record what is known of failed pods when a record is written, and judge the answer."""
        pods = state.base.pods
        place = PODS.index(step.what) if step.what in PODS else -1
        match step.verb:
            case "record":
                down = frozenset(one for one, pod in enumerate(pods) if not pod.is_up)
                return state._replace(before=replaced(state.before, place, down - {place}))
            case "replace":
                return state._replace(before=tuple(known - {place} for known in state.before))
            case "allow":
                gone = {place, *state.before[place]} if pods[place].is_up else set[int]()
                return state._replace(is_broken=self._grants.exceeds(frozenset(gone)))
        return state

    def _elect(self, state: ElectedState, index: int, lead: Lead) -> Steps[ElectedState]:
        name = NAMES[index]
        if lead is Lead.LEADS:
            yield Step("time", "end the lease of", name), _turn(state, index, Lead.LAPSED)
        if Lead.LEADS in state.leads:
            return
        if lead is Lead.LAPSED:
            yield Step(name, "renew"), _turn(state, index, Lead.LEADS)
        if lead is Lead.FOLLOWS:
            leads = tuple(Lead.SUPERSEDED if one is Lead.LAPSED else one for one in state.leads)
            elected = _turn(state._replace(leads=leads), index, Lead.LEADS)
            if self._elections.short_cut is not None:
                is_old = Gap.KEEPS_OLD_CACHE in self._gaps
                none = (False,) * len(state.shows)
                shows = none if is_old else _observe(state.base)
                elected = elected._replace(shows=shows, shown=none)
            yield Step(name, "be elected"), elected

    def _watch(self, state: ElectedState, index: int) -> Steps[ElectedState]:
        """Let the cache of who leads catch up: with all, or where events get lost, with one."""
        now = _observe(state.base)
        # Of no use to who decides by the Lease alone.
        is_reported = self._elections.short_cut is ShortCut.OWN_RECORD
        every = (is_reported,) * len(now)
        step = Step(NAMES[index], "be shown")
        yield step, state._replace(shows=now, shown=every)
        if Gap.LOSES_EVENTS in self._gaps:
            for place, name in enumerate(PODS[: len(now)]):
                shows = replaced(state.shows, place, now[place])
                shown = replaced(state.shown, place, is_reported)
                yield Step(NAMES[index], "be shown", name), state._replace(shows=shows, shown=shown)

    def _cut_short(self, state: ElectedState, index: int) -> Steps[ElectedState]:
        """Decide again by the cache and by memory, without a list."""
        process = state.base.processes[index]
        for slot, request in enumerate(process.requests):
            if request is None or request.phase is not Phase.WRITTEN or request.is_late:
                continue
            if self._elections.short_cut is ShortCut.OWN_RECORD and not state.shown[request.pod]:
                continue
            going = {one for one, is_going in enumerate(state.shows) if is_going}
            going |= {one for one, is_held in enumerate(process.held) if is_held}
            if not self._grants.exceeds(frozenset({*going, request.pod})):
                base = put_request(state.base, index, slot, request._replace(phase=Phase.CLEARED))
                yield (
                    Step(NAMES[index], "go without a list", PODS[request.pod]),
                    state._replace(base=base),
                )


def _turn(state: ElectedState, index: int, lead: Lead) -> ElectedState:
    return state._replace(leads=replaced(state.leads, index, lead))


def _observe(base: State) -> tuple[bool, ...]:
    """Return which pods a complete view shows as going: a permission that has no record, never."""
    return tuple(not pod.is_up or pod.record is not None for pod in base.pods)


ONE_EACH: Final = Setup(wants=((0,), (1,)))
BY_LEASE: Final = Elections(setup=ONE_EACH, short_cut=ShortCut.LEASE)
BY_RECORD: Final = Elections(setup=ONE_EACH, short_cut=ShortCut.OWN_RECORD)
# Where no pod fails by itself, and by the own record even beside a process without an election.
SAFE: Final = {
    "by the Lease": BY_LEASE,
    "by the own record": replace(BY_RECORD, gaps=frozenset({Gap.HAS_OUTSIDER})),
}


def walk_through(elections: Elections, *gaps: Gap) -> Walk[ElectedState]:
    """Return all that may happen, with these gaps beside those that the elections have."""
    gaps = (*elections.gaps, *gaps)
    return explore(ElectedGrants(replace(elections, gaps=frozenset(gaps))).model)


def list_not_shown() -> list[str]:
    """Return the short cuts of `SAFE` that cross the budget all the same, or are never taken.

    A gap says something only where the same short cut is safe without it.
    """
    walks = {name: walk_through(elections) for name, elections in SAFE.items()}
    return [
        f"{name}: {walk.fault or 'never taken'}"
        for name, walk in walks.items()
        if walk.fault is not None or "go without a list" not in walk.verbs
    ]
