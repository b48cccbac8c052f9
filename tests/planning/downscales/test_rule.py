"""Who of a group holds a downscale back: T-07, PREP-09 to 19, D-25, SEED-110, SI-08, SEC-25."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import LAST_DOWNSCALE, MIN_TIME_BETWEEN_DOWNSCALES, Uid
from rollout_operator.model.objects import Decrease, Group, StatefulSet, Zone
from rollout_operator.model.outcome import Code, Severity, Verdict
from rollout_operator.model.units import format_next_second
from rollout_operator.planning.downscales import assess_neighbours
from tests.builders import NOW, group, sts, sts_uid, zone
from tests.examples import repeatable
from tests.planning.tables import read_group, read_table, shorten

REPEATABLE: Final = repeatable(200)
HOUR: Final = timedelta(hours=1)
PREFIX: Final = (
    "downscale of statefulsets/zone-a in test from 3 to 1 replicas is not allowed because "
)
DECREASE: Final = Decrease(
    resource="statefulsets", namespace="test", name="zone-a", replicas_from=3, replicas_to=1
)


def post(
    case: Group, *, scaled: StatefulSet | None = None, seen: Mapping[Uid, datetime] | None = None
) -> Verdict | None:
    """Assess whether zone a may be scaled down."""
    return assess_neighbours(DECREASE, scaled or sts("a"), case, seen or {})


def lately(letter: str = "b", ago: timedelta = HOUR) -> dict[str, str]:
    """Return the annotations of a zone that was scaled down and waits for twelve hours."""
    return {LAST_DOWNSCALE: format_next_second(NOW - ago), MIN_TIME_BETWEEN_DOWNSCALES: "12h"}


SENTENCES: Final = {
    r"^zone_downscaled_lately 0 statefulset zone-(\w) was downscaled at (.*) and is labelled to"
    r" wait (\S+) between zone downscales$": r"lately \1 at \2, to wait \3",
    r"^zone_left_short 429 statefulset zone-(\w) has (\d of \d) pods ready .*; zone-\w was deleted"
    r" or left while it was short, and counts until .* at most$": r"left \1: \2",
    r"^other_zone_not_ready 0 statefulset zone-(\w) has (\d) non-updated replicas and (\d)"
    " non-ready replicas$": r"short \1: \2 outdated, \3 not ready",
}
NEIGHBOURS = """
alone
  zone a | allowed
all whole
  zone a; zone b; zone c | allowed
another zone of no replicas
  zone a; zone b "" | allowed
SI-26 a zone that left while it was short
  zone a; zone b; left c lLl ready=2 | left c: 2 of 3
SI-26 its outdated pods are nobody's concern
  zone a; zone b; left c ppp | allowed
T-07 7 PREP-17 status 1 of which 0 updated, and no pods
  zone a; zone b - status_replicas=1 updated_replicas=0 | short b: 1 outdated, 1 not ready
T-07 8 PREP-19 only the scaled zone is neither ready nor updated
  zone a pL- ready=1 updated_replicas=1; zone b | allowed
T-07 9 status counts a pod that is not found
  zone a; zone b - | short b: 0 outdated, 1 not ready
PREP-17 a pod is not ready
  zone a; zone b lLl | short b: 0 outdated, 1 not ready
PREP-17 status counts less than there is to be seen
  zone a; zone b ready=2 | short b: 0 outdated, 1 not ready
SEED-110 D-25 a rollout goes on in another zone
  zone a; zone b lpp | short b: 2 outdated, 0 not ready
PREP-17 status counts less updated ones than there are to be seen
  zone a; zone b updated_replicas=1 | short b: 2 outdated, 0 not ready
PREP-17 a pod terminates
  zone a; zone b lTl | short b: 0 outdated, 1 not ready
D-25 a pod of an earlier downscale has not gone yet
  zone a; zone b status_replicas=4 updated_replicas=4 ready=3 | short b: 0 outdated, 1 not ready
D-25 a pod of an earlier downscale is ready and on its way out
  zone a; zone b lll status_replicas=4 updated_replicas=4 ready=4 | short b: 0 outdated, 1 not ready
W-15 a delete of ours that cannot be seen yet
  zone a; zone b; accepted zone-b-1 | short b: 0 outdated, 1 not ready
SI-18 a delete of ours without an answer
  zone a; zone b; unknown zone-b-1 | short b: 0 outdated, 1 not ready
PREP-19 a delete of ours in the scaled zone
  zone a; zone b; accepted zone-a-1 | allowed
D-12 the status of another zone is behind
  zone a; zone b generation=4 observed_generation=3
  | other_zone_not_ready 0 the status of statefulset zone-b is of generation 3, its spec of
    generation 4
PREP-19 its own status may be behind
  zone a generation=4 observed_generation=3; zone b | allowed
PREP-11 the first zone by name is reported
  zone c lLL; zone a; zone b lLl | short b: 0 outdated, 1 not ready
T-07 3 a third zone labelled 12h
  zone a; zone b; zone c; lately zone-c | lately c at 2026-01-01 11:00:00 +0000 UTC, to wait 12h0m0s
