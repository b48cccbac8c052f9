"""What is promised of how much a process requests, and when it may: LI-11, D-65, ROLL-39, SI-22.

Judged with the rate limits of the run, on what arrives at the API server. Reads are allowed to lead
to nothing for some minutes, as often as the limits let them pass; then only at the pace at which
what fails for long is tried again.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Final

import msgspec
from rollout_lab.model.fields import text
from rollout_lab.model.history import Called

from rollout_operator.kube.api import SECRETS
from rollout_operator.model.lease import LEASE_DURATION, RENEW_DEADLINE
from tests.judge.book import Book, Track, World, Write, once
from tests.judge.deletes import get_sent
from tests.judge.departures import FASTEST, has_wrong_clock
from tests.judge.objects import Pod, Set
from tests.judge.promises import Violation

MINUTE: Final = timedelta(minutes=1)
# What fails for so long is tried twice a minute, with two lists each.
FAILING: Final = timedelta(minutes=5)
READS_OF_A_GROUP: Final = 4
# Informers, also of a process that begins again just after they were listed anew, references that
# cannot be watched, and deletes that are read back.
OTHER_READS: Final = 40
WRITES: Final = frozenset({"create", "update", "patch", "delete"})


def list_excess(book: Book) -> Iterator[Violation]:
    """Yield the minutes in which a process requested too much; the first one of each kind."""
    calls: dict[str, list[Called]] = defaultdict(list)
    for called in sorted(book.own_calls, key=lambda one: one.begun):
        if called.request.verb != "watch":
            calls[called.actor].append(called)
    groups = {write.now.group for write in book.writes if isinstance(write.now, Set)}
    most = READS_OF_A_GROUP * len(groups - {None}) + OTHER_READS
    for actor, own in calls.items():
        yield from _list_too_many(actor, own, book.promises.requests_a_minute)
        if not book.reviews:  # else people decide how much is read
            yield from _list_fruitless(actor, own, most)


def _list_too_many(actor: str, calls: Iterable[Called], most: int) -> Iterator[Violation]:
    """The flags bound the process for each API group."""
    lately: dict[str, deque[timedelta]] = defaultdict(deque)
    for called in calls:
        group = called.request.resource.group
        times = lately[group]
        times.append(called.begun)
        while times[0] < called.begun - MINUTE:
            times.popleft()
        if len(times) > most:
            text = f'{len(times)} requests for API group "{group}" by {actor} in a minute'
            yield Violation("LI-11", called.begun, text)
            return


def _list_fruitless(actor: str, calls: Iterable[Called], most: int) -> Iterator[Violation]:
    """Reads lead to a write, or become rare."""
    wrote_at, lately = timedelta(0), deque[timedelta]()
    for called in calls:
        if called.request.verb in WRITES:
            wrote_at = called.begun
            lately.clear()
        elif called.begun - wrote_at > FAILING:
            lately.append(called.begun)
            while lately[0] < called.begun - MINUTE:
                lately.popleft()
            if len(lately) > most:
                text = f"{len(lately)} reads by {actor} in a minute, and no write for"
                text += f" {(called.begun - wrote_at).total_seconds():.0f} s"
                yield Violation("LI-11", called.begun, text)
                return


PER_MINUTE: Final = 12  # what other releases write at most
LONG: Final = timedelta(minutes=5)
# Between two writes of a contest that lasts for longer than that.
LONG_GAP: Final = timedelta(seconds=30)
# A count that stayed for so long was accepted: what comes after is another contest.
ACCEPTED: Final = timedelta(minutes=15)
SLACK: Final = 2  # by clocks that run wrongly, twice as fast at worst
# So long after the other writer has given up the operator writes its count.
WRITTEN_WITHIN: Final = timedelta(minutes=5)
# Fewer writes of one count are no contest: a set is made anew, a person tries something.
LEAST: Final = 3


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    zone: str
    replicas: int
    times: tuple[timedelta, ...]


def list_contested(book: Book) -> Iterator[Violation]:
    """Yield contests in which the operator writes too often."""
    for contest in list_contests(book):
        what = f"{contest.zone} was set to {contest.replicas}"
        for last in contest.times:
            count = sum(last - MINUTE / SLACK < one <= last for one in contest.times)
            if count > PER_MINUTE:
                text = f"{what} {count} times in half a minute, and something else put it back"
                yield Violation("LI-11", last, text)
                break
        for sooner, later in pairwise(contest.times):
            if later - contest.times[0] >= LONG * SLACK and later - sooner < LONG_GAP / SLACK:
                text = f"{what} again after {(later - sooner).total_seconds():.1f} s, though"
                text += " something else had put it back for minutes"
                yield Violation("LI-11", later, text)
                break


@once
def list_contests(book: Book) -> list[Contest]:
    """Return the counts that a process of the operator has written at least three times in a row.

    Writes whose answer was lost are tried again in their own time, and are left out.
    """
    found: list[Contest] = []
    running: dict[str, list[Write]] = {}
    for write in book.writes:
        before, now = write.before, write.now
        if not isinstance(before, Set) or not isinstance(now, Set):
            continue
        if before.replicas == now.replicas or not book.is_operator(write.commit.actor):
            continue
        called = book.calls.get(write.commit.call)
        begun, second = write.at if called is None else called.begun, MINUTE / 60
        if book.list_faults(write.commit.actor, begun - second, write.at + second):
            continue
        last = running.get(now.uid, [])
        if last:
            former = last[-1].now
            is_same = isinstance(former, Set) and former.replicas == now.replicas
            runs = [book.runs.find(one.commit.actor, one.at) for one in (last[-1], write)]
            if not is_same or runs[0] != runs[1] or write.at - last[-1].at >= ACCEPTED:
                found += _end(last)
                last = []
        running[now.uid] = [*last, write]
    for writes in running.values():
        found += _end(writes)
    return found


def _end(writes: list[Write]) -> Iterator[Contest]:
    last = writes[-1].now
    if len(writes) >= LEAST and isinstance(last, Set):
        times = tuple(one.at for one in writes)
        yield Contest(zone=last.name, replicas=last.replicas, times=times)


def list_misrecorded(book: Book) -> Iterator[Violation]:
    """Yield the records of a revision that not all wanted pods were ready at."""
    world = World()
    created: dict[str, timedelta] = {}
    for write in book.writes:
        if isinstance(write.now, Pod) and write.before is None:
            created[write.now.uid] = write.at
        match write.before, write.now:
            case Set(current_revision=former), Set(current_revision=recorded):
                if former != recorded and book.is_operator(write.commit.actor):
                    yield from _judge_revision(book, world, write, created)
        world.take(write)


def _judge_revision(
    book: Book, world: World, write: Write, created: dict[str, timedelta]
) -> Iterator[Violation]:
    zone = write.now
    assert isinstance(zone, Set), "only sets have a current revision"
    called = book.calls.get(write.commit.call)
    known = (write.at if called is None else get_sent(book, called)) - book.promises.known
    recorded = zone.current_revision
    lacks = [] if recorded == zone.update_revision else [f"{zone.update_revision} is to be"]
    for name in zone.pod_names:
        pod = world.pods.get(name)
        short_since = world.short_since.get(name, world.unused.get(name, write.at))
        if short_since <= known:
            if not _was_hidden(book, write, name, short_since):
                lacks.append(f"{name} is not ready")
        elif pod is not None and pod.revision != recorded and created.get(pod.uid, known) <= known:
            lacks.append(f"{name} is at {pod.revision}")
    if lacks:
        text = f"{recorded} is recorded as current in {zone.name}: {', '.join(lacks)}"
        yield Violation("ROLL-39", write.at, text)


def _was_hidden(book: Book, write: Write, pod: str, since: timedelta) -> bool:
    """Return whether a pod event was lost while the own status of the set said that all is well.

    Then nothing showed that it was down but a list of the pods, which is due every four minutes.
    """
    status = (write.commit.before or {}).get("status")
    wanted = write.now.replicas if isinstance(write.now, Set) else 0
    is_reported = not isinstance(status, dict) or status.get("readyReplicas", 0) < wanted
    faults = book.list_faults(write.commit.actor, since, write.at)
    is_dropped = any(one.kind == "drop_event" and one.text.endswith(f" {pod}") for one in faults)
    return is_dropped and not is_reported


LATE: Final = frozenset({"slow", "late", "lost"})
LONGEST_WAY: Final = timedelta(minutes=2)


def list_unelected(book: Book) -> Iterator[Violation]:
    """Yield writes that were sent while another process held the Lease, or none did."""
    if not book.leases:
        return
    # For so long two may act at once, by clocks that run at different rates.
    slack = RENEW_DEADLINE / book.promises.slowest_clock - LEASE_DURATION / FASTEST
    if not has_wrong_clock(book):
        slack = timedelta(0)
    holders: Track[str] = Track()
    holders.add(timedelta.min, "")
    for lease in book.leases:
        holder = text(lease.after or {}, "spec", "holderIdentity")
        holders.add(lease.at, holder.rpartition("_")[0])
    for call in book.own_calls:
        is_shared = call.request.resource == SECRETS or not call.request.resource.is_namespaced
        if call.request.verb not in WRITES or is_shared:
            continue
        if _was_late(book, call):
            continue
        lately = {*holders.window(call.begun - slack, call.begun)}
        if call.actor not in lately:
            request, others = call.request, ", ".join(sorted(lately)) or "no process"
            what = f"{request.verb} {request.resource.plural}/{request.name} by {call.actor}"
            yield Violation("SI-22", call.at, f"{what}; the lease is of {others}")


def _was_late(book: Book, call: Called) -> bool:
    """Return whether a write was sent long before it arrived: by a process that has ended, even."""
    if book.runs.find(call.actor, call.begun) is None:
        return True
    request = call.request
    named = f"{request.verb} {request.resource.plural}/{request.name}"
    faults = book.list_faults(call.actor, call.begun - LONGEST_WAY, call.begun)
    return any(fault.kind in LATE and named in fault.text for fault in faults)
