"""Since when Flux fails, over attempts that each begin anew."""

from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from rollout_operator.model.units import format_rfc3339
from rollout_operator.planning.health_checks import (
    FluxFailure,
    has_lasted,
    next_read,
    track_failure,
)
from tests.planning.releases.builders import at

GRACE: Final = timedelta(minutes=2)
SECOND: Final = timedelta(seconds=1)
UNKNOWN: Final = ("Unknown", "Progressing")
FAILED: Final = ("False", "BuildFailed")
OTHERWISE: Final = ("False", "ReconciliationFailed")
DONE: Final = ("True", "ReconciliationSucceeded")
WAITING: Final = ("False", "DependencyNotReady")


def attempt(ready: tuple[str, str], since: datetime, **more: Any) -> dict[str, Any]:
    """Return a Kustomization in one of its attempts."""
    status, reason = ready
    condition = {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": "m\n",
        "lastTransitionTime": format_rfc3339(since),
    }
    return {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"generation": more.pop("generation", 2)},
        "status": {"conditions": [condition], "lastAttemptedRevision": "2@sha256:b", **more},
    }


def track(*seen: tuple[float, dict[str, Any]]) -> FluxFailure | None:
    """Return what is known after reads at these minutes."""
    known: FluxFailure | None = None
    for minutes, tree in seen:
        known = track_failure(tree, known, at(minutes))
    return known


@pytest.mark.parametrize(
    ("later", "since"),
    [
        pytest.param(attempt(FAILED, at(3)), at(0) + SECOND, id="RELB-37 it fails again"),
        pytest.param(attempt(OTHERWISE, at(3)), at(0) + SECOND, id="RELB-37 in another way"),
        pytest.param(attempt(UNKNOWN, at(3)), at(0) + SECOND, id="RELB-37 it is tried again"),
        pytest.param(attempt(DONE, at(3)), None, id="RELB-37 it succeeds"),
        pytest.param(attempt(WAITING, at(3)), None, id="RELB-37 it waits for another"),
        pytest.param(
            attempt(FAILED, at(3), generation=3), at(3) + SECOND, id="RELB-37 another generation"
        ),
        pytest.param(
            attempt(FAILED, at(3), lastAttemptedRevision="3@sha256:c"), at(3) + SECOND,
            id="RELB-37 another revision",
        ),
        pytest.param(
            attempt(FAILED, at(3), lastHandledReconcileAt="now"), at(3) + SECOND,
            id="RELB-35 a retry was requested",
        ),
        pytest.param(
            attempt(UNKNOWN, at(3), generation=3), None, id="RELB-37 another generation is tried"
        ),
    ],
)  # fmt: skip
def test_a_failure_lasts_over_attempts(later: dict[str, Any], since: datetime | None) -> None:
    known = track((0.1, attempt(FAILED, at(0))), (3.1, later))

    assert (None if known is None else known.since) == since


def test_what_is_new_is_not_of_the_past() -> None:
    """REL-73: Flux cuts the fraction of a second; the failure would be older than a deployment."""
    known = track((0.01, attempt(FAILED, at(0))))

    assert known is not None
    assert (known.since, known.text) == (at(0.01), "BuildFailed: m")


def test_objects_of_others_do_not_fail_so() -> None:
    other = {**attempt(FAILED, at(0)), "apiVersion": "example.com/v1"}

    assert track_failure(other, None, at(9)) is None


def test_when_a_failure_counts() -> None:
    """RELB-37: it is read then, however long the interval is."""
    failing = FluxFailure(since=at(0), text="m", attempt=())
    later = FluxFailure(since=at(1), text="m", attempt=())

    assert next_read([later, failing], at(0.5), GRACE) == timedelta(minutes=1.5)
    assert next_read([failing], at(2), GRACE) is None
    assert next_read([], at(2), GRACE) is None
    assert has_lasted(failing, at(2), GRACE)
    assert not has_lasted(None, at(2), GRACE)
