"""When a HealthCheck starts anew."""

import pytest

from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.releases.health import HealthCheck, HealthCheckStatus
from rollout_operator.model.releases.rollout import CheckSelector, ReleaseRollout
from rollout_operator.model.releases.status import ReleaseStatus
from rollout_operator.planning.releases.resets import find_reset
from tests.planning.releases.builders import ALL_CHECKS, at, check, entry, rollout

NOW = at(180)
SPACES = {"prod": {}, "infra": {"team": "platform"}}
ELSEWHERE = CheckSelector(selector=LabelSelector(), namespaces=LabelSelector())


def deployed(
    minutes: float, retry: float | None = None, checks: CheckSelector | None = ALL_CHECKS
) -> ReleaseRollout:
    """Return a Rollout whose release was deployed at so many minutes."""
    retried = None if retry is None else at(retry)
    history = (entry("1.0.0", minutes=minutes, last_retry_timestamp=retried),)
    return rollout(status=ReleaseStatus(history=history), checks=checks)


@pytest.mark.parametrize(
    ("known", "owner", "is_reset"),
    [
        pytest.param(check(), rollout(checks=ALL_CHECKS), False, id="RT-121 nothing deployed"),
        pytest.param(check(change=60), deployed(120), True, id="RT-122 older than that"),
        pytest.param(check(), deployed(120), True, id="RT-123 it never changed"),
        pytest.param(check(error=150), deployed(120), True, id="RT-123 an error alone"),
        pytest.param(check(change=150, error=0), deployed(120), False, id="RT-124 an old error"),
        pytest.param(check(change=121), deployed(120), False, id="RT-125 it changed since"),
        pytest.param(check(change=120), deployed(0, 150), True, id="RT-126 a retry since"),
        pytest.param(check(change=175), deployed(0, 150), False, id="RT-126 it changed since it"),
        pytest.param(check(), deployed(120, checks=None), False, id="RELB-36 it is not selected"),
        pytest.param(
            check(namespace="infra"), deployed(120), False, id="RT-127 another namespace"
        ),
        pytest.param(
            check(namespace="infra"), deployed(120, checks=ELSEWHERE), True,
            id="RELB-36 another namespace that is selected",
        ),
    ],
)  # fmt: skip
def test_when_a_check_starts_anew(
    known: HealthCheck, owner: ReleaseRollout, is_reset: bool
) -> None:
    """REL-103, REL-104."""
    assert (find_reset(known, (owner,), SPACES, NOW) is not None) is is_reset


def test_a_check_starts_anew_without_its_error() -> None:
    """RT-84, REL-105."""
    known = check(status="Unhealthy", change=1, error=1, message="down")

    assert find_reset(known, (deployed(0, 2),), SPACES, NOW) == HealthCheckStatus(
        status="Pending", last_change_time=NOW, message="reset for 1.0.0 of prod/app"
    )
