"""What a zone that mirrors should count, and what is published: T-04, MIRR-01 to 11, W-19, W-40."""

import pytest

from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
)
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import NoScale, Reference
from rollout_operator.planning.scaling.mirroring import find_reference
from rollout_operator.planning.scaling.plan import list_references, plan_scaling
from tests.planning.scalings import (
    DEMO,
    FORCED,
    HOUR,
    MINUTE,
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
    read_snapshot,
    show,
    snapshot,
)


@pytest.mark.parametrize("half", ["name=demo", "kind=ReplicaTemplate"])
def test_half_a_mirror_beside_a_lead_mirrors_nothing(half: str) -> None:
    plan = plan_scaling(read_snapshot(f"a 4; b 3 follows=a {half}; scale 9/0"))

    assert (counts(plan), codes(plan)) == ({"zone-b": 4}, [])


def down(letter: str, change: str) -> str:
    return f"scale_down: zone-{letter} mirrors {SHOWN}: {change}"


def up(letter: str, change: str) -> str:
    return f"scale_up: zone-{letter} mirrors {SHOWN}: {change}"


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        pytest.param(
            NoScale(why="kind ReplicaTemplate is not known", is_lasting=True),
            [
                f"problem bad_reference zone-b: StatefulSet zone-b: annotation {MIRROR_NAME}: kind"
                " ReplicaTemplate is not known",
                "failed zone-b",
            ],
            id="T-04.7 the kind is not known",
        ),
        pytest.param(
            NoScale(why="no answer within 30s", is_lasting=False),
            [f"wait reference_not_read zone-b: zone-b mirrors {SHOWN}: no answer within 30s"],
            id="T-04.8 its scale cannot be read just now",
        ),
    ],
)
def test_t04_a_reference_that_shows_no_count(reading: NoScale, expected: list[str]) -> None:
    """W-42: the other zones of the group go on."""
    others = [counted("c", 5), counted("d", 3, follows="c")]
    plan = plan_scaling(snapshot(mirroring("b", 3), *others, scale=reading))

    assert counts(plan) == {"zone-d": 5}
    assert outline(plan)[1:] == expected


def test_a_reference_that_has_not_been_read_yet_is_no_news() -> None:
    (wait,) = plan_scaling(snapshot(mirroring("b", 3))).waits

    assert (wait.code, wait.severity) == (Code.REFERENCE_NOT_READ, Severity.DEBUG)
    assert wait.text == f"zone-b mirrors {SHOWN}, which has not been read yet"


def test_seed070_the_time_between_zones_is_not_kept_by_zones_that_only_mirror() -> None:
    zones = [
        annotated(mirroring("b", 5), span="12h"),
        changed(annotated(counted("c", 3), last="2026-01-01T11:59:59Z"), labels={}),
    ]

    assert show(*zones, scale="3/5") == [down("b", "5 → 3")]


def test_w40_it_is_kept_by_a_mirroring_zone_that_others_follow() -> None:
    """An autoscaler and staggered zones: 5 → 3 → 4 → 2 within hours goes through b zone by zone."""
    leading = annotated(mirroring("a", 4), span="12h")
    behind = counted("b", 4, follows="a", label="12h", ago=HOUR)
    plan = plan_scaling(snapshot(leading, behind, scale="2/4"))

    assert (counts(plan), codes(plan)) == ({}, ["zone_downscaled_lately zone-a"])
    assert plan.next_downscale == 11 * HOUR
    assert counts(plan_scaling(snapshot(mirroring("a", 4), behind, scale="6/4"))) == {"zone-a": 6}


def test_w40_a_guarded_mirroring_zone_keeps_the_time_that_its_review_would_request() -> None:
    lately = counted("b", 4, ago=HOUR, label="12h")
    free, held = mirroring("a", 4), guarded(mirroring("a", 4))

    assert counts(plan_scaling(snapshot(free, lately, scale="2/4"))) == {"zone-a": 2}
    assert codes(plan_scaling(snapshot(held, lately, scale="2/4"))) == [
        "zone_downscaled_lately zone-a"
    ]


