"""Conditions in the `status` of an object: what is found now, and since when it is so."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from rollout_operator.model.condition import StatusCondition
from rollout_operator.model.units import format_rfc3339
from rollout_operator.planning.wording import one_line


@dataclass(frozen=True, slots=True)
class ConditionFinding:
    """What one condition is to say."""

    type: str
    is_true: bool
    reason: str
    text: str


def stamp_conditions(
    findings: Iterable[ConditionFinding],
    before: Collection[StatusCondition],
    *,
    types: Collection[str],
    generation: int,
    now: datetime,
) -> tuple[StatusCondition, ...]:
    """Return conditions for the findings, then those of `before` that are not of our `types`.

    A condition keeps its time while its status holds on.
    """
    own = tuple(
        StatusCondition(
            type=finding.type,
            status=str(finding.is_true),
            reason=finding.reason,
            # A terminal shows it: what it quotes of a tenant must not steer that.
            message=one_line(finding.text),
            last_transition_time=_choose_time(finding, before, now),
            observed_generation=generation,
        )
        for finding in findings
    )
    return (
        *own,
        *(status_condition for status_condition in before if status_condition.type not in types),
    )


def _choose_time(
    finding: ConditionFinding, before: Iterable[StatusCondition], now: datetime
) -> str:
    wanted = (finding.type, str(finding.is_true))
    same = (
        status_condition
        for status_condition in before
        if (status_condition.type, status_condition.status) == wanted
    )
    kept = next((condition.last_transition_time for condition in same), "")
    return kept or format_rfc3339(now.replace(microsecond=0))
