"""What is no case of a table: hostile texts and times, sizes, and what reviews say as well."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.names import LEADING_ZONE
from rollout_operator.model.objects import Decrease
from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import PodAnswer
from rollout_operator.planning.delays import CALL_AGAIN, CANCEL_AGAIN, FRESH
from rollout_operator.planning.downscales import assess_neighbours
from rollout_operator.planning.replicas import map_leads
from rollout_operator.planning.scaling import plan_scaling
from tests.builders import NOW
from tests.examples import repeatable
from tests.planning.scalings import (
    HOUR,
    MINUTE,
    SECOND,
    answer,
    changed,
    counted,
    counts,
    delayed,
    mirroring,
    read_snapshot,
    snapshot,
)

REPEATABLE: Final = repeatable(200)
DUE: Final = answer(70 * MINUTE)
HOSTILE: Final = (
    "\x1b[31m", "zone-a\n", "\u202ezone", "x" * 100_000, "9" * 5000, "a" * 254, "\x00", "../zone-a",
    '"', "\u0430",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_si23_texts_from_annotations_are_short_and_printable(text: str) -> None:
    """SI-23, W-42: named, kept to their zone, and no reason to scale it down."""
    led = counted("b", 3, follows="x", gate=text, force=text)
    led = changed(led, annotations={**led.sts.annotations, LEADING_ZONE: text})
    for zone in (
        led,
        counted("b", 3, follows="a", gate=text, force=text, label=text),
        mirroring("b", 3, name=text),
        mirroring("b", 3, kind=text),
        mirroring("b", 3, version=text),
        delayed("b", 3, delay=text),
        delayed("b", 3, url=text),
    ):
        plan = plan_scaling(snapshot(counted("a", 3, last=text), zone, scale="1/3"))
        texts = [reason.text for reason in (*plan.waits, *plan.problems)]

        assert texts
        assert all(one.isprintable() and len(one) < 800 for one in texts)
        assert counts(plan) == {}


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


PERMISSIONS: Final = (Path(__file__).parent / "permission.txt").read_text("utf-8").splitlines()
# A zone's own downscale that is under way: its review is not another one's.
GUARDED: Final = [
    line.partition(" | ")[0]
    for line in PERMISSIONS
    if "; guarded b" in line and "; downscale zone-b" not in line
]


@pytest.mark.parametrize("case", GUARDED)
def test_w18_a_guarded_zone_waits_for_exactly_what_its_review_would_refuse(case: str) -> None:
    """W-18, D-22: same words, and no attempt that is refused anyway."""
    scaling = read_snapshot(case)
    decrease = Decrease(
        resource="statefulsets", namespace="test", name="zone-b", replicas_from=5, replicas_to=3
    )
    [zone] = [one for one in scaling.group.zones if one.sts.name == "zone-b"]
    verdict = assess_neighbours(decrease, zone.sts, scaling.group, {})
    plan = plan_scaling(scaling)

    assert (verdict is None) == bool(counts(plan))
    if verdict is not None:
        (wait,) = plan.waits
        assert wait.code == verdict.reason.code
        why = verdict.reason.text.removeprefix(f"{decrease.text} is not allowed because ")
        is_about_time = wait.code is Code.ZONE_DOWNSCALED_LATELY
        assert wait.text == f"zone-b follows zone-a: 5 → 3 waits: {why}" or is_about_time


def test_li11_how_often_pods_hear_of_us() -> None:
    """Changed only with care: 1,000 pods are 1,000 calls in each of these spans."""
    assert (FRESH, CALL_AGAIN, CANCEL_AGAIN) == (5 * SECOND, MINUTE, 10 * MINUTE)


times = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from(
        [
            datetime.max.replace(tzinfo=UTC),
            datetime.min.replace(tzinfo=UTC),
            NOW + timedelta(microseconds=1),
            NOW + 24 * HOUR,
        ]
    ),
)
delays = st.sampled_from(["1ms", "1s", "1h", "300d", "7900y", "999999999d"])


@REPEATABLE
@given(since=times, called_at=times, delay=delays)
def test_fp25_no_time_that_a_pod_may_give_takes_it_away_too_early(
    since: datetime, called_at: datetime, delay: str
) -> None:
    """Nor does any crash us: days of year 1 and 9999 do not fit into every sum."""
    spans = {"1ms": 0.001, "1s": 1, "1h": 3600, "300d": 300 * 86400}
    answers = {"b-4": PodAnswer(called_at=called_at, since=since), "b-3": DUE}
    plan = plan_scaling(snapshot(delayed("b", 5, delay=delay), scale="3/5", answers=answers))

    long_enough = delay in spans and (NOW - since).total_seconds() >= spans[delay]
    is_fresh = abs((NOW - called_at).total_seconds()) <= 5
    if counts(plan):
        assert long_enough
        assert is_fresh


@REPEATABLE
@given(ages=st.lists(st.integers(-5, 120), min_size=1, max_size=6), wanted=st.integers(0, 5))
def test_delay08_an_oracle_agrees(ages: list[int], wanted: int) -> None:
    """`ages` are minutes of preparation by ordinal: down to the first that is too young."""
    wanted = min(wanted, len(ages) - 1)
    answers = {f"b-{number}": answer(age * MINUTE) for number, age in enumerate(ages)}
    plan = plan_scaling(snapshot(delayed("b", len(ages)), scale=f"{wanted}/0", answers=answers))

    expected = len(ages)
    while expected > wanted and ages[expected - 1] > 60:
        expected -= 1
    at_the_edge = any(age == 60 for age in ages[wanted:])
    assert counts(plan) == ({} if expected == len(ages) else {"zone-b": expected}) or at_the_edge
