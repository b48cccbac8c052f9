"""What holds for every plan of counts, whatever the group looks like."""

from collections.abc import Mapping
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.names import FORCE_REPLICAS, LEADING_ZONE, UPSCALE_WHEN_READY
from rollout_operator.model.objects import Deletion, Underway, Zone
from rollout_operator.model.scaling import (
    NoScale,
    PodAnswer,
    PodCalls,
    Reading,
    Reference,
    Scale,
    ScalingSnapshot,
)
from rollout_operator.planning.scaling import plan_scaling
from tests.builders import NOW, shuffled, unreadable
from tests.examples import repeatable
from tests.planning.scalings import (
    DEMO,
    HOUR,
    MINUTE,
    SECOND,
    URL,
    annotated,
    changed,
    counted,
    guarded,
    snapshot,
)

pytestmark = pytest.mark.thorough

REPEATABLE = repeatable(150)
rarely = st.integers(0, 19).map(lambda number: number == 0)
counts = st.integers(0, 5)
hostile = st.sampled_from(["", "x", "-1", "99999999999", "9999-12-31T23:59:59Z", "\x1b[0m", "12h"])


@st.composite
def zones(draw: st.DrawFn, letter: str) -> Zone:
    number = draw(counts)
    broken = st.text("lllpLT-", min_size=number, max_size=number)
    pods = draw(st.sampled_from(["l" * number] * 3 + [draw(broken)]))
    ago = draw(st.sampled_from([None, None, timedelta(0), 3 * HOUR, 5 * HOUR]))
    base = counted(letter, number, pods=pods, ago=ago, label=draw(some("0", "2h", "4h")))
    annotations = {"force": str(draw(counts)) if draw(rarely) else None}
    kind = draw(st.sampled_from("ffmmmba"))
    if kind in "fb":
        annotations["leading"] = f"zone-{draw(st.sampled_from('aaabbbcdx'))}"
        annotations["gate"] = draw(some("true", "false"))
    if kind in "mb":
        annotations |= {"name": "demo", "kind": "ReplicaTemplate", "version": f"{DEMO.group}/v1"}
        annotations |= {"write_back": draw(some("false", "true"))}
        annotations |= draw(st.sampled_from([{}, {"delay": "1h", "url": URL}]))
    if draw(rarely):
        annotations[draw(st.sampled_from(["force", "last", "span", "version", "delay", "url"]))] = (
            draw(hostile)
        )
    base = annotated(base, **annotations)
    base = guarded(base) if draw(st.integers(0, 3)) == 0 else base
    if draw(rarely):
        base = changed(base, is_terminating=True)
    if draw(rarely):
        base = changed(base, generation=3)
    seats = tuple(replace(pod, phase="Pending") if draw(rarely) else pod for pod in base.pods)
    return replace(base, pods=seats)


def some(*texts: str) -> st.SearchStrategy[str | None]:
    return st.sampled_from([None, *texts])


@st.composite
def pod_calls(draw: st.DrawFn) -> PodCalls:
    ages = st.sampled_from([SECOND] * 4 + [timedelta(0), 30 * SECOND, 2 * MINUTE, -MINUTE])
    since = draw(st.sampled_from([2 * HOUR] * 6 + [None, MINUTE, -HOUR]))
    said = PodAnswer(called_at=NOW - draw(ages), since=None if since is None else NOW - since)
    called = draw(st.sampled_from([None, NOW - MINUTE, NOW - HOUR]))
    return PodCalls(answer=None if draw(rarely) else said, cancelled_at=called)


@st.composite
def scalings(draw: st.DrawFn) -> ScalingSnapshot:
    members = [draw(zones(letter)) for letter in "abcd"[: draw(st.integers(1, 4))]]
    pods = [pod for member in members for pod in member.pods]
    written = {letter: draw(counts) for letter in "abcd" if draw(rarely)}
    case = snapshot(
        *members,
        written=written,
        seen={letter: HOUR for letter in "abcd" if draw(rarely)},
        unreadable=(unreadable("StatefulSet", "zone-x"),) if draw(rarely) else (),
        downscale=Underway(zone="zone-b", replicas_from=5, replicas_to=1) if draw(rarely) else None,
        snapshot_age=HOUR if draw(rarely) else timedelta(0),
        deletions={pod.name: Deletion.ACCEPTED for pod in pods if draw(rarely)},
    )
    reading = Scale(replicas=draw(st.integers(0, 4)), status_replicas=draw(counts))
    readings: Mapping[Reference, Reading] = draw(
        st.sampled_from([*[{DEMO: reading}] * 3, {}, {DEMO: NoScale(why="gone", is_lasting=True)}])
    )
    known = {pod.uid: draw(pod_calls()) for pod in pods if not draw(rarely)}
    return replace(case, scales=readings, pod_calls=known)


def is_unseen(case: ScalingSnapshot, zone: Zone) -> bool:
    return zone.sts.uid in case.written and zone.sts.generation < 2


def current(case: ScalingSnapshot, zone: Zone) -> int:
    return case.written[zone.sts.uid].replicas if is_unseen(case, zone) else zone.sts.replicas


