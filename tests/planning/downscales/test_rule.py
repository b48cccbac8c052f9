"""Who of a group holds a downscale back: T-07, PREP-09 to 19, D-25, SEED-110, SI-08, SEC-25."""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.downscale import Decrease, Underway
from rollout_operator.model.group import Deletion, Group, Zone
from rollout_operator.model.names import (
    LAST_DOWNSCALE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    Uid,
)
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity, Verdict
from rollout_operator.planning.downscales.rule import assess_neighbours
from rollout_operator.planning.downscales.spacing import format_downscale_time
from tests.builders import NOW, group, sts, sts_uid, unreadable, with_pods, zone

REPEATABLE: Final = settings(derandomize=True, deadline=None, max_examples=200, database=None)
HOUR: Final = timedelta(hours=1)
PREFIX: Final = (
    "downscale of statefulsets/zone-a in test from 3 to 1 replicas is not allowed because "
)
DECREASE: Final = Decrease(
    resource="statefulsets", namespace="test", name="zone-a", replicas_from=3, replicas_to=1
)


def ask(
    case: Group, *, scaled: StatefulSet | None = None, seen: Mapping[Uid, datetime] | None = None
) -> Verdict | None:
    """Ask whether zone a may be scaled down."""
    return assess_neighbours(DECREASE, scaled or sts("a"), case, seen or {})


def refused(code: Code, why: str, status: int = 0) -> Verdict:
    reason = Reason(code=code, text=PREFIX + why, severity=Severity.WARN)
    return Verdict(is_allowed=False, reason=reason, code=status)


def unsettled(outdated: int, down: int, letter: str = "b") -> Verdict:
    why = (
        f"statefulset zone-{letter} has {outdated} non-updated replicas and {down} non-ready"
        " replicas"
    )
    return refused(Code.OTHER_ZONE_NOT_READY, why)


def lately(letter: str = "b", ago: timedelta = HOUR) -> dict[str, str]:
    """Return the annotations of a zone that was scaled down and waits for twelve hours."""
    return {
        LAST_DOWNSCALE: format_downscale_time(NOW - ago),
        MIN_TIME_BETWEEN_DOWNSCALES: "12h",
    }


