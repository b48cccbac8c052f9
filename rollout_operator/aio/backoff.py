"""How long to wait after failures in a row: doubling, bounded, with full jitter.

Decides only the span. Counting the failures, and what counts as one, is left to the caller; chance
is an argument, so that a test owns it.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic, TypeVar

from rollout_operator.aio.clock import Clock

# 2**40 times any span of use is beyond any bound of use; more would overflow a float at 2**1024.
_MOST_DOUBLINGS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """A row of delays that doubles from `first` up to `most`."""

    first: timedelta
    most: timedelta

    def __post_init__(self) -> None:
        if not timedelta(0) < self.first <= self.most:
            raise ValueError(f"backoff: first {self.first} is not above 0 and within {self.most}")

    def bound(self, failures: int) -> timedelta:
        """Return the longest delay after so many failures in a row; the first failure is 1."""
        if failures < 1:
            return timedelta(0)
        factor = float(2 ** min(failures - 1, _MOST_DOUBLINGS))
        # Compared as ratio: the product could be more than a timedelta holds.
        return self.most if factor >= self.most / self.first else self.first * factor

    def delay(self, failures: int, rng: float) -> timedelta:
        """Return a delay anywhere in 0..`bound`, as `rng` (0..1) chooses.

        Full jitter: clients that failed together do not come back together.
        """
        return self.bound(failures) * min(max(rng, 0.0), 1.0)


# An object that is made anew wants its value anew, and two of our looks may want the same.
FREE: Final = 3
WAITS: Final = Backoff(first=timedelta(seconds=10), most=timedelta(minutes=5))
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
        left = row.last_at + WAITS.bound(row.times - FREE + 1) - self._clock.elapsed()
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
