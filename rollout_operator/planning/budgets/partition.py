"""Which partition a pod holds, as its name says.

Pods of different zones with the same partition hold the same data. How many of them may be gone is
decided in `rule`.
"""

from functools import lru_cache
from typing import Final

from rollout_operator.model.budget import Budget
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.pattern import LONGEST_NAME, compile_pattern

# A decision looks at every pod of the other zones, at 5 µs each; names hardly ever change.
_REMEMBERED: Final = 8192


def find_partition(budget: Budget, pod_name: str) -> str | None:
    """Return the partition of a pod under a budget that counts by partition.

    None where the pattern does not match the whole name, or captures nothing: such a pod cannot be
    told apart from others, and what cannot be told is never taken for harmless.
    """
    if len(pod_name) > LONGEST_NAME:
        return None
    return _find(budget.pattern, budget.pattern_group, pod_name)


@lru_cache(maxsize=_REMEMBERED)
def _find(pattern: str, group: int, pod_name: str) -> str | None:
    try:
        compiled = compile_pattern(pattern)
    except InvalidInput:
        return None  # no budget is read with such a pattern
    return (compiled.capture(pod_name, group) or None) if 1 <= group <= compiled.groups else None