D-10 pods of others do not count
  zone a; zone b; pod zone-b-* owner_uid=stranger | short b: 0 outdated, 3 not ready
PREP-18 a pod of another zone cannot be read
  zone a; zone b ll- ready=3; lost zone-b-2 | short b: 0 outdated, 1 not ready
PREP-16 times are reported before pods
  zone a; zone b lLl; zone c; lately zone-c
  | lately c at 2026-01-01 11:00:00 +0000 UTC, to wait 12h0m0s
PREP-10 a member that cannot be read comes first
  zone a; zone b annotations=grafana.com/last-downscale:x; unreadable zone-d zone-c
  | group_not_read 0 finding other statefulsets failed. StatefulSet zone-c: spec.replicas: expected
    int, got str: "x"
D-25 W-15 SEED-111 ZONE-08 another downscale may still happen
  zone a; zone b; lately zone-b; downscale zone-b 3 2
  | other_downscale_underway 429 statefulset zone-b is already in process of updating replicas
PREP-12 a time that cannot be read
  zone a; zone b annotations=grafana.com/last-downscale:x
  | bad_downscale_time 0 parsing downscale annotations failed. statefulset zone-b: annotation
    grafana.com/last-downscale: "x" is no RFC 3339 time
"""


@pytest.mark.parametrize(("case", "expected"), read_table(NEIGHBOURS, read_group))
def test_neighbours(case: Group, expected: list[str]) -> None:
    verdict = post(case)
    if verdict is None:
        assert expected == ["allowed"]
        return
    assert not verdict.is_allowed
    assert verdict.reason.severity is Severity.WARN
    text = verdict.reason.text
    assert text.startswith(PREFIX)
    line = f"{verdict.reason.code} {verdict.code} {text.removeprefix(PREFIX)}"
    assert shorten([line], SENTENCES) == expected


def test_a_downscale_that_was_seen_and_is_not_recorded_yet_counts() -> None:
    """SI-11, D-23."""
    case = group(zone("a"), zone("b", annotations={MIN_TIME_BETWEEN_DOWNSCALES: "12h"}))

    assert post(case) is None
    seen = post(case, seen={sts_uid("b"): NOW - HOUR})
    assert seen is not None
    assert seen == post(read_group("zone a; zone b; lately zone-b"))


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
    return structs.replace(base, sts=changed)


groups = st.tuples(zones("a"), zones("b"), zones("c")).map(lambda members: group(*members))


@REPEATABLE
@given(groups, zones("a"))
def test_prep19_the_state_of_the_scaled_zone_never_matters(case: Group, other: Zone) -> None:
    """Of itself only its own wait counts (D-22), and its pods for what would help."""
    key = MIN_TIME_BETWEEN_DOWNSCALES
    known = case.zones[0].sts.annotations
    span = {key: known[key]} if key in known else {}
    rest = {name: text for name, text in other.sts.annotations.items() if name != key}
    changed = structs.replace(other, sts=replace(other.sts, annotations=rest | span))
    swapped = structs.replace(case, zones=(changed, *case.zones[1:]))

    first, second = post(case, scaled=case.zones[0].sts), post(swapped, scaled=changed.sts)
    assert cut_way_out(first) == cut_way_out(second)


def cut_way_out(verdict: Verdict | None) -> tuple[Code, str] | None:
    """Return why a downscale is refused, without what helps."""
    if verdict is None:
        return None
    return verdict.reason.code, verdict.reason.text.partition("; if no pod of the range")[0]


@REPEATABLE
@given(groups, st.randoms(use_true_random=False))
def test_the_order_of_zones_and_pods_does_not_matter(case: Group, rng: Random) -> None:
    members = [
        structs.replace(one, pods=tuple(rng.sample(one.pods, len(one.pods)))) for one in case.zones
    ]
    rng.shuffle(members)
    shuffled = structs.replace(case, zones=tuple(members))

    assert post(shuffled, scaled=case.zones[0].sts) == post(case, scaled=case.zones[0].sts)


def is_at_rest(one: Zone) -> bool:
    """Count by hand whether nothing moves in a zone."""
    up = [pod for pod in one.pods if pod.is_ready and pod.revision == "last"]
    counts = {one.sts.replicas, one.sts.updated_replicas, one.sts.ready_replicas, len(up)}
    return len(counts) == 1 and one.sts.generation == one.sts.observed_generation


@REPEATABLE
@given(groups)
def test_si08_what_may_go_has_neighbours_at_rest(case: Group) -> None:
    """An oracle that counts pod by pod; times are the matter of another."""
    plain = [structs.replace(one, sts=replace(one.sts, annotations={})) for one in case.zones]

    verdict = post(structs.replace(case, zones=tuple(plain)))
    assert (verdict is None) == all(map(is_at_rest, plain[1:]))
    if post(case, scaled=case.zones[0].sts) is None:
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

    assert post(group(*others, zone("b", annotations=lately())), scaled=others[0].sts) is not None
