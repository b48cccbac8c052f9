"""What a zone that follows should count: T-03, SCALE-04 to 14, SEED-066, SEED-067, W-42."""

from typing import Final

import pytest

from rollout_operator.model.names import LEADING_ZONE
from rollout_operator.model.objects import Zone
from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import ScalingSnapshot
from rollout_operator.planning.replicas import follows, keeps_time, map_leads
from rollout_operator.planning.scaling import plan_scaling
from tests.planning.scalings import (
    HOUR,
    SECOND,
    changed,
    codes,
    counted,
    counts,
    mirroring,
    outline,
    outline_snapshot,
    read_snapshot,
    show,
    snapshot,
)
from tests.planning.tables import read_table, shorten

SPAN: Final = "grafana.com/min-time-between-zones-downscale"

SENTENCES: Final = {
    SPAN: "SPAN",
    "grafana.com/rollout-downscale-leader": "LEADER",
    "grafana.com/rollout-upscale-only-when-leader-ready": "GATE",
    "annotation grafana.com/rollout-force-replicas:": "annotation FORCE:",
    "grafana.com/rollout-mirror-replicas-from-resource": "MIRROR",
    ", forced by grafana.com/rollout-force-replicas": ", FORCED",
    "could not find leader for zone-b using LEADER:": "NOT FOUND:",
}
T03 = """
T-03.1 SCALE-04 no leading zone
  a 3 | nothing
T-03.2 SCALE-08 up at once
  a 4; b 3 follows=a | scale_up: zone-b follows zone-a: 3 → 4
T-03.3 the leading zone has three of four ready
  a 4 pods=lllL; b 2 follows=a gate=true
  | wait leading_zone_not_ready zone-b: zone-b follows zone-a: 2 → 4 waits: zone-a has 3 of 4 pods
    ready
T-03.3 once all are ready
  a 4; b 2 follows=a gate=true | scale_up: zone-b follows zone-a: 2 → 4
T-03.4 a chain: the third waits for the second
  b 4 pods=llLL; c 1 follows=b gate=true
  | wait leading_zone_not_ready zone-c: zone-c follows zone-b: 1 → 4 waits: zone-b has 2 of 4 pods
    ready
T-03.4 a chain: the second is ready
  b 4; c 1 follows=b gate=true | scale_up: zone-c follows zone-b: 1 → 4
T-03.5 no gate
  a 4 pods=llLL; b 3 follows=a | scale_up: zone-b follows zone-a: 3 → 4
T-03.6 SCALE-11 the gate is for upscales only
  a 2 pods=lL; b 3 follows=a gate=true | scale_down: zone-b follows zone-a: 3 → 2
T-03.7 the time to wait cannot be read
  a 2 ago=1h; b 3 follows=a label=invalid
  | problem bad_downscale_time zone-b: StatefulSet zone-b: label SPAN: time: invalid duration
    "invalid"; zone-b is not scaled down
  | failed zone-b
T-03.8 SEED-066 a third zone was scaled down ten hours ago
  a 2 ago=1d10h; b 3 follows=a label=12h; c 3 ago=10h
  | wait zone_downscaled_lately zone-b: zone-b follows zone-a: 3 → 2 in 2h0m0s, last downscale
    zone-c 2026-01-01T02:00:00Z, wait 12h0m0s
T-03.9 long ago
  a 2 ago=3d; b 3 follows=a label=12h; c 3 ago=2d | scale_down: zone-b follows zone-a: 3 → 2
T-03.10 SCALE-05 no such zone in the group
  a 4; b 3 follows=x
  | problem no_leading_zone zone-b: StatefulSet zone-b: annotation LEADER: NOT FOUND: the group has
    no StatefulSet "zone-x"
  | failed zone-b
T-03.10 SCALE-05 an empty name
  a 4; b 3 follows=
  | problem no_leading_zone zone-b: StatefulSet zone-b: annotation LEADER: NOT FOUND: the group has
    no StatefulSet ""
  | failed zone-b
T-03.11 SEED-066 the follower does not say how long to wait
  a 2 ago=1h; b 3 follows=a
  | problem wait_time_missing zone-b: StatefulSet zone-b: annotation SPAN: not set, nor as label,
    and another zone was scaled down before: zone-b follows zone-a: 3 → 2
  | failed zone-b
T-03.12 no other zone was scaled down: no time needed
  a 2; b 3 follows=a ago=1h | scale_down: zone-b follows zone-a: 3 → 2
T-03.13 SCALE-10 a malformed time of another zone
  a 2; b 3 follows=a label=1h; c 3 last=x
  | problem bad_downscale_time zone-b: StatefulSet zone-c: annotation grafana.com/last-downscale:
    "x" is no RFC 3339 time; zone-b is not scaled down
  | failed zone-b
T-03.26 SCALE-06 forced to none
  a 5; b 5 follows=a force=0 | scale_down: zone-b follows zone-a: 5 → 0, FORCED
T-03.27 only the one that is forced
  a 5; b 5 follows=a force=0; c 5 follows=a | scale_down: zone-b follows zone-a: 5 → 0, FORCED
SCALE-06 a forced count goes up without the leading zone's pods
  a 5 pods=lllLL; b 3 follows=a gate=true force=4 | scale_up: zone-b follows zone-a: 3 → 4, FORCED
SCALE-06 and down without the time between zones
  a 2 ago=1h; b 3 follows=a label=12h force=1 | scale_down: zone-b follows zone-a: 3 → 1, FORCED
SCALE-06 and whatever the times say
  a 2 last=x; b 3 follows=a force=1 | scale_down: zone-b follows zone-a: 3 → 1, FORCED
SCALE-06 the count it has
  a 2; b 3 follows=a force=3 | nothing
the status of the leading zone is of before
  a 4 pods=llll generation=2; b 2 follows=a gate=true
  | wait leading_zone_not_ready zone-b: zone-b follows zone-a: 2 → 4 waits: the status of zone-a
    does not show its newest spec yet
without the gate that does not matter
  a 4 generation=2; b 2 follows=a | scale_up: zone-b follows zone-a: 2 → 4
SEED-115 how long to wait: annotation only
  a 3 ago=2h; b 5 follows=a span=1h | scale_down: zone-b follows zone-a: 5 → 3
SEED-115 label only
  a 3 ago=2h; b 5 follows=a label=1h | scale_down: zone-b follows zone-a: 5 → 3
SEED-115 both: the annotation
  a 3 ago=2h; b 5 follows=a label=9h span=1h | scale_down: zone-b follows zone-a: 5 → 3
SEED-115 both: the annotation is longer
  a 3 ago=2h; b 5 follows=a label=1h span=9h
  | wait zone_downscaled_lately zone-b: zone-b follows zone-a: 5 → 3 in 7h0m0s, last downscale
    zone-a 2026-01-01T10:00:00Z, wait 9h0m0s
D-22 the longest wait of all zones counts
  a 3 ago=2h; b 5 follows=a label=1h; c 3 label=6h
  | wait zone_downscaled_lately zone-b: zone-b follows zone-a: 5 → 3 in 4h0m0s, last downscale
    zone-a 2026-01-01T10:00:00Z, wait 6h0m0s
a chain goes up one zone after the other
  a 5; b 3 follows=a; c 3 follows=b | scale_up: zone-b follows zone-a: 3 → 5
a chain goes up by what was written
  a 5; b 3 follows=a; c 3 follows=b; written b 5 | scale_up: zone-c follows zone-b: 3 → 5
a gate does not open by what was only written
  a 5; b 3 follows=a; c 3 follows=b gate=true; written b 5
  | wait leading_zone_not_ready zone-c: zone-c follows zone-b: 3 → 5 waits: the status of zone-b
    does not show its newest spec yet
SEED-067 the time between zones is a Go duration
  a 3 ago=90m; b 5 follows=a label=1h30m | scale_down: zone-b follows zone-a: 5 → 3
SEED-067 it is not over yet
  a 3 ago=75m; b 5 follows=a label=1h30m
  | wait zone_downscaled_lately zone-b: zone-b follows zone-a: 5 → 3 in 15m0s, last downscale zone-a
    2026-01-01T10:45:00Z, wait 1h30m0s
SEED-067 one that is less than nothing
  a 3 ago=0s; b 5 follows=a label=-1h | scale_down: zone-b follows zone-a: 5 → 3
D-23 a downscale that only we have seen counts, and the last of several
  a 3 ago=3h; b 5 follows=a label=6h; c 3; seen c 1h; seen b 1s
  | wait zone_downscaled_lately zone-b: zone-b follows zone-a: 5 → 3 in 5h0m0s, last downscale
    zone-c 2026-01-01T11:00:00Z, wait 6h0m0s
D-23 also where the follower does not say how long to wait
  a 3; b 5 follows=a; seen a 1h
  | problem wait_time_missing zone-b: StatefulSet zone-b: annotation SPAN: not set, nor as label,
    and another zone was scaled down before: zone-b follows zone-a: 5 → 3
  | failed zone-b
SCALE-07 a forced count with a sign
  a 4; b 3 follows=a force=+5 | scale_up: zone-b follows zone-a: 3 → 5, FORCED
SCALE-07 the largest forced count
  a 4; b 3 follows=a force=2147483647 | scale_up: zone-b follows zone-a: 3 → 2147483647, FORCED
a forced count without a set to follow or mirror
  a 4 force=5
  | problem bad_force_replicas zone-a: StatefulSet zone-a: annotation FORCE: zone-a follows and
    mirrors nothing: it is ignored
a forced count ends a circle
  b 3 follows=c force=5; c 3 follows=b | scale_up: zone-b follows zone-c: 3 → 5, FORCED
D-89 a gate that is neither true nor false is named, and holds
  a 4 pods=lllL; b 3 follows=a gate=yes
  | wait leading_zone_not_ready zone-b: zone-b follows zone-a: 3 → 4 waits: zone-a has 3 of 4 pods
    ready
  | problem bad_scaling_switch zone-b: StatefulSet zone-b: annotation GATE: "yes" is neither "true"
    nor "false"; true is used
D-89 a gate that is off, in whatever case
  a 4 pods=lllL; b 3 follows=a gate=OFF | scale_up: zone-b follows zone-a: 3 → 4
following wins over mirroring, and both are named
  a 4; b 3 follows=a name=demo kind=ReplicaTemplate; scale 9/0
  | scale_up: zone-b follows zone-a: 3 → 4
  | problem follows_and_mirrors zone-b: StatefulSet zone-b: annotation LEADER: zone-b has annotation
    MIRROR-name as well: it follows, and mirrors nothing
half a mirror beside a lead mirrors nothing: no kind
  a 4; b 3 follows=a name=demo; scale 9/0 | scale_up: zone-b follows zone-a: 3 → 4
half a mirror beside a lead mirrors nothing: no name
  a 4; b 3 follows=a kind=ReplicaTemplate; scale 9/0 | scale_up: zone-b follows zone-a: 3 → 4
a leading zone that cannot be read is named as such
  b 3 follows=a; unreadable zone-a
  | problem object_unreadable zone-b: StatefulSet zone-b: annotation LEADER: NOT FOUND: StatefulSet
    zone-a cannot be read: spec.replicas: expected int, got str: "x"
  | failed zone-b
W-42 SCALE-05 an error of one zone stays with it
  a 5; b 3 follows=absent; c 3 follows=a
  | scale_up: zone-c follows zone-a: 3 → 5
  | problem no_leading_zone zone-b: StatefulSet zone-b: annotation LEADER: NOT FOUND: the group has
    no StatefulSet "zone-absent"
  | failed zone-b
a delay does not hold a zone that follows
  a 3; b 5 follows=a delay=1h url=http://pod/x; says b-4 1m
  | scale_down: zone-b follows zone-a: 5 → 3
what another client wrote after us counts
  a 3; b 5 follows=a generation=3; written b 3 | scale_down: zone-b follows zone-a: 5 → 3
T-03.20 a zone in the midst of its own rollout waits for the time alone
  a 2 ago=1h; b 3 follows=a label=12h pods=ppp current_revision=prev
  | wait zone_downscaled_lately zone-b: zone-b follows zone-a: 3 → 2 in 11h0m0s, last downscale
    zone-a 2026-01-01T11:00:00Z, wait 12h0m0s
T-03.21 its own rollout does not hold it
  a 2; b 3 follows=a label=12h pods=ppp current_revision=prev
  | scale_down: zone-b follows zone-a: 3 → 2
"""


