"""A model of how a pod under a budget is allowed to go: several processes, and one API server.

A process decides from a cache and from its memory, reserves the pod in memory, writes a record on
the pod, lists the pods of all zones and decides again on what stands there. Only then it answers,
and what it answered takes effect at any time while the record must stand.

What is modelled, and how:
- A cache lags as it likes. Of other pods it may show any earlier state, so that it forbids nothing.
  Of the pod itself it shows the present, or the write is refused by its version: nothing happens.
- Time is a step that may happen at any moment: `stall` makes a process too late to answer, `expire`
  makes a record old, from when on nothing that was answered under it takes effect any more.
- A process may be killed between any two steps. It is back at once and knows nothing. What it has
  sent last may arrive later, whatever has happened meanwhile, or never.
- A call may be given up before it arrives, or after: the caller cannot tell.

What is assumed: what was answered under a record takes effect before the record counts as old, or
never; one answer deletes one pod, by name; nothing else deletes pods or takes their records away. A
delete by a rollout names the version that has the record, at any later time: so a rollout may
answer late, too.

No Lease is assumed, all processes act at any time: `elected` has one, which adds no step.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum, auto, unique
from typing import Final, NamedTuple

import msgspec

from tests.models.search import Model, Step, Steps, replaced

NAMES: Final = "XYZ"
PODS: Final = "pqr"


@unique
class Error(IntEnum):
    """A deliberate mistake: what the protocol would be without one of its rules."""

    LISTS_FIRST = auto()
    DECIDES_ONCE = auto()
    WRITES_BLINDLY = auto()
    IGNORES_LOSERS = auto()
    FORGETS_OWN_RECORD = auto()
    ANSWERS_LATE = auto()
    RECLAIMS_EARLY = auto()
    RECLAIMS_BLINDLY = auto()
    RELEASES_BLINDLY = auto()
    GRANTS_ANEW = auto()
    REMEMBERS_NOTHING = auto()
    SKIPS_QUARANTINE = auto()
    NONE_WINS = auto()
    NEVER_RECLAIMS = auto()


class Phase(IntEnum):
    """How far a request has come."""

    RESERVED = auto()  # decided, remembered, and the record sent
    WRITTEN = auto()  # the record stood on the pod; nothing is known of the others
    CLEARED = auto()  # the list showed that the pod may go; nothing is answered yet
    LEAVING = auto()  # refused: the record is to be released


class Record(NamedTuple):
    """What stands on a pod."""

    by: int
    rank: int  # of its `at`, as far as it decides who wins
    permits: int = 0  # answers given under it whose effect may still come
    is_old: bool = False


class Pod(NamedTuple):
    """One pod, by name: its replacement is the same, up again."""

    is_up: bool = True
    record: Record | None = None
    orphans: int = 0  # answers under records that stand no more, whose effect may still come


class Request(NamedTuple):
    """A client wants a pod to go, and a process is on it."""

    phase: Phase
    pod: int
    rank: int
    is_current: bool = True
    """Reserved: the version it was decided on is the newest. Later: its record stands."""
    is_late: bool = False
    read: int = 0
    """Written: how many pods have been listed, where the list takes more than one call."""
    seen: tuple[tuple[int, bool], ...] = ()
    """Written: those of them that go, and whether they lose against this one."""


@unique
class Late(IntEnum):
    """A call that no client waits for any more."""

    WRITE = auto()
    RELEASE = auto()
    RECLAIM = auto()


class Call(NamedTuple):
    """A late call on its way."""

    what: Late
    pod: int
    rank: int = 0
    hits: bool = True  # whether the pod, or the record on it, is still the one that was meant


class Process(NamedTuple):
    requests: tuple[Request | None, ...]
    held: tuple[bool, ...]  # by pod: reserved, granted or in doubt
    call: Call | None = None
    is_resting: bool = False  # in the quarantine after its start, where there are no records
    requested: int = 0  # counted only where each process is called once


class State(NamedTuple):
    pods: tuple[Pod, ...]
    processes: tuple[Process, ...]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Which process gets which request."""

    zones: str = "ab"  # one letter a pod
    most: int = 1
    by_partition: bool = False
    """All pods hold the same partition; else those of one zone may go together."""
    wants: tuple[tuple[int, ...], ...] = ((0, 1), (0, 1))
    """By process: the pods that it may be called for."""
    slots: tuple[int, ...] = (1, 1)  # by process: how many requests at a time
    rollouts: tuple[int, ...] = ()  # processes that delete, instead of answering an eviction
    ranks: tuple[int, ...] = (0,)  # what `at` may be
    lists_by_zone: bool = False  # the second read takes one call a pod; else one for all
    answers: int = 1  # how often the same may be answered: a review may come twice
    has_quick_pods: bool = True
    """A replacement may be up before everything that was answered on its predecessor is over."""
    has_faults: bool = True
    is_once: bool = False  # each slot is used once, and nothing takes effect
    has_records: bool = True  # else there is only memory
    errors: frozenset[Error] = msgspec.field(default_factory=frozenset)


