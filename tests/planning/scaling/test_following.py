"""What a zone that follows should count: T-03, SCALE-04 to 14, SEED-066, SEED-067, W-42."""

from collections.abc import Sequence
from typing import Final

import pytest

from rollout_operator.model.group import Zone
from rollout_operator.model.names import LEADING_ZONE
from rollout_operator.model.outcome import Code
from rollout_operator.planning.scaling.following import follows, keeps_time
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.planning.scalings import (
    FORCED,
    HOUR,
    SECOND,
    changed,
    codes,
    counted,
    counts,
    mirroring,
    show,
    view,
)

SPAN: Final = "grafana.com/min-time-between-zones-downscale"
GATE: Final = "grafana.com/rollout-upscale-only-when-leader-ready"
FORCE: Final = "grafana.com/rollout-force-replicas"


def lately(letter: str, change: str, left: str, last: str, wait: str) -> str:
    leading = "a" if letter == "b" else "b"
    return (
        f"wait zone_downscaled_lately zone-{letter}: zone-{letter} follows zone-{leading}: {change}"
        f" in {left}, last downscale {last}, wait {wait}"
    )


def unready(letter: str, leading: str, change: str, pods: str) -> str:
    return (
        f"wait leading_zone_not_ready zone-{letter}: zone-{letter} follows zone-{leading}:"
        f" {change} waits: zone-{leading} has {pods} pods ready"
    )


def no_lead(letter: str, name: str) -> list[str]:
    text = (
        f"problem no_leading_zone zone-{letter}: StatefulSet zone-{letter}: annotation"
        f" {LEADING_ZONE}: could not find leader for zone-{letter} using"
        f' {LEADING_ZONE}: the group has no StatefulSet "{name}"'
    )
    return [text, f"failed zone-{letter}"]


def bad(letter: str, culprit: str, why: str) -> list[str]:
    text = (
        f"problem bad_downscale_time zone-{letter}: StatefulSet zone-{culprit}: {why};"
        f" zone-{letter} is not scaled down"
    )
    return [text, f"failed zone-{letter}"]


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        pytest.param([counted("a", 3)], [], id="T-03.1 SCALE-04 no leading zone"),
        pytest.param(
            [counted("a", 4), counted("b", 3, follows="a")],
            ["scale_up: zone-b follows zone-a: 3 → 4"],
            id="T-03.2 SCALE-08 up at once",
        ),
        pytest.param(
            [counted("a", 4, pods="lllL"), counted("b", 2, follows="a", gate="true")],
            [unready("b", "a", "2 → 4", "3 of 4")],
            id="T-03.3 the leading zone has three of four ready",
        ),
        pytest.param(
            [counted("a", 4), counted("b", 2, follows="a", gate="true")],
            ["scale_up: zone-b follows zone-a: 2 → 4"],
            id="T-03.3 once all are ready",
        ),
        pytest.param(
            [
                counted("b", 4, pods="llLL"),
                counted("c", 1, follows="b", gate="true"),
            ],
            [unready("c", "b", "1 → 4", "2 of 4")],
            id="T-03.4 a chain: the third waits for the second",
        ),
        pytest.param(
            [counted("b", 4), counted("c", 1, follows="b", gate="true")],
            ["scale_up: zone-c follows zone-b: 1 → 4"],
            id="T-03.4 a chain: the second is ready",
        ),
        pytest.param(
            [counted("a", 4, pods="llLL"), counted("b", 3, follows="a")],
            ["scale_up: zone-b follows zone-a: 3 → 4"],
            id="T-03.5 no gate",
        ),
        pytest.param(
            [counted("a", 2, pods="lL"), counted("b", 3, follows="a", gate="true")],
            ["scale_down: zone-b follows zone-a: 3 → 2"],
            id="T-03.6 SCALE-11 the gate is for upscales only",
        ),
        pytest.param(
            [counted("a", 2, ago=HOUR), counted("b", 3, follows="a", label="invalid")],
            bad("b", "b", f'label {SPAN}: time: invalid duration "invalid"'),
            id="T-03.7 the time to wait cannot be read",
        ),
        pytest.param(
            [
                counted("a", 2, ago=34 * HOUR),
                counted("b", 3, follows="a", label="12h"),
                counted("c", 3, ago=10 * HOUR),
            ],
            [lately("b", "3 → 2", "2h0m0s", "zone-c 2026-01-01T02:00:00Z", "12h0m0s")],
            id="T-03.8 SEED-066 a third zone was scaled down ten hours ago",
        ),
        pytest.param(
            [
                counted("a", 2, ago=72 * HOUR),
                counted("b", 3, follows="a", label="12h"),
                counted("c", 3, ago=48 * HOUR),
            ],
            ["scale_down: zone-b follows zone-a: 3 → 2"],
            id="T-03.9 long ago",
        ),
        pytest.param(
            [counted("a", 4), counted("b", 3, follows="x")],
            no_lead("b", "zone-x"),
            id="T-03.10 SCALE-05 no such zone in the group",
        ),
        pytest.param(
            [counted("a", 4), counted("b", 3, follows="")],
            no_lead("b", ""),
            id="T-03.10 SCALE-05 an empty name",
        ),
        pytest.param(
            [counted("a", 2, ago=HOUR), counted("b", 3, follows="a")],
            [
                f"problem wait_time_missing zone-b: StatefulSet zone-b: annotation {SPAN}: not set,"
                " nor as label, and another zone was scaled down before: zone-b follows zone-a:"
                " 3 → 2",
                "failed zone-b",
            ],
            id="T-03.11 SEED-066 the follower does not say how long to wait",
        ),
        pytest.param(
            [counted("a", 2), counted("b", 3, follows="a", ago=HOUR)],
            ["scale_down: zone-b follows zone-a: 3 → 2"],
            id="T-03.12 nobody else was scaled down: no time needed",
        ),
        pytest.param(
            [counted("a", 2), counted("b", 3, follows="a", label="1h"), counted("c", 3, last="x")],
            bad("b", "c", 'annotation grafana.com/last-downscale: "x" is no RFC 3339 time'),
            id="T-03.13 SCALE-10 a malformed time of another zone",
        ),
        pytest.param(
            [counted("a", 5), counted("b", 5, follows="a", force="0")],
            [f"scale_down: zone-b follows zone-a: 5 → 0, {FORCED}"],
            id="T-03.26 SCALE-06 forced to none",
        ),
        pytest.param(
            [
                counted("a", 5),
                counted("b", 5, follows="a", force="0"),
                counted("c", 5, follows="a"),
            ],
            [f"scale_down: zone-b follows zone-a: 5 → 0, {FORCED}"],
            id="T-03.27 only the one that is forced",
        ),
    ],
)
def test_t03_what_a_following_zone_counts(zones: Sequence[Zone], expected: list[str]) -> None:
    assert show(*zones) == expected