def find_wanted(case: ScalingSnapshot, zone: Zone) -> int | None:
    """Return the count that a zone should have, naively; None where it is unknown."""
    annotations = zone.sts.annotations
    force = annotations.get(FORCE_REPLICAS, "")
    forced = int(force) if force.isdecimal() and int(force) < 2**31 else None
    if LEADING_ZONE in annotations:
        leading = [one for one in case.group.zones if one.sts.name == annotations[LEADING_ZONE]]
        if not leading:
            return None
        return current(case, leading[0]) if forced is None else forced
    if not annotations.get("grafana.com/rollout-mirror-replicas-from-resource-name"):
        return None
    reading = case.scales.get(DEMO)
    return forced if forced is not None else getattr(reading, "replicas", None)


@REPEATABLE
@given(scalings(), st.randoms(use_true_random=False))
def test_the_order_of_zones_and_pods_changes_nothing(case: ScalingSnapshot, rng: Random) -> None:
    uids = rng.sample(list(case.pod_calls), len(case.pod_calls))
    calls = {uid: case.pod_calls[uid] for uid in uids}
    members = shuffled(case.group.zones, rng)
    other = replace(case, group=replace(case.group, zones=members), pod_calls=calls)
    assert plan_scaling(other) == plan_scaling(case)


@REPEATABLE
@given(scalings())
def test_no_plan_goes_below_or_above_what_is_wanted_and_one_zone_down_at_most(
    case: ScalingSnapshot,
) -> None:
    plan = plan_scaling(case)
    by_name = {zone.sts.name: zone for zone in case.group.zones}

    assert sum(one.is_downscale for one in plan.scale) <= 1
    for one in plan.scale:
        wanted = find_wanted(case, by_name[one.zone.name])
        assert wanted is not None
        if one.is_downscale:
            assert wanted <= one.replicas < one.zone.replicas
        else:
            assert one.zone.replicas < one.replicas == wanted
    names = [one.zone.name for one in plan.scale]
    assert len(names) == len(set(names))


@REPEATABLE
@given(scalings())
def test_an_upscale_is_held_by_nothing_but_the_zone_it_follows(case: ScalingSnapshot) -> None:
    """Not by delays, times, rollouts, other zones, frozen views (W-20)."""
    plan = plan_scaling(case)
    going = {one.zone.name for one in plan.scale}
    circular = {reason.zone for reason in plan.problems if reason.code == "leading_zones_circle"}
    for zone in case.group.zones:
        sts, wanted = zone.sts, find_wanted(case, zone)
        is_stuck = sts.is_terminating or is_unseen(case, zone)
        is_gated = (
            sts.annotations.get(UPSCALE_WHEN_READY) == "true" and LEADING_ZONE in sts.annotations
        )
        if wanted is None or is_stuck or is_gated or sts.name in circular:
            continue
        if sts.name in plan.failed:
            continue
        assert (wanted > sts.replicas) <= (sts.name in going)


@REPEATABLE
@given(scalings())
def test_nothing_is_taken_from_a_frozen_or_half_read_group(case: ScalingSnapshot) -> None:
    group = case.group
    blind = replace(case, group=replace(group, snapshot_age=HOUR))
    half = (unreadable("StatefulSet", "zone-y"),)
    partial = replace(case, group=replace(group, unreadable=half))
    for one in (blind, partial):
        assert not any(action.is_downscale for action in plan_scaling(one).scale)


@REPEATABLE
@given(scalings())
def test_a_zone_that_is_not_scaled_though_it_should_be_says_why(case: ScalingSnapshot) -> None:
    """At 3 a.m.: no zone stands still without a word."""
    plan = plan_scaling(case)
    called = {reason.zone for reason in (*plan.waits, *plan.problems)}
    going = {one.zone.name for one in plan.scale}
    for zone in case.group.zones:
        wanted = find_wanted(case, zone)
        if wanted is not None and wanted != current(case, zone):
            assert zone.sts.name in going | called


@REPEATABLE
@given(scalings())
def test_texts_are_short_printable_and_without_a_full_stop(case: ScalingSnapshot) -> None:
    plan = plan_scaling(case)
    actions = [one.reason for one in plan.scale] + [one.reason for one in plan.publish]
    for reason in (*actions, *plan.waits, *plan.problems):
        assert reason.text.isprintable()
        assert len(reason.text) < 1000
        assert not reason.text.endswith(".")
    assert plan.requeue_after is None or plan.requeue_after > timedelta(0)


@REPEATABLE
@given(scalings())
def test_only_pods_of_the_zone_are_called_and_none_gets_both_calls(case: ScalingSnapshot) -> None:
    owned = {zone.sts.name: {pod.uid: pod.name for pod in zone.pods} for zone in case.group.zones}
    for calls in plan_scaling(case).pod_calls:
        post = {one.uid for one in calls.post}
        stay = {one.uid for one in calls.cancel}
        assert not post & stay
        assert post | stay <= owned[calls.zone.name].keys()
        assert len(post) + len(stay) == len(calls.post) + len(calls.cancel)
