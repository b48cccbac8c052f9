"""When a rollout began and when it ends, by the ages of pods."""

from datetime import UTC, datetime, timedelta

import pytest

from rollout_operator.model.objects import Group
from rollout_operator.planning.describe_groups import MOST_LEFT, Pace, measure_pace
from tests.builders import NOW, group, prev, with_pods, zone
from tests.planning.description.groups import aged


def ago(minutes: float) -> timedelta:
    return timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("snapshot", "began", "end"),
    [
        pytest.param(group(aged(prev("a"))), None, None, id="nothing replaced"),
        pytest.param(group(aged(zone("a"))), None, None, id="nothing outdated"),
        pytest.param(group(), None, None, id="no zone"),
        pytest.param(
            group(aged(prev("a", "lpp"), p0=ago(2)), aged(prev("b"))), 2, 10, id="one of six"
        ),
        pytest.param(
            group(aged(prev("a", "llp"), p0=ago(4), p1=ago(1)), aged(prev("b"))),
            4,
            8,
            id="two of six",
        ),
        pytest.param(
            group(aged(zone("a"), p0=ago(9), p1=ago(8), p2=ago(7)), aged(prev("b"))),
            9,
            9,
            id="a whole zone",
        ),
        pytest.param(
            group(aged(prev("a", "Lpp"), p0=ago(2))), 2, None, id="the first one is starting"
        ),
        pytest.param(
            group(aged(prev("a", "lpp"), p0=ago(2)), aged(prev("b", paused="true"))),
            2,
            None,
            id="a paused zone never ends",
        ),
        pytest.param(
            group(aged(prev("a", "plll"), p0=ago(5), p1=ago(3))),
            3,
            3,
            id="after a rollback those that never changed do not count",
        ),
        pytest.param(
            group(aged(prev("a", "lp"), p0=ago(2)), zone("b", "-" * 9, replicas=2**31 - 1)),
            2,
            None,
            id="an end beyond a month",
        ),
        pytest.param(
            group(aged(prev("a", "lp"), p0=ago(-2))), -2, None, id="a pod from the future"
        ),
    ],
)
def test_the_pace_is_that_of_the_pods_replaced_so_far(
    snapshot: Group, began: float | None, end: float | None
) -> None:
    expected = Pace(
        began=None if began is None else NOW - ago(began),
        expected_end=None if end is None else NOW + ago(end),
    )

    assert measure_pace(snapshot) == expected


@pytest.mark.parametrize("at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_impossible_ages_are_no_error(at: datetime) -> None:
    for old, new in ((at, NOW), (NOW, at), (at, at)):
        snapshot = group(
            with_pods(prev("a"), created=old), with_pods(zone("b", current="prev"), created=new)
        )
        end = measure_pace(snapshot).expected_end
        assert end is None or end - NOW <= MOST_LEFT


def test_a_pod_without_an_age_is_left_out() -> None:
    snapshot = group(aged(prev("a", "lpp"), p0=ago(2)), prev("b", "lpp"))

    assert measure_pace(snapshot).began == NOW - ago(2)
