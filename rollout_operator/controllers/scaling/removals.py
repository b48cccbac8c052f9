"""When marks of downscales are removed: whose turn it is, and how soon the same set has another.

A person who may annotate a set can write any number of marks, each with another text, and on any
number of sets. So a mark that this process did not write has a share of the rate limit and waits in
a line of its own, where it keeps no worker from other groups; and it is removed ever more seldom
from the same set, whatever it says (LI-09, LI-11). Marks of our own there are as many as downscales
of ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import Final

from rollout_operator.aio.backoff import Rewrites
from rollout_operator.aio.clock import Clock
from rollout_operator.guards.downscales.intents import Intents
from rollout_operator.model.names import DOWNSCALE_INTENT, Uid
from rollout_operator.model.objects import StatefulSet

# Of the requests that the process may send to an API group. A removal takes up to three.
_SHARE: Final = 0.2
# A process that ends in a bad moment leaves some marks behind.
_BURST: Final = 10
# Removed at a time: each has a worker, of which there are a few for all groups.
_MOST_UNDERWAY: Final = 4
# How soon a mark in the line tries again; it costs no request.
_SHORTEST_WAIT: Final = timedelta(seconds=5)


class Removals:
    """Paces the removals of one process."""

    def __init__(self, intents: Intents, clock: Clock, qps: float) -> None:
        """Share the rate limit of `qps` requests a second; without a limit for zero or less."""
        self._intents = intents
        self._clock = clock
        self._interval = timedelta(seconds=1 / (qps * _SHARE) if qps > 0 else 0)
        self._paid_until = timedelta(0)
        """When all removals so far have taken no more than their share."""
        self._ours: Rewrites[Uid, str] = Rewrites(clock)
        self._foreign: Rewrites[Uid, None] = Rewrites(clock)
        self._underway = 0
        self._line: dict[Uid, timedelta] = {}
        """Sets whose turn has not come, first come first, and when each of them tries again."""

    def wait_before(self, sts: StatefulSet) -> timedelta:
        """Return how long a mark must wait because earlier marks came back; zero for go.

        A copy of the set, as GitOps may hold it, would else be fought at the speed of both. All
        marks that are not ours count alike, whatever they say.
        """
        if self._is_ours(sts):
            return self._ours.wait_before(sts.uid, _text(sts))
        return self._foreign.wait_before(sts.uid, None)

    def count(self, sts: StatefulSet) -> int:
        """Return how often such a mark was removed from a set in a row."""
        if self._is_ours(sts):
            return self._ours.count(sts.uid, _text(sts))
        return self._foreign.count(sts.uid, None)

    def wait_in_line(self, sts: StatefulSet) -> timedelta:
        """Return how long a mark must wait for the marks before it; zero for go, by `turn`."""
        if self._is_ours(sts):
            return timedelta(0)
        now = self._clock.elapsed()
        self._line.setdefault(sts.uid, now)
        self._drop_late(now)
        has_share = self._paid_until - now <= (_BURST - 1) * self._interval
        room = _MOST_UNDERWAY - self._underway if has_share else 0
        place = list(self._line).index(sts.uid)
        # By its place, however long that is: if all tried again at once, only the first few would
        # have their turn, and the share of the time until then would be lost.
        is_due = place < room
        wait = timedelta(0) if is_due else max(place * self._interval, _SHORTEST_WAIT)
        self._line[sts.uid] = now + wait
        return wait

    @contextmanager
    def turn(self, sts: StatefulSet) -> Iterator[None]:
        """Hold the turn of a mark while it is removed; without an error it counts as removed."""
        if self._is_ours(sts):
            yield
            self._ours.record(sts.uid, _text(sts))
            return
        self._line.pop(sts.uid, None)
        self._paid_until = max(self._paid_until, self._clock.elapsed()) + self._interval
        self._underway += 1
        try:
            yield
        finally:
            self._underway -= 1
        self._foreign.record(sts.uid, None)

    def record_answered(self, set_uid: Uid) -> None:
        """Record that a set was scaled down by a mark of ours: no writer contests that any more."""
        self._foreign.forget(set_uid)

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone."""
        self._ours.forget(set_uid)
        self._foreign.forget(set_uid)
        self._line.pop(set_uid, None)

    def _is_ours(self, sts: StatefulSet) -> bool:
        return self._intents.is_ours(sts.uid, _text(sts))

    def _drop_late(self, now: timedelta) -> None:
        """Drop the sets in front that try no more: their mark is gone."""
        for uid in list(islice(self._line, _MOST_UNDERWAY)):
            if now - self._line[uid] > _SHORTEST_WAIT:
                del self._line[uid]


def _text(sts: StatefulSet) -> str:
    return sts.annotations[DOWNSCALE_INTENT]
