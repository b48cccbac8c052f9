"""Which of the reasons of a group a person reads first: the same reason in every outlet.

Page, Events, metrics and the time since when a group is in its state go by it.
"""

from collections.abc import Sequence
from typing import Final

from rollout_operator.model.outcome import Code, Reason

# A person must change something before anything of the group moves.
HOLDING: Final = frozenset(
    {
        Code.WRONG_STRATEGY,
        Code.REVISION_EMPTY,
        Code.OBJECT_UNREADABLE,
        Code.STATEFUL_SET_SPANS_ZONES,
        Code.POLICY_NOT_OBEYED,
        Code.POLICY_PAUSED,
        Code.BUDGET_INVALID,
        Code.BUDGETS_OVERLAP,
        Code.TOO_FEW_ZONES,
        Code.OWNER_NOT_STATEFULSET,
        Code.PARTITION_UNKNOWN,
    }
)
# The same for one zone: it holds the group once nothing else of it moves.
HOLDING_ZONE: Final = frozenset(
    {
        Code.PAUSED,
        Code.NO_LEADING_ZONE,
        Code.LEADING_ZONES_CIRCLE,
        Code.WAIT_TIME_MISSING,
        Code.BAD_DOWNSCALE_TIME,
        Code.BAD_REFERENCE,
        Code.BAD_DELAY,
        Code.COUNT_CONTESTED,
    }
)
# These do not say what the zone whose turn it is waits for.
ASIDE: Final = HOLDING_ZONE | {Code.ANOTHER_ZONE_FIRST, Code.UP_TO_DATE}


def find_leading(waits: Sequence[Reason]) -> Reason | None:
    """Return the reason to read first, None where there is none.

    What holds the whole group comes first, then what the zone whose turn it is waits for.
    """
    choices = (
        (wait for wait in waits if wait.code in HOLDING),
        (wait for wait in waits if wait.code not in ASIDE),
        (wait for wait in waits if wait.code in HOLDING_ZONE),
        (wait for wait in waits if wait.code is not Code.UP_TO_DATE),
        iter(waits),
    )
    return next((wait for choice in choices for wait in choice), None)
