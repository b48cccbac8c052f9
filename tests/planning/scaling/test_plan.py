"""The plan of a whole group's counts, and what is published of them.

T-03 20 to 27, exclusion, order, what holds one zone; T-04, MIRR-10, W-19, SEED-068, SEED-069.
"""

from typing import Final

import pytest
from msgspec import structs

from rollout_operator.model.outcome import Code, Severity
from rollout_operator.model.scaling import ScalingPlan, ScalingSnapshot
from rollout_operator.planning.scaling import plan_scaling
from tests.planning.scalings import (
    HOUR,
    SHOWN,
    annotated,
    answer,
    changed,
    codes,
    counted,
    counts,
    delayed,
    guarded,
    mirroring,
    outline,
    outline_snapshot,
    read_snapshot,
    snapshot,
)
from tests.planning.tables import read_table, shorten

SENTENCES: Final = {
    "grafana.com/rollout-mirror-replicas-from-resource": "MIRROR",
    "grafana.com/rollout-delayed-downscale": "DELAY",
    "grafana.com/rollout-prepare-delayed-downscale-url": "DELAY-URL",
}
T04 = """
T-04.1 SEED-068 up: first the zone
  mirroring b 2; scale 5/2 | scale_up: b: 2 → 5
T-04.1 SEED-069 then the status
  mirroring b 5; scale 5/2 | publish 5 to DEMO
T-04.2 no write back: the zone
  mirroring b 2 write_back=false; scale 5/2 | scale_up: b: 2 → 5
T-04.2 and no status after it
  mirroring b 5 write_back=false; scale 5/2 | nothing
T-04.3 down
  mirroring b 3; scale 2/3 | scale_down: b: 3 → 2
T-04.3 and the status
  mirroring b 2; scale 2/3 | publish 2 to DEMO
T-04.4 the status only
  mirroring b 3; scale 3/5 | publish 3 to DEMO
T-04.5 nothing
  mirroring b 3 write_back=false; scale 3/5 | nothing
T-04.6 all as it should be
  mirroring b 3; scale 3/3 | nothing
T-04.9 one of three is behind
  a 4; mirroring b 5; mirroring c 5 write_back=true; mirroring d 2; scale 5/2 | scale_up: d: 2 → 5
T-04.9 W-19 one status for all three
  a 4; mirroring b 5; mirroring c 5 write_back=true; mirroring d 5; scale 5/2 | publish 5 to DEMO
T-04.10 two do not write back
  mirroring b 5 write_back=false; mirroring c 5 write_back=bad; mirroring d 2; scale 5/2
  | scale_up: d: 2 → 5
  | problem bad_scaling_switch zone-c: StatefulSet zone-c: annotation
    MIRROR-write-back: "bad" is not a boolean; nothing is published of zone-c
T-04.10 the third does
  mirroring b 5 write_back=false; mirroring c 5 write_back=bad; mirroring d 5; scale 5/2
  | publish 5 to DEMO
  | problem bad_scaling_switch zone-c: StatefulSet zone-c: annotation
    MIRROR-write-back: "bad" is not a boolean; nothing is published of zone-c
a status that is right is not published again
  mirroring b 5; mirroring c 5; scale 5/5 | nothing
T-04.7 W-42 the kind is not known, and the other zones of the group go on
  mirroring b 3; c 5; d 3 follows=c; scale lasting kind ReplicaTemplate is not known
  | scale_up: zone-d follows zone-c: 3 → 5
  | problem bad_reference zone-b: StatefulSet zone-b: annotation MIRROR-name: kind ReplicaTemplate
    is not known
  | failed zone-b
T-04.8 its scale cannot be read just now
  mirroring b 3; c 5; d 3 follows=c; scale passing no answer within 30s
  | scale_up: zone-d follows zone-c: 3 → 5 | wait reference_not_read zone-b: b: no answer within 30s
MIRR-02 no reference at all
  b 3; scale 5/5 | nothing
MIRR-02 both halves are empty
  b 3 name= kind=; scale 5/5 | nothing
MIRR-02 no kind
  b 3 name=demo; scale 5/5
  | problem bad_reference zone-b: StatefulSet zone-b: annotation MIRROR-name: annotation MIRROR-kind
    is not set or empty: nothing is mirrored
MIRR-02 no name
  b 3 name= kind=ReplicaTemplate; scale 5/5
  | problem bad_reference zone-b: StatefulSet zone-b: annotation MIRROR-kind: annotation MIRROR-name
    is not set or empty: nothing is mirrored
MIRR-05 a forced count takes the place of the one that is mirrored: up
  mirroring b 5 force=7; scale 3/3 | scale_up: b: 5 → 7, FORCED
MIRR-05 down
  mirroring b 5 force=1; scale 3/3 | scale_down: b: 5 → 1, FORCED
MIRR-05 as it is
  mirroring b 5 force=5; scale 3/3 | publish 5 to DEMO
a forced count needs no reference that can be read: a person may not wait until it is mended
  mirroring b 5 force=3; scale lasting no such object
  | scale_down: b: 5 → 3, FORCED
  | problem bad_reference zone-b: StatefulSet zone-b: annotation MIRROR-name: no such object
nor that it can be read just now
  mirroring b 5 force=3; scale passing no answer | scale_down: b: 5 → 3, FORCED
DELAY-01 half a delay is none, and is named: no URL
  mirroring b 5 delay=1h url=; scale 3/5
  | scale_down: b: 5 → 3
  | problem bad_delay zone-b: StatefulSet zone-b: annotation DELAY: annotation DELAY-URL is not set
    or empty: downscales are not delayed
DELAY-01 no delay
  mirroring b 5 delay= url=http://x/; scale 3/5
  | scale_down: b: 5 → 3
  | problem bad_delay zone-b: StatefulSet zone-b: annotation DELAY-URL: annotation DELAY is not set
    or empty: downscales are not delayed
DELAY-01 a delay of nothing is none
  delayed b 5 delay=0h0m; scale 3/5 | scale_down: b: 5 → 3
SEED-070 the time between zones is not kept by zones that only mirror
  mirroring b 5 span=12h; c 3 last=2026-01-01T11:59:59Z; scale 3/5 | scale_down: b: 5 → 3
W-40 it is kept by one that others follow: 5 → 3 → 4 → 2 within hours goes zone by zone
  mirroring a 4 span=12h; b 4 follows=a label=12h ago=1h; scale 2/4
  | wait zone_downscaled_lately zone-a: a: 4 → 2 in 11h0m0s, last downscale zone-b
    2026-01-01T11:00:00Z, wait 12h0m0s
W-40 it holds no upscale
  mirroring a 4 span=12h; b 4 follows=a label=12h ago=1h; scale 6/4 | scale_up: a: 4 → 6
W-40 a guarded one keeps the time that its review would request
  guarded mirroring a 4; b 4 label=12h ago=1h; scale 2/4
  | wait zone_downscaled_lately zone-a: a: 4 → 2 in 11h0m0s, last downscale zone-b
    2026-01-01T11:00:00Z, wait 12h0m0s
W-40 one that is not guarded does not
  mirroring a 4; b 4 label=12h ago=1h; scale 2/4 | scale_down: a: 4 → 2
one downscale at a time, and the others name it
  mirroring b 5; mirroring a 5; mirroring c 5; scale 3/5
  | scale_down: a: 5 → 3
  | wait downscale_underway zone-b: b: 5 → 3 waits: zone-a is scaled down first
  | wait downscale_underway zone-c: c: 5 → 3 waits: zone-a is scaled down first
upscales are not counted and not held
  mirroring a 5; b 2 follows=a; d 2 follows=a ago=1h label=12h; unknown b-0; scale 3/5
  | scale_up: zone-b follows zone-a: 2 → 5
  | scale_up: zone-d follows zone-a: 2 → 5
  | wait zone_downscaled_lately zone-a: a: 5 → 3 in 11h0m0s, last downscale zone-d
    2026-01-01T11:00:00Z, wait 12h0m0s
a downscale of one that mirrors waits in the same words
  mirroring b 5; c 3 pods=pLp current_revision=prev; scale 3/5
  | wait rollout_underway zone-b: b: 5 → 3 waits: zone-c is being rolled out: zone-c has 2 of 3 pods
    ready (zone-c-1: CrashLoopBackOff)
"""


