"""What is promised of downscales that persist, and of calls to pods: SI-02, SI-10 to SI-14, SI-21.

Only what webhooks in force should have guarded is judged. What repeated reviews and dry runs may
leave behind is judged in `invariants_reviews`.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import combinations
from typing import Final

from rollout_lab.model.history import Called, PodCalled, Reviewed

from rollout_operator.kube.api import STATEFULSETS
from rollout_operator.model.names import PREPARE_PATH as PREPARE_PATH_KEY
from tests.judge.book import Book, Write, annotations, requested_replicas
from tests.judge.deletes import DELAYING, IN_FLIGHT, get_sent
from tests.judge.desired import read_desired
from tests.judge.downscales import (
    FORGED,
    NO_DOWNSCALE_PATH,
    PREPARE_PATH,
    Downscale,
    Targets,
    list_downscales,
    list_reviews,
    names_removed,
    read_targets,
)
from tests.judge.objects import Pod, Set
from tests.judge.promises import Violation
from tests.judge.scaling import Recorded, read_recorded

# A review is answered within this, and the same requests share its read.
REVIEW_LASTS: Final = timedelta(seconds=15)
# So long after its last review an API server may still write what was allowed.
PERSIST_LIMIT: Final = timedelta(seconds=36)
FOREVER: Final = timedelta.max
NO_TIME: Final = timedelta(0)
# From outside a write is seen some moments after its commit.
SEEN_LATE: Final = timedelta(milliseconds=500)
TOO_MANY: Final = 429
# Of faults: what the operator lacks itself, room or time, is no answer of the API server (D-20).
OVERLOAD: Final = frozenset({"throttled", "slow", "too_many"})
# Times have whole seconds, and the API server's is known to about one.
CLOCK_ERROR: Final = timedelta(seconds=2)


def list_broken(book: Book) -> Iterator[Violation]:
    """Yield what downscales and calls to pods break."""
    if not (book.configurations or book.pod_calls or book.delay_calls):
        return
    downscales = list_downscales(book)
    yield from list_too_early(book, downscales)
    recorded = read_recorded(book)
    for each in downscales:
        yield from _judge_forbidden(book, each)
        if each.must_prepare:
            yield from _judge_written(book, each, recorded)
            yield from _judge_requested(book, each)
            yield from _judge_prepared(book, each)
            yield from _judge_neighbours(book, each)
    targets = read_targets(book)
    for call in (*book.pod_calls, *book.delay_calls):
        yield from _judge_target(targets, call)
    for call in book.pod_calls:
        if call.method == "DELETE":
            yield from _judge_cancel(book, call, downscales)


def list_observed(book: Book) -> Iterator[Violation]:
    """Yield what downscales break that were watched from outside: SI-10 and SI-11."""
    downscales = [one for one in list_downscales(book) if one.must_prepare]
    for each in downscales:
        yield from _judge_prepared(book, each)
    for earlier, later in combinations(downscales, 2):
        yield from _judge_pair(earlier, later, SEEN_LATE)


def list_too_early(book: Book, downscales: list[Downscale]) -> Iterator[Violation]:
    """Yield pairs of different zones of a group closer than its zones request (SI-11).

    Times are kept of zones that are guarded; a zone that follows keeps to them without a guard.
    What a person makes of a time is the truth from then on (D-66), in both directions.
    """
    recorded = read_recorded(book)
    for earlier, later in combinations(downscales, 2):
        if not earlier.must_prepare or not (later.must_prepare or _follows(book, later)):
            continue
        span = (earlier.at, later.at, later.wait)
        if not recorded.was_released(earlier.before.name, *span):
            yield from _judge_pair(earlier, later)


def _judge_pair(
    earlier: Downscale, later: Downscale, slack: timedelta = NO_TIME
) -> Iterator[Violation]:
    members = {one.uid for one in later.members} - {later.before.uid}
    gap = later.at - earlier.at
    if earlier.before.uid in members and gap < later.wait - slack:
        text = (
            f"{later.text} {gap.total_seconds():.1f} s after the {earlier.text},"
            f" group {later.before.group} waits {later.wait.total_seconds():g} s"
        )
        yield Violation(invariant="SI-11", at=later.at, text=text)


def _judge_written(book: Book, downscale: Downscale, recorded: Recorded) -> Iterator[Violation]:
    """SI-11, D-66: a time that a person wrote lets the other zones wait."""
    known = get_first_requested(book, downscale) - PERSIST_LIMIT - book.promises.known
    for one in downscale.members:
        if one.uid == downscale.before.uid:
            continue
        span = (known, downscale.at, downscale.wait - CLOCK_ERROR)
        if recorded.find_forbidden(one.name, *span) is not None:
            text = f"{downscale.text} too soon after the time that a person wrote for {one.name}"
            yield Violation(invariant="SI-11", at=downscale.at, text=text)


def _follows(book: Book, downscale: Downscale) -> bool:
    """Return whether the operator wrote it for a zone that follows, in time and unforced."""
    called = downscale.called
    if called is None or not book.is_operator(called.actor):
        return False
    states = [
        read_desired(write.commit.after)
        for write in book.writes
        if isinstance(write.now, Set) and write.now.uid == downscale.now.uid
        if write.at < downscale.at
    ]
    is_forced = any(one.forced is not None for one in states)
    is_late = get_sent(book, called) < called.begun
    return states[-1].leading is not None and not is_forced and not is_late


def _judge_forbidden(book: Book, downscale: Downscale) -> Iterator[Violation]:
    """SI-14. What the API server does not give is allowed (D-20): only a Scale is read for."""
    if not downscale.is_forbidden or _could_not_read(book, downscale):
        return
    text = f"{downscale.text}, which is labelled as not to lose any"
    yield Violation(invariant="SI-14", at=downscale.at, text=text)


def _could_not_read(book: Book, downscale: Downscale) -> bool:
    called = downscale.called
    if called is None or called.request.subresource != "scale":
        return False
    reviews = [one for one in list_reviews(book, NO_DOWNSCALE_PATH) if one.call == called.number]
    for review in reviews:
        answers = _list_answers(book, review, review.begun)
        faults = book.list_faults(review.actor, review.begun, review.at)
        has_failed = any(one.status >= 400 and one.status != TOO_MANY for one in answers)
        if has_failed or any(one.kind not in OVERLOAD for one in faults):
            return True
    return False


def _list_answers(book: Book, review: Reviewed, since: timedelta) -> list[Called]:
    """Return the answers about sets that a process got until its review was answered."""
    return [
        one
        for one in book.own_calls
        if book.acts_for(one.actor, review.actor)
        and one.request.resource.plural == STATEFULSETS.plural
        and since <= one.at <= review.at
    ]


def _judge_requested(book: Book, downscale: Downscale) -> Iterator[Violation]:
    """SI-13: it was reviewed, allowed, and on a read that succeeded."""
    called = downscale.called
    number = -1 if called is None else called.number
    reviews = [one for one in list_reviews(book, PREPARE_PATH) if one.call == number]
    if not reviews or not reviews[-1].allowed:
        text = f"{downscale.text} was written and {'refused' if reviews else 'not reviewed'}"
        yield Violation(invariant="SI-13", at=downscale.at, text=text)
        return
    last = reviews[-1]
    answers = _list_answers(book, last, last.begun - REVIEW_LASTS)
    if not any(one.status < 400 for one in answers):
        text = f"{downscale.text} was allowed by {last.actor}, which could not read the group"
        yield Violation(invariant="SI-13", at=downscale.at, text=text)


def _judge_prepared(book: Book, downscale: Downscale) -> Iterator[Violation]:
    """SI-10: each pod that was removed had confirmed, and was not un-prepared after it."""
    is_observed = book.promises.is_observed
    since = get_first_requested(book, downscale)
    if is_observed and downscale.called is None:
        since = timedelta.min  # its request is not known
    # A write is taken only of the version that was reviewed: no other path has ever counted (D-24).
    path = str(annotations(downscale.write.commit.before).get(PREPARE_PATH_KEY, "")).strip("/")
    for pod in downscale.removed:
        horizon = get_horizon(book, downscale.write, pod)
        calls = [
            one
            for one in book.pod_calls
            if one.uid == pod.uid and one.begun < horizon and one.path.strip("/") == path
        ]
        lack = _name_lack(calls, since, downscale.at, is_observed=is_observed)
        if lack:
            text = f"{downscale.text}: {pod.name} {lack}"
            yield Violation(invariant="SI-10", at=downscale.at, text=text)


def _judge_neighbours(book: Book, downscale: Downscale) -> Iterator[Violation]:
    """SI-02, PREP-19: no other zone was short when it was first requested, and still is."""
    known = get_first_requested(book, downscale) - book.promises.known
    short = [name for name, since in downscale.short.items() if since <= known]
    if short:
        text = f"{downscale.text} while other zones are short: {', '.join(short)}"
        yield Violation(invariant="SI-02", at=downscale.at, text=text)


def _name_lack(
    calls: list[PodCalled], since: timedelta, until: timedelta, *, is_observed: bool
) -> str:
    good = [
        one
        for one in calls
        if one.method == "POST"
        and one.acted
        and 200 <= one.status < 300
        and one.begun >= since
        and one.at <= until
    ]
    if not good:
        requested = [f"{one.method} -> {one.status}" for one in calls]
        return f"has not confirmed between request and write: {requested or 'it was not called'}"
    undone = [one for one in calls if one.method == "DELETE" and one.acted]
    # One that was under way when the POST came may have had the last word, seen from outside.
    last = good[-1].begun if is_observed else good[-1].at
    return "was told after it that it stays" if any(one.at > last for one in undone) else ""


def get_first_requested(book: Book, downscale: Downscale) -> timedelta:
    """Return when the same was first requested: what is repeated is not prepared again (D-24)."""
    begun = downscale.begun
    for called in reversed(list(book.calls.values())):
        request = called.request
        is_same = (
            request.name == downscale.before.name
            and request.resource.plural == STATEFULSETS.plural
            and not request.is_dry_run
            and requested_replicas(called) == downscale.now.replicas
        )
        if is_same and begun - PERSIST_LIMIT <= called.at and called.begun <= begun:
            begun = called.begun
    forged = [
        one.at
        for one in book.faults
        if one.kind == FORGED and begun - PERSIST_LIMIT <= one.at <= begun
    ]
    # A forgery that is true counts like any other, and so is what follows it.
    return min((begun, *forged))


def get_horizon(book: Book, downscale: Write, pod: Pod) -> timedelta:
    """Return when a pod's preparation need not last any more: it goes, or is wanted again."""
    set_uid = "" if downscale.now is None else downscale.now.uid
    for write in book.writes[book.writes.index(downscale) + 1 :]:
        match write.before, write.now:
            case Pod(uid=pod.uid), None | Pod(is_terminating=True):
                return write.at
            case _, Set(uid=uid, pod_names=names) if uid == set_uid and pod.name in names:
                return write.at
    return FOREVER


