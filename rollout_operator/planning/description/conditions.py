"""Conditions of any status as every outlet shows them."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from rollout_operator.model.condition import ConditionDescription, StatusCondition
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import parse_rfc3339
from rollout_operator.planning.wording import cut

_TRUE: Final = "True"


def describe_conditions(conditions: Iterable[StatusCondition]) -> Iterator[ConditionDescription]:
    """Yield conditions in their order; a time that cannot be read is left out."""
    for condition in conditions:
        yield ConditionDescription(
            type=condition.type,
            is_true=condition.status == _TRUE,
            reason=condition.reason,
            message=cut(condition.message),
            since=_parse_time(condition.last_transition_time),
        )


def _parse_time(text: str) -> datetime | None:
    try:
        return parse_rfc3339(text)
    except InvalidInput:
        return None
