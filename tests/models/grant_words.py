"""The words of the model of grants: what there is, who wants what, and what may be wrong."""

from enum import IntEnum, auto, unique
from typing import Final, NamedTuple

import msgspec

from tests.models.search import replaced

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

    RESERVED = auto()
    """Decided, remembered, and the record sent."""
    WRITTEN = auto()
    """The record stood on the pod; nothing is known of the others."""
    CLEARED = auto()
    """The list showed that the pod may go; nothing is answered yet."""
    LEAVING = auto()
    """Refused: the record is to be released."""


class Record(NamedTuple):
    """What stands on a pod."""

    by: int
    rank: int
    """Of its `at`, as far as it decides who wins."""
    permits: int = 0
    """Answers given under it whose effect may still come."""
    is_old: bool = False


class Pod(NamedTuple):
    """One pod, by name: its replacement is the same, up again."""

    is_up: bool = True
    record: Record | None = None
    orphans: int = 0
    """Answers under records that stand no more, whose effect may still come."""


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
    hits: bool = True
    """Whether the pod, or the record on it, is still the one that was meant."""


class Process(NamedTuple):
    requests: tuple[Request | None, ...]
    held: tuple[bool, ...]
    """By pod: reserved, granted or in doubt."""
    call: Call | None = None
    is_resting: bool = False
    """In the quarantine after its start, where there are no records."""
    requested: int = 0
    """Counted only where each process is called once."""


class State(NamedTuple):
    pods: tuple[Pod, ...]
    processes: tuple[Process, ...]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Which process gets which request."""

    zones: str = "ab"
    """One letter a pod."""
    most: int = 1
    by_partition: bool = False
    """All pods hold the same partition; else those of one zone may go together."""
    wants: tuple[tuple[int, ...], ...] = ((0, 1), (0, 1))
    """By process: the pods that it may be called for."""
    slots: tuple[int, ...] = (1, 1)
    """By process: how many requests at a time."""
    rollouts: tuple[int, ...] = ()
    """Processes that delete, instead of answering an eviction."""
    ranks: tuple[int, ...] = (0,)
    """What `at` may be."""
    lists_by_zone: bool = False
    """The second read takes one call a pod; else one for all."""
    answers: int = 1
    """How often the same may be answered: a review may come twice."""
    has_quick_pods: bool = True
    """A replacement may be up before everything that was answered on its predecessor is over."""
    has_faults: bool = True
    is_once: bool = False
    """Each slot is used once, and nothing takes effect."""
    has_records: bool = True
    """Else there is only memory."""
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


def is_at_risk(pod: Pod) -> bool:
    """Return whether a pod is gone, or may be at any moment."""
    return not pod.is_up or pod.orphans > 0 or (pod.record is not None and pod.record.permits > 0)


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
