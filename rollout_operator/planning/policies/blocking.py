"""What blocks a policy, as its status says it: a person or the cluster has to mend something.

A pause, a batch that is open and a zone that is not ready yet end by themselves, and block nothing.
"""

from typing import Final

from rollout_operator.model.policy.policy import PolicyRefusalCode
from rollout_operator.model.policy.status import PolicyPhase, PolicyStatus
from rollout_operator.planning.policies.conditions import (
    DEADLINE_EXCEEDED,
    NOT_ON_DELETE,
    PROGRESSING,
    READY,
    SEVERAL_ZONES,
    SPANS_ZONES,
)

_PHASES: Final = (PolicyPhase.BLOCKED, PolicyPhase.INVALID)
# Reasons of conditions, which are never renamed (MAZ-52).
REASONS: Final = (
    *(str(code) for code in PolicyRefusalCode),
    SPANS_ZONES,
    NOT_ON_DELETE,
    SEVERAL_ZONES,
    DEADLINE_EXCEEDED,
)
"""All that block a policy."""


def list_blocking(status: PolicyStatus) -> tuple[str, ...]:
    """Return the reasons that block a policy now."""
    held = [status.get_reason(READY)] if status.phase in _PHASES else []
    if status.get_reason(PROGRESSING) == DEADLINE_EXCEEDED:
        held.append(DEADLINE_EXCEEDED)
    return tuple(held)