@pytest.mark.parametrize(
    ("force", "expected"),
    [
        pytest.param("7", [f"{up('b', '5 → 7')}, {FORCED}"], id="up"),
        pytest.param("1", [f"{down('b', '5 → 1')}, {FORCED}"], id="down"),
        pytest.param("5", ["publish 5 to " + SHOWN], id="as it is"),
    ],
)
def test_mirr05_a_forced_count_takes_the_place_of_the_one_that_is_mirrored(
    force: str, expected: list[str]
) -> None:
    """MIRR-05."""
    assert show(mirroring("b", 5, force=force), scale="3/3") == expected


@pytest.mark.parametrize("is_lasting", [True, False])
def test_a_forced_count_needs_no_reference_that_can_be_read(is_lasting: bool) -> None:
    """What a person does who cannot wait until the object is mended."""
    broken = NoScale(why="no such object", is_lasting=is_lasting)
    plan = plan_scaling(snapshot(mirroring("b", 5, force="3"), scale=broken))

    assert (counts(plan), sorted(plan.failed)) == ({"zone-b": 3}, [])
    assert codes(plan) == (["bad_reference zone-b"] if is_lasting else [])


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, Reference("", "ReplicaTemplate", "demo")),
        ("", Reference("", "ReplicaTemplate", "demo")),
        ("v1", Reference("", "ReplicaTemplate", "demo")),
        ("apps/v1", Reference("apps", "ReplicaTemplate", "demo")),
        ("apps/v1beta2", Reference("apps", "ReplicaTemplate", "demo")),
        ("rollout-operator.grafana.com/v1", DEMO),
        ("a/b/c", None),
        ("a//b", None),
        ("../v1", None),
        ("Apps/v1", None),
        ("a?b/v1", None),
    ],
)
def test_mirr03_the_version_names_a_group(version: str | None, expected: Reference | None) -> None:
    zone = annotated(counted("b", 3), name="demo", kind="ReplicaTemplate", version=version)
    found = find_reference(zone.sts)

    if expected is None:
        assert isinstance(found, Reason)
        assert found.text == (
            f"StatefulSet zone-b: annotation {MIRROR_API_VERSION}: \"{version}\" is neither"
            " group/version nor version"
        )  # fmt: skip
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("name", "../../secrets/x"), ("name", "a/b"), ("name", "a b"), ("name", ".."),
        ("name", "a..b"), ("name", "A"), ("name", "x?y=1"), ("name", "x%2fy"), ("name", "-a"),
        ("name", "a" * 254), ("name", "a\n"), ("name", "\x1b[31m"), ("name", "\u0430"),
        ("kind", "a/b"), ("kind", "Replica Template"), ("kind", "9"), ("kind", "K" * 64),
        ("kind", "\x00"), ("kind", "Kind\n"), ("kind", "\u212aind"),
    ],
)  # fmt: skip
def test_names_that_could_be_a_path_are_refused_and_named(key: str, text: str) -> None:
    plan = plan_scaling(snapshot(annotated(mirroring("b", 5), **{key: text}), scale="3/5"))

    assert (counts(plan), sorted(plan.failed)) == ({}, ["zone-b"])
    (problem,) = plan.problems
    annotation = MIRROR_NAME if key == "name" else MIRROR_KIND
    assert problem.code is Code.BAD_REFERENCE
    assert problem.text.startswith(f'StatefulSet zone-b: annotation {annotation}: "')
    assert problem.text.isprintable()
    assert len(problem.text) < 500


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, [], id="none at all"),
        pytest.param({"name": "", "kind": ""}, [], id="MIRR-02 both empty"),
        pytest.param(
            {"name": "demo"},
            [
                f"problem bad_reference zone-b: StatefulSet zone-b: annotation {MIRROR_NAME}:"
                f" annotation {MIRROR_KIND} is not set or empty: nothing is mirrored"
            ],
            id="MIRR-02 no kind",
        ),
        pytest.param(
            {"name": "", "kind": "ReplicaTemplate"},
            [
                f"problem bad_reference zone-b: StatefulSet zone-b: annotation {MIRROR_KIND}:"
                f" annotation {MIRROR_NAME} is not set or empty: nothing is mirrored"
            ],
            id="MIRR-02 no name",
        ),
    ],
)
def test_mirr02_half_a_reference_is_none(annotations: dict[str, str], expected: list[str]) -> None:
    assert show(annotated(counted("b", 3), **annotations), scale="5/5") == expected


