"""Pods that another operator deletes: whether a rollout would have deleted them, too."""

import pytest
from msgspec.structs import replace

from rollout_operator.planning.rollout import is_replaced, would_replace
from tests.builders import group, pod, sts, zone


@pytest.mark.parametrize(
    ("pods", "ready", "expected"),
    [
        pytest.param("tpp", 3, True, id="its set still counts it"),
        pytest.param("tpp", 2, True, id="its set has counted it as gone"),
        pytest.param("Lpp", 2, True, id="its successor is there"),
        pytest.param("tPp", 1, False, id="another one was down"),
    ],
)
def test_si25_a_pod_is_judged_as_if_it_were_still_there(
    pods: str, ready: int, expected: bool
) -> None:
    """SI-25: whatever the watches of sets and of pods show by now."""
    seen = group(zone("a", pods, ready=ready, limit="1"), zone("b", "ppp"))
    assert would_replace(seen, pod("a", 0)) is expected


def test_si25_a_pod_of_a_later_zone_would_stay() -> None:
    """SI-25: it was not its turn."""
    seen = group(zone("a", "ppp", limit="1"), zone("b", "tpp", limit="1"))
    assert not would_replace(seen, pod("b", 0))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"is_terminating": True}, True, id="deleted"),
        pytest.param({"is_terminating": True, "is_disrupted": True}, False, id="evicted"),
        pytest.param({"is_ready": False}, False, id="still there"),
    ],
)
def test_d73_which_pods_that_go_are_replaced(changes: dict[str, bool], expected: bool) -> None:
    """D-73: outdated pods that are wanted, other than by an eviction."""
    old = pod("a", 2)
    new = replace(old, **changes)
    assert is_replaced(sts("a"), old, new) is expected
    assert not is_replaced(sts("a", 2), old, new), "scaled down"
    assert not is_replaced(sts("a", update_revision="prev"), old, new), "not outdated"