@pytest.mark.parametrize(
    ("zones", "expected"),
    [
        pytest.param(
            [counted("a", 5, pods="lllLL"), counted("b", 3, follows="a", gate="true", force="4")],
            {"zone-b": 4},
            id="SCALE-06 up without the leading zone's pods",
        ),
        pytest.param(
            [counted("a", 2, ago=HOUR), counted("b", 3, follows="a", label="12h", force="1")],
            {"zone-b": 1},
            id="SCALE-06 down without the time between zones",
        ),
        pytest.param(
            [counted("a", 2, ago=HOUR, last="x"), counted("b", 3, follows="a", force="1")],
            {"zone-b": 1},
            id="SCALE-06 down whatever the times say",
        ),
        pytest.param(
            [counted("a", 2), counted("b", 3, follows="a", force="3")],
            {},
            id="SCALE-06 the count it has",
        ),
    ],
)
def test_a_forced_count_waits_for_nobody(zones: Sequence[Zone], expected: dict[str, int]) -> None:
    plan = plan_scaling(view(*zones))

    assert (counts(plan), codes(plan)) == (expected, [])


def test_seed066_a_chain_is_scaled_down_one_zone_after_the_other() -> None:
    """A person scales zone-a down: b goes 12 h after it, c 12 h after b, never both at once."""
    b, c = (
        counted("b", 5, follows="a", label="12h"),
        counted("c", 5, follows="b", label="12h"),
    )
    at_once = plan_scaling(view(counted("a", 3, ago=SECOND), b, c))
    later = plan_scaling(view(counted("a", 3, ago=12 * HOUR), b, c))
    after = plan_scaling(
        view(
            counted("a", 3, ago=13 * HOUR),
            counted("b", 3, follows="a", label="12h", ago=HOUR),
            c,
        )
    )

    assert (counts(at_once), counts(later), counts(after)) == ({}, {"zone-b": 3}, {})
    assert at_once.next_downscale == at_once.look_again == 12 * HOUR - SECOND
    assert codes(after) == ["zone_downscaled_lately zone-c"]
    assert after.next_downscale == 11 * HOUR


@pytest.mark.parametrize(
    ("label", "ago", "may_go"),
    [
        ("1h30m", 1.5, True),
        ("1h30m", 1.25, False),
        ("5m", 0.1, True),
        ("90s", 0.02, False),
        ("0", 0, True),
        ("-1h", 0, True),
    ],
)
def test_seed067_the_time_between_zones_is_a_go_duration(
    label: str, ago: float, may_go: bool
) -> None:
    plan = plan_scaling(
        view(counted("a", 3, ago=ago * HOUR), counted("b", 5, follows="a", label=label))
    )

    assert counts(plan) == ({"zone-b": 3} if may_go else {})


@pytest.mark.parametrize("label", ["1d", "12", "", "h", "1e3h", "12h ", "\u0661h", "9" * 5000])
def test_seed067_one_that_is_none_stops_the_downscale_and_is_named(label: str) -> None:
    plan = plan_scaling(
        view(counted("a", 3, ago=99 * HOUR), counted("b", 5, follows="a", label=label))
    )

    assert (counts(plan), sorted(plan.failed)) == ({}, ["zone-b"])
    assert plan.problems[0].code is Code.BAD_DOWNSCALE_TIME
    assert f"StatefulSet zone-b: label {SPAN}: " in plan.problems[0].text
    assert len(plan.problems[0].text) < 500


