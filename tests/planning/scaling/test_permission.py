"""Whether the group lets a zone go down: W-18, W-40, D-22, D-25, SEED-106, SEED-110, T-03 6."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest
from msgspec import structs

from rollout_operator.model.downscale import Decrease, Underway
from rollout_operator.model.group import Deletion, Zone
from rollout_operator.model.names import LAST_DOWNSCALE
from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import ScalingSnapshot
from rollout_operator.model.tracker import TimesSource
from rollout_operator.planning.downscales.rule import assess_neighbours
from rollout_operator.planning.rollout.zones import SNAPSHOT_LIMIT, STALE_RECHECK
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.builders import prev, unreadable
from tests.planning.scalings import (
    HOUR,
    SECOND,
    SHOWN,
    annotated,
    changed,
    codes,
    counted,
    counts,
    guarded,
    mirroring,
    outline,
    snapshot,
)

B: Final = counted("b", 5, follows="a", label="1h")
CHANGE: Final = "zone-b follows zone-a: 5 → 3"
OTHERS: Final = {
    "short": counted("c", 3, pods="lLl"),
    "missing": counted("c", 3, pods="ll-"),
    "rolling": annotated(prev("c", "pLp")),
    "rolled, and one still starts": changed(prev("c", "llL"), update_revision="last"),
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


def test_d25_a_delete_of_ours_that_cannot_be_seen_yet_is_a_rollout() -> None:
    scaling = plan_b(counted("c", 3), deletions={"zone-c-1": Deletion.ACCEPTED})

    assert codes(plan_scaling(scaling)) == ["rollout_underway zone-b"]


def test_d25_a_delete_in_the_zone_itself_does_not_hold_it() -> None:
    scaling = plan_b(deletions={"zone-b-1": Deletion.ACCEPTED})

    assert counts(plan_scaling(scaling)) == {"zone-b": 3}


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


UNDERWAY: Final = Underway(zone="zone-c", replicas_from=5, replicas_to=4)
BROKEN: Final = (unreadable("StatefulSet", "zone-d"),)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        pytest.param(
            snapshot(counted("a", 3), B, downscale=UNDERWAY),
            held("downscale_underway", "zone-c is being scaled down from 5 to 4 replicas"),
            id="D-25 another downscale that may still persist",
        ),
        pytest.param(
            snapshot(counted("a", 3), B, counted("c", 5), written={"c": 4}),
            held("downscale_underway", "zone-c is being scaled down from 5 to 4 replicas"),
            id="D-25 one of ours that the cache does not show",
        ),
        pytest.param(
            snapshot(counted("a", 3), B, unreadable=BROKEN),
            held(
                "object_unreadable",
                'StatefulSet zone-d cannot be read: spec.replicas: expected int, got str: "x"',
            ),
            id="SI-08 a member that cannot be read",
        ),
        pytest.param(
            snapshot(counted("a", 3), B, snapshot_age=SNAPSHOT_LIMIT + SECOND),
            held("view_stale", "the newest proof that the cache is live is more than 60s old"),
            id="SI-09 a frozen view",
        ),
        pytest.param(
            structs.replace(snapshot(counted("a", 3), B), times_problem="loading zones failed"),
            held("bad_downscale_time", "loading zones failed"),
            id="ZONE-05 times that are not known",
        ),
    ],
)
def test_what_holds_every_downscale(scaling: ScalingSnapshot, expected: list[str]) -> None:
    plan = plan_scaling(scaling)

    assert outline(plan) == expected
    is_frozen = plan.waits[0].code is Code.SNAPSHOT_STALE
    assert plan.requeue_after == (STALE_RECHECK if is_frozen else None)
    forced = structs.replace(
        scaling,
        group=structs.replace(
            scaling.group,
            zones=tuple(
                annotated(zone, force="1") if zone.sts.name == "zone-b" else zone
                for zone in scaling.group.zones
            ),
        ),
    )
    assert codes(plan_scaling(forced)) == [f"{plan.waits[0].code} zone-b"], "SCALE-06: force too"


@pytest.mark.parametrize("b", [B, guarded(B)], ids=["plain", "guarded"])
def test_a_downscale_of_the_zone_itself_does_not_hold_it(b: Zone) -> None:
    own = Underway(zone="zone-b", replicas_from=5, replicas_to=3)

    assert counts(plan_scaling(snapshot(counted("a", 3), b, downscale=own))) == {"zone-b": 3}


def test_an_upscale_of_ours_that_cannot_be_seen_holds_no_zone() -> None:
    assert counts(
        plan_scaling(snapshot(counted("a", 3), B, counted("c", 5), written={"c": 6}))
    ) == {"zone-b": 3}


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


def test_a_mirroring_zone_is_held_in_the_same_words() -> None:
    zones = [mirroring("b", 5), OTHERS["rolling"]]
    plan = plan_scaling(snapshot(*zones, scale="3/5"))

    assert plan.waits[0].text.startswith(
        f"zone-b mirrors {SHOWN}: 5 → 3 waits: zone-c is being rolled out: zone-c has 2 of 3"
    )
