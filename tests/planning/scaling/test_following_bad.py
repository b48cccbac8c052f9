"""Bad input of following zones, named and kept to its zone: W-42, SCALE-05, SCALE-07, SI-23."""

from typing import Final

import pytest

from rollout_operator.model.names import LEADING_ZONE
from rollout_operator.model.outcome import Severity
from rollout_operator.planning.scaling.following import find_leads
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.builders import unreadable
from tests.planning.scalings import (
    changed,
    codes,
    counted,
    counts,
    mirroring,
    outline,
    show,
    view,
)

FORCE: Final = "grafana.com/rollout-force-replicas"
GATE: Final = "grafana.com/rollout-upscale-only-when-leader-ready"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param(None, 4, id="absent"),
        pytest.param("5", 5, id="five"),
        pytest.param("+5", 5, id="24 a sign"),
        pytest.param("0", 0, id="none"),
        pytest.param("2147483647", 2147483647, id="the largest int32"),
    ],
)
def test_force_values_that_count(text: str | None, count: int) -> None:
    plan = plan_scaling(view(counted("a", 4), counted("b", 3, follows="a", force=text)))

    assert (counts(plan), codes(plan)) == ({"zone-b": count}, [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-1", '"-1" is negative'),
        ("invalid", '"invalid" is not an integer'),
        ("", '"" is not an integer'),
        ("2147483648", '"2147483648" does not fit into 32 bits'),
        (" 5", '" 5" is not an integer'),
        ("5.0", '"5.0" is not an integer'),
        ("1_0", '"1_0" is not an integer'),
        ("\u0665", '"\u0665" is not an integer'),
    ],
)
def test_scale07_force_values_that_do_not_count_are_named(text: str, why: str) -> None:
    assert show(counted("a", 4), counted("b", 3, follows="a", force=text)) == [
        "scale_up: zone-b follows zone-a: 3 → 4",
        f"problem bad_force_replicas zone-b: StatefulSet zone-b: annotation {FORCE}: {why};"
        " it is ignored",
    ]


def test_force_without_anybody_to_follow_or_mirror_is_named_and_ignored() -> None:
    assert show(counted("a", 4, force="5")) == [
        f"problem bad_force_replicas zone-a: StatefulSet zone-a: annotation {FORCE}: zone-a follows"
        " and mirrors nothing: it is ignored"
    ]


@pytest.mark.parametrize("text", ["True", "yes", "", "1"])
def test_a_gate_that_is_neither_true_nor_false_is_named_and_off(text: str) -> None:
    assert show(counted("a", 4, pods="lllL"), counted("b", 3, follows="a", gate=text)) == [
        "scale_up: zone-b follows zone-a: 3 → 4",
        f'problem bad_scaling_switch zone-b: StatefulSet zone-b: annotation {GATE}: "{text}" is'
        ' neither "true" nor "false"; false is used',
    ]


def test_following_wins_over_mirroring_and_both_are_named() -> None:
    both = counted("b", 3, follows="a", name="demo", kind="ReplicaTemplate")
    lines = show(counted("a", 4), both, scale="9/0")

    assert lines[0] == "scale_up: zone-b follows zone-a: 3 → 4"
    assert [line.partition(":")[0] for line in lines[1:]] == ["problem follows_and_mirrors zone-b"]


def test_an_unreadable_leading_zone_is_named_as_such() -> None:
    broken = (unreadable("StatefulSet", "zone-a"),)
    lines = outline(plan_scaling(view(counted("b", 3, follows="a"), unreadable=broken)))

    assert lines == [
        f"problem object_unreadable zone-b: StatefulSet zone-b: annotation {LEADING_ZONE}:"
        f" could not find leader for zone-b using {LEADING_ZONE}: StatefulSet zone-a cannot be"
        ' read: spec.replicas: expected int, got str: "x"',
        "failed zone-b",
    ]


def test_w42_an_error_of_one_zone_stays_with_it() -> None:
    plan = plan_scaling(
        view(
            counted("a", 5),
            counted("b", 3, follows="nobody"),
            counted("c", 3, follows="a"),
            mirroring("d", 3, version="a/b/c"),
        )
    )

    assert counts(plan) == {"zone-c": 5}
    assert plan.failed == {"zone-b", "zone-d"}
    assert {reason.severity for reason in plan.problems} == {Severity.WARN}


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

    assert find_leads(zones).circles == {
        f"zone-{name}": circle(names) for name, names in expected.items()
    }


def test_a_long_circle_is_cut_and_found_in_time_that_grows_with_its_length() -> None:
    names = [f"n{number:04}" for number in range(2000)]
    zones = [
        counted(one, 0, follows=to) for one, to in zip(names, [*names[1:], names[0]], strict=True)
    ]
    circles = find_leads(zones).circles

    assert len(circles) == 2000
    assert circles["zone-n0000"] == (
        "zone-n0000 follows zone-n0001 follows zone-n0002 follows zone-n0003 follows zone-n0004"
        " follows ...: a circle leads nowhere"
    )


def test_zones_of_a_circle_stay_as_they_are_and_others_follow_them() -> None:
    zones = [
        counted("b", 3, follows="c"),
        counted("c", 5, follows="b"),
        counted("d", 1, follows="c"),
        counted("e", 1, follows="e"),
    ]
    plan = plan_scaling(view(*zones))

    assert counts(plan) == {"zone-d": 5}
    assert plan.failed == {"zone-b", "zone-c", "zone-e"}
    assert codes(plan) == [f"leading_zones_circle zone-{name}" for name in "bce"]


def test_a_forced_count_ends_a_circle() -> None:
    plan = plan_scaling(view(counted("b", 3, follows="c", force="5"), counted("c", 3, follows="b")))

    assert (counts(plan), codes(plan)) == ({"zone-b": 5}, [])


@pytest.mark.parametrize(
    "text", ["\x1b[31m", "zone-a\n", "\u202ezone", "x" * 100_000, "\x00", "../zone-a", '"']
)
def test_si23_names_from_annotations_are_short_and_printable(text: str) -> None:
    hostile = counted("b", 3, follows="x", gate=text, force=text)
    hostile = changed(hostile, annotations={**hostile.sts.annotations, LEADING_ZONE: text})
    for other in (hostile, counted("b", 3, follows="a", gate=text, force=text)):
        lines = outline(plan_scaling(view(counted("a", 3), other)))

        assert len(lines) >= 2
        assert all(line.isprintable() and len(line) < 800 for line in lines)
