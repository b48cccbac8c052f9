"""Conditions in the `status` of an object: what is found now, since when, and how it is shown."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

import msgspec
from msgspec import UnsetType

from rollout_operator.model.condition import ConditionDescription, StatusCondition
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import format_rfc3339, parse_rfc3339
from rollout_operator.planning.wording import cut, one_line


class ConditionFinding(msgspec.Struct, frozen=True):
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


def describe_conditions(conditions: Iterable[StatusCondition]) -> Iterator[ConditionDescription]:
    """Yield conditions in their order as every outlet shows them."""
    for condition in conditions:
        yield ConditionDescription(
            type=condition.type,
            is_true=condition.status == str(True),
            reason=condition.reason,
            message=cut(condition.message),
            since=parse_time(condition.last_transition_time),
        )


def parse_time(text: str | UnsetType) -> datetime | None:
    """Return a time of a status, None where there is none or it cannot be read."""
    try:
        return None if isinstance(text, UnsetType) else parse_rfc3339(text)
    except InvalidInput:
        return None


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
