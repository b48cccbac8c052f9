"""What must come to pass once all faults are over: LI-01, LI-02, LI-05, LI-07, LI-10, LI-11.

Judged on the state at the end of a history, on when it was reached, and on the quiet after it. What
people have to mend first (a paused zone, a revision that never becomes ready) is no fault of the
operator: then a run says that it is undetermined, or that nothing was to be expected.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from operator import attrgetter
from typing import Final

from rollout_lab.model.fields import text
from rollout_lab.model.history import PodCalled

from rollout_operator.kube.api import SECRETS
from rollout_operator.model.release_plan import CheckClass
from tests.judge.book import Book
from tests.judge.deletes import IN_FLIGHT, LATE_AFTER
from tests.judge.departures import get_held_until
from tests.judge.invariants_reviews import list_lasting
from tests.judge.liveness_drains import get_last_requested, list_passed_over, list_starved
from tests.judge.liveness_scaling import judge_counts, list_called_late
from tests.judge.objects import Pod, Set
from tests.judge.policies import get_longest_pause
from tests.judge.promises import Violation
from tests.judge.rest import Rest, count_batches, count_surplus, list_still, read_rest

# LI-01: on top of three times what pods need.
LI_01_SLACK: Final = timedelta(seconds=60)
# LI-02: what a lost event may delay everything by.
RESYNC: Final = timedelta(minutes=5)
# LI-05, and the time in which an API server may still write what was allowed.
UNDO_LIMIT: Final = timedelta(seconds=60)
PERSIST_LIMIT: Final = timedelta(seconds=36)
# For the last downscale to become impossible, and for the call.
LIMIT: Final = PERSIST_LIMIT + UNDO_LIMIT
# What follows a rollout: notes are removed, downscales recorded.
SETTLING: Final = LIMIT
# A stream that a partition has cut is found dead so long after the network is back: at its own end,
# after the grace and the wait that follow it.
DEAD_STREAM: Final = timedelta(seconds=60)
# LI-11.
READS_PER_MINUTE: Final = 6
# They are listed anew now and then, as the others are.
KINDS_OF_RELEASES: Final = 9
# Two lists, at the shortest interval that one may have.
READS_OF_A_CHECK: Final = 24
EVENT_FAULTS: Final = frozenset(
    {
        "drop_event",
        "delay_event",
        "drop_bookmark",
        "duplicate_event",
        "freeze",
        "cut_stream",
        "gone_event",
        "stale_list",
    }
)
WRITES: Final = frozenset({"create", "update", "patch", "delete"})


def judge_liveness(book: Book) -> Iterator[Violation | str]:
    """Yield what did not come to pass, and as text what is not known yet.

    Nothing where the faults were never over.
    """
    promises = book.promises
    if promises.healed_at is None:
        return
    if not book.runs.is_any_up():
        yield "no process of the operator was up at the end"
        return
    rest = read_rest(book)
    well_at = max(promises.healed_at, book.runs.last_ready or timedelta(0))
    begin = max(well_at, rest.last_change, get_last_requested(book))
    held_until = get_held_until(book)
    yield from _judge_rest(book, rest, begin, held_until)
    for calls in (book.pod_calls, book.delay_calls):
        yield from _list_left_prepared(book, rest, begin, calls)
    yield from list_back_prepared(book, rest.stays_since, begin)
    yield from list_called_late(book, well_at, rest.stays_since)
    # Where nothing ever went wrong, all has been well from the start.
    calm_at = well_at if book.faults else timedelta(0)
    yield from list_lasting(book, calm_at, _lag(book, well_at) or _wait(book, well_at))
    free_at = max(well_at, held_until)
    yield from list_starved(book, free_at, rest.pod_time)
    yield from list_passed_over(book, calm_at)
    if not rest.blocked:
        bound, _ = _bound(book, rest, well_at)
        yield from list_still(book, free_at, _lag(book, well_at))
        yield from judge_counts(book, free_at, bound)


def _judge_rest(
    book: Book, rest: Rest, begin: timedelta, held_until: timedelta
) -> Iterator[Violation | str]:
    """LI-01, LI-02 and LI-10: does it come to rest, in time, and stay there?"""
    yield from rest.blocked
    bound, name = _bound(book, rest, begin)
    free_at = max(begin, held_until)
    if rest.reached_at is None:
        waited = book.ended_at - free_at
        if waited < bound:
            left = f"{(bound - waited).total_seconds():.0f} s before it had to be at rest"
            yield f"the run ended {left}: {rest.missing[0]}"
        else:
            invariant = "LI-10" if rest.has_broken_outdated else name
            text = f"not at rest {waited.total_seconds():.0f} s after all was well: "
            text += "; ".join(rest.missing)
            yield Violation(invariant=invariant, at=book.ended_at, text=text)
        return
    took = rest.reached_at - free_at
    if took > bound:
        text = f"at rest only {took.total_seconds():.0f} s after all was well, bound"
        text += f" {bound.total_seconds():.0f} s"
        yield Violation(invariant=name, at=rest.reached_at, text=text)
    # A request, even in vain, gives the operator something to do.
    requested = max((one.at for one in book.reviews if not one.dry_run), default=begin)
    settling = SETTLING
    if name == "LI-02":
        settling += RESYNC
    elif _has_had(book, ("partition",), begin):
        settling += DEAD_STREAM
    yield from _judge_quiet(book, max(rest.reached_at, begin, requested) + settling)


def _bound(book: Book, rest: Rest, begin: timedelta) -> tuple[timedelta, str]:
    """Return how long it may take from `begin` to rest, and which promise says so."""
    pause = get_longest_pause(book)
    bound = (3 * rest.pod_time + pause) * count_batches(book, begin) + LI_01_SLACK
    bound += rest.end_time * count_surplus(book, begin)
    lag = _lag(book, begin)
    return (bound + lag, "LI-02") if lag else (bound, "LI-01")


def _lag(book: Book, begin: timedelta) -> timedelta:
    """Return how long something may be unknown because events were lost, zero where none was."""
    return RESYNC if _has_had(book, EVENT_FAULTS, begin) else timedelta(0)


def _wait(book: Book, begin: timedelta) -> timedelta:
    """Return how long a process may still wait for the answer to a call that a partition took.

    What it had recorded before that call it takes back after it.
    """
    cut = [one for one in book.faults if one.kind == "partition" and one.at <= begin]
    return LATE_AFTER if cut and begin - max(one.at for one in cut) <= IN_FLIGHT else timedelta(0)


def _has_had(book: Book, kinds: Collection[str], begin: timedelta) -> bool:
    """Return whether faults of these kinds were not long ago when all was healed."""
    healed = book.promises.healed_at or begin
    return any(one.kind in kinds and healed - RESYNC <= one.at <= healed for one in book.faults)


def _judge_quiet(book: Book, begin: timedelta) -> Iterator[Violation | str]:
    """Nothing is written any more, and little is read (LI-01, LI-11)."""
    promises, lasted = book.promises, book.ended_at - begin
    if lasted < promises.quiet - SETTLING - RESYNC:
        text = f"the run ended {max(lasted, timedelta(0)).total_seconds():.0f} s after rest,"
        text += f" too soon to tell that it stays quiet for {promises.quiet.total_seconds():.0f} s"
        yield text
    reads: dict[tuple[str, int], int] = {}
    for called in book.own_calls:
        request = called.request
        if called.begun < begin:
            continue
        # Certificates are renewed in their own time.
        is_other = request.resource == SECRETS or not request.resource.is_namespaced
        if request.verb in WRITES and not is_other:
            target = f"{request.resource.plural}/{request.name}"
            text = f"{request.verb} {target} by {called.actor}, though all is at rest"
            yield Violation(invariant="LI-01", at=called.begun, text=text)
        elif request.verb in ("get", "list"):
            minute = (called.actor, int((called.begun - begin).total_seconds()) // 60)
            reads[minute] = reads.get(minute, 0) + 1
    most = count_allowed_reads(book)
    for (actor, passed), count in sorted(reads.items()):
        if count > most:
            text = f"{count} reads by {actor} in a minute in which nothing happened"
            at = begin + timedelta(minutes=passed)
            yield Violation(invariant="LI-11", at=at, text=text)


def count_allowed_reads(book: Book) -> int:
    """Return how many reads a minute may have: HealthChecks are evaluated in their own time."""
    if not book.releases:
        return READS_PER_MINUTE
    checks = {
        one.name
        for one in book.releases
        if text(one.after or {}, "spec", "class") in list(CheckClass)
    }
    return READS_PER_MINUTE + KINDS_OF_RELEASES + READS_OF_A_CHECK * len(checks)


def _list_left_prepared(
    book: Book, rest: Rest, begin: timedelta, calls: Iterable[PodCalled]
) -> Iterator[Violation | str]:
    """Yield pods that were prepared, stay, and were not un-prepared in time (LI-05)."""
    for call in _list_prepared(calls, attrgetter("uid")):
        stays_since = rest.stays_since.get(call.uid)
        if stays_since is None:
            continue  # gone, going, or not wanted
        due = max(call.at, begin, stays_since) + LIMIT
        if book.ended_at < due:
            yield f"the run ended before {call.pod} had to be told that it stays"
        else:
            text = f"{call.pod} was prepared at {call.at.total_seconds():.1f} s, stays,"
            yield Violation(invariant="LI-05", at=due, text=f"{text} and was not told so")


def _list_prepared(
    calls: Iterable[PodCalled], name: Callable[[PodCalled], str]
) -> Iterable[PodCalled]:
    """Return by which calls pods, or disks by name, are prepared at the end, for each path."""
    prepared: dict[tuple[str, str], PodCalled] = {}
    for call in calls:
        place = (name(call), call.path.strip("/"))
        if call.acted and call.method == "POST":
            prepared[place] = call
        elif call.acted and call.method == "DELETE":
            prepared.pop(place, None)
    return prepared.values()


def _is_set_gone_since(book: Book, call: PodCalled) -> bool:
    """Return whether the StatefulSet of a pod was deleted after the pod was called.

    Then the pod that was called is told, if it stays, and no other of its name.
    """
    zone = call.pod.rpartition("-")[0]
    return any(
        isinstance(one.before, Set) and one.now is None and one.before.name == zone
        for one in book.writes
        if one.at >= call.begun
    )


# A downscale that stands for so long, with its pods gone, is not reverted any more: the next
# upscale is one of its own.
STOOD: Final = timedelta(seconds=60)
CLOCK_RATE: Final = "clock_rate"
# A clock that is made to run wrongly runs twice as fast at worst.
FASTEST: Final = 2


def list_back_prepared(
    book: Book, stays_since: Mapping[str, timedelta], begin: timedelta
) -> Iterator[Violation]:
    """Yield pods whose forerunner was prepared, and which stay and were not un-prepared.

    Only where the set wanted the pod again when its forerunner had gone, and went on to: where a
    downscale has stood for a minute with its pods gone, it has happened, and a pod that comes back
    later finds what the forerunner left behind in good order. What died with a process is excused.
    """
    gone = _collect_wanted_again(book)
    names = _map_staying(book, stays_since)
    for call in _list_prepared(book.pod_calls, attrgetter("pod")):
        name = call.pod
        uid = names.get(name, "")
        if not uid or uid == call.uid or call.uid not in gone:
            continue
        if book.runs.count_starts(call.begun, book.ended_at) or _is_set_gone_since(book, call):
            continue
        due = max(begin, stays_since[uid]) + LIMIT
        if due <= book.ended_at:
            text = f"{name} came back, finds on its disk that it is to go, and was not told"
            yield Violation(invariant="LI-05", at=due, text=text)


def _collect_wanted_again(book: Book) -> set[str]:
    """Return the UIDs of pods that were wanted by name when they had gone.

    Left out are those of which nothing was there, nor wanted, for as long as a downscale has to
    stand: one that came and went meanwhile may never have run, and ends no debt.
    """
    sets: dict[str, Set] = {}
    names: set[str] = set()
    left: dict[str, list[Pod]] = {}
    away: dict[str, timedelta] = {}
    stood = _get_stood(book)
    for write in book.writes:
        match write.before, write.now:
            case _, Set() as zone:
                sets[zone.uid] = zone
            case Set() as zone, None:
                del sets[zone.uid]
            case _, Pod() as pod:
                names.add(pod.name)
            case Pod() as pod, None:
                names.discard(pod.name)
                if _is_wanted(sets, pod):
                    left.setdefault(pod.name, []).append(pod)
        for name, pods in list(left.items()):
            if name not in names and not _is_wanted(sets, pods[-1]):
                away.setdefault(name, write.at)
            elif write.at - away.pop(name, write.at) >= stood:
                del left[name]
    return {pod.uid for pods in left.values() for pod in pods}


def _is_wanted(sets: Mapping[str, Set], pod: Pod) -> bool:
    return pod.owner in sets and pod.name in sets[pod.owner].pod_names


def _get_stood(book: Book) -> timedelta:
    """Return how long a downscale must have stood to be over, by the fastest clock there was."""
    is_fast = any(one.kind == CLOCK_RATE for one in book.faults)
    return STOOD / FASTEST if is_fast else STOOD


def _map_staying(book: Book, stays_since: Mapping[str, timedelta]) -> dict[str, str]:
    """Return the UIDs of the pods that stay, by name."""
    pods = (write.now for write in book.writes)
    return {one.name: one.uid for one in pods if isinstance(one, Pod) and one.uid in stays_since}
