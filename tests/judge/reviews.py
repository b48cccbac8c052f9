"""What reviews may leave behind: nothing after a dry run (SI-15), each effect once (SI-16)."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Final

from rollout_lab.model.history import Called, Reviewed

from rollout_operator.kube.api import PODS
from rollout_operator.model.names import DISRUPTION_RECORD, DOWNSCALE_RECORD, LAST_DOWNSCALE
from tests.judge.book import Book, Write
from tests.judge.budgets import EVICTION_PATH, Record, read_record
from tests.judge.deletes import get_sent
from tests.judge.downscales import (
    FORGED,
    NEVER,
    PREPARE_PATH,
    REVIEW_LASTS,
    UNREADABLE,
    list_earnest,
    list_reviews,
    read_moment,
)
from tests.judge.objects import Pod, Set, annotations
from tests.judge.promises import Violation

NO_ANSWER: Final = -1  # a review that got no answer: what the operator made of it is not known
# The time in the answer is at most so far ahead: a later time means that the write was seen late.
SEEN_LATE: Final = timedelta(seconds=2)
# So long plans hold an event back; few random ones take longer.
HELD_BACK: Final = timedelta(seconds=10)


def list_broken(book: Book) -> Iterator[Violation]:
    for write in book.writes:
        called = book.calls.get(write.commit.call)
        if called is not None and called.request.is_dry_run:
            text = f"the dry run of {called.actor} has changed {write.commit.name}"
            yield Violation("SI-15", write.at, text)
    if book.reviews:
        yield from _list_effects(book)
        yield from _list_other_answers(book)
        yield from _list_second_records(book)
        yield from _list_second_calls(book)


def _list_effects(book: Book) -> Iterator[Violation]:
    """Yield what was done to pods while only a dry run was reviewed."""
    reviews = list_reviews(book, PREPARE_PATH)
    if not any(one.dry_run for one in reviews):
        return
    acts = [
        (one.begun, one.pod, f"POST {one.pod}") for one in book.pod_calls if one.method == "POST"
    ]
    acts += [
        (get_sent(book, one), one.request.name, f"record on {one.request.name}")
        for one in book.own_calls
        if _writes_record(one)
    ]
    # Another client may have sent it just before, and not for a dry run.
    forged = [one.at for one in book.faults if one.kind == FORGED]
    for at, pod, text in acts:
        zone = pod.rpartition("-")[0]
        requesting = [one for one in reviews if one.name == zone and _spans(one, at)]
        is_dry = bool(requesting) and all(one.dry_run for one in requesting)
        if is_dry and not any(one <= at <= one + REVIEW_LASTS for one in forged):
            yield Violation("SI-15", at, f"{text} for a dry run of {zone}")


def _spans(review: Reviewed, at: timedelta) -> bool:
    return review.begun <= at <= review.at + REVIEW_LASTS


def _writes_record(called: Called) -> bool:
    request = called.request
    if request.verb != "patch" or request.resource.plural != PODS.plural:
        return False
    body = request.body if isinstance(request.body, dict) else {}
    return annotations(body).get(DOWNSCALE_RECORD) is not None


def _list_other_answers(book: Book) -> Iterator[Violation]:
    """Yield refusals of what was allowed just before, where nothing has changed in between."""
    reviews = list_reviews(book, PREPARE_PATH)
    for first, second in pairwise(reviews):
        is_same = (first.call, first.actor) == (second.call, second.actor)
        turned = first.allowed and not second.allowed and second.status != NO_ANSWER
        if is_same and turned and first.at <= second.begun and _is_quiet(book, first, second):
            text = (
                f"the write of {second.name} was allowed by {second.actor} and refused when sent"
                f" again: {second.message}"
            )
            yield Violation("SI-16", second.at, text)


def _is_quiet(book: Book, first: Reviewed, second: Reviewed) -> bool:
    begin = first.begun - book.promises.known
    changed = any(
        begin <= write.at <= second.at and not book.is_operator(write.commit.actor)
        for write in book.writes
    )
    failed = book.list_faults(first.actor, begin, second.at)
    is_one_life = book.runs.are_the_same(first.begun, second.at)
    return not changed and not failed and is_one_life


def _list_second_records(book: Book) -> Iterator[Violation]:
    """Yield times of a downscale that are written twice.

    One correction is right: of what was sent again, and only then written, the answer carries the
    time of the first answer; and of what is seen late the time of the write is unknown. The later
    time is the safe one (SI-11).
    """
    counts: dict[str, int] = {}
    since: dict[str, timedelta] = {}
    for write in book.writes:
        if not isinstance(write.now, Set) or not isinstance(write.before, Set):
            continue
        uid = write.now.uid
        is_downscale = write.now.replicas < write.before.replicas
        if is_downscale:
            counts[uid], since[uid] = 0, write.at
        old = annotations(write.commit.before).get(LAST_DOWNSCALE)
        new = annotations(write.commit.after).get(LAST_DOWNSCALE)
        is_record = is_downscale or book.is_operator(write.commit.actor)
        if uid not in since or old == new or not is_record:
            continue
        stamp, later, begun = _read_stamp(old), _read_stamp(new), since[uid]
        # Its process may have seen the downscale late, or found it again; an event that is held
        # back keeps back those after it.
        begin = begun - max(book.promises.known, HELD_BACK)
        is_late = stamp < begun or later > begun + SEEN_LATE
        is_late = is_late or bool(book.list_faults(write.commit.actor, begin, write.at))
        if counts[uid] and stamp < later and is_late:
            continue
        counts[uid] += 1
        if counts[uid] > 1 + book.runs.count_starts(since[uid], write.at):
            text = f"the downscale of {write.now.name} is recorded again:"
            text += f" {old or 'no time'} becomes {new or 'none'}"
            yield Violation("SI-16", write.at, text)


def _list_second_calls(book: Book) -> Iterator[Violation]:
    """Yield pods that are called again for the same write, though all called had confirmed."""
    requested = [one for one in list_reviews(book, PREPARE_PATH) if not one.dry_run]
    rounds: dict[int, list[Reviewed]] = {}
    for review in requested:
        rounds.setdefault(review.call, []).append(review)
    for call, reviews in rounds.items():
        name, begin, end = reviews[0].name, reviews[0].begun, reviews[-1].at
        is_alone = not any(
            one.call != call and one.name == name and one.begun <= end
            for one in requested
            if one.at + REVIEW_LASTS >= begin
        )
        # An answer that was lost is none to the client.
        failed = book.list_faults(reviews[0].actor, begin, end)
        if is_alone and not failed and book.runs.are_the_same(begin, end):
            yield from _list_called_again(book, name, (begin, end))


def _list_called_again(
    book: Book, zone: str, span: tuple[timedelta, timedelta]
) -> Iterator[Violation]:
    confirmed: dict[str, timedelta] = {}
    for call in sorted(book.pod_calls, key=lambda one: one.begun):
        if not span[0] <= call.begun <= span[1] or call.pod.rpartition("-")[0] != zone:
            continue
        if call.method != "POST" or not 200 <= call.status < 300:
            return  # the round has failed: each pod that confirmed is un-prepared, and called again
        if confirmed.get(call.uid, call.begun) < call.begun:
            text = f"{call.pod} had confirmed, and was called again for the same write"
            yield Violation("SI-16", call.begun, text)
        confirmed[call.uid] = call.at


def _read_stamp(text: object) -> timedelta:
    found = NEVER if text is None else read_moment(str(text))
    return NEVER if found == UNREADABLE else found


EVICTION: Final = "eviction"
# LI-07: a pod that carries a record and is not touched loses it within this.
RECORD_LASTS: Final = timedelta(seconds=10)
SLACK: Final = timedelta(seconds=3)  # to see that it is due, to read the pod, and to write


def list_unrequested_records(book: Book) -> Iterator[Violation]:
    reviews = list_reviews(book, EVICTION_PATH)
    for write in book.writes:
        record = _find_new(book, write)
        if record is None or record.engine != EVICTION:
            continue
        called = book.calls[record.call]
        sent = get_sent(book, called)
        requesting = [one for one in reviews if one.name == record.pod and _spans(one, sent)]
        forged = list_earnest(book, EVICTION_PATH, record.pod)
        is_forged = any(at <= sent <= at + REVIEW_LASTS for at in forged)
        # An Eviction may say in its own words that it is a dry run.
        is_dry = all(
            one.dry_run or (one.call in book.calls and book.calls[one.call].request.is_dry_run)
            for one in requesting
        )
        if not is_forged and is_dry:
            why = "a dry run" if requesting else "no client"
            yield Violation("SI-15", write.at, f"{record.pod} was marked as going for {why}")


def list_lasting(book: Book, well_at: timedelta, patience: timedelta) -> Iterator[Violation]:
    """Yield records that stayed on untouched pods for too long, once all was well (LI-07).

    `patience` is added for older ones, of which events may have been lost.
    """
    for record, ended_at in list_spans(book):
        due = max(record.at, well_at) + RECORD_LASTS + SLACK
        due += patience if record.at <= well_at else timedelta(0)
        if ended_at > due:
            lasted = ended_at - max(record.at, well_at)
            text = f"{record.pod} was marked as going, and untouched for"
            text += f" {lasted.total_seconds():.1f} s"
            yield Violation("LI-07", due, text)


def list_spans(book: Book) -> Iterator[tuple[Record, timedelta]]:
    """Yield each record, and until when it stood on a pod that no client had touched."""
    standing: dict[str, Record] = {}
    for write in book.writes:
        pod = write.before if isinstance(write.before, Pod) else write.now
        if not isinstance(pod, Pod):
            continue
        now = read_record(write)
        before = standing.get(pod.uid)
        is_over = now is None or (isinstance(write.now, Pod) and write.now.is_terminating)
        if before is not None and (is_over or now is None or now.text != before.text):
            yield standing.pop(pod.uid), write.at
        if now is not None and not is_over:
            standing.setdefault(pod.uid, now)
    for record in standing.values():
        yield record, book.ended_at


def _find_new(book: Book, write: Write) -> Record | None:
    """Return a record that a write of the operator has put on a pod."""
    now = read_record(write)
    if now is None or not book.is_operator(write.commit.actor) or now.call not in book.calls:
        return None
    before = annotations(write.commit.before).get(DISRUPTION_RECORD)
    return now if before != now.text else None
