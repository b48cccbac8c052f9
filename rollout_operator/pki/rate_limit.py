"""How often one object may be written, whoever else writes it.

Decides the wait before the next attempt: after failures ever longer, and for attempts that succeed
and are undone a supply that fills up slowly. Time and chance are arguments; what is attempted, and
what is told of it, is left to the caller.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.model.errors import Denied, OperatorError, TooManyRequests

# Ten attempts within the first minute: a co-writer that acts a few times is undone at once.
BURST: Final = 8
# One that never stops costs two writes a minute.
PAUSE: Final = timedelta(seconds=30)
BACKOFF: Final = Backoff(first=timedelta(milliseconds=500), most=PAUSE)


@dataclass(slots=True)
class WriteRate:
    """The pace of one object, which may be written at once for the first time."""

    failures: int = 0
    """Of the attempts since the last that succeeded."""
    is_denied: bool = False
    """Whether the last attempt was against the role."""
    _supply: float = BURST
    _counted_at: timedelta = timedelta(0)
    _not_before: timedelta = timedelta(0)

    def wait(self, now: timedelta) -> timedelta:
        """Return how long the next attempt must wait; zero means go."""
        self._count(now)
        missing = max(1 - self._supply, 0) * PAUSE
        return max(missing, self._not_before - now, timedelta(0))

    def note_attempt(self, now: timedelta) -> None:
        """Count an attempt, before it is made."""
        self._count(now)
        self._supply -= 1

    def note_success(self) -> None:
        """Note that the attempt succeeded: what failed before is forgotten."""
        self.failures, self.is_denied = 0, False

    def note_failure(self, error: OperatorError, now: timedelta, rng: float) -> timedelta:
        """Note that the attempt failed; return the wait before the next. `rng` is in 0..1."""
        self.failures += 1
        self.is_denied = isinstance(error, Denied)
        # Only a person can mend a role.
        wait = PAUSE if self.is_denied else BACKOFF.delay(self.failures, rng)
        if isinstance(error, TooManyRequests):
            wait = max(wait, error.retry_after or timedelta(0))
        self._not_before = now + wait
        return self.wait(now)

    def _count(self, now: timedelta) -> None:
        self._supply = min(self._supply + (now - self._counted_at) / PAUSE, BURST)
        self._counted_at = now
