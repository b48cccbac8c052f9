"""Whether disruptions and a downscale of one group excluded each other (D-25), as part of SI-02.

From the operator's live look that a downscale is granted on until its request has ended, that zone
is about to lose pods: no pod of another zone may be deleted, or evicted where a budget covers it.
Told by requests and reviews; deletes that arrive late, or were asked for by another life of the
process, do not count.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from rollout_operator.kube.api import STATEFULSETS
from rollout_operator.lab.model.history import Reviewed
from tests.simulation.deletes import Delete, list_deletes
from tests.simulation.departures import Eviction, list_evictions, read_record
from tests.simulation.downscales import PREPARE_PATH, list_reviews
from tests.simulation.promises import Violation
from tests.simulation.views import Book
from tests.world.history import Set


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A downscale that was allowed, after pods had been called for it."""

    zone: str
    looked_at: timedelta
    """When the look began that it rests on, or any later one before the first call of a pod."""
    ended_at: timedelta
    """When its request was answered: written, or refused by somebody else."""


def find_broken(book: Book) -> Iterator[Violation]:
    """Yield deletes in one zone while another was about to lose pods."""
    grants = list(list_grants(book))
    if not grants:
        return
    groups = {
        write.now.name: write.now.group for write in book.writes if isinstance(write.now, Set)
    }
    departures: list[Delete | Eviction] = [*list_deletes(book).values(), *_list_covered(book)]
    for departure in departures:
        for grant in grants:
            name = departure.called.request.name
            zone = name.rpartition("-")[0]
            is_other = zone != grant.zone and groups.get(zone) == groups.get(grant.zone)
            if is_other and _is_between(book, departure, grant):
                what = "delete" if isinstance(departure, Delete) else "eviction"
                text = (
                    f"{what} of {name}: {grant.zone} was granted a downscale that might still be"
                    " written"
                )
                yield Violation(invariant="SI-02", at=departure.called.at, text=text)


def _list_covered(book: Book) -> Iterator[Eviction]:
    """Yield the evictions that were carried out of pods under a budget, as their records tell."""
    marked = {write.commit.name for write in book.writes if read_record(write) is not None}
    for eviction in list_evictions(book).values():
        if eviction.called.request.name in marked:
            yield eviction


def list_grants(book: Book) -> Iterator[Grant]:
    """Yield the downscales that were allowed, of those for which pods were called and confirmed."""
    for review in list_reviews(book, PREPARE_PATH):
        called = book.calls.get(review.call)
        if called is None or not review.allowed or review.dry_run:
            continue
        looked_at = _find_look(book, review)
        if looked_at is not None:
            yield Grant(zone=review.name, looked_at=looked_at, ended_at=called.at)


def _find_look(book: Book, review: Reviewed) -> timedelta | None:
    """Return when the last live look of a review began before it called pods; None without both."""
    told = [
        one.begun
        for one in book.pod_calls
        if one.method == "POST"
        and one.pod.rpartition("-")[0] == review.name
        and review.begun <= one.begun <= review.at
    ]
    looks = [
        one.begun
        for one in book.own_calls
        if one.request.verb == "list"
        and one.request.resource.plural == STATEFULSETS.plural
        and review.begun <= one.begun <= min(told, default=timedelta(0))
    ]
    return max(looks, default=None)


def _is_between(book: Book, departure: Delete | Eviction, grant: Grant) -> bool:
    called = departure.called
    return (
        called.status < 300
        and not (isinstance(departure, Delete) and departure.is_late)
        and grant.looked_at < _find_decided(departure) < grant.ended_at
        and book.lives.are_the_same(grant.looked_at, called.at)
    )


def _find_decided(departure: Delete | Eviction) -> timedelta:
    """Return when it could not be taken back any more."""
    return departure.called.begun if isinstance(departure, Delete) else departure.called.at