@pytest.mark.parametrize(("case", "expected"), read_table(T03, read_snapshot))
def test_t03_what_a_following_zone_counts(case: ScalingSnapshot, expected: list[str]) -> None:
    assert shorten(outline_snapshot(case), SENTENCES) == expected


def test_seed066_a_chain_is_scaled_down_one_zone_after_the_other() -> None:
    """A person scales zone-a down: b goes 12 h after it, c 12 h after b, never both at once."""
    chain = "a 3 ago={}; b 5 follows=a label=12h; c 5 follows=b label=12h"
    at_once = plan_scaling(read_snapshot(chain.format("1s")))
    later = plan_scaling(read_snapshot(chain.format("12h")))
    b_is_gone = "a 3 ago=13h; b 3 follows=a label=12h ago=1h; c 5 follows=b label=12h"
    after = plan_scaling(read_snapshot(b_is_gone))

    assert (counts(at_once), counts(later), counts(after)) == ({}, {"zone-b": 3}, {})
    assert at_once.next_downscale == at_once.requeue_after == 12 * HOUR - SECOND
    assert codes(after) == ["zone_downscaled_lately zone-c"]
    assert after.next_downscale == 11 * HOUR


@pytest.mark.parametrize("label", ["1d", "12", "", "h", "1e3h", "12h ", "\u0661h", "9" * 5000])
def test_seed067_one_that_is_none_stops_the_downscale_and_is_named(label: str) -> None:
    plan = plan_scaling(
        snapshot(counted("a", 3, ago=99 * HOUR), counted("b", 5, follows="a", label=label))
    )

    assert (counts(plan), sorted(plan.failed)) == ({}, ["zone-b"])
    assert plan.problems[0].code is Code.BAD_DOWNSCALE_TIME
    assert f"StatefulSet zone-b: label {SPAN}: " in plan.problems[0].text
    assert len(plan.problems[0].text) < 500


