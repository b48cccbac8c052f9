"""What a judge of a simulated world gets, and what he says of it.

How long a fact may be unknown is said here; what is promised about it, in the module of its noun.
"""

from datetime import timedelta
from typing import Final

import msgspec

KNOWN: Final = timedelta(seconds=5)
# A template may change between the operator's last read and the commit of its delete.
FLIGHT: Final = timedelta(milliseconds=500)
# SI-09: no older than this may the live read be on which a delete rests.
LIVE_READ_LASTS: Final = timedelta(seconds=5)
# LI-01: after the last that happened, nothing more may happen for so long.
QUIET: Final = timedelta(hours=1)


class Promises(msgspec.Struct, frozen=True, kw_only=True):
    namespace: str = "default"
    operators: str = "operator"  # how the names of all processes of the operator begin
    known: timedelta = KNOWN
    flight: timedelta = FLIGHT
    slowest_clock: float = 0.5
    """Seconds of a process's clock in one real second, once clocks are made to run wrongly."""
    healed_at: timedelta | None = None  # when all faults ended; None judges safety only
    ended_at: timedelta | None = None  # when the run ended; None takes the last record
    reserves: bool = False  # whether SI-17 is promised for pods without a budget, too
    requests_a_minute: int = 3_200  # fifty a second, a hundred at once, and some more
    quiet: timedelta = QUIET
    is_observed: bool = False
    """Whether the history was watched from outside, as that of a real control plane.

    Reads, reviews and faults are in none of its records. Without them nothing is excused, and a
    coincidence counts: a pod that is new to its set, a set that has just left a group or come.
    """
    patches_take: timedelta = timedelta(0)
    """What each PATCH of a StatefulSet takes on its way, where no fault holds it up."""
    are_recorded: bool = True  # whether the operator may write the records of SI-17
    time_error: timedelta = timedelta(seconds=1)
    """Of moments that are kept in whole seconds, or seen late."""


class Violation(msgspec.Struct, frozen=True):
    invariant: str
    at: timedelta
    text: str
    is_promised: bool = True
    """Whether the operator has said that it never happens: else it is listed apart."""

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at.total_seconds():.1f} s: {self.text}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    violations: tuple[Violation, ...]
    undetermined: tuple[str, ...] = ()  # why something that should have been judged could not be
    unpromised: tuple[Violation, ...] = ()
    """What breaks SI-17 where it is not promised: deletes of a process that had died."""

    @property
    def is_clean(self) -> bool:
        return not self.violations and not self.undetermined
