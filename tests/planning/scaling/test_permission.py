"""Whether the group lets a zone go down: W-18, W-40, D-22, D-25, SEED-106, SEED-110, T-03 6."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest
from msgspec import structs

from rollout_operator.model.names import LAST_DOWNSCALE
from rollout_operator.model.objects import Decrease, Deletion, Zone
from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import ScalingPlan, ScalingSnapshot, TimesSource
from rollout_operator.planning.downscales import assess_neighbours
from rollout_operator.planning.readiness import STALE_RECHECK
from rollout_operator.planning.scaling import plan_scaling
from tests.builders import NOW, prev, with_pods
from tests.planning.scalings import (
    HOUR,
    SECOND,
    annotated,
    changed,
    codes,
    counted,
    counts,
    guarded,
    outline,
    read_snapshot,
    snapshot,
)
from tests.planning.tables import LEFT_FOR, read_table

B: Final = counted("b", 5, follows="a", label="1h")
CHANGE: Final = "zone-b follows zone-a: 5 → 3"
OTHERS: Final = {
    "short": counted("c", 3, pods="lLl"),
    "missing": counted("c", 3, pods="ll-"),
    "rolling": annotated(prev("c", "pLp")),
    "rolled, and one still starts": changed(prev("c", "llL"), update_revision="last"),
    "settling": with_pods(changed(counted("c", 3), min_ready_seconds=30), ready_since=NOW),
    "outdated": annotated(prev("c", "ppp")),
    "recorded late": changed(counted("c", 3), current_revision="prev"),
    "behind": changed(counted("c", 3), generation=2),
    "going": changed(counted("c", 3), status_replicas=5, ready_replicas=5),
}


def plan_b(
    *others: Zone, b: Zone = B, deletions: Mapping[str, Deletion] | None = None
) -> ScalingSnapshot:
    """Return the view in which zone-b follows zone-a from 5 to 3."""
    return snapshot(counted("a", 3), b, *others, deletions=deletions)


def held(code: str, why: str) -> list[str]:
    return [f"wait {code} zone-b: {CHANGE} waits: {why}"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param("short", "", id="T-03.6 merely short"),
        pytest.param("missing", "", id="SEED-106 its pods are still being created"),
        pytest.param(
            "rolling", "zone-c has 2 of 3 pods ready (zone-c-1: CrashLoopBackOff)",
            id="SEED-110 D-25 in the midst of a rollout",
        ),
        pytest.param(
            "rolled, and one still starts",
            "zone-c has 2 of 3 pods ready (zone-c-2: CrashLoopBackOff)",
            id="D-25 at its end",
        ),
        pytest.param(
            "settling",
            "zone-c has 0 of 3 pods available (zone-c-0: ready for less than 30s, "
            "zone-c-1: ready for less than 30s and zone-c-2: ready for less than 30s)",
            id="Kubernetes 1.37 has recorded its revision already",
        ),
        pytest.param("outdated", "", id="outdated, and all pods up: the rollout gives way"),
        pytest.param("recorded late", "", id="rolled out and whole"),
        pytest.param("behind", "", id="its status is behind"),
        pytest.param("going", "", id="pods of an earlier downscale are on their way out"),
    ],
)  # fmt: skip
def test_d25_a_rollout_elsewhere_holds_a_zone_without_the_label(state: str, expected: str) -> None:
    plan = plan_scaling(plan_b(OTHERS[state]))

    if expected:
        assert outline(plan) == held("rollout_underway", f"zone-c is being rolled out: {expected}")
    else:
        assert outline(plan) == [f"scale_down: {CHANGE}"]


@pytest.mark.parametrize(
    ("departed", "is_held"),
    [
        pytest.param(counted("d", 3, pods="lLl"), True, id="short, whatever the reason"),
        pytest.param(annotated(prev("d", "ppp")), False, id="outdated, and all pods up"),
        pytest.param(changed(counted("d", 3), generation=2), False, id="its status is behind"),
    ],
)
@pytest.mark.parametrize("b", [B, guarded(B)], ids=["plain", "guarded"])
def test_si26_a_zone_that_left_while_it_was_short(b: Zone, departed: Zone, is_held: bool) -> None:
    """D-82: it holds every zone, with the words of the review, and is never scaled itself."""
    scaling = plan_b(b=b)
    left = structs.replace(departed, counts_for=LEFT_FOR)
    plan = plan_scaling(
        structs.replace(scaling, group=structs.replace(scaling.group, departed=(left,)))
    )
    if not is_held:
        assert (counts(plan), codes(plan)) == ({"zone-b": 3}, [])
        return
    assert (counts(plan), codes(plan)) == ({}, ["zone_left_short zone-b"])
    assert "zone-d has 2 of 3 pods ready" in plan.waits[0].text
    assert plan.requeue_after == LEFT_FOR


@pytest.mark.parametrize("state", sorted(OTHERS))
def test_w18_a_guarded_zone_waits_for_exactly_what_its_review_would_refuse(state: str) -> None:
    """Same words, and no attempt that is refused anyway."""
    b = guarded(B)
    scaling = plan_b(OTHERS[state], b=b)
    decrease = Decrease(
        resource="statefulsets", namespace="test", name="zone-b", replicas_from=5, replicas_to=3
    )
    verdict = assess_neighbours(decrease, b.sts, scaling.group, {})
    plan = plan_scaling(scaling)

    if verdict is None:
        assert (counts(plan), codes(plan)) == ({"zone-b": 3}, [])
    else:
        why = verdict.reason.text.removeprefix(f"{decrease.text} is not allowed because ")
        assert outline(plan) == held(verdict.reason.code, why)
    assert (verdict is None) == (state == "recorded late")


def test_w18_d22_both_agree_on_the_time_between_zones() -> None:
    """The one function: the longer wait wins, and the controller does not even try."""
    for seconds in (3599, 3600, 3601):
        zones = [counted("a", 3, ago=seconds * SECOND), guarded(B)]
        scaling = snapshot(*zones)
        decrease = Decrease(
            resource="statefulsets", namespace="test", name="zone-b", replicas_from=5, replicas_to=3
        )
        verdict = assess_neighbours(decrease, zones[1].sts, scaling.group, {})
        plan = plan_scaling(scaling)

        assert (verdict is None) == bool(counts(plan)) == (seconds >= 3600)
        assert verdict is None or codes(plan) == [f"{verdict.reason.code} zone-b"]


HELD = """
D-25 another downscale that may still persist
  downscale c 5 4 | downscale_underway: zone-c is being scaled down from 5 to 4 replicas