def test_references_are_listed_once_and_in_order_and_not_of_zones_that_follow() -> None:
    zones = [
        mirroring("d", 3),
        mirroring("c", 3, name="beta"),
        mirroring("b", 3),
        annotated(mirroring("e", 3, name="other"), leading="zone-b"),
        mirroring("f", 3, kind="no kind"),
        counted("a", 3),
    ]
    beta = Reference("rollout-operator.grafana.com", "ReplicaTemplate", "beta")

    assert list_references([zone.sts for zone in zones]) == (beta, DEMO)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param(
            {"delay": "1h", "url": ""},
            f"annotation {DOWNSCALE_DELAY}: annotation {DOWNSCALE_DELAY_URL} is not set or empty:"
            " downscales are not delayed",
            id="DELAY-01 no URL",
        ),
        pytest.param(
            {"delay": "", "url": "http://x/"},
            f"annotation {DOWNSCALE_DELAY_URL}: annotation {DOWNSCALE_DELAY} is not set or empty:"
            " downscales are not delayed",
            id="DELAY-01 no delay",
        ),
    ],
)
def test_delay01_half_a_delay_is_none_and_named(annotations: dict[str, str], expected: str) -> None:
    assert show(mirroring("b", 5, **annotations), scale="3/5") == [
        down("b", "5 → 3"),
        f"problem bad_delay zone-b: StatefulSet zone-b: {expected}",
    ]


@pytest.mark.parametrize("delay", ["0", "0s", "0h0m"])
def test_delay01_a_delay_of_nothing_is_none(delay: str) -> None:
    assert show(delayed("b", 5, delay=delay), scale="3/5") == [down("b", "5 → 3")]


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({"delay": "1.5h"}, f"annotation {DOWNSCALE_DELAY}: not a valid duration string: "),
        ({"delay": "-1h"}, f"annotation {DOWNSCALE_DELAY}: not a valid duration string: "),
        ({"delay": "9999999999y"}, f"annotation {DOWNSCALE_DELAY}: duration out of range: "),
        ({"delay": "\x1b[31m"}, f"annotation {DOWNSCALE_DELAY}: not a valid duration string: "),
        ({"delay": "x" * 9999}, f"annotation {DOWNSCALE_DELAY}: not a valid duration string: "),
        ({"url": "ftp://pod/x"}, f"the {DOWNSCALE_DELAY_URL} annotation "),
        ({"url": "\x00"}, f"the {DOWNSCALE_DELAY_URL} annotation "),
    ],
)
def test_w20_a_delay_that_cannot_be_read_blocks_downscales_only(
    annotations: dict[str, str], why: str
) -> None:
    zone = delayed("b", 5, **annotations)
    up_, level, down_ = (
        plan_scaling(snapshot(zone, scale=scale, answers={"b-4": answer(99 * HOUR)}))
        for scale in ("7/5", "5/5", "3/5")
    )

    assert [counts(plan) for plan in (up_, level, down_)] == [{"zone-b": 7}, {}, {}]
    assert [sorted(plan.failed) for plan in (up_, level, down_)] == [[], [], ["zone-b"]]
    for plan in (up_, level, down_):
        (problem,) = plan.problems
        assert problem.code is Code.BAD_DELAY
        assert problem.text.startswith(f"StatefulSet zone-b: {why}")
        assert problem.text.endswith("; no downscale until that is mended")
        assert problem.text.isprintable()
        assert (len(problem.text) < 500, plan.pod_calls) == (True, ())


def test_delay_does_not_hold_a_zone_that_follows() -> None:
    leading = counted("a", 3)
    zone = counted("b", 5, follows="a", delay="1h", url="http://pod/x")

    assert counts(plan_scaling(snapshot(leading, zone, answers={"b-4": answer(MINUTE)}))) == {
        "zone-b": 3
    }
