"""Render the description of a disruption budget as its `status`: numbers and two conditions.

`Valid` is about what is written: the newest version is in force. `Ready` is about all of it: false
where a person must change something. A budget that is used, or allows nothing, is ready: it does
what it is for, and whoever waits for a healthy object waits for no drain.
"""

from datetime import datetime
from typing import Final

from rollout_operator.model.budget import BudgetCondition, BudgetStatus
from rollout_operator.model.description import BudgetDescription
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.model.units import format_rfc3339
from rollout_operator.planning.wording import camel_case, one_line

VALID: Final = "Valid"
READY: Final = "Ready"
_IN_FORCE: Final = "the budget is in force as it is written"


def render_budget_status(
    described: BudgetDescription, generation: int, *, before: BudgetStatus, now: datetime
) -> BudgetStatus:
    """Return the status of a budget of this generation; `before` is the one that it replaces.

    Of that stay the times of conditions that hold on, and conditions of others.
    """
    lead = _choose_lead(described)
    is_ready = all(wait.severity is not Severity.ERROR for wait in described.waits)
    flaw = next((one for one in described.waits if one.code is Code.BUDGET_INVALID), None)
    texts = (
        (VALID, described.is_valid, Code.BUDGET_VALID, _IN_FORCE)
        if flaw is None
        else (VALID, described.is_valid, flaw.code, flaw.text),
        (READY, is_ready, lead, described.text),
    )
    own = tuple(
        BudgetCondition(
            type=kind,
            status=str(is_true),
            reason=camel_case(code),
            # A terminal shows it: what it quotes of a tenant must not steer that.
            message=one_line(text),
            last_transition_time=_find_time(before, kind, str(is_true), now),
            observed_generation=generation,
        )
        for kind, is_true, code, text in texts
    )
    return BudgetStatus(
        observed_generation=generation,
        zones=described.zones,
        pods=described.pods,
        current_unavailable=described.unavailable,
        allowed_disruptions=described.allowed,
        conditions=(*own, *(one for one in before.conditions if one.type not in {VALID, READY})),
    )


def _choose_lead(described: BudgetDescription) -> Code:
    if described.waits:
        return described.waits[0].code
    return Code.BUDGET_HAS_ROOM if described.allowed else Code.BUDGET_VALID


def _find_time(before: BudgetStatus, kind: str, status: str, now: datetime) -> str:
    """Return since when a condition has its status."""
    same = (one for one in before.conditions if (one.type, one.status) == (kind, status))
    kept = next((one.last_transition_time for one in same), "")
    return kept or format_rfc3339(now.replace(microsecond=0))