D-25 one of ours that the cache does not show
  c 5; written c 4 | downscale_underway: zone-c is being scaled down from 5 to 4 replicas
D-25 a delete of ours that cannot be seen yet is a rollout
  c 3; accepted c-1
  | rollout_underway: zone-c is being rolled out: zone-c has 2 of 3 pods ready (zone-c-1: delete
    accepted)
SI-08 a member that cannot be read
  unreadable zone-d
  | object_unreadable: StatefulSet zone-d cannot be read: spec.replicas: expected int, got str: "x"
SI-09 a frozen view
  stale 61 | view_stale: the newest proof that the cache is live is more than 60s old
ZONE-05 times that are not known
  times | bad_downscale_time: loading zones failed
"""


def plan_case(case: str, b: str = "b 5") -> ScalingPlan:
    """Return the plan in which zone-b follows zone-a from 5 to 3."""
    problem = "loading zones failed" if case == "times" else ""
    statements = f"a 3; {b} follows=a label=1h; {case.removeprefix('times')}"
    return plan_scaling(structs.replace(read_snapshot(statements), times_problem=problem))


@pytest.mark.parametrize(("case", "expected"), read_table(HELD, str))
def test_what_holds_every_downscale(case: str, expected: list[str]) -> None:
    plan = plan_case(case)
    code, _, why = expected[0].partition(": ")

    assert outline(plan) == held(code, why)
    is_frozen = plan.waits[0].code is Code.SNAPSHOT_STALE
    assert plan.requeue_after == (STALE_RECHECK if is_frozen else None)
    forced = plan_case(case, "b 5 force=1")
    assert (counts(forced), codes(forced)) == ({}, [f"{code} zone-b"]), "SCALE-06: force too"


@pytest.mark.parametrize(
    ("case", "b"),
    [
        pytest.param("downscale b 5 3", "b 5", id="a downscale of the zone itself"),
        pytest.param("downscale b 5 3", "guarded b 5", id="also of a guarded one"),
        pytest.param("accepted b-1", "b 5", id="D-25 a delete in the zone itself"),
        pytest.param("c 5; written c 6", "b 5", id="an upscale that cannot be seen"),
    ],
)
def test_what_holds_no_downscale(case: str, b: str) -> None:
    assert outline(plan_case(case, b)) == [f"scale_down: {CHANGE}"]


def test_zone_tracker_annotations_mean_nothing_and_its_times_do() -> None:
    zones = [counted("a", 3, last="x"), counted("c", 3, ago=SECOND), B]
    tracked = structs.replace(snapshot(*zones), source=TimesSource.TRACKER)
    lately = structs.replace(snapshot(*zones, seen={"c": SECOND}), source=TimesSource.TRACKER)

    assert codes(plan_scaling(snapshot(*zones))) == ["bad_downscale_time zone-b"]
    assert counts(plan_scaling(tracked)) == {"zone-b": 3}
    assert codes(plan_scaling(lately)) == ["zone_downscaled_lately zone-b"]


def test_zone_tracker_a_follower_needs_no_time_where_nothing_was_tracked() -> None:
    zones = [counted("a", 3, ago=SECOND), counted("b", 5, follows="a")]

    assert codes(plan_scaling(snapshot(*zones))) == ["wait_time_missing zone-b"]
    tracked = structs.replace(snapshot(*zones), source=TimesSource.TRACKER)
    assert counts(plan_scaling(tracked)) == {"zone-b": 3}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        pytest.param("9998-12-31T23:59:59Z", "9998-12-31T23:59:59Z", id="the last day"),
        pytest.param("2026-01-01T12:01:01Z", "2026-01-01T12:01:01Z", id="a minute and a second"),
    ],
)
def test_sec25_a_time_in_the_future_holds_and_is_named(last: str, expected: str) -> None:
    plan = plan_scaling(snapshot(counted("a", 3, last=last), B))
    (wait,) = plan.waits

    assert wait.text.endswith(
        f"last downscale zone-a {expected}, wait 1h0m0s; that time lies in the future: see its"
        f" annotation {LAST_DOWNSCALE}"
    )
    assert plan.next_downscale is not None
    assert plan.next_downscale > HOUR


def test_the_words_about_time_are_in_whole_seconds_and_never_too_short() -> None:
    scaling = snapshot(counted("a", 3, last="2026-01-01T11:30:00.25Z"), B)
    plan = plan_scaling(scaling)

    assert plan.waits[0].text.startswith(f"{CHANGE} in 30m1s, last downscale zone-a ")
    assert plan.requeue_after == timedelta(minutes=30, milliseconds=250)