WAIT: Final = (
    "statefulset zone-{} was downscaled at 2026-01-01 11:00:00 +0000 UTC and is labelled to wait"
    " 12h0m0s between zone downscales"
)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(group(zone("a")), None, id="alone"),
        pytest.param(group(zone("a"), zone("b"), zone("c")), None, id="all whole"),
        pytest.param(group(zone("a"), zone("b", "")), None, id="another zone of no replicas"),
        pytest.param(
            group(zone("a"), zone("b"), zone("c", annotations=lately())),
            refused(Code.ZONE_DOWNSCALED_LATELY, WAIT.format("c")),
            id="T-07 3 a third zone labelled 12h",
        ),
        pytest.param(
            group(zone("a"), zone("b", "-", status_replicas=1, updated_replicas=0)),
            unsettled(1, 1),
            id="T-07 7 PREP-17 status 1 of which 0 updated, and no pods",
        ),
        pytest.param(
            group(zone("a", "pL-", ready=1, updated_replicas=1), zone("b")),
            None,
            id="T-07 8 PREP-19 only the scaled zone is neither ready nor updated",
        ),
        pytest.param(
            group(zone("a"), zone("b", "-")),
            unsettled(0, 1),
            id="T-07 9 status counts a pod that is not found",
        ),
        pytest.param(
            group(zone("a"), with_pods(zone("b"), owner_uid=Uid("stranger"))),
            unsettled(0, 3),
            id="D-10 pods of others do not count",
        ),
        pytest.param(
            group(zone("a"), zone("b", "lLl")), unsettled(0, 1), id="PREP-17 a pod is not ready"
        ),
        pytest.param(
            group(zone("a"), zone("b", ready=2)),
            unsettled(0, 1),
            id="PREP-17 status counts less than there is to be seen",
        ),
        pytest.param(
            group(zone("a"), zone("b", "lpp")),
            unsettled(2, 0),
            id="SEED-110 D-25 a rollout goes on in another zone",
        ),
        pytest.param(
            group(zone("a"), zone("b", updated_replicas=1)),
            unsettled(2, 0),
            id="PREP-17 status counts less updated ones than there are to be seen",
        ),
        pytest.param(
            group(zone("a"), zone("b", "lTl")), unsettled(0, 1), id="PREP-17 a pod terminates"
        ),
        pytest.param(
            group(zone("a"), zone("b", status_replicas=4, updated_replicas=4, ready=3)),
            unsettled(0, 1),
            id="D-25 a pod of an earlier downscale has not gone yet",
        ),
        pytest.param(
            group(zone("a"), zone("b", "lll", status_replicas=4, updated_replicas=4, ready=4)),
            unsettled(0, 1),
            id="D-25 a pod of an earlier downscale is ready and on its way out",
        ),
        pytest.param(
            group(zone("a"), zone("b"), deletions={"zone-b-1": Deletion.ACCEPTED}),
            unsettled(0, 1),
            id="W-15 a delete of ours that cannot be seen yet",
        ),
        pytest.param(
            group(zone("a"), zone("b"), deletions={"zone-b-1": Deletion.UNKNOWN}),
            unsettled(0, 1),
            id="SI-18 a delete of ours without an answer",
        ),
        pytest.param(
            group(zone("a"), zone("b"), deletions={"zone-a-1": Deletion.ACCEPTED}),
            None,
            id="PREP-19 a delete of ours in the scaled zone",
        ),
        pytest.param(
            group(
                zone("a"),
                dataclasses.replace(
                    zone("b", "ll-", ready=3),
                    unreadable_pods=(unreadable("Pod", "zone-b-2", owner="b"),),
                ),
            ),
            unsettled(0, 1),
            id="PREP-18 a pod of another zone cannot be read",
        ),
        pytest.param(
            group(zone("a"), zone("b", generation=4, observed_generation=3)),
            refused(
                Code.OTHER_ZONE_NOT_READY,
                "the status of statefulset zone-b is of generation 3, its spec of generation 4",
            ),
            id="D-12 the status of another zone is behind",
        ),
        pytest.param(
            group(zone("a", generation=4, observed_generation=3), zone("b")),
            None,
            id="PREP-19 its own status may be behind",
        ),
        pytest.param(
            group(zone("c", "lLL"), zone("a"), zone("b", "lLl")),
            unsettled(0, 1),
            id="PREP-11 the first zone by name is told",
        ),
        pytest.param(
            group(zone("a"), zone("b", "lLl"), zone("c", annotations=lately())),
            refused(Code.ZONE_DOWNSCALED_LATELY, WAIT.format("c")),
            id="PREP-16 times are told before pods",
        ),
        pytest.param(
            dataclasses.replace(
                group(zone("a"), zone("b", annotations={LAST_DOWNSCALE: "x"})),
                unreadable=(
                    unreadable("StatefulSet", "zone-d"),
                    unreadable("StatefulSet", "zone-c"),
                ),
            ),
            refused(
                Code.GROUP_NOT_READ,
                "finding other statefulsets failed. StatefulSet zone-c: spec.replicas: expected"
                ' int, got str: "x"',
            ),
            id="PREP-10 a member that cannot be read comes first",
        ),
        pytest.param(
            dataclasses.replace(
                group(zone("a"), zone("b", annotations=lately())),
                downscale=Underway(zone="zone-b", replicas_from=3, replicas_to=2),
            ),
            refused(
                Code.OTHER_DOWNSCALE_UNDERWAY,
                "statefulset zone-b is already in process of updating replicas",
                status=429,
            ),
            id="D-25 W-15 SEED-111 ZONE-08 another downscale may still happen",
        ),
        pytest.param(
            group(zone("a"), zone("b", annotations={LAST_DOWNSCALE: "x"})),
            refused(
                Code.BAD_DOWNSCALE_TIME,
                "parsing downscale annotations failed. statefulset zone-b: annotation"
                ' grafana.com/last-downscale: "x" is no RFC 3339 time',
            ),
            id="PREP-12 a time that cannot be read",
        ),
    ],
)
def test_neighbours(case: Group, expected: Verdict | None) -> None:
    assert ask(case) == expected


