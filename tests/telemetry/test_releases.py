"""Metrics of releases: what exists when, and what is counted once."""

from collections.abc import Mapping

import msgspec
import pytest

from rollout_operator.model.budget import StatusCondition
from rollout_operator.releases.metrics import ReleaseCounters, show_releases, show_schedules
from rollout_operator.releases.model.releases import (
    BakeStatus,
    GateSummary,
    HistoryEntry,
    ReleaseStatus,
    ScheduleStatus,
    TriggeredBy,
    TriggerKind,
)
from rollout_operator.telemetry.metrics import Metrics
from tests.planning.releases.builders import at, check, entry, releases, rollout
from tests.planning.releases.schedules.schedule_builders import schedule

PREFIX = "rollout_operator_release_"


def read(metrics: Metrics, name: str) -> Mapping[tuple[str, ...], float]:
    """Return the series of a family that are not zero, by the values of their labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"{PREFIX}{name}" and sample.value
    }


def test_gauges_show_what_is_there_and_nothing_that_is_gone() -> None:
    """RELB-40."""
    status = ReleaseStatus(
        history=(entry("1.0.0", BakeStatus.IN_PROGRESS),),
        release_candidates=releases("1.1.0 1.2.0"),
        gated_release_candidates=releases("1.1.0"),
        gates=(GateSummary(name="open", passing=True), GateSummary(name="closed", passing=False)),
    )
    known = [rollout(status=status)]
    checks = [check(status="Healthy"), check("new"), check("odd", status="x" * 1000)]
    metrics = Metrics()
    show_releases(metrics.registry, lambda: known, lambda: checks)

    assert read(metrics, "info") == {("prod", "app", "1.0.0"): 1}
    assert read(metrics, "bake_status") == {("prod", "app", "InProgress"): 1}
    assert read(metrics, "candidates") == {("prod", "app", "raw"): 2, ("prod", "app", "gated"): 1}
    assert read(metrics, "gate_passing") == {("prod", "app", "open"): 1}
    assert read(metrics, "healthcheck_status") == {
        ("prod", "check", "Healthy"): 1,
        ("prod", "odd", "Other"): 1,
    }
    known.clear()
    assert read(metrics, "info") == read(metrics, "candidates") == {}


@pytest.mark.parametrize(
    ("conditions", "reasons"),
    [
        ({"Ready": ("True", "BakeTimePassed"), "Stalled": ("False", "Idle")}, set()),
        (
            {"Ready": ("False", "BakeTimeFailed"), "Stalled": ("True", "BakeTimeFailed")},
            {"BakeTimeFailed"},
        ),
        (
            {"Ready": ("True", "RolloutSucceeded"), "TargetConflict": ("True", "TargetConflict")},
            {"TargetConflict"},
        ),
        ({"Ready": ("False", "NoReleasesAvailable")}, set()),
        ({"Ready": ("False", "BakeTimeRetrying")}, set()),
        ({"Ready": ("False", "made up")}, {"Other"}),
        ({"GatesPassing": ("False", "SomeGatesBlocking")}, set()),
        ({"Ready": ("False", "NothingDeployed")}, set()),
        ({"Ready": ("False", "WritingTargets")}, set()),
        ({"DeploymentBlocked": ("True", "UnhealthyHealthChecks")}, set()),
        (
            {"DeploymentBlocked": ("True", "WantedVersionNotFound")},
            {"WantedVersionNotFound"},
        ),
    ],
)
def test_what_only_a_person_ends_is_reported_by_its_reason(
    conditions: Mapping[str, tuple[str, str]], reasons: set[str]
) -> None:
    found = tuple(
        StatusCondition(type=kind, status=status, reason=reason)
        for kind, (status, reason) in conditions.items()
    )
    known = [rollout(status=ReleaseStatus(conditions=found))]
    metrics = Metrics()
    show_releases(metrics.registry, lambda: known, list)
    assert read(metrics, "blocked").keys() == {("prod", "app", reason) for reason in reasons}


def test_schedules() -> None:
    """RELB-40: without a transition there is no time of one."""
    status = ScheduleStatus(active=True, next_transition=at(5))
    metrics = Metrics()
    found = (schedule(status=status), schedule("freeze", namespace=""))
    show_schedules(metrics.registry, lambda: found)

    nights = ("RolloutSchedule", "prod", "nights")
    assert read(metrics, "schedule_active") == {nights: 1}
    assert read(metrics, "schedule_next_transition_timestamp_seconds") == {
        nights: at(5).timestamp()
    }


def of(*history: HistoryEntry) -> ReleaseStatus:
    return ReleaseStatus(history=history)


BAKING = entry("1", BakeStatus.IN_PROGRESS, bake_start_time=at(1))
DEPLOYING = entry("1", BakeStatus.DEPLOYING)
PASSED = msgspec.structs.replace(BAKING, bake_status="Succeeded", bake_end_time=at(3))
FAILED = msgspec.structs.replace(BAKING, bake_status="Failed", bake_end_time=at(2))
LATE = msgspec.structs.replace(DEPLOYING, bake_status="Failed", bake_end_time=at(2))
RETRIED = msgspec.structs.replace(DEPLOYING, retries=1)
BY_HAND = entry("2", id=2, triggered_by=TriggeredBy(kind=TriggerKind.USER, name="ann"))


@pytest.mark.parametrize(
    ("before", "after", "counted"),
    [
        pytest.param(of(), of(DEPLOYING), {"deployments_total System": 1}, id="the first"),
        pytest.param(of(DEPLOYING), of(DEPLOYING), {}, id="nothing new"),
        pytest.param(of(DEPLOYING), of(BAKING), {}, id="a bake that starts"),
        pytest.param(
            of(BAKING), of(PASSED), {"bake_duration_seconds_sum": 120}, id="a bake that passed"
        ),
        pytest.param(
            of(BAKING), of(FAILED),
            {"bake_failures_total in_bake": 1, "bake_duration_seconds_sum": 60},
            id="a bake that failed",
        ),
        pytest.param(
            of(DEPLOYING), of(LATE), {"bake_failures_total before_bake": 1}, id="it came to none"
        ),
        pytest.param(of(LATE), of(RETRIED), {"retries_total": 1}, id="a retry"),
        pytest.param(
            of(BAKING), of(BY_HAND, PASSED),
            {"deployments_total User": 1, "bake_duration_seconds_sum": 120},
            id="the end of one and the beginning of another",
        ),
    ],
)  # fmt: skip
def test_what_happened_is_counted_once(
    before: ReleaseStatus, after: ReleaseStatus, counted: Mapping[str, float]
) -> None:
    """RELB-40."""
    metrics = Metrics()
    ReleaseCounters(metrics.registry, "prod", ()).record("app", before, after)

    names = (
        "deployments_total",
        "bake_failures_total",
        "retries_total",
        "bake_duration_seconds_sum",
    )
    found = {
        " ".join((name, *labels[2:])): value
        for name in names
        for labels, value in read(metrics, name).items()
    }
    assert found == counted


def test_counters_begin_at_zero_and_go_with_their_rollout() -> None:
    """RELB-40: an alert sees a zero and not an absence."""
    metrics = Metrics()
    counters = ReleaseCounters(metrics.registry, "prod", ("ok", "denied"))
    counters.record("app", of(), of())
    counters.count_request("denied")

    def count_series() -> int:
        return sum(
            sample.labels.get("rollout") == "app"
            for family in metrics.registry.collect()
            for sample in family.samples
        )

    assert count_series() > 5
    assert read(metrics, "registry_requests_total") == {("denied",): 1}
    counters.forget("app")
    counters.forget("unknown")
    assert count_series() == 0