@pytest.mark.parametrize(
    ("follower", "may_go"),
    [
        pytest.param(counted("b", 5, follows="a", span="1h"), True, id="annotation only"),
        pytest.param(counted("b", 5, follows="a", label="1h"), True, id="label only"),
        pytest.param(counted("b", 5, follows="a", label="9h", span="1h"), True, id="both"),
        pytest.param(counted("b", 5, follows="a", label="1h", span="9h"), False, id="both: longer"),
    ],
)  # fmt: skip
def test_seed115_label_or_annotation_says_how_long_to_wait(follower: Zone, may_go: bool) -> None:
    plan = plan_scaling(view(counted("a", 3, ago=2 * HOUR), follower))

    assert counts(plan) == ({"zone-b": 3} if may_go else {})


def test_d22_the_longest_wait_of_all_zones_counts() -> None:
    plan = plan_scaling(
        view(
            counted("a", 3, ago=2 * HOUR),
            counted("b", 5, follows="a", label="1h"),
            counted("c", 3, label="6h"),
        )
    )

    assert (counts(plan), plan.next_downscale) == ({}, 4 * HOUR)


def test_the_last_of_several_downscales_tells_how_long_is_left() -> None:
    plan = plan_scaling(
        view(
            counted("a", 3, ago=3 * HOUR),
            counted("b", 5, follows="a", label="6h"),
            counted("c", 3),
            seen={"c": HOUR, "b": SECOND},
        )
    )

    assert plan.next_downscale == 5 * HOUR
    assert plan.waits[0].text.endswith("last downscale zone-c 2026-01-01T11:00:00Z, wait 6h0m0s")


def test_the_words_of_a_wait_are_news_only_where_more_than_time_has_changed() -> None:
    early, late = (
        plan_scaling(
            view(counted("a", 3, last="2026-01-01T11:00:00Z"),
                 counted("b", 5, follows="a", label="6h"), now=now)
        ).waits[0]
        for now in (view().group.now, view().group.now + HOUR)
    )  # fmt: skip

    assert early.text != late.text
    assert early.gist == late.gist != ""


def test_d23_a_downscale_that_only_we_have_seen_counts() -> None:
    zones = [counted("a", 3), counted("b", 5, follows="a", label="6h")]

    assert codes(plan_scaling(view(*zones, seen={"a": HOUR}))) == ["zone_downscaled_lately zone-b"]
    assert codes(plan_scaling(view(zones[0], counted("b", 5, follows="a"), seen={"a": HOUR}))) == [
        "wait_time_missing zone-b"
    ]


def test_the_status_of_the_leading_zone_is_of_before() -> None:
    leading = changed(counted("a", 4), generation=2)
    expected = (
        "wait leading_zone_not_ready zone-b: zone-b follows zone-a: 2 → 4 waits: the status of"
        " zone-a does not show its newest spec yet"
    )

    assert show(leading, counted("b", 2, follows="a", gate="true")) == [expected]
    assert counts(plan_scaling(view(leading, counted("b", 2, follows="a")))) == {"zone-b": 4}


def test_a_chain_goes_up_in_one_look_after_the_other_by_what_was_written() -> None:
    zones = [counted("a", 5), counted("b", 3, follows="a"), counted("c", 3, follows="b")]

    assert counts(plan_scaling(view(*zones))) == {"zone-b": 5}
    second = plan_scaling(view(*zones, written={"b": 5}))
    assert (counts(second), codes(second)) == ({"zone-c": 5}, [])


def test_a_gate_does_not_open_by_what_was_only_written() -> None:
    zones = [
        counted("a", 5),
        counted("b", 3, follows="a"),
        counted("c", 3, follows="b", gate="true"),
    ]

    assert codes(plan_scaling(view(*zones, written={"b": 5}))) == ["leading_zone_not_ready zone-c"]


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
            ["zone-b"],
            id="only who asks for a time",
        ),
        pytest.param([counted("a", 3, label="1h"), counted("b", 3)], [], id="nobody follows"),
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
            id="SEED-070 zones that mirror, and nobody follows them",
        ),
    ],
)  # fmt: skip
def test_who_keeps_the_time_of_its_downscales(zones: list[Zone], keeping: list[str]) -> None:
    """What is written down is what other zones wait for."""
    sets = [zone.sts for zone in zones]
    assert [sts.name for sts in sets if keeps_time(sts, sets)] == keeping
    follower = {zone.sts.name for zone in zones if follows(zone.sts)}
    plan = plan_scaling(
        view(*(changed(z, replicas=2) if z.sts.name == "zone-a" else z for z in zones))
    )
    assert {one.zone.name for one in plan.scale if one.keeps_time} == follower & set(keeping)
