"""What the health checks between zones come to, as people declare it: no server is asked.

The operator decides as ever: when it asks, how often, and what follows. Until it is said otherwise
all checks pass.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.gates.model import (
    Answer,
    Check,
    HealthCheck,
    Number,
    QueryError,
    decode_health_check,
)
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import quote
from rollout_operator.planning.wording import join_names

# Of a check that is evaluated again and again: what is longer is as good as for ever.
_MOST_TIMES: Final = 1000


@unique
class GateOutcome(StrEnum):
    PASSING = "passing"
    FAILING = "failing"
    UNKNOWN = "unknown"


class DeclareGate(msgspec.Struct, frozen=True):
    """From now on all checks of a RolloutHealthCheck pass, fail, or have no answer."""

    gate: str
    outcome: GateOutcome


def declare_gate(gate: str, outcome: str) -> DeclareGate:
    """Raise InvalidInput for an outcome that there is not."""
    try:
        return DeclareGate(gate, GateOutcome(outcome))
    except ValueError:
        known = join_names([*GateOutcome])
        raise InvalidInput(f"no outcome {quote(outcome)} of a gate; there are {known}") from None


class DeclaredGates:
    """Answers the questions of health checks. Implements `gates.controller.Asks`."""

    def __init__(self, declared: Mapping[str, GateOutcome]) -> None:
        self._outcomes = {**declared}

    def declare(self, deed: DeclareGate) -> None:
        self._outcomes[deed.gate] = deed.outcome

    async def ask(self, check: HealthCheck, query: str, at: datetime) -> Answer:
        """Return 1, also for both numbers that are compared, or 0 where the check fails."""
        return self._answer(check, 1, 0)

    async def probe(self, check: HealthCheck, url: str) -> Answer:
        return self._answer(check, 200, 503)

    def _answer(self, check: HealthCheck, passing: int, failing: int) -> Answer:
        outcome = self._outcomes.get(check.head.name, GateOutcome.PASSING)
        if outcome is GateOutcome.UNKNOWN:
            return QueryError("it is declared unknown")
        return Number(passing if outcome is GateOutcome.PASSING else failing)


def measure_patience(gates: Iterable[JsonObject], most: timedelta) -> timedelta:
    """Return after how long checks that answer alike come to nothing new, at most `most`."""
    decoded = [decode_health_check(msgspec.json.encode(gate)) for gate in gates]
    checks = [check for gate in decoded if isinstance(gate, HealthCheck) for check in gate.checks]
    return min(max(map(_measure, checks), default=timedelta(0)), most)


def _measure(check: Check) -> timedelta:
    failing, errors = check.failure_policy, check.error_policy
    times = min(max(failing.consecutive_failures, failing.consecutive_successes), _MOST_TIMES)
    repeated = failing.reevaluation_interval * times
    retried = errors.retry_interval * min(errors.max_attempts, _MOST_TIMES)
    return check.current_range + max(repeated, retried)
