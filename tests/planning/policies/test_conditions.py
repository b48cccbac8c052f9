"""What blocks a policy: each reason of the spec, and nothing that ends by itself."""

import pytest

from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.policy import PolicyStatus
from rollout_operator.planning.conditions import REASONS, list_blocking


def status(phase: str, *, ready: str, progressing: str = "Blocked") -> PolicyStatus:
    reasons = {"Ready": ready, "Progressing": progressing}
    conditions = tuple(
        StatusCondition(
            type=kind,
            status="False",
            reason=reason,
            message="",
            last_transition_time="2026-01-01T00:00:00Z",
        )
        for kind, reason in reasons.items()
    )
    return PolicyStatus(phase=phase, conditions=conditions)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            status("Blocked", ready="MultipleZonesUnavailable"),
            ("MultipleZonesUnavailable",),
            id="two zones are short",
        ),
        pytest.param(status("Invalid", ready="Conflict"), ("Conflict",), id="refused"),
        pytest.param(
            status("Progressing", ready="ZoneNotReady", progressing="ProgressDeadlineExceeded"),
            ("ProgressDeadlineExceeded",),
            id="MAZ-44 stalled",
        ),
        pytest.param(
            status(
                "Blocked", ready="MultipleZonesUnavailable", progressing="ProgressDeadlineExceeded"
            ),
            ("MultipleZonesUnavailable", "ProgressDeadlineExceeded"),
            id="both",
        ),
        pytest.param(status("Waiting", ready="ZoneNotReady"), (), id="a zone is not ready yet"),
        pytest.param(status("Paused", ready="RollingOut", progressing="Paused"), (), id="paused"),
        pytest.param(PolicyStatus(), (), id="nothing known"),
    ],
)
def test_what_blocks(given: PolicyStatus, expected: tuple[str, ...]) -> None:
    assert list_blocking(given) == expected
    assert {*expected} <= {*REASONS}
