"""The deletes of pods that the operator requested: when, by which process, on which read.

A delete may arrive long after it was sent, even after its process has died: then the next process
of that name is not to blame for it. When it was sent is known from the fault that held it up.
"""

import re
from bisect import bisect_right
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.model.history import Called, Fault

from rollout_operator.kube.api import PODS, STATEFULSETS
from tests.judge.book import NO_TIME, Book, ProcessRun, once
from tests.judge.objects import Set
from tests.judge.policies import read_batch

# Nothing is committed so long after it was sent: an API server ends every request after 60 s.
IN_FLIGHT: Final = timedelta(seconds=120)
# What is called late is sent only when its caller's time is over.
LATE_AFTER: Final = timedelta(seconds=30)
# What a request takes on its way, beside the span by which it was held up.
LATENCY: Final = timedelta(seconds=1)
AT_ONCE: Final = timedelta(milliseconds=50)  # as long as a request takes that nothing holds up
# Faults by which a request arrives, or an answer comes, later than any process could know.
DELAYING: Final = frozenset({"slow", "late", "pod_slow"})
# How faults end by which the caller does not learn what became of a delete that was carried out:
# where only the body breaks off, the status has shown it.
LOSING: Final = frozenset({"reset_after", "timeout", "gateway_timeout_committed"})


class LiveRead(msgspec.Struct, frozen=True):
    """When the newest live reads were requested that a delete can rest on."""

    sets_at: timedelta
    pods_at: timedelta

    @property
    def at(self) -> timedelta:
        return min(self.sets_at, self.pods_at)


_Groups = list[tuple[timedelta, str]]
"""Since when a set was in which group."""
_SPAN: Final = re.compile(r": ([0-9]+):([0-9]{2}):([0-9.]+)$")


class Delete(msgspec.Struct, frozen=True):
    called: Called
    sent_at: timedelta
    live_read: LiveRead | None  # the newest before it was sent
    is_ghost: bool  # sent by a process that was dead when it arrived
    is_lost: bool  # its answer never reached who sent it
    was_held: bool
    """Another call of its process was slow between its read and itself (SI-09 allows 5 s)."""
    run: ProcessRun | None = None  # the life in which it was sent
    group: str = ""  # of the set that the pod is named after, as the set was labelled last

    @property
    def is_late(self) -> bool:
        return self.is_ghost or self.sent_at < self.called.begun

    def may_miss(self, at: timedelta) -> bool:
        """Return whether its read does not show what happened then."""
        return self.live_read is None or self.live_read.at <= at

    def cut(self, since: timedelta) -> timedelta:
        """Return a time, or that of its read where that is earlier and the delete came late."""
        came_late = self.is_late or self.was_held
        return min(since, self.live_read.at) if came_late and self.live_read else since

    @property
    def precondition(self) -> tuple[str, str]:
        """Return UID and version that it requests, empty where it does not."""
        body = self.called.request.body
        inner = body.get("preconditions") if isinstance(body, dict) else None
        found = inner if isinstance(inner, dict) else {}
        return str(found.get("uid") or ""), str(found.get("resourceVersion") or "")


def list_unanswered(deletes: dict[int, Delete], delete: Delete) -> list[Delete]:
    """Return the earlier deletes of the same pod that could still be carried out."""
    uid, before = delete.precondition[0], delete.sent_at
    same = (one for one in deletes.values() if one.precondition[0] == uid and one.sent_at < before)
    return [one for one in same if one.is_late or one.is_lost]


class _Reads(msgspec.Struct):
    """Live lists of one kind by one process name, in the order of their answers."""

    answered: list[timedelta] = []
    calls: list[Called] = []

    def newest(self, run: ProcessRun | None, before: timedelta, group: str) -> timedelta | None:
        for place in range(bisect_right(self.answered, before) - 1, -1, -1):
            call = self.calls[place]
            if run is None or call.begun < run.begun:
                return None
            selector = call.request.query.get("labelSelector", "")
            if call.at <= run.ended and (not selector or not group or group in selector):
                return call.begun
        return None


@once
def map_deletes(book: Book) -> dict[int, Delete]:
    found: dict[int, Delete] = {}
    reads: dict[tuple[str, str], _Reads] = {}
    for called in book.own_calls:
        request = called.request
        if request.verb == "list" and called.status < 400 and is_live(called):
            lists = reads.setdefault((called.actor, request.resource.plural), _Reads())
            lists.answered.append(called.at)
            lists.calls.append(called)
    groups = _map_groups(book)
    # Of a delete that ended no pod nothing else is left.
    sets = (write.now for write in book.writes if isinstance(write.now, Set))
    names = {one.name: one.group for one in sets if one.group}
    for called in book.own_calls:
        request = called.request
        if request.verb == "delete" and request.resource.plural == PODS.plural:
            delete = _read(book, called, reads, groups.get(called.number, []))
            name = request.name.rpartition("-")[0]
            found[called.number] = replace(delete, group=names.get(name, ""))
    return found


