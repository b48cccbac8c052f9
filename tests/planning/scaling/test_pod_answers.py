"""What the words of pods allow: DELAY-07, 08, SEED-073 to 078, FP-25, SEED-106, hostile times."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Zone
from rollout_operator.model.scaling import PodAnswer, PodCalls, ScalingSnapshot
from rollout_operator.planning.delays import CALL_AGAIN, CANCEL_AGAIN, FRESH
from rollout_operator.planning.scaling import plan_scaling
from tests.builders import NOW, unreadable
from tests.examples import repeatable
from tests.planning.scalings import (
    HOUR,
    MINUTE,
    SECOND,
    SHOWN,
    answer,
    changed,
    codes,
    counts,
    delayed,
    read_snapshot,
    snapshot,
)
from tests.planning.tables import read_table

REPEATABLE: Final = repeatable(200)
DUE: Final = answer(70 * MINUTE)
CHANGE: Final = f"zone-b mirrors {SHOWN}: 5 → 3 waits: "


def with_pod(zone: Zone, ordinal: int, **changes: object) -> Zone:
    """Return the zone with one of its pods changed."""
    pods = tuple(
        replace(pod, **changes) if pod.name == f"zone-b-{ordinal}" else pod for pod in zone.pods
    )
    return structs.replace(zone, pods=pods)


def due(*names: str) -> Mapping[str, PodAnswer]:
    return dict.fromkeys(names, DUE)


BOTH: Final = due("b-4", "b-3")


HELD = """
one terminates
  DUE; pod b-4 is_terminating=true | zone-b-4 is terminating
one does not run
  DUE; pod b-3 phase=Pending | zone-b-3 does not run (phase Pending)
one has no phase
  DUE; pod b-3 phase= | zone-b-3 does not run (phase none)
one that was never called has no address
  5; says b-3 70m; pod b-4 ip= | pod zone-b-4 has no address yet
one cannot be called once more
  5; says b-4 70m called=20s; says b-3 70m; pod b-4 ip= | pod zone-b-4 has no address yet
DELAY-07 a word without a time
  5; says b-4 -; says b-3 70m | zone-b-4 gave no time
DELAY-07 one that is below one that is due
  5; says b-4 70m; failed b-3 zone-b-3: HTTP 409 | zone-b-3: HTTP 409
one below is not there
  5 pods=lll-l; says b-4 70m | zone-b-3 does not exist, and zone-b-4 does
one above is just being replaced
  5 pods=llll- status_replicas=5; says b-3 70m
  | zone-b-4 does not exist, and may come back: the status of zone-b counts 5 pods, 4 are seen
one above is away for a rollout
  5 pods=llll- status_replicas=4 current_revision=prev; says b-3 70m
  | zone-b-4 does not exist, and may come back: zone-b is being rolled out
the status is of before
  5 pods=llll- status_replicas=4 generation=2; says b-3 70m
  | zone-b-4 does not exist, and may come back: the status of zone-b does not show its newest spec
    yet
one cannot be read
  5 pods=llll-; lost b-4; says b-3 70m | zone-b-4 cannot be read
one cannot be read, not even its owner
  5 pods=llll-; lost b-4 owner=none; says b-3 70m | zone-b-4 cannot be read
"""


def read_answers(text: str) -> ScalingSnapshot:
    """Return a view of zone b on its way to three; `DUE` are the words of both that go."""
    text = text.replace("DUE", "5; says b-4 70m; says b-3 70m", 1)
    return read_snapshot(f"delayed b {text}; scale 3/5")


@pytest.mark.parametrize(("case", "expected"), read_table(HELD, read_answers))
def test_delay07_one_pod_without_a_usable_word_holds_all(
    case: ScalingSnapshot, expected: list[str]
) -> None:
    plan = plan_scaling(case)

    assert (counts(plan), codes(plan)) == ({}, ["pod_gave_no_time zone-b"])
    assert [plan.waits[0].text] == [CHANGE + why for why in expected]


FREE = """
SEED-106 the highest was never created
  5 pods=llll- status_replicas=4; says b-3 70m | 3
SEED-106 none of them was
  5 pods=lll-- status_replicas=3 | 3
a zone without pods
  5 pods=----- status_replicas=0 | 3
down to the one that is not due
  5 pods=llll- status_replicas=4; says b-3 1m | 4
