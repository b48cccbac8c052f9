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

    One keeps its time while its status holds on.
    """
    own = tuple(
        StatusCondition(
            type=one.type,
            status=str(one.is_true),
            reason=one.reason,
            # A terminal shows it: what it quotes of a tenant must not steer that.
            message=one_line(one.text),
            last_transition_time=_choose_time(one, before, now),
            observed_generation=generation,
        )
        for one in findings
    )
    return (*own, *(one for one in before if one.type not in types))


def _choose_time(
    finding: ConditionFinding, before: Iterable[StatusCondition], now: datetime
) -> str:
    wanted = (finding.type, str(finding.is_true))
    same = (one for one in before if (one.type, one.status) == wanted)
    kept = next((one.last_transition_time for one in same), "")
    return kept or format_rfc3339(now.replace(microsecond=0))
