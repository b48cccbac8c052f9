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
from rollout_operator.model.scaling import Reference
from rollout_operator.planning.scaling import find_reference, list_references, plan_scaling
from tests.planning.scalings import (
    DEMO,
    HOUR,
    SHOWN,
    annotated,
    answer,
    counted,
    counts,
    delayed,
    mirroring,
    snapshot,
)


def test_a_reference_that_has_not_been_read_yet_is_no_news() -> None:
    (wait,) = plan_scaling(snapshot(mirroring("b", 3))).waits

    assert (wait.code, wait.severity) == (Code.REFERENCE_NOT_READ, Severity.DEBUG)
    assert wait.text == f"zone-b mirrors {SHOWN}, which has not been read yet"


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