def test_a_group_in_which_all_is_as_it_should_be_gives_an_empty_plan() -> None:
    case = "mirroring a 3; b 3 follows=a label=12h gate=true ago=1h; c 3 follows=b gate=false; d 7"

    assert plan_scaling(read_snapshot(f"{case}; scale 3/3")) == ScalingPlan(
        group=snapshot().group.name
    )


def test_seed068_seed069_one_number_becomes_the_number_of_every_zone() -> None:
    """Mirrored by a, followed by b and c; the object reads as done only then."""
    zones = [mirroring("a", 3), counted("b", 3, follows="a"), counted("c", 3, follows="b")]
    steps = [
        plan_scaling(snapshot(*zones, scale="5/3", written=written))
        for written in ({}, {"a": 5}, {"a": 5, "b": 5}, {"a": 5, "b": 5, "c": 5})
    ]

    assert [counts(plan) for plan in steps] == [{"zone-a": 5}, {"zone-b": 5}, {"zone-c": 5}, {}]
    assert [[one.replicas for one in plan.publish] for plan in steps] == [[], [5], [5], [5]]


def test_the_first_zone_that_may_goes_not_the_first_that_wants() -> None:
    zones = [delayed("a", 5), guarded(mirroring("b", 5)), mirroring("c", 5)]
    short = counted("d", 3, pods="lL-")
    answers = {"a-4": answer(HOUR / 2), "a-3": answer(HOUR / 2)}
    plan = plan_scaling(snapshot(*zones, short, scale="3/5", answers=answers))

    assert counts(plan) == {"zone-c": 3}
    assert codes(plan) == ["delayed_by_pods zone-a", "other_zone_not_ready zone-b"]


