"""Know when a status is written that does not stay: somebody else writes it too.

Decides how long to wait before the same value is written once more. A controller that owns the
status would else be fought for ever, once a second.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.clock import Clock
from rollout_operator.model.errors import Throttled
from rollout_operator.model.scaling import Reference

# An object that is made anew wants its status anew, and two of our looks may want the same.
FREE: Final = 3
WAITS: Final = Backoff(first=timedelta(seconds=10), most=timedelta(minutes=5))
# A value that stayed for so long counts as accepted.
MEMORY: Final = timedelta(minutes=15)


@dataclass(slots=True)
class _Row:
    replicas: int
    times: int
    last_at: timedelta


class Publications:
    """What was written to the status of references, and how often in a row."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[Reference, _Row] = {}

    def check(self, reference: Reference, replicas: int) -> None:
        """Raise Throttled where this was written often, and lately."""
        row = self._find(reference, replicas)
        if row is None:
            return
        # The bound of no failure is no wait.
        left = row.last_at + WAITS.bound(row.times - FREE + 1) - self._clock.elapsed()
        if left > timedelta(0):
            raise Throttled(
                f"status.replicas of {reference} was set to {replicas} {row.times} times and did"
                f" not stay, something else writes it: set again in {left.total_seconds():.0f}s"
            )

    def note(self, reference: Reference, replicas: int) -> None:
        """Take note that it was written."""
        row = self._find(reference, replicas)
        times = row.times + 1 if row is not None else 1
        self._rows[reference] = _Row(replicas, times, self._clock.elapsed())

    def forget(self, reference: Reference) -> None:
        """Begin anew with a reference."""
        self._rows.pop(reference, None)

    def _find(self, reference: Reference, replicas: int) -> _Row | None:
        row = self._rows.get(reference)
        if row is None or row.replicas != replicas:
            return None
        return row if self._clock.elapsed() - row.last_at < MEMORY else None
