"""Gauges of progress: what is written when, and what is gone with a zone or a group."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.outcome import Action, Code, Plan, Reason, RecordRevision, ZoneProgress
from rollout_operator.telemetry.metrics import PIECE, Gauge, GroupStates, Metrics, Subject
from tests.builders import zone
from tests.fakes_clock import FakeClock

G = GroupName("ingester")
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
NUMBERS = ("desired", "ready", "updated", "outdated")


def progress(name: str, desired: int = 3, updated: int = 1) -> ZoneProgress:
    return ZoneProgress(
        zone=name,
        uid=Uid(name),
        desired=desired,
        ready=2,
        updated=updated,
        outdated=desired - updated,
    )


def read(metrics: Metrics, name: str, zone: str = "zone-a", group: str = G) -> float | None:
    labels = {"rollout_group": group, "zone": zone}
    return metrics.registry.get_sample_value(f"rollout_operator_zone_pods_{name}", labels)


def since(metrics: Metrics) -> float | None:
    name = "rollout_operator_group_state_since_timestamp_seconds"
    return metrics.registry.get_sample_value(name, {"rollout_group": G})


def test_each_zone_shows_its_numbers_and_when_they_changed() -> None:
    metrics = Metrics()
    metrics.progress.show_zones(G, [progress("zone-a"), progress("zone-b", 5)], NOW)
    metrics.progress.show_zones(G, [progress("zone-a"), progress("zone-b", 5, 2)], LATER)

    assert [read(metrics, name) for name in NUMBERS] == [3, 2, 1, 2]
    assert [read(metrics, name, "zone-b") for name in NUMBERS] == [5, 2, 2, 3]
    assert read(metrics, "last_change_timestamp_seconds") == NOW.timestamp()
    assert read(metrics, "last_change_timestamp_seconds", "zone-b") == LATER.timestamp()


def test_series_go_with_the_zone_and_with_the_group() -> None:
    """DEP-67, ROLL-06."""
    metrics = Metrics()
    for group in (G, "other"):
        metrics.begin_group(group)
        metrics.progress.show_state(group, NOW)
        metrics.progress.show_zones(group, [progress("zone-a"), progress("zone-b")], NOW)

    metrics.progress.show_zones(G, [progress("zone-b")], LATER)
    names = (*NUMBERS, "last_change_timestamp_seconds")
    assert {read(metrics, name) for name in names} == {None}
    assert None not in {read(metrics, name, "zone-b") for name in names}

    metrics.forget_group(G)
    metrics.forget_group("never seen")
    text = b"".join(metrics.render()).decode()
    assert f'"{G}"' not in text
    assert read(metrics, "ready", group="other") == 2


def test_a_state_that_comes_back_after_its_group_is_shown_again() -> None:
    metrics = Metrics()
    metrics.progress.show_state(G, NOW)
    metrics.forget_group(G)
    metrics.progress.show_state(G, NOW)
    metrics.progress.show_zones(G, [progress("zone-a")], NOW)

    assert since(metrics) == NOW.timestamp()
    assert read(metrics, "desired") == 3


@pytest.mark.parametrize("series", [0, 1, 3 * PIECE])
def test_a_group_of_many_zones_is_cut_anywhere(series: int) -> None:
    """D-51: as many as there are StatefulSets with one label would be one long step."""
    gauge = Gauge("probe", "A probe.", ("rollout_group", "zone"), registry=CollectorRegistry())
    for number in range(series):
        gauge.labels(G, f"zone-{number}")
    sizes = [len(piece.samples) for piece in gauge.collect()]

    assert sum(sizes) == series
    assert max(sizes) <= PIECE


def test_plans_are_shown_when_posted_and_while_carried_out() -> None:
    """A live read may wait long: the numbers of the plan are newer than what was posted last."""
    metrics, clock = Metrics(), FakeClock()
    states = GroupStates(metrics, clock)
    busy = Reason(Code.PODS_STARTING, "busy")
    states.post(Plan(group=G, waits=(busy,), progress=(progress("zone-a"),)))
    begun = since(metrics)
    clock.jump(timedelta(seconds=7))
    states.post(Plan(group=G, waits=(Reason(Code.PAUSED, "p"),)), Subject.SCALING)

    assert begun == since(metrics), "the rollout leads"
    assert read(metrics, "updated") == 1, "of scaling no pod is known"

    plan = Plan(group=G, actions=(record(),), progress=(progress("zone-a", updated=2),))
    with states.carrying_out(plan):
        assert read(metrics, "updated") == 2
    states.post(Plan(group=G, waits=(Reason(Code.UP_TO_DATE, "u"),)))
    assert since(metrics) == clock.now().timestamp(), "the pause of scaling leads now"
    assert read(metrics, "updated") == 2, "not read: as before"


def record() -> Action:
    sts = zone("a").sts
    reason = Reason(Code.ROLLED_OUT, "r")
    return RecordRevision(zone=sts, revision=sts.update_revision, reason=reason)
