"""How many objects of a collection fit into one page: fewer where they are large.

An answer is held in memory as a whole, so that it is bounded. The page that was longer than that
is longer the next time as well: the next one is asked for with half as many objects, by every
client of the process, down to one. Later it may grow again, twice as large each hour: what made
objects large may be gone.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.call import Call
from rollout_operator.telemetry.logs import log

LASTS: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class _Size:
    most: int
    since: timedelta


class PageSizes:
    """The sizes that collections need; those of which nothing is known need none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sizes: dict[str, _Size] = {}
        """By path. Only what did not fit is remembered, until it has grown back."""

    def choose(self, call: Call, limit: int) -> int:
        """Return how many objects to ask for, at most `limit`."""
        size = self._sizes.get(call.path)
        if size is None:
            return limit
        now = self._clock.elapsed()
        if now - size.since >= LASTS:
            size = self._sizes[call.path] = _Size(size.most * 2, now)
        if size.most >= limit > 1:
            del self._sizes[call.path]
        return min(limit, size.most)

    def halve(self, call: Call, asked: int) -> str:
        """Ask for half as many from now on; return what was wrong, and what comes next."""
        if asked <= 1:
            return "a page of one object is too long"
        most = asked // 2
        self._sizes[call.path] = _Size(most, self._clock.elapsed())
        log.warn("Asking for smaller pages", call=call.text, objects_from=asked, objects_to=most)
        return f"a page of {asked} objects is too long, asking for {most} at a time"
