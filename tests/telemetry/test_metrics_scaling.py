"""Metrics of groups whose zones are scaled together."""

import pytest

from rollout_operator.model.outcome import Code
from rollout_operator.telemetry.metrics import Metrics

GROUP = "ingester"


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return the value of a series of the group."""
    return metrics.registry.get_sample_value(
        f"rollout_operator_{name}", {"rollout_group": GROUP, **labels}
    )


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("outcome", ["accepted", "conflict", "refused", "unknown", "failed"])
def test_every_outcome_exists_at_zero(direction: str, outcome: str) -> None:
    metrics = Metrics()
    assert value(metrics, "scalings_total", direction=direction, outcome=outcome) is None
    metrics.begin_scaling(GROUP)
    assert value(metrics, "scalings_total", direction=direction, outcome=outcome) == 0


@pytest.mark.parametrize(
    "code",
    [
        Code.NO_LEADING_ZONE,
        Code.LEADING_ZONES_CIRCLE,
        Code.WAIT_TIME_MISSING,
        Code.BAD_REFERENCE,
        Code.BAD_DELAY,
        Code.BAD_DOWNSCALE_TIME,
        Code.SCALE_REFUSED,
        Code.COUNT_CONTESTED,
    ],
)
def test_every_failure_exists_at_zero(code: Code) -> None:
    """W-43: an alert on any of them sees a zero before, and no absence."""
    metrics = Metrics()
    metrics.begin_scaling(GROUP)
    assert value(metrics, "scaling_failures_total", reason=code) == 0


def test_beginning_again_counts_nothing() -> None:
    metrics = Metrics()
    metrics.begin_scaling(GROUP)
    metrics.scalings.labels(GROUP, "up", "accepted").inc()
    metrics.begin_scaling(GROUP)
    assert value(metrics, "scalings_total", direction="up", outcome="accepted") == 1


def test_the_gauge_goes_and_counters_stay_where_nobody_scales_any_more() -> None:
    metrics = Metrics()
    metrics.begin_scaling(GROUP)
    metrics.forget_scaling(GROUP)
    metrics.forget_scaling("unknown")
    assert value(metrics, "next_downscale_seconds") is None
    assert value(metrics, "scalings_total", direction="up", outcome="accepted") == 0


def test_all_go_with_the_group() -> None:
    metrics = Metrics()
    metrics.begin_scaling(GROUP)
    metrics.begin_scaling("other")
    metrics.forget_group(GROUP)
    lines = b"".join(metrics.render()).decode().splitlines()
    series = [line for line in lines if "scal" in line and not line.startswith("#")]
    assert series
    assert not [line for line in series if GROUP in line]