def test_a_downscale_that_was_seen_and_is_not_recorded_yet_counts() -> None:
    """SI-11, D-23."""
    case = group(zone("a"), zone("b", annotations={MIN_TIME_BETWEEN_DOWNSCALES: "12h"}))

    assert ask(case) is None
    assert ask(case, seen={sts_uid("b"): NOW - HOUR}) == refused(
        Code.ZONE_DOWNSCALED_LATELY, WAIT.format("b")
    )


letters = st.sampled_from(["lll", "lll", "lll", "pll", "lLl", "l-l", "lTl", "ppp", ""])
times = st.sampled_from(
    [None, "2026-01-01T11:00:00Z", "2025-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "x"]
)
spans = st.sampled_from([None, "12h", "1h", "0", "-1h", "x"])


@st.composite
def zones(draw: st.DrawFn, letter: str) -> Zone:
    base = zone(letter, draw(letters), ready=draw(st.sampled_from([None, None, None, 0])))
    known = {LAST_DOWNSCALE: draw(times), MIN_TIME_BETWEEN_DOWNSCALES: draw(spans)}
    annotations = {key: text for key, text in known.items() if text is not None}
    changed = replace(
        base.sts,
        annotations=annotations,
        generation=draw(st.sampled_from([1, 1, 1, 2])),
        updated_replicas=draw(st.sampled_from([base.sts.replicas, base.sts.replicas, 0])),
    )
    return dataclasses.replace(base, sts=changed)


groups = st.tuples(zones("a"), zones("b"), zones("c")).map(lambda members: group(*members))


@REPEATABLE
@given(groups, zones("a"))
def test_prep19_the_state_of_the_scaled_zone_never_matters(case: Group, other: Zone) -> None:
    """Of itself only how long it asks to wait counts (D-22)."""
    key = MIN_TIME_BETWEEN_DOWNSCALES
    known = case.zones[0].sts.annotations
    span = {key: known[key]} if key in known else {}
    rest = {name: text for name, text in other.sts.annotations.items() if name != key}
    changed = dataclasses.replace(other, sts=replace(other.sts, annotations=rest | span))
    swapped = dataclasses.replace(case, zones=(changed, *case.zones[1:]))

    assert ask(case, scaled=case.zones[0].sts) == ask(swapped, scaled=changed.sts)


@REPEATABLE
@given(groups, st.randoms(use_true_random=False))
def test_the_order_of_zones_and_pods_does_not_matter(case: Group, rng: Random) -> None:
    members = [
        dataclasses.replace(one, pods=tuple(rng.sample(one.pods, len(one.pods))))
        for one in case.zones
    ]
    rng.shuffle(members)
    shuffled = dataclasses.replace(case, zones=tuple(members))

    assert ask(shuffled, scaled=case.zones[0].sts) == ask(case, scaled=case.zones[0].sts)


def is_at_rest(one: Zone) -> bool:
    """Count by hand whether nothing moves in a zone."""
    up = [pod for pod in one.pods if pod.is_ready and pod.revision == "last"]
    counts = {one.sts.replicas, one.sts.updated_replicas, one.sts.ready_replicas, len(up)}
    return len(counts) == 1 and one.sts.generation == one.sts.observed_generation


@REPEATABLE
@given(groups)
def test_si08_what_may_go_has_neighbours_at_rest(case: Group) -> None:
    """An oracle that counts pod by pod; times are the matter of another one."""
    plain = [dataclasses.replace(one, sts=replace(one.sts, annotations={})) for one in case.zones]

    verdict = ask(dataclasses.replace(case, zones=tuple(plain)))
    assert (verdict is None) == all(map(is_at_rest, plain[1:]))
    if ask(case, scaled=case.zones[0].sts) is None:
        assert verdict is None


hostile = st.one_of(st.text(max_size=10), times, spans).map(lambda text: text or "")


@REPEATABLE
@given(st.lists(hostile, min_size=6, max_size=6))
def test_sec25_no_annotation_elsewhere_lets_a_zone_go_that_has_to_wait(
    texts: Sequence[str],
) -> None:
    """Zone b says honestly when it was scaled down; the others say what they like."""
    others = [
        zone(letter, annotations=dict(zip(lately(), texts[place : place + 2], strict=True)))
        for place, letter in ((0, "a"), (2, "c"), (4, "d"))
    ]

    assert ask(group(*others, zone("b", annotations=lately())), scaled=others[0].sts) is not None