def test_a_wait_is_news_only_where_more_than_time_has_changed() -> None:
    zones = [counted("a", 3, last="2026-01-01T11:00:00Z"), counted("b", 5, follows="a", label="6h")]
    now = snapshot().group.now
    early, late = (plan_scaling(snapshot(*zones, now=at)).waits[0] for at in (now, now + HOUR))

    assert early.text != late.text
    assert early.stable_text == late.stable_text != ""


GUARDED: Final = {"grafana.com/prepare-downscale": "true"}


@pytest.mark.parametrize(
    ("zones", "keeping"),
    [
        pytest.param(
            [counted("a", 3, label="1h"), counted("b", 3, follows="a", label="1h")],
            ["zone-a", "zone-b"],
            id="SEED-066 one that is followed, and one that follows",
        ),
        pytest.param(
            [counted("a", 3), counted("b", 3, follows="a", span="1h")],
            ["zone-a", "zone-b"],
            id="SEED-066 a bare leading zone (docs/scaling.md): the longest time of a group counts",
        ),
        pytest.param(
            [counted("a", 3, label="1h"), counted("b", 3, follows="a")],
            ["zone-a", "zone-b"],
            id="a follower that names no time itself",
        ),
        pytest.param(
            [counted("a", 3), counted("b", 3, follows="a")], [], id="no zone names a time"
        ),
        pytest.param([counted("a", 3, label="1h"), counted("b", 3)], [], id="no zone follows"),
        pytest.param(
            [changed(one, labels={**one.sts.labels, **GUARDED}) for one in (
                counted("a", 3, label="1h"), counted("b", 3, follows="a", label="1h"),
            )],
            [],
            id="D-23 a review keeps it",
        ),
        pytest.param(
            [mirroring("a", 3, span="1h"), mirroring("b", 3, span="1h")],
            [],
            id="SEED-070 zones that mirror, and no zone follows them",
        ),
    ],
)  # fmt: skip
def test_which_zones_keep_the_time_of_their_downscales(
    zones: list[Zone], keeping: list[str]
) -> None:
    """What is written down is what other zones wait for."""
    sets = [zone.sts for zone in zones]
    assert [sts.name for sts in sets if keeps_time(sts, sets)] == keeping
    follower = {zone.sts.name for zone in zones if follows(zone.sts)}
    plan = plan_scaling(
        snapshot(*(changed(z, replicas=2) if z.sts.name == "zone-a" else z for z in zones))
    )
    assert {one.zone.name for one in plan.scale if one.keeps_time} == follower & set(keeping)


