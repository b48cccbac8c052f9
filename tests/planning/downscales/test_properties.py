"""What holds for every review, group and pod of downscales, whatever they say.

NODOWN-01 to 08, PREP-01 to 24, D-22 to D-26, SI-08 to SI-16, SEC-25.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.names import (
    MIN_TIME_BETWEEN_DOWNSCALES,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    Uid,
)
from rollout_operator.model.objects import Group, Key, StatefulSet, Zone
from rollout_operator.model.outcome import Verdict
from rollout_operator.model.scaling import Scalable, Unusable
from rollout_operator.model.units import format_next_second, parse_rfc3339
from rollout_operator.planning.downscales import (
    DownscaleOutcome,
    PreparePods,
    assess_neighbours,
    choose_pods_to_prepare,
    find_recent_downscale,
    judge_downscale,
)
from rollout_operator.planning.requests import assess_prepare_change, assess_unprepared
from tests.builders import NOW, group, shuffled, sts, sts_uid, unreadable, with_pods, zone
from tests.examples import repeatable
from tests.planning.downscales.test_tables import (
    IP,
    TARGET,
    decrease,
    judge_no_downscale,
    scaled_set,
)
from tests.planning.reviews import is_decrease, label_sets, objects, one, review

REPEATABLE: Final = repeatable(200)
HOUR: Final = timedelta(hours=1)
SPAN: Final = MIN_TIME_BETWEEN_DOWNSCALES
NO: Final = {NO_DOWNSCALE: "true"}
# What tenants may write to make a wait go away: none of it may.
TIMES: Final = """
9998-12-31T23:59:59Z 9999-12-31T23:59:59Z 9999-12-31T23:59:59-23:59 0001-01-01T00:00:00Z
0001-01-01T00:00:00+23:59 0000-01-01T00:00:00Z -0001-01-01T00:00:00Z 2026-01-01T11:00:00-99:99
2026-01-01T11:00:00.Z 2026-01-01T24:00:00Z 2026-02-30T00:00:00Z 2026-01-01t11:00:00z
2026-01-01T11:00:00 \u0662026-01-01T11:00:00Z 0 -12h 12h 1e9h now -9223372036854775808ns
9223372036854775807ns \x1b[31m
"""
LONG: Final = ("1" * 10_240, f"2026-01-01T11:00:00.{'9' * 10_240}Z")
HOSTILE: Final = (*TIMES.split(), "", " ", "2026-01-01 11:00:00Z", *LONG)


# Reviews


@REPEATABLE
@given(objects, objects, st.booleans(), st.booleans())
def test_si14_an_oracle_agrees_on_what_no_downscale_refuses(
    old: Scalable | Unusable, new: Scalable | Unusable, dry_run: bool, fails_closed: bool
) -> None:
    is_refused = fails_closed
    if isinstance(old, Scalable) and isinstance(new, Scalable):
        is_unclear = fails_closed and (old.replicas is None) is not (new.replicas is None)
        label = old.labels.get(NO_DOWNSCALE, "")
        is_labelled = label.strip().lower() not in {"", "false", "no", "off", "0"}
        is_refused = is_labelled and (is_unclear or is_decrease(old, new))

    requested = review(old, new, dry_run=dry_run)
    verdict = judge_no_downscale(requested, {}, fails_closed=fails_closed)
    assert verdict.is_allowed is not is_refused
    assert verdict.annotations == {}
    assert not (verdict.warnings and is_refused)
    assert bool(verdict.reason.text) == is_refused


@REPEATABLE
@given(st.integers(0, 9), st.integers(0, 9), label_sets)
def test_seed083_a_scale_is_judged_as_its_object_would_be(
    before: int, after: int, labels: dict[str, str]
) -> None:
    by_scale = review(one(before, kind="Scale"), one(after, kind="Scale"))
    whole = review(one(before, labels), one(after))

    assert judge_no_downscale(by_scale, labels) == judge_no_downscale(whole, {})


@REPEATABLE
@given(*[st.integers(0, 6)] * 4)
def test_si14_ordinals_that_go_are_a_downscale_whatever_the_count(
    first: int, replicas: int, next_first: int, next_replicas: int
) -> None:
    """SI-14, FP-29: the removed ordinals are those of the old range that the new one leaves out."""
    old = replace(one(replicas, NO), first_ordinal=first)
    new = replace(one(next_replicas, NO), first_ordinal=next_first)
    kept = range(next_first, next_first + next_replicas)
    is_removed = any(ordinal not in kept for ordinal in range(first, first + replicas))

    verdict = judge_no_downscale(review(old, new), {})

    assert verdict.is_allowed is not is_removed
    if is_removed and next_replicas >= replicas:
        assert verdict.reason.text == (
            f"change of spec.ordinals.start of statefulsets/mock in default from {first} to"
            f" {next_first}, which removes pods, is not allowed because it has the label"
            " 'grafana.com/no-downscale=true'"
        )


@REPEATABLE
@given(objects, objects)
def test_si13_no_labelled_decrease_of_a_set_passes_unchecked(
    old: Scalable | Unusable, new: Scalable | Unusable
) -> None:
    """What is allowed at once is certainly not a decrease of a labelled set.

    DEP-92: nor is what a replica that does not lead allows by the review alone.
    """
    requested = review(old, new)
    for change in (assess_prepare_change(requested), assess_unprepared(requested)):
        if not isinstance(change, Verdict) or not change.is_allowed:
            continue
        assert isinstance(old, Scalable)
        assert isinstance(new, Scalable)
        is_unclear = (old.replicas is None) is not (new.replicas is None)
        is_labelled = old.labels.get(PREPARE_DOWNSCALE) == "true"
        assert not is_labelled or not (is_decrease(old, new) or is_unclear)


# Pods that are called


def choose(case: Zone, start: int = 5, end: int = 3) -> PreparePods | Verdict:
    return choose_pods_to_prepare(decrease(start, end), case, TARGET, "cluster.local.")


@pytest.mark.parametrize("is_first", [True, False])
def test_si10_a_pod_with_a_lookalike_name_takes_nobodys_place(is_first: bool) -> None:
    """A controller adopts `zone-a-04`, and removes it and zone-a-4."""
    base = with_pods(zone("a", "lllll"), ip=IP)
    other = replace(base.pods[4], name="zone-a-04", uid=Uid("lookalike"), never_ready=True)
    pods = (other, *base.pods) if is_first else (*base.pods, other)
    found = choose(replace(base, pods=pods))
    assert found == choose(base)
    assert isinstance(found, PreparePods)
    assert (found.going, found.staying) == ((base.pods[4], base.pods[3]), base.pods[:2])


def test_si13_what_cannot_be_read_and_has_no_name_may_be_any_pod() -> None:
    case = replace(zone("a"), unreadable_pods=(unreadable("Pod", "", owner="a"),))
    found = choose(case)
    assert isinstance(found, Verdict)
    assert (found.code, "one without a name" in found.reason.text) == (429, True)


@REPEATABLE
@given(
    st.text("llllLt-", max_size=6), st.integers(0, 6), st.integers(0, 6), st.permutations(range(6))
)
def test_si10_every_pod_that_may_have_data_is_called_exactly_once(
    states: str, lowest: int, never: int, order: Sequence[int]
) -> None:
    """An oracle: all pods of the range but the one that was never ready, highest first.

    Where one of them terminates, no pod is called.
    """
    five = with_pods(zone("a", states), ip=IP)
    pods = [replace(one, never_ready=one.name == f"zone-a-{never}") for one in five.pods]
    pods.sort(key=lambda one: order[int(one.name[-1])])

    answer = choose(replace(five, pods=tuple(pods)), start=len(states), end=lowest)
    if "t" in states[lowest:]:
        assert isinstance(answer, Verdict)
        assert (answer.is_allowed, answer.code) == (False, 429)
        return
    there = [place for place, state in enumerate(states) if state != "-" and place >= lowest]
    going = [f"zone-a-{place}" for place in there[::-1]]
    assert isinstance(answer, PreparePods)
    assert [one.name for one in answer.going] == going
    assert [one.pod for one in answer.endpoints] == [
        name for name in going if name != f"zone-a-{never}"
    ]


# Neighbours


def judge(case: Group, scaled: StatefulSet | None = None) -> Verdict | None:
    """Assess whether zone a may be scaled down."""
    return assess_neighbours(decrease(3, 1), scaled or sts("a"), case, {})


letters = st.sampled_from(["lll", "lll", "lll", "pll", "lLl", "l-l", "lTl", "ppp", ""])
times = st.sampled_from(
    [None, "2026-01-01T11:00:00Z", "2025-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "x"]
)
spans = st.sampled_from([None, "12h", "1h", "0", "-1h", "x"])


@st.composite
def zones(draw: st.DrawFn, letter: str) -> Zone:
    base = zone(letter, draw(letters), ready=draw(st.sampled_from([None, None, None, 0])))
    changed = replace(
        base.sts,
        annotations=scaled_set(letter, last=draw(times), span=draw(spans)).annotations,
        generation=draw(st.sampled_from([1, 1, 1, 2])),
        updated_replicas=draw(st.sampled_from([base.sts.replicas, base.sts.replicas, 0])),
    )
    return replace(base, sts=changed)


groups = st.tuples(zones("a"), zones("b"), zones("c")).map(lambda members: group(*members))


@REPEATABLE
@given(groups, zones("a"))
def test_prep19_the_state_of_the_scaled_zone_never_matters(case: Group, other: Zone) -> None:
    """Of itself only its own wait counts (D-22), and its pods for what would help."""
    known = case.zones[0].sts.annotations
    span = {SPAN: known[SPAN]} if SPAN in known else {}
    rest = {name: text for name, text in other.sts.annotations.items() if name != SPAN}
    changed = replace(other, sts=replace(other.sts, annotations=rest | span))
    swapped = replace(case, zones=(changed, *case.zones[1:]))

    first, second = (
        one and (one.reason.code, one.reason.text.partition("; if no pod of the range")[0])
        for one in (judge(case, case.zones[0].sts), judge(swapped, changed.sts))
    )
    assert first == second


@REPEATABLE
@given(groups, st.randoms(use_true_random=False))
def test_the_order_of_zones_and_pods_does_not_matter(case: Group, rng: Random) -> None:
    other = replace(case, zones=shuffled(case.zones, rng))
    assert judge(other, case.zones[0].sts) == judge(case, case.zones[0].sts)


def is_at_rest(one: Zone) -> bool:
    """Count by hand whether nothing moves in a zone."""
    up = [pod for pod in one.pods if pod.is_ready and pod.revision == "last"]
    counts = {one.sts.replicas, one.sts.updated_replicas, one.sts.ready_replicas, len(up)}
    return len(counts) == 1 and one.sts.generation == one.sts.observed_generation


@REPEATABLE
@given(groups)
def test_si08_what_may_go_has_neighbours_at_rest(case: Group) -> None:
    """An oracle that counts pod by pod; times are the matter of another."""
    plain = [replace(one, sts=replace(one.sts, annotations={})) for one in case.zones]

    verdict = judge(replace(case, zones=tuple(plain)))
    assert (verdict is None) == all(map(is_at_rest, plain[1:]))
    if judge(case, case.zones[0].sts) is None:
        assert verdict is None


# Times


A: Final = scaled_set("a")


hostile = st.one_of(
    st.none(),
    st.sampled_from(HOSTILE),
    st.text(max_size=12),
    st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
)


@REPEATABLE
@given(
    own_span=hostile,
    own_last=hostile,
    span=hostile,
    last=hostile,
    label=hostile,
    honest_span=st.sampled_from([{"label": "12h"}, {"span": "12h"}]),
)
def test_sec25_no_annotation_of_another_zone_shortens_a_wait(
    honest_span: dict[str, str],
    own_span: str | None,
    own_last: str | None,
    span: str | None,
    last: str | None,
    label: str | None,
) -> None:
    """Zone b waits honestly: whatever zones a and c say, a is refused, and nothing crashes."""
    honest = scaled_set("b", ago=HOUR, **honest_span)
    scaled = scaled_set("a", last=own_last, span=own_span)
    other = scaled_set("c", last=last, span=span, label=label)

    for sets in ((honest, other), (other, honest)):
        refusal = find_recent_downscale(scaled, sets, {}, NOW)
        assert refusal is not None
        assert len(refusal.why) < 500, "ten kibibytes are quoted in a short sentence"
        members = [replace(zone(one.name[-1]), sts=one) for one in (scaled, *sets)]
        assert judge(group(*members), scaled) is not None


@REPEATABLE
@given(last=hostile, seen=st.integers(0, 11))
def test_sec25_what_we_have_seen_ourselves_is_not_argued_away(last: str | None, seen: int) -> None:
    known = {sts_uid("b"): NOW - seen * HOUR}
    assert (
        find_recent_downscale(A, [scaled_set("b", last=last, label="12h")], known, NOW) is not None
    )


hours = st.one_of(st.none(), st.integers(0, 30))


@REPEATABLE
@given(
    spans=st.lists(hours, min_size=1, max_size=4),
    ages=st.lists(hours, min_size=4, max_size=4),
    ahead=st.integers(0, 3),
)
def test_an_oracle_agrees_on_times_that_can_be_read(
    spans: list[int | None], ages: list[int | None], ahead: int
) -> None:
    """SI-11: in whole hours; `ahead` of the ages lie in the future."""
    sets = [
        scaled_set(
            letter,
            ago=None if age is None else (age - ahead) * HOUR,
            label=None if span is None else f"{span}h",
        )
        for letter, span, age in zip("abcd", spans, ages, strict=False)
    ]
    wait = max([span for span in spans if span is not None], default=0)
    others = [age - ahead for age in ages[1 : len(spans)] if age is not None]

    found = find_recent_downscale(sets[0], sets[1:], {}, NOW)
    assert (found is not None) == any(wait > 0 and age < wait for age in others)


@REPEATABLE
@given(st.datetimes(max_value=datetime(9998, 12, 30), timezones=st.just(UTC)))  # noqa: DTZ001
def test_si11_a_record_is_never_earlier_than_it_was(time: datetime) -> None:
    """Rounding down would let another zone go a second early."""
    recorded = parse_rfc3339(format_next_second(time))

    assert timedelta(0) <= recorded - time < timedelta(seconds=1)
    assert find_recent_downscale(A, [scaled_set("b", label="1h")], {Uid("uid-b"): time}, time)


@given(st.integers(0, 9), st.integers(0, 9), st.booleans())
@repeatable()
def test_si12_no_pod_is_un_prepared_from_what_has_happened_or_may(
    replicas: int, target: int, may_persist: bool
) -> None:
    key = Key(set_uid=sts_uid("a"), replicas_from=10, replicas_to=target)
    outcome = judge_downscale(key, sts("a", replicas), may_persist=may_persist)

    assert (outcome is DownscaleOutcome.FAILED) == (replicas > target and not may_persist)