def put(state: State, place: int, pod: Pod) -> State:
    """Write a pod: a request for the version before, or the record on it, misses from now on."""
    processes = tuple(_miss(process, place) for process in state.processes)
    return State(replaced(state.pods, place, pod), processes)


def keep(state: State, place: int, pod: Pod) -> State:
    """Change what is known of a pod beside its version."""
    return State(replaced(state.pods, place, pod), state.processes)


def put_process(state: State, index: int, process: Process) -> State:
    return State(state.pods, replaced(state.processes, index, process))


def put_request(state: State, index: int, slot: int, request: Request | None) -> State:
    """Change how far a process has come with a request; None ends it."""
    process = state.processes[index]
    return put_process(
        state, index, process._replace(requests=replaced(process.requests, slot, request))
    )


def hold(state: State, index: int, place: int, *, is_held: bool) -> State:
    process = state.processes[index]
    return put_process(state, index, process._replace(held=replaced(process.held, place, is_held)))


def make_late(state: State, place: int) -> State:
    """The record on a pod has become too old for who wrote it to answer."""
    return State(
        state.pods,
        tuple(
            process._replace(requests=tuple(_late(request, place) for request in process.requests))
            for process in state.processes
        ),
    )


def collect_going(state: State, *, but: int) -> frozenset[int]:
    """Return what a list shows as down or on its way out, but for one pod."""
    return frozenset(
        place
        for place, pod in enumerate(state.pods)
        if place != but and (not pod.is_up or pod.record is not None)
    )


def _late(request: Request | None, place: int) -> Request | None:
    is_of_it = request is not None and request.pod == place and request.is_current
    if request is None or not is_of_it or request.phase not in (Phase.WRITTEN, Phase.CLEARED):
        return request
    return request._replace(is_late=True)


def _miss(process: Process, place: int) -> Process:
    requests, call = process.requests, process.call
    for slot, request in enumerate(requests):
        if request is not None and request.pod == place and request.is_current:
            requests = replaced(requests, slot, request._replace(is_current=False))
    if call is not None and call.pod == place and call.hits:
        call = call._replace(hits=False)
    if requests is process.requests and call is process.call:
        return process
    return process._replace(requests=requests, call=call)


MOST: Final = 2  # two effects of one grant are as bad as three


