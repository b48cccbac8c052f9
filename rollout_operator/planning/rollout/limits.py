"""How many pods of a zone may be unavailable: the annotation as a number.

The grammar of the value is settled in `model.units`. What cannot be read counts as 1, the smallest
limit that still moves, and is reported by `zones`.
"""

from dataclasses import dataclass
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import MAX_UNAVAILABLE
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.units import parse_max_unavailable

DEFAULT_LIMIT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The number of pods that may be unavailable, and what is wrong with the annotation."""

    pods: int
    problem: Reason | None = None


def choose_limit(sts: StatefulSet) -> Limit:
    """Return the limit of a StatefulSet, at least 1; it may exceed the replicas (ROLL-50..53)."""
    text = sts.annotations.get(MAX_UNAVAILABLE)
    if text is None:
        return Limit(pods=DEFAULT_LIMIT)
    try:
        return Limit(pods=parse_max_unavailable(text).of(sts.replicas))
    except InvalidInput as error:
        problem = Reason(
            code=Code.BAD_MAX_UNAVAILABLE,
            text=f"StatefulSet {sts.name}: annotation {MAX_UNAVAILABLE}: {error}; "
            f"{DEFAULT_LIMIT} is used",
            severity=Severity.WARN,
            zone=sts.name,
        )
        return Limit(pods=DEFAULT_LIMIT, problem=problem)