def _read(
    book: Book, called: Called, reads: dict[tuple[str, str], _Reads], groups: _Groups
) -> Delete:
    actor, sent_at = called.actor, get_sent(book, called)
    if book.promises.is_observed:
        now = LiveRead(sent_at, sent_at)
        return Delete(called, sent_at, now, is_ghost=False, is_lost=False, was_held=False)
    group = next((name for begun, name in reversed(groups) if begun <= sent_at), "")
    run = book.runs.find(actor, sent_at)
    live_read = _find_live_read(reads, called, (run, sent_at), group)
    is_ghost = run is None or run.ended < called.begun
    if live_read is None:
        # It may have been on the wire when its process died.
        older = book.runs.find_before(run, actor, sent_at)
        former = _find_live_read(reads, called, (older, sent_at), group)
        if former is not None and sent_at - former.at < IN_FLIGHT:
            live_read, is_ghost = former, True
    faults = book.list_faults(actor, sent_at - IN_FLIGHT, called.begun)
    read_at, what = live_read.at if live_read else NO_TIME, f"delete pods/{called.request.name}: "
    is_lost = any(
        what in one.text and one.text.rpartition(": ")[2] in LOSING and one.at >= read_at
        for one in faults
    )
    was_held = live_read is not None and any(
        one.kind in DELAYING and live_read.at <= one.at <= sent_at for one in faults
    )
    return Delete(called, sent_at, live_read, is_ghost, is_lost, was_held, run)


def get_sent(book: Book, called: Called) -> timedelta:
    """Return when a write was sent: when a fault began to hold it up, else when it arrived."""
    request = called.request
    target = _name_target(called)
    parts = (request.resource.plural, request.name, request.subresource)
    what = f"{request.verb} {'/'.join(part for part in parts if part)}: "
    held = [
        one
        for one in book.list_faults(called.actor, called.begun - IN_FLIGHT, called.begun)
        if what in one.text and one.kind in DELAYING
    ]
    for fault in reversed(held):
        due = fault.at + get_span(fault) + (LATE_AFTER if fault.kind == "late" else NO_TIME)
        arrived = [
            one.begun
            for one in book.own_calls
            if one.actor == called.actor and fault.at <= one.begun <= due + LATENCY
            if _name_target(one) == target
        ]
        # What arrived at once is what was struck: its answer was held up, and nothing on its way.
        # What is called late never does: that was an earlier one, which was late itself.
        is_answer = fault.kind != "late" and any(
            one <= fault.at + AT_ONCE and one < due for one in arrived
        )
        late = min((one for one in arrived if one >= due), default=None)
        if not is_answer and late == called.begun:
            return fault.at
    if (request.verb, request.resource) == ("patch", STATEFULSETS):
        # What a fault strikes takes no longer than the fault has it.
        lately = book.list_faults(called.actor, called.begun - LATENCY, called.begun)
        if not any(what in one.text for one in lately):
            return called.begun - book.promises.patches_take
    return called.begun


def _name_target(called: Called) -> tuple[object, ...]:
    request = called.request
    return request.verb, request.resource, request.name, request.subresource


def get_span(fault: Fault) -> timedelta:
    """Return how long a request was held up, as its fault says; zero where it does not."""
    found = _SPAN.search(fault.text)
    if found is None:
        return NO_TIME
    hours, minutes, seconds = (float(part) for part in found.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _find_live_read(
    reads: dict[tuple[str, str], _Reads],
    called: Called,
    sent: tuple[ProcessRun | None, timedelta],
    group: str,
) -> LiveRead | None:
    run, sent_at = sent
    if run is None:
        return None
    sets = reads.get((called.actor, STATEFULSETS.plural), _Reads())
    pods = reads.get((called.actor, PODS.plural), _Reads())
    sets_at = sets.newest(run, sent_at, group)
    pods_at = pods.newest(run, sent_at, "")
    return None if sets_at is None or pods_at is None else LiveRead(sets_at, pods_at)


def is_live(called: Called) -> bool:
    """Return whether a read reaches the store, and not what the API server has cached."""
    return called.request.query.get("resourceVersion", "") == ""


def _map_groups(book: Book) -> dict[int, _Groups]:
    """Return the groups of the set that owned each deleted pod, by number of the request.

    What a policy had recorded is no group's: it reads all that its own selector selects.
    """
    recorded = {
        uid
        for one in book.policies
        for batch in read_batch(one.after or {}, one.at)
        for uid in batch.pods
    }
    groups: dict[str, _Groups] = {}
    found: dict[int, _Groups] = {}
    for write in book.writes:
        if isinstance(write.now, Set):
            groups.setdefault(write.now.uid, []).append((write.at, write.now.group or ""))
        pod, call = write.ended_pod, write.commit.call
        if pod is not None and call and pod.uid not in recorded:
            found[call] = groups.get(pod.owner, [])
    return found
