"""The judge of how much is asked for: histories that break the promise, and that nearly do."""

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS
from tests.simulation.chronicle import Chronicle
from tests.simulation.chronicle_deletes import Story, judge


def _read(told: Chronicle, *, since: float, a_minute: int, minutes: int) -> None:
    for number in range(a_minute * minutes):
        told.call(since + number * 60 / a_minute, "list", PODS)


def steady(told: Chronicle) -> None:
    _read(told, since=10, a_minute=300, minutes=4)


def too_many(told: Chronicle) -> None:
    _read(told, since=10, a_minute=400, minutes=1)


def many_in_two_groups(told: Chronicle) -> None:
    for number in range(300):
        told.call(10 + number / 5, "list", PODS)
        told.call(10 + number / 5, "list", STATEFULSETS)


def watched_often(told: Chronicle) -> None:
    for number in range(500):
        told.call(10 + number / 10, "watch", PODS)


def fruitless(told: Chronicle) -> None:
    _read(told, since=10, a_minute=60, minutes=7)


def fruitful(told: Chronicle) -> None:
    _read(told, since=10, a_minute=60, minutes=4)
    told.call(250, "update", STATEFULSETS, "zone-a", subresource="status", status=500)
    _read(told, since=251, a_minute=60, minutes=4)


def tried_rarely(told: Chronicle) -> None:
    _read(told, since=10, a_minute=30, minutes=20)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(steady, [], id="as much as the flags say"),
        pytest.param(too_many, ["LI-11"], id="more than they say"),
        pytest.param(many_in_two_groups, [], id="each API group counts for itself"),
        pytest.param(watched_often, [], id="watches are free"),
        pytest.param(fruitless, ["LI-11"], id="many reads for minutes and no write"),
        pytest.param(fruitful, [], id="many reads with a write in between"),
        pytest.param(tried_rarely, [], id="what fails is tried twice a minute"),
    ],
)
def test_a_process_asks_for_a_bounded_amount(story: Story, broken: list[str]) -> None:
    """LI-11, D-65: at rest, while something fails, and under contention."""
    assert judge(story) == broken