# Bad input of following zones, named and kept to its zone: W-42, SCALE-05, SCALE-07, SI-23

FORCE: Final = "grafana.com/rollout-force-replicas"


BAD_FORCES: Final = {
    "-1": "is negative",
    "2147483648": "does not fit into 32 bits",
    **dict.fromkeys(("invalid", "", " 5", "5.0", "1_0", "\u0665"), "is not an integer"),
}


@pytest.mark.parametrize(("text", "why"), BAD_FORCES.items())
def test_scale07_force_values_that_do_not_count_are_named(text: str, why: str) -> None:
    assert show(counted("a", 4), counted("b", 3, follows="a", force=text)) == [
        "scale_up: zone-b follows zone-a: 3 → 4",
        f'problem bad_force_replicas zone-b: StatefulSet zone-b: annotation {FORCE}: "{text}" {why}'
        "; it is ignored",
    ]


def circle(names: str) -> str:
    return f"{' follows '.join(f'zone-{name}' for name in names)}: a circle leads nowhere"


@pytest.mark.parametrize(
    ("follows", "expected"),
    [
        pytest.param("b", {"b": "bb"}, id="itself"),
        pytest.param("cb", {"b": "bcb", "c": "cbc"}, id="two"),
        pytest.param("cdb", {"b": "bcdb", "c": "cdbc", "d": "dbcd"}, id="three"),
        pytest.param("cbbd", {"b": "bcb", "c": "cbc"}, id="two, and a chain that ends there"),
        pytest.param("cbed", {"b": "bcb", "c": "cbc", "d": "ded", "e": "ede"}, id="two circles"),
        pytest.param("abc", {}, id="a chain"),
        pytest.param("xb", {}, id="a chain that leads out of the group"),
    ],
)
def test_circles_are_found(follows: str, expected: dict[str, str]) -> None:
    """`follows` is whom zones b, c, d, e follow."""
    zones = [counted("a", 3)]
    zones += [counted(one, 3, follows=to) for one, to in zip("bcde", follows, strict=False)]

    assert map_leads(zones).circles == {
        f"zone-{name}": circle(names) for name, names in expected.items()
    }


