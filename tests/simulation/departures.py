"""The evictions that the operator allowed and that were carried out, and what is known of pods.

An eviction is one request; what it does to the pod has a number of its own in the history. What it
breaks is judged in `invariants_budgets`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from rollout_operator.kube.api import PODS, JsonObject
from rollout_operator.lab.model.fields import text
from rollout_operator.lab.model.history import Called, Reviewed
from rollout_operator.model.names import DISRUPTION_RECORD
from tests.simulation.deletes import is_live
from tests.simulation.downscales import list_reviews
from tests.simulation.views import Book, Write, annotations, labels
from tests.world.history import Pod

EVICTION_PATH: Final = "/admission/pod-eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod's end that the operator has allowed."""

    called: Called
    review: Reviewed
    """The last one of it: an API server may ask twice."""
    looked_at: timedelta
    """When its last live list of pods began; without one, the review itself."""


def list_evictions(book: Book) -> dict[int, Eviction]:
    """Return the evictions that were allowed and carried out, by number of the inner delete."""
    reviews: dict[int, Reviewed] = {}
    for review in list_reviews(book, EVICTION_PATH):
        if review.allowed:
            reviews[review.call] = review
    return {
        inner: Eviction(
            called=called,
            review=reviews[called.number],
            looked_at=_find_look(book, reviews[called.number]),
        )
        for inner, called in book.evictions.items()
        if called.number in reviews
    }


def _find_look(book: Book, review: Reviewed) -> timedelta:
    looks = [
        one.begun
        for one in book.own_calls
        if one.actor == review.actor and one.request.verb == "list" and is_live(one)
        if one.request.resource == PODS and review.begun <= one.begun and one.at <= review.at
    ]
    return max(looks, default=review.begun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """That a pod may go, as it was written on it."""

    pod: str
    uid: str
    text: str
    engine: str
    at: timedelta
    call: int


@dataclass(slots=True)
class Ground:
    """What is known of pods and sets beside their readiness."""

    labels: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """By UID, of pods and sets."""
    running_since: dict[str, timedelta] = field(default_factory=dict)
    """By UID: since when a pod has run without a break."""
    ready_since: dict[str, timedelta] = field(default_factory=dict)
    """By UID: since when a pod has been ready without a break."""
    records: dict[str, Record] = field(default_factory=dict)
    """By UID of the pod: its newest one that is about itself."""

    def take(self, write: Write) -> None:
        """Move on by one write."""
        if write.now is None:
            return
        uid, after = write.now.uid, write.commit.after
        self.labels[uid] = labels(after)
        if isinstance(write.now, Pod):
            _keep(self.running_since, uid, write.at, text(after or {}, "status", "phase"))
            _keep(self.ready_since, uid, write.at, "Running" if write.now.is_ready else "")
            record = read_record(write)
            if record is None:
                self.records.pop(uid, None)
            elif record.text != getattr(self.records.get(uid), "text", ""):
                self.records[uid] = record

    def was_running(self, uid: str, since: timedelta) -> bool:
        """Tell whether a pod has run since then: what does not run yet is no disruption."""
        return self.running_since.get(uid, since + timedelta.resolution) <= since


def read_record(write: Write) -> Record | None:
    """Return the record of a pod as a write left it, None where it has none of its own."""
    if not isinstance(write.now, Pod):
        return None
    found = annotations(write.commit.after).get(DISRUPTION_RECORD)
    said = _decode(found)
    if said.get("uid") != write.now.uid:
        return None
    return Record(
        pod=write.now.name,
        uid=write.now.uid,
        text=str(found),
        engine=str(said.get("engine", "")),
        at=write.at,
        call=write.commit.call,
    )


def _keep(since: dict[str, timedelta], uid: str, at: timedelta, phase: str) -> None:
    if phase == "Running":
        since.setdefault(uid, at)
    else:
        since.pop(uid, None)


def _decode(value: object) -> JsonObject:
    try:
        found = json.loads(str(value))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