a rollout that is paused brings nothing back
  5 pods=llll- paused=true status_replicas=4 current_revision=prev; says b-3 70m | 3
one that stays cannot be read
  DUE; lost b-1 | 3
one that stays terminates
  DUE; pod b-1 is_terminating=true | 3
two thousand million replicas are counted by their pods
  5 replicas=2147483647 status_replicas=5; says b-4 70m; says b-3 70m | 3
"""


@pytest.mark.parametrize(("case", "expected"), read_table(FREE, read_answers))
def test_pods_that_hold_nothing_hold_no_zone_back(
    case: ScalingSnapshot, expected: list[str]
) -> None:
    assert counts(plan_scaling(case)) == {"zone-b": int(expected[0])}


def test_a_pod_that_was_replaced_begins_anew() -> None:
    """Its name is the same, and its UID is another."""
    zone = with_pod(delayed("b", 5), 4, uid=Uid("uid-new"))
    plan = plan_scaling(snapshot(zone, scale="3/5", answers=BOTH))

    assert counts(plan) == {}
    assert [pod.pod for calls in plan.pod_calls for pod in calls.post] == ["zone-b-4"]


@pytest.mark.parametrize(("ago", "goes"), [(2, False), (9, False), (10, True)])
def test_delay08_no_pod_goes_that_may_still_act_on_a_call_that_it_stays(
    ago: int, goes: bool
) -> None:
    """SI-10, DELAY-08: its DELETE was given up without an answer, and its POST came after that."""
    calls = PodCalls(answer=DUE, unanswered_at=NOW - ago * SECOND)
    scaling = snapshot(delayed("b", 5), scale="3/5", answers=due("b-3"), stay={"b-4": calls})
    plan = plan_scaling(structs.replace(scaling, late_calls=10 * SECOND))

    assert counts(plan) == ({"zone-b": 3} if goes else {})
    if not goes:
        assert codes(plan) == ["delayed_by_pods zone-b"]
        assert (
            plan.waits[0].text == f"{CHANGE}zone-b-4 may still act on an earlier call that it stays"
        )
        assert plan.requeue_after == (10 - ago) * SECOND
        assert not [pod for calls in plan.pod_calls for pod in calls.post], (
            "it would say what is no more"
        )


def test_seed076_a_pod_that_restarts_its_preparation_waits_anew() -> None:
    answers = {"b-4": answer(5 * SECOND), "b-3": DUE}
    plan = plan_scaling(snapshot(delayed("b", 5), scale="3/5", answers=answers))

    assert (counts(plan), codes(plan)) == ({}, ["delayed_by_pods zone-b"])
    assert plan.requeue_after == MINUTE - SECOND


def test_the_wait_says_the_same_for_as_long_as_pods_say_the_same() -> None:
    begun = NOW - 10 * MINUTE
    answers = {"b-4": PodAnswer(called_at=NOW, since=begun), "b-3": DUE}
    early, late = (
        plan_scaling(snapshot(delayed("b", 5), scale="3/5", answers=answers, now=now)).waits[0]
        for now in (NOW, NOW + 20 * SECOND)
    )

    assert early.text != late.text
    assert (
        early.stable_text
        == late.stable_text
        == (f"{CHANGE}zone-b-4 is prepared since 2026-01-01T11:50:00Z, 1h0m0s are wanted")
    )


@pytest.mark.parametrize("early", [timedelta(0), timedelta(microseconds=1), timedelta(days=9)])
def test_delay08_the_very_moment(early: timedelta) -> None:
    """SEED-073: exactly as long as the delay is long enough, and a moment less is not."""
    said = PodAnswer(called_at=NOW, since=NOW - HOUR + early)
    plan = plan_scaling(snapshot(delayed("b", 5), scale="3/5", answers={"b-4": said, "b-3": said}))

    assert counts(plan) == ({} if early else {"zone-b": 3})


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


def test_d51_a_mistyped_count_costs_no_walk_through_all_ordinals() -> None:
    """A pod with another name that cannot be read is none of those that go."""
    zone = changed(delayed("b", 5), replicas=2**31 - 1, status_replicas=6)
    odd = unreadable("Pod", "zone-b-debug", owner="b")
    zone = structs.replace(zone, unreadable_pods=(odd,))

    plan = plan_scaling(snapshot(zone, scale="3/5", answers=BOTH))

    assert counts(plan) == {"zone-b": 3}