def test_a_long_circle_is_cut_and_found_in_time_that_grows_with_its_length() -> None:
    names = [f"n{number:04}" for number in range(2000)]
    zones = [
        counted(one, 0, follows=to) for one, to in zip(names, [*names[1:], names[0]], strict=True)
    ]
    circles = map_leads(zones).circles

    assert len(circles) == 2000
    assert circles["zone-n0000"] == (
        "zone-n0000 follows zone-n0001 follows zone-n0002 follows zone-n0003 follows zone-n0004"
        " follows ...: a circle leads nowhere"
    )


def test_zones_of_a_circle_stay_as_they_are_and_others_follow_them() -> None:
    plan = plan_scaling(read_snapshot("b 3 follows=c; c 5 follows=b; d 1 follows=c; e 1 follows=e"))

    assert counts(plan) == {"zone-d": 5}
    assert plan.failed == {"zone-b", "zone-c", "zone-e"}
    assert codes(plan) == [f"leading_zones_circle zone-{name}" for name in "bce"]


@pytest.mark.parametrize(
    "text", ["\x1b[31m", "zone-a\n", "\u202ezone", "x" * 100_000, "\x00", "../zone-a", '"']
)
def test_si23_names_from_annotations_are_short_and_printable(text: str) -> None:
    hostile = counted("b", 3, follows="x", gate=text, force=text)
    hostile = changed(hostile, annotations={**hostile.sts.annotations, LEADING_ZONE: text})
    for other in (hostile, counted("b", 3, follows="a", gate=text, force=text)):
        lines = outline(plan_scaling(snapshot(counted("a", 3), other)))

        assert len(lines) >= 2
        assert all(line.isprintable() and len(line) < 800 for line in lines)
