"""When which process of the operator lived: a name may stand for several lives, in turn."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from rollout_operator.lab.model.history import Lived

FOREVER: Final = timedelta.max
# What is said of a process that lives as long as its world: to a judge it lives on.
WORLD_ENDED: Final = "killed"


@dataclass(slots=True)
class Life:
    """One process from its start to its end."""

    actor: str
    begun: timedelta
    ended: timedelta = FOREVER
    ready_at: timedelta | None = None

    def holds(self, at: timedelta) -> bool:
        """Tell whether the process was there."""
        return self.begun <= at <= self.ended


@dataclass(slots=True)
class Lives:
    """All lives of all processes. A process that nobody saw start lived from the beginning."""

    by_actor: dict[str, list[Life]] = field(default_factory=dict)

    def take(self, lived: Lived) -> None:
        """Take note of a step in a life."""
        lives = self.by_actor.setdefault(lived.actor, [])
        if lived.what == "started":
            lives.append(Life(lived.actor, lived.at))
            return
        if not lives:
            lives.append(Life(lived.actor, timedelta(0)))
        life = lives[-1]
        if lived.what == "ready":
            life.ready_at = lived.at
        elif lived.what != WORLD_ENDED and life.ended == FOREVER:
            life.ended = lived.at

    def find(self, actor: str, at: timedelta) -> Life | None:
        """Return the life that a process led at a time, None where it was dead."""
        lives = self.by_actor.get(actor)
        if lives is None:
            return Life(actor, timedelta(0))
        return next((one for one in reversed(lives) if one.holds(at)), None)

    def find_before(self, life: Life | None, actor: str, at: timedelta) -> Life | None:
        """Return the newest life of a process that had ended by then, other than `life`."""
        lives = self.by_actor.get(actor, ())
        ended = [one for one in lives if one is not life and one.ended <= at]
        return ended[-1] if ended else None

    def count_starts(self, begin: timedelta, end: timedelta) -> int:
        """Return how many processes started in a span of time."""
        lives = [one for each in self.by_actor.values() for one in each]
        return sum(begin <= one.begun <= end for one in lives)

    def are_the_same(self, begin: timedelta, end: timedelta) -> bool:
        """Tell whether no process started or ended in a span of time."""
        lives = [one for each in self.by_actor.values() for one in each]
        return not any(begin <= at <= end for one in lives for at in (one.begun, one.ended))

    @property
    def last_ready(self) -> timedelta | None:
        """Return since when the youngest process that still lives has been ready."""
        alive = [
            one.ready_at
            for lives in self.by_actor.values()
            for one in lives
            if one.ended == FOREVER and one.ready_at is not None
        ]
        return max(alive, default=None)

    def is_any_up(self) -> bool:
        """Tell whether any process lives at the end."""
        return not self.by_actor or any(
            one.ended == FOREVER for lives in self.by_actor.values() for one in lives
        )
