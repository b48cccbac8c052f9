"""How long to wait after failures in a row: doubling, bounded, with full jitter.

Decides only the span. Counting the failures, and what counts as one, is left to the caller; chance
is an argument, so that a test owns it.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

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
