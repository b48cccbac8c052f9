"""What becomes of the status of a HealthCheck, and what holds it pending."""

import pytest

from rollout_operator.model.releases.health import (
    CheckFinding,
    HealthCheckStatus,
    HealthStatus,
)
from rollout_operator.model.releases.status import BakeStatus, ReleaseStatus
from rollout_operator.planning.releases.checks.record import find_flux_blocker, record_finding
from tests.planning.releases.builders import ALL_CHECKS, at, check, entry, rollout

HEALTHY, UNHEALTHY, PENDING = HealthStatus
WAITS = {"prod/app": "OCIRepository app: it has fetched 1.0.0, not 2.0.0"}


def status(
    text: str, *, change: float | None = None, error: float | None = None, message: str = "m"
) -> HealthCheckStatus:
    return HealthCheckStatus(
        status=text,
        last_change_time=None if change is None else at(change),
        last_error_time=None if error is None else at(error),
        message=message,
    )


@pytest.mark.parametrize(
    ("before", "found", "failed_at", "after"),
    [
        pytest.param(
            HealthCheckStatus(), PENDING, None, status("Pending", change=9), id="RT-131 the first"
        ),
        pytest.param(
            status("Pending", change=1), HEALTHY, None, status("Healthy", change=9),
            id="REL-112 another status",
        ),
        pytest.param(
            status("Healthy", change=1), HEALTHY, None, status("Healthy", change=1),
            id="REL-112 the same status",
        ),
        pytest.param(
            status("Healthy", change=1), UNHEALTHY, None, status("Unhealthy", change=9, error=9),
            id="RT-139 without a time of its own",
        ),
        pytest.param(
            status("Healthy", change=1), UNHEALTHY, 4, status("Unhealthy", change=9, error=4),
            id="RT-139 with a time of its own",
        ),
        pytest.param(
            status("Unhealthy", change=5, error=5), UNHEALTHY, None,
            status("Unhealthy", change=5, error=5), id="REL-112 nothing new: nothing to write",
        ),
        pytest.param(
            status("Unhealthy", change=5, error=5), HEALTHY, None,
            status("Healthy", change=9, error=5), id="REL-112 an error stays on record",
        ),
        pytest.param(
            status("Pending", change=5, error=5), UNHEALTHY, None,
            status("Unhealthy", change=9, error=9), id="REL-112 an error after a reset",
        ),
    ],
)  # fmt: skip
def test_what_becomes_of_it(
    before: HealthCheckStatus,
    found: HealthStatus,
    failed_at: float | None,
    after: HealthCheckStatus,
) -> None:
    finding = CheckFinding(
        status=found, text="m", failed_at=None if failed_at is None else at(failed_at)
    )

    assert record_finding(before, finding, at(9)) == after


def test_an_old_failure_stays_old() -> None:
    """RT-137: it is from before a retry, and does not fail the release again."""
    finding = CheckFinding(status=UNHEALTHY, text="m", failed_at=at(-20))

    assert record_finding(status("Pending", change=-5), finding, at(0)).last_error_time == at(-20)


@pytest.mark.parametrize(
    ("current", "checks", "waits", "is_held"),
    [
        pytest.param("Deploying", ALL_CHECKS, WAITS, True, id="RELB-16 Flux is not through"),
        pytest.param("Deploying", ALL_CHECKS, {}, False, id="RELB-16 Flux is through"),
        pytest.param("Succeeded", ALL_CHECKS, WAITS, False, id="RELB-16 nothing is deploying"),
        pytest.param("Deploying", None, WAITS, False, id="RELB-36 it is not selected"),
    ],
)
def test_a_check_waits_for_flux(
    current: str, checks: object, waits: dict[str, str], is_held: bool
) -> None:
    """It would be about the version before, and a bake would start by that."""
    history = (entry("2.0.0", BakeStatus(current)),)
    owner = rollout(status=ReleaseStatus(history=history), checks=checks)

    found = find_flux_blocker(check(), (owner,), {}, waits)

    assert (found is not None) is is_held
    if found is not None:
        assert found.status is PENDING
        assert found.text == f"waiting for Flux to apply 2.0.0 of prod/app: {WAITS['prod/app']}"


def test_a_bake_that_has_started_is_not_held() -> None:
    """Flux may be busy again: what is seen then counts."""
    baking = entry("2.0.0", BakeStatus.IN_PROGRESS, bake_start_time=at(1))
    owner = rollout(status=ReleaseStatus(history=(baking,)), checks=ALL_CHECKS)

    assert find_flux_blocker(check(), (owner,), {}, WAITS) is None
