"""Bad input of following zones, named and kept to its zone: W-42, SCALE-05, SCALE-07, SI-23."""

from typing import Final

import pytest

from rollout_operator.model.names import LEADING_ZONE
from rollout_operator.model.outcome import Severity
from rollout_operator.planning.scaling.following import find_leads
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.builders import unreadable
from tests.planning.scalings import changed, codes, counted, counts, outline, read_view, show, view

FORCE: Final = "grafana.com/rollout-force-replicas"
GATE: Final = "grafana.com/rollout-upscale-only-when-leader-ready"


FORCES: Final = {"5": 5, "+5": 5, "0": 0, "2147483647": 2147483647}
BAD_FORCES: Final = {
    "-1": "is negative",
    "2147483648": "does not fit into 32 bits",
    **dict.fromkeys(("invalid", "", " 5", "5.0", "1_0", "\u0665"), "is not an integer"),
}


@pytest.mark.parametrize("text", [None, *FORCES])
def test_force_values_that_count(text: str | None) -> None:
    plan = plan_scaling(view(counted("a", 4), counted("b", 3, follows="a", force=text)))

    count = 4 if text is None else FORCES[text]
    assert (counts(plan), codes(plan)) == ({"zone-b": count}, [])


@pytest.mark.parametrize(("text", "why"), BAD_FORCES.items())
def test_scale07_force_values_that_do_not_count_are_named(text: str, why: str) -> None:
    assert show(counted("a", 4), counted("b", 3, follows="a", force=text)) == [
        "scale_up: zone-b follows zone-a: 3 → 4",
        f'problem bad_force_replicas zone-b: StatefulSet zone-b: annotation {FORCE}: "{text}" {why}'
        "; it is ignored",
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
    plan = plan_scaling(read_view("a 4; b 3 follows=a name=demo kind=ReplicaTemplate; scale 9/0"))

    assert (counts(plan), codes(plan)) == ({"zone-b": 4}, ["follows_and_mirrors zone-b"])


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
    case = "a 5; b 3 follows=nobody; c 3 follows=a; mirroring d 3 version=a/b/c"
    plan = plan_scaling(read_view(case))

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
    plan = plan_scaling(read_view("b 3 follows=c; c 5 follows=b; d 1 follows=c; e 1 follows=e"))

    assert counts(plan) == {"zone-d": 5}
    assert plan.failed == {"zone-b", "zone-c", "zone-e"}
    assert codes(plan) == [f"leading_zones_circle zone-{name}" for name in "bce"]


def test_a_forced_count_ends_a_circle() -> None:
    plan = plan_scaling(read_view("b 3 follows=c force=5; c 3 follows=b"))

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
