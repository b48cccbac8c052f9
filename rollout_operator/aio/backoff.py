"""How long to wait after failures in a row: doubling, bounded, with full jitter.

Decides only the span. Counting the failures, and what counts as a failure, is left to the caller;
the random source is an argument, so that a test owns it.
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


# All back-offs, so that one place shows how often each call is repeated. `longest` is a setting.
WATCHES: Final = Backoff(first=timedelta(seconds=0.1), most=timedelta(seconds=10))
# Only a person can mend a refusal; repeating the call more often only fills the audit log.
REFUSED_WATCHES: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=30))
# A reconcile that ends with a bug.
BUGS: Final = Backoff(first=timedelta(milliseconds=500), most=timedelta(seconds=15))
# An object that cannot be decoded is read again.
UNREADABLES: Final = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=5))
# The store contradicts the cache.
CONTRADICTIONS: Final = Backoff(first=timedelta(milliseconds=50), most=timedelta(seconds=5))
# `kubectl drain` tries again after five seconds, and others have their turn before that.
REFUSED_EVICTIONS: Final = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=1))
# An unreachable pod is tried this often at first, and at last: LI-05 allows a minute.
CANCELLATIONS: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=15))
# A pod that gave no time is most often about to start.
POD_CALLS: Final = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=1))
BUDGET_STATUSES: Final = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=5))
REFERENCES: Final = Backoff(first=timedelta(seconds=2), most=timedelta(seconds=30))
# Another writer puts its own value back.
REWRITES: Final = Backoff(first=timedelta(seconds=10), most=timedelta(minutes=5))
CERTIFICATES: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=20))
WEBHOOK_CONFIGURATIONS: Final = Backoff(
    first=timedelta(milliseconds=500), most=timedelta(seconds=30)
)
# A process that is alone tries whether an election has become possible.
ELECTIONS: Final = Backoff(first=timedelta(seconds=10), most=timedelta(minutes=5))
EVENT_WRITES: Final = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=10))
# A right is granted by a person; but an API server that has just started forbids everything.
REFUSED_EVENTS: Final = Backoff(first=timedelta(seconds=30), most=timedelta(minutes=10))
# A watch, or an object that is mirrored, is not left alone for longer, whatever a server wants.
LONGEST_RETRY_AFTER: Final = timedelta(seconds=30)


def attempts(longest: timedelta) -> Backoff:
    """Return the delays of an action that failed; at most `longest`."""
    return Backoff(first=min(timedelta(milliseconds=100), longest), most=longest)
