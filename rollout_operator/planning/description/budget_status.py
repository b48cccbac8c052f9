"""Render the description of a disruption budget as its `status`: numbers and two conditions.

`Valid` is about what is written: the newest version is in force. `Ready` is about all of it: false
where a person must change something. A budget that is used, or allows nothing, is ready: it does
what it is for, and a tool that waits for a healthy object waits for no drain.
"""

from datetime import datetime
from typing import Final

from rollout_operator.model.budget import BudgetStatus
from rollout_operator.model.description import BudgetDescription
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.conditions import ConditionFinding, stamp_conditions
from rollout_operator.planning.wording import camel_case

VALID: Final = "Valid"
READY: Final = "Ready"
_IN_FORCE: Final = "the budget is in force as it is written"


def render_budget_status(
    described: BudgetDescription, generation: int, *, before: BudgetStatus, now: datetime
) -> BudgetStatus:
    """Return the status of a budget of this generation; `before` is the status that it replaces.

    From that it keeps the times of conditions that hold on, and the conditions of other writers.
    """
    lead = _choose_lead(described)
    is_ready = all(wait.severity is not Severity.ERROR for wait in described.waits)
    flaw = next((wait for wait in described.waits if wait.code is Code.BUDGET_INVALID), None)
    code, text = (Code.BUDGET_VALID, _IN_FORCE) if flaw is None else (flaw.code, flaw.text)
    findings = (
        ConditionFinding(VALID, described.is_valid, camel_case(code), text),
        ConditionFinding(READY, is_ready, camel_case(lead), described.text),
    )
    return BudgetStatus(
        observed_generation=generation,
        zones=described.zones,
        pods=described.pods,
        current_unavailable=described.unavailable,
        allowed_disruptions=described.allowed,
        conditions=stamp_conditions(
            findings, before.conditions, types=(VALID, READY), generation=generation, now=now
        ),
    )


def _choose_lead(described: BudgetDescription) -> Code:
    if described.waits:
        return described.waits[0].code
    return Code.BUDGET_HAS_ROOM if described.allowed else Code.BUDGET_VALID