def _judge_target(targets: Targets, call: PodCalled) -> Iterator[Violation]:
    why = targets.name_fault(call)
    if why:
        text = f"{call.method} {call.path} of {call.pod} by {call.actor}: {why}"
        yield Violation(invariant="SI-21", at=call.begun, text=text)


def _judge_cancel(book: Book, call: PodCalled, downscales: list[Downscale]) -> Iterator[Violation]:
    """SI-12: no pod is un-prepared while it may go."""
    late = book.list_faults(call.actor, call.begun - IN_FLIGHT, call.begun)
    if any(one.kind in DELAYING and call.pod in one.text for one in late):
        return
    for each in downscales:
        pod = next((one for one in each.removed if one.uid == call.uid), None)
        if pod is None or not each.must_prepare:
            continue
        if each.at <= call.begun < get_horizon(book, each.write, pod):
            text = f"{call.pod} was told that it stays, after the {each.text}"
            yield Violation(invariant="SI-12", at=call.begun, text=text)
    for review in list_reviews(book, PREPARE_PATH):
        if review.allowed and not review.dry_run and review.at < call.begun:
            called = book.calls.get(review.call)
            requested = None if called is None else requested_replicas(called)
            zone = _zone_at(book, review.name, call.begun)
            if called is None or zone is None or requested is None or requested >= zone.replicas:
                continue
            again = [one for one in book.reviews if one.call == review.call and one is not review]
            is_over = any(not one.allowed and review.at <= one.begun <= call.begun for one in again)
            is_covered = call.pod in names_removed(zone, requested)
            if call.begun < called.at and is_covered and not is_over:
                text = f"{call.pod} was told that it stays, while {zone.name} may go to {requested}"
                yield Violation(invariant="SI-12", at=call.begun, text=text)


def _zone_at(book: Book, name: str, at: timedelta) -> Set | None:
    """Return what a set was at a time, None where there was none."""
    states = [
        one.now
        for one in book.writes
        if isinstance(one.now or one.before, Set) and one.commit.name == name and one.at <= at
    ]
    return states[-1] if states and isinstance(states[-1], Set) else None
