"""How long to wait before the same value is written to the same place once more."""

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, TypeVar

from rollout_operator.aio.backoff import REWRITES
from rollout_operator.aio.clock import Clock

# An object that is made anew wants its value anew, and two of our reconciles may want the same.
FREE: Final = 3
# A value that stayed for so long counts as accepted.
MEMORY: Final = timedelta(minutes=15)

_Place = TypeVar("_Place", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Row(Generic[_Value]):
    value: _Value
    times: int
    last_at: timedelta


class Rewrites(Generic[_Place, _Value]):
    """What was written last to each place, and how often in a row.

    A value that is written again and again does not stay: something else writes it. Decides how
    long to wait before the same value is written to the same place once more. Another writer that
    puts its own value back at once would else be fought for ever, at the speed of both.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[_Place, _Row[_Value]] = {}

    def wait_before(self, place: _Place, value: _Value) -> timedelta:
        """Return how long writing a value must wait, zero for go; another value never waits."""
        row = self._find(place, value)
        if row is None:
            return timedelta(0)
        # The bound of no failure is no wait.
        left = row.last_at + REWRITES.bound(row.times - FREE + 1) - self._clock.elapsed()
        return max(left, timedelta(0))

    def count(self, place: _Place, value: _Value) -> int:
        """Return how often a value was written in a row."""
        row = self._find(place, value)
        return 0 if row is None else row.times

    def record(self, place: _Place, value: _Value) -> None:
        """Remember that a value was written."""
        times = self.count(place, value) + 1
        self._rows[place] = _Row(value, times, self._clock.elapsed())

    def forget(self, place: _Place) -> None:
        """Begin anew with a place."""
        self._rows.pop(place, None)

    def _find(self, place: _Place, value: _Value) -> _Row[_Value] | None:
        row = self._rows.get(place)
        if row is None or row.value != value:
            return None
        return row if self._clock.elapsed() - row.last_at < MEMORY else None