@pytest.mark.parametrize("wanted", [2, 7])
def test_a_zone_that_is_being_deleted_is_left_as_it_is(wanted: int) -> None:
    assert outline_snapshot(read_snapshot(f"a {wanted}; going b 5 follows=a")) == [
        f"wait set_terminating zone-b: zone-b follows zone-a: 5 → {wanted} waits: zone-b is being"
        " deleted"
    ]


@pytest.mark.parametrize("wanted", [2, 7])
def test_no_second_step_before_the_first_is_seen(wanted: int) -> None:
    zones = [counted("a", wanted), counted("b", 5, follows="a")]
    plan = plan_scaling(snapshot(*zones, written={"b": 4}))

    assert outline(plan) == [
        f"wait view_changed zone-b: zone-b follows zone-a: 4 → {wanted} waits: the cache does not"
        " show yet that zone-b was set to 4"
    ]
    assert plan.waits[0].severity is Severity.DEBUG
    seen = changed(zones[1], replicas=4, generation=2)
    assert counts(plan_scaling(snapshot(zones[0], seen, written={"b": 4}))) == {"zone-b": wanted}


def test_s7_two_zones_downscaled_at_once_by_their_object_keep_the_time_between_them() -> None:
    """Guarded by labels: the second waits for the first one's pods, then for the time."""
    a, b = (guarded(annotated(mirroring(one, 5), span="1h")) for one in "ab")
    first = plan_scaling(snapshot(a, b, scale="3/5"))
    second = plan_scaling(snapshot(a, b, scale="3/5", written={"a": 3}))
    gone = changed(a, replicas=3, generation=2, status_replicas=5)
    third = plan_scaling(snapshot(gone, b, scale="3/5", written={"a": 3}))
    rest = changed(
        guarded(annotated(mirroring("a", 3), span="1h")), generation=2, observed_generation=2
    )
    fourth = plan_scaling(snapshot(rest, b, scale="3/5", seen={"a": HOUR / 2}))
    fifth = plan_scaling(snapshot(rest, b, scale="3/5", seen={"a": HOUR}))

    assert [counts(plan) for plan in (first, second, third, fourth, fifth)] == [
        {"zone-a": 3}, {}, {}, {}, {"zone-b": 3}
    ]  # fmt: skip
    assert codes(second) == ["downscale_underway zone-b"]
    assert codes(third) == ["other_zone_not_ready zone-b"]
    assert codes(fourth) == ["zone_downscaled_lately zone-b"]


@pytest.mark.parametrize(("case", "expected"), read_table(T04, read_snapshot))
def test_t04_what_a_mirroring_zone_counts(case: ScalingSnapshot, expected: list[str]) -> None:
    assert shorten(outline_snapshot(case, short=True), SENTENCES) == expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param("going b 4; going c 5; scale 5/0", 4, id="up: the one that is behind"),
        pytest.param("going b 4; going c 3; scale 3/0", 4, id="down: the one that is behind"),
        pytest.param("going b 4; going c 6; scale 5/0", 4, id="as far from it: the smaller"),
        pytest.param("going b 5; going c 5; scale 5/0", 5, id="SEED-069 only when all have it"),
    ],
)
def test_w19_the_zone_that_is_furthest_is_published(case: str, expected: int) -> None:
    """They cannot move, as each is being deleted."""
    scaling = read_snapshot(case.replace("going", "going mirroring"))
    turned = structs.replace(scaling.group, zones=scaling.group.zones[::-1])
    for one in (scaling, structs.replace(scaling, group=turned)):
        assert [publish.replicas for publish in plan_scaling(one).publish] == [expected]


def test_seed069_what_was_written_counts_though_the_cache_does_not_show_it() -> None:
    (publish,) = plan_scaling(read_snapshot("mirroring b 2; scale 5/2; written b 5")).publish

    assert (publish.replicas, publish.reason.code) == (5, Code.SCALE_PUBLISHED)
    assert publish.reason.text == f"{SHOWN}: status.replicas 2 → 5, as zone-b has; 5 wanted"


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        pytest.param("b 3; scale 3/5", "mirroring x 5", [], id="another is behind"),
        pytest.param("b 3; scale 3/3", "mirroring x 5", [5], id="and was not shown"),
        pytest.param("b 3; scale 3/5", "mirroring x 3", [3], id="all are there"),
        pytest.param("b 3; scale 3/5", "x 5", [3], id="one mirrors nothing"),
        pytest.param("b 3; scale 3/5", "mirroring x 5 name=other", [3], id="another object"),
        pytest.param("b 3; scale 3/5", "mirroring x 5 write_back=false", [3], id="not published"),
        pytest.param("b 3 write_back=false; scale 3/3", "mirroring x 5", [], id="nothing of ours"),
    ],
)
def test_w19_zones_of_other_groups_have_a_part_in_the_status(
    own: str, other: str, expected: list[int]
) -> None:
    elsewhere = tuple(zone.sts for zone in read_snapshot(other).group.zones)
    scaling = structs.replace(read_snapshot(f"mirroring {own}"), elsewhere=elsewhere)
    plan = plan_scaling(scaling)

    assert [publish.replicas for publish in plan.publish] == expected
    assert plan.scale == (), "their counts are no business of ours"
