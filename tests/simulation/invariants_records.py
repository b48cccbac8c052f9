"""What is promised of records of disruptions: none for a dry run (SI-15), none for long (LI-07).

A record belongs to whoever asked: a review of an eviction in earnest, or a delete of the operator.
Who forges a review may ask in earnest as well, for what the genuine one only tries (SEC-09).
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from rollout_operator.lab.model.history import Called, Reviewed
from rollout_operator.model.names import DISRUPTION_RECORD
from tests.simulation.deletes import find_sent
from tests.simulation.departures import EVICTION_PATH, Record, read_record
from tests.simulation.downscales import list_reviews
from tests.simulation.forged import list_earnest
from tests.simulation.invariants_downscale import REVIEW_LASTS
from tests.simulation.promises import Violation
from tests.simulation.views import Book, Write, annotations
from tests.world.history import Pod

EVICTION: Final = "eviction"
# LI-07: a pod that carries a record and is not touched loses it within this.
RECORD_LASTS: Final = timedelta(seconds=10)
# To see that it is due, to look at the pod, and to write.
SLACK: Final = timedelta(seconds=3)


def find_broken(book: Book) -> Iterator[Violation]:
    """Yield records that were written for dry runs, or for nobody."""
    reviews = list_reviews(book, EVICTION_PATH)
    for write in book.writes:
        record = _find_new(book, write)
        if record is None or record.engine != EVICTION:
            continue
        called = book.calls[record.call]
        sent = find_sent(book, called)
        asking = [one for one in reviews if one.name == record.pod and _spans(one, sent)]
        forged = list_earnest(book, EVICTION_PATH, record.pod)
        is_forged = any(at <= sent <= at + REVIEW_LASTS for at in forged)
        if not is_forged and not any(not _is_dry(book, one) for one in asking):
            why = "a dry run" if asking else "nobody"
            text = f"{record.pod} was marked as going for {why}"
            yield Violation(invariant="SI-15", at=write.at, text=text)


def find_lasting(book: Book, well_at: timedelta, patience: timedelta) -> Iterator[Violation]:
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
            yield Violation(invariant="LI-07", at=due, text=text)


def list_spans(book: Book) -> Iterator[tuple[Record, timedelta]]:
    """Yield each record, and until when it stood on a pod that nobody had touched."""
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


def _spans(review: Reviewed, at: timedelta) -> bool:
    return review.begun <= at <= review.at + REVIEW_LASTS


def _is_dry(book: Book, review: Reviewed) -> bool:
    """Tell whether a review was about a dry run, which an Eviction may say in its own words."""
    called: Called | None = book.calls.get(review.call)
    return review.dry_run or (called is not None and called.request.is_dry_run)