class Grants:
    """The steps of a setup."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._errors = setup.errors

    @property
    def model(self) -> Model[State]:
        setup = self._setup
        processes = tuple(
            Process(requests=(None,) * slots, held=(False,) * len(setup.zones))
            for slots in setup.slots
        )
        start = State(pods=(Pod(),) * len(setup.zones), processes=processes)
        return Model(start=start, steps=self.steps, name_fault=self.name_fault)

    def exceeds(self, gone: frozenset[int]) -> bool:
        """Return whether so many pods at once cross the budget."""
        if self._setup.by_partition:
            return len(gone) > self._setup.most
        zones = {self._setup.zones[pod] for pod in gone}
        return len(zones) > 1 or len(gone) > self._setup.most

    def name_fault(self, state: State) -> str:
        """Return what is wrong: SI-01, SI-03 to SI-05, SI-17."""
        # A pod that is gone, or may be at any moment.
        gone = frozenset(
            place
            for place, pod in enumerate(state.pods)
            if not pod.is_up or pod.orphans or (pod.record and pod.record.permits)
        )
        if not self.exceeds(gone):
            return ""
        return f"{' and '.join(PODS[place] for place in sorted(gone))} may be gone at once"

    def steps(self, state: State) -> Steps[State]:
        for place in range(len(state.pods)):
            yield from self._live(state, place)
        for index in range(len(state.processes)):
            yield from self._run(state, index)

    # What happens to pods by itself

    def _live(self, state: State, place: int) -> Steps[State]:
        pod, name = state.pods[place], PODS[place]
        record = pod.record
        if self._setup.is_once:
            return
        if not pod.is_up and (self._setup.has_quick_pods or not pod.orphans):
            yield Step("cluster", "replace", name), put(state, place, Pod(orphans=pod.orphans))
        if pod.orphans:
            fewer = state.pods[place]._replace(orphans=pod.orphans - 1)
            yield Step("time", "end the effect of an answer on", name), keep(state, place, fewer)
        permits = pod.orphans + (record.permits if record else 0)
        if pod.is_up and permits:
            gone = Pod(is_up=False, orphans=permits - 1)
            yield Step("cluster", "delete", name), put(state, place, gone)
        # What is left of earlier answers ends first: their records were written before.
        if record is not None and not record.is_old and not pod.orphans:
            permits = record.permits if record.by in self._setup.rollouts else 0
            old = pod._replace(record=record._replace(is_old=True, permits=permits))
            aged = make_late(keep(state, place, old), place)
            yield Step("time", "age the record on", name), aged

    # What a process does

    def _run(self, state: State, index: int) -> Steps[State]:
        process, name = state.processes[index], NAMES[index]
        for slot, request in enumerate(process.requests):
            if request is None:
                yield from self._begin(state, index, slot)
            else:
                yield from self._go_on(state, index, slot)
        for place, is_held in enumerate(process.held):
            if is_held and self._may_release(state, index, place):
                yield Step(name, "forget", PODS[place]), hold(state, index, place, is_held=False)
        if process.is_resting and not any(pod.orphans for pod in state.pods):
            rested = process._replace(is_resting=False)
            yield Step(name, "end quarantine"), put_process(state, index, rested)
        if process.call is not None:
            yield from self._arrive(state, index, process.call)
        if self._setup.has_records:
            yield from self._reclaim(state, index)
        if self._setup.has_faults and self._newborn(process) != process:
            yield from self._crash(state, index)

    def _begin(self, state: State, index: int, slot: int) -> Steps[State]:
        """Decide and reserve: one step, nothing is awaited in between."""
        process = state.processes[index]
        if process.is_resting or (self._setup.is_once and process.requested > slot):
            return
        if self._setup.is_once:
            state = put_process(state, index, process._replace(requested=slot + 1))
        for place in self._setup.wants[index]:
            if not self._may_begin(state, index, place):
                continue
            step = Step(NAMES[index], "reserve", PODS[place])
            held = state
            if Error.REMEMBERS_NOTHING not in self._errors:
                held = hold(state, index, place, is_held=True)
            for rank in self._setup.ranks:
                request = Request(Phase.RESERVED, place, rank)
                if not self._setup.has_records:
                    request = request._replace(phase=Phase.CLEARED)
                yield step, put_request(held, index, slot, request)

    def _may_begin(self, state: State, index: int, place: int) -> bool:
        pod, process = state.pods[place], state.processes[index]
        if not pod.is_up or process.held[place]:
            return False
        # A view without the record would be an old one, and the write be refused.
        anew = {Error.GRANTS_ANEW, Error.WRITES_BLINDLY} & self._errors
        if pod.record is not None and not anew:
            return False
        others = {one for one, is_held in enumerate(process.held) if is_held and one != place}
        if Error.LISTS_FIRST in self._errors:
            others |= collect_going(state, but=place)
        if not self._setup.has_records:
            others |= {one for one, pod in enumerate(state.pods) if not pod.is_up}
        return not self.exceeds(frozenset({*others, place}))

    def _go_on(self, state: State, index: int, slot: int) -> Steps[State]:
        request = state.processes[index].requests[slot]
        assert request is not None
        if self._setup.has_faults and not request.is_late and request.phase is Phase.CLEARED:
            stalled = put_request(state, index, slot, request._replace(is_late=True))
            yield Step(NAMES[index], "stall over", PODS[request.pod]), stalled
        match request.phase:
            case Phase.RESERVED:
                yield from self._write(state, index, slot, request)
            case Phase.WRITTEN:
                yield from self._confirm(state, index, slot, request)
            case Phase.CLEARED:
                yield from self._answer(state, index, slot, request)
            case Phase.LEAVING:
                yield from self._release(state, index, slot, request)

    def _write(self, state: State, index: int, slot: int, request: Request) -> Steps[State]:
        name, pod = NAMES[index], PODS[request.pod]
        if (request.is_current or Error.WRITES_BLINDLY in self._errors) and state.pods[
            request.pod
        ].is_up:
            record = Record(index, request.rank, is_old=False)
            skips = {Error.LISTS_FIRST, Error.DECIDES_ONCE} & self._errors
            phase = Phase.CLEARED if skips else Phase.WRITTEN
            after = request._replace(phase=phase, is_current=True)
            written = put(state, request.pod, self._with_record(state.pods[request.pod], record))
            yield Step(name, "record", pod), put_request(written, index, slot, after)
        if not request.is_current or self._setup.has_faults:
            ended = hold(put_request(state, index, slot, None), index, request.pod, is_held=False)
            yield Step(name, "be refused the record on", pod), ended
        if self._setup.has_faults:
            # Still held in memory: it may be written, now or later.
            late = Call(Late.WRITE, request.pod, request.rank, hits=request.is_current)
            given_up = self._send(put_request(state, index, slot, None), index, late)
            yield Step(name, "give up waiting for the record on", pod), given_up

    def _confirm(self, state: State, index: int, slot: int, request: Request) -> Steps[State]:
        """List all pods and decide again; where it must wait, it lists again: no step at all."""
        name, pod = NAMES[index], PODS[request.pod]
        for step, after in self._read_pods(state, index, request):
            yield step, put_request(state, index, slot, after)
        if self._setup.has_faults:
            yield Step(name, "refuse", pod), put_request(state, index, slot, _leave(request))
            if request.is_current:
                # No answer to the write: the record stands, and no process will remove it.
                yield Step(name, "miss the answer on", pod), put_request(state, index, slot, None)

    def _read_pods(
        self, state: State, index: int, request: Request
    ) -> Iterator[tuple[Step, Request]]:
        count = len(state.pods)
        upto = request.read + 1 if self._setup.lists_by_zone else count
        seen = list(request.seen)
        for place in range(request.read, upto):
            pod = state.pods[place]
            if place == request.pod:
                is_gone = (
                    request.is_late and index not in self._setup.rollouts
                ) or not request.is_current
                if is_gone and Error.FORGETS_OWN_RECORD not in self._errors:
                    yield Step(NAMES[index], "miss its record on", PODS[place]), _leave(request)
                    return
            elif not pod.is_up or pod.record is not None:
                other = None if Error.NONE_WINS in self._errors else pod.record
                rank = (request.rank, index)
                loses = other and other.by != index and rank < (other.rank, other.by)
                seen.append((place, bool(loses)))
        step = Step(NAMES[index], "list for", PODS[request.pod])
        if upto < count:
            yield step, request._replace(read=upto, seen=tuple(seen))
            return
        verdict = self._decide_again(request.pod, seen)
        if verdict is not None or self._setup.lists_by_zone:
            yield step, request._replace(phase=verdict or request.phase, read=0, seen=())

    def _decide_again(self, place: int, seen: Sequence[tuple[int, bool]]) -> Phase | None:
        """Return what follows; None: the pods in the way will be released, list again."""
        if not self.exceeds(frozenset([place, *(one for one, _ in seen)])):
            return Phase.CLEARED
        if self.exceeds(frozenset([place, *(one for one, loses in seen if not loses)])):
            return Phase.LEAVING
        return Phase.CLEARED if Error.IGNORES_LOSERS in self._errors else None

    def _answer(self, state: State, index: int, slot: int, request: Request) -> Steps[State]:
        name, place = NAMES[index], request.pod
        pod = state.pods[place]
        lax = {Error.ANSWERS_LATE, Error.FORGETS_OWN_RECORD} & self._errors
        if not request.is_late or lax or index in self._setup.rollouts:
            for times in range(1, self._setup.answers + 1):
                given = keep(state, place, self._give(pod, index, request, times))
                yield Step(name, "allow", PODS[place]), put_request(given, index, slot, None)
        if request.is_late:
            yield (
                Step(name, "be too late for", PODS[place]),
                put_request(state, index, slot, _leave(request)),
            )

    def _give(self, pod: Pod, index: int, request: Request, times: int) -> Pod:
        if not request.is_current or pod.record is None:
            # The delete of a rollout names a version that is no more.
            return pod if index in self._setup.rollouts else _orphan(pod, times)
        record = pod.record
        return pod._replace(record=record._replace(permits=min(record.permits + times, MOST)))

    def _release(self, state: State, index: int, slot: int, request: Request) -> Steps[State]:
        name, pod = NAMES[index], PODS[request.pod]
        done = hold(put_request(state, index, slot, None), index, request.pod, is_held=False)
        if request.is_current or Error.RELEASES_BLINDLY in self._errors:
            done = put(done, request.pod, self._with_record(state.pods[request.pod], None))
        yield Step(name, "release on", pod), done
        if self._setup.has_faults:
            late = Call(Late.RELEASE, request.pod, hits=request.is_current)
            sent = self._send(put_request(state, index, slot, None), index, late)
            yield Step(name, "give up releasing on", pod), sent

    def _may_release(self, state: State, index: int, place: int) -> bool:
        pod, process = state.pods[place], state.processes[index]
        if any(request is not None and request.pod == place for request in process.requests):
            return False
        if not pod.is_up:
            return True
        if not self._setup.has_records:
            return not pod.orphans
        return pod.record is None or pod.record.by != index

    def _reclaim(self, state: State, index: int) -> Steps[State]:
        """Read a record live, and remove it where nothing can come of it any more."""
        for place, pod in enumerate(state.pods):
            is_due = pod.record is not None and (
                pod.record.is_old or Error.RECLAIMS_EARLY in self._errors
            )
            if not pod.is_up or not is_due or Error.NEVER_RECLAIMS in self._errors:
                continue
            step = Step(NAMES[index], "reclaim", PODS[place])
            yield step, put(state, place, self._with_record(pod, None))
            if self._setup.has_faults and Error.RECLAIMS_BLINDLY in self._errors:
                yield step, self._send(state, index, Call(Late.RECLAIM, place))

    def _arrive(self, state: State, index: int, call: Call) -> Steps[State]:
        """What was sent by a process that gave up, or is dead, arrives or is lost."""
        process, pod = state.processes[index], state.pods[call.pod]
        gone = put_process(state, index, process._replace(call=None))
        name, what = f"{NAMES[index]} before", f"{call.what.name.lower()} {PODS[call.pod]}"
        yield Step("network", "lose", what), gone
        blind = Error[f"{call.what.name}S_BLINDLY"]
        if not pod.is_up or not (call.hits or blind in self._errors):
            return
        record = Record(index, call.rank) if call.what is Late.WRITE else None
        yield Step(name, "late", what), put(gone, call.pod, self._with_record(pod, record))

    def _crash(self, state: State, index: int) -> Steps[State]:
        process = state.processes[index]
        crashed = put_process(state, index, self._newborn(process))
        yield Step(NAMES[index], "be killed"), crashed
        for request in process.requests:
            if request is not None and request.phase in (Phase.RESERVED, Phase.LEAVING):
                what = Late.WRITE if request.phase is Phase.RESERVED else Late.RELEASE
                call = Call(what, request.pod, request.rank, hits=request.is_current)
                sent = self._send(crashed, index, call)
                if sent != crashed:
                    yield Step(NAMES[index], "be killed after sending for", PODS[request.pod]), sent

    def _newborn(self, process: Process) -> Process:
        rests = not self._setup.has_records and Error.SKIPS_QUARANTINE not in self._errors
        nothing = (None,) * len(process.requests)
        idle = (False,) * len(process.held)
        return Process(nothing, idle, process.call, is_resting=rests, requested=process.requested)

    def _send(self, state: State, index: int, call: Call) -> State:
        """Leave a call to the network; one at a time, and none that cannot do anything."""
        blind = {Error.WRITES_BLINDLY, Error.RELEASES_BLINDLY, Error.RECLAIMS_BLINDLY}
        if not call.hits and not blind & self._errors:
            return state
        return put_process(state, index, state.processes[index]._replace(call=call))

    def _with_record(self, pod: Pod, record: Record | None) -> Pod:
        """Return a pod with another record: what was answered under the one before still comes.

        But for the delete of a rollout, which names the version before.
        """
        before = pod.record
        is_bound = before is None or before.by in self._setup.rollouts
        permits = 0 if is_bound or before is None else before.permits
        return _orphan(Pod(pod.is_up, record, pod.orphans), permits)


def _orphan(pod: Pod, times: int) -> Pod:
    return pod._replace(orphans=min(pod.orphans + times, MOST))


def _leave(request: Request) -> Request:
    return Request(Phase.LEAVING, request.pod, request.rank, request.is_current)
