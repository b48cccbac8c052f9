"""Whose turn it is where evictions and a rollout want the places of one budget.

A rollout learns of a free place at once, an eviction only when its client tries again. So an
eviction that was refused has the next place, and the rollout holds still for it; when as many
evictions have gone as the budget allows at a time, the rollout has as many places. Neither waits
for ever: a turn that is not used ends. What is remembered of the clients that wait is in
`guards.budgets.precedence`.
"""

from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import DisruptionSource

# A place may become free only when several pods have started again, which takes minutes. A turn
# that ends without a free place was too short, or in vain: the next may take twice as long, and the
# rollout goes on meanwhile for as long as it has held still.
PATIENCE: Final = timedelta(minutes=5)
MOST_PATIENCE: Final = timedelta(minutes=40)
# Where all pods are up a rollout takes its place at once; a rollout that does not has ended.
RESPONSE: Final = timedelta(seconds=10)


class Turns(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one budget, or of one of its partitions. Times are of one steady clock."""

    side: DisruptionSource = DisruptionSource.EVICTION
    """Whose turn it is. It is the rollout's only after it has held still."""
    used: int = 0
    """How many places were taken in this turn."""
    held_since: timedelta | None = None
    """When the other side was held back for the first time in this turn."""
    whole_since: timedelta | None = None
    """The same, while all pods were up."""
    patience: timedelta = PATIENCE
    """How long this turn may last unused."""
    free_until: timedelta | None = None
    """Until when neither side is held back, as the turn before was of no use."""

    def at(self, now: timedelta) -> "Turns":
        """Return the state after what time alone has changed."""
        if self.free_until is not None:
            is_over = now >= self.free_until
            return Turns(patience=self.patience) if is_over else self
        if self.held_since is None:
            return self
        if self.side is DisruptionSource.ROLLOUT:
            is_gone = self.whole_since is not None and now - self.whole_since >= RESPONSE
            is_over = is_gone or now - self.held_since >= self.patience
            return Turns(patience=self.patience) if is_over else self
        if now - self.held_since < self.patience:
            return self
        longer = min(2 * self.patience, MOST_PATIENCE)
        return Turns(free_until=now + self.patience, patience=longer)

    def holds(self, engine: DisruptionSource) -> bool:
        """Return whether one side has to let the other go first, where the other waits."""
        return self.free_until is None and engine is not self.side

    def hold(self, now: timedelta, *, is_whole: bool) -> "Turns":
        """Return the state after the other side was held back."""
        since = now if self.held_since is None else self.held_since
        if not is_whole:
            return replace(self, held_since=since, whole_since=None)
        whole = now if self.whole_since is None else self.whole_since
        return replace(self, held_since=since, whole_since=whole)

    def grant(self, engine: DisruptionSource, most: int) -> "Turns":
        """Return the state after a pod was allowed to go; `most` are a turn's places."""
        if engine is not self.side or self.free_until is not None:
            return self
        if engine is DisruptionSource.EVICTION and self.held_since is None:
            return self  # no rollout waits
        if self.used + 1 < most:
            patience = PATIENCE if engine is DisruptionSource.EVICTION else self.patience
            return replace(self, used=self.used + 1, patience=patience)
        other = (
            DisruptionSource.EVICTION
            if engine is DisruptionSource.ROLLOUT
            else DisruptionSource.ROLLOUT
        )
        return Turns(side=other)
