"""The judge of places that a rollout takes while a drain waits: LI-01."""

from collections.abc import Sequence

import pytest

from tests.judge.budgets import EVICTION_PATH
from tests.judge.promises import Promises
from tests.judge.verdict import find_violations
from tests.simulation.chronicle import Chronicle, s
from tests.simulation.chronicle_drains import ask, budget, delete, evict

USED = "1 pod not ready in zone-a; budget ingester: max unavailable 1"
HELD = "the next place under budget ingester is for the rollout; zone-c-0 waits"
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
WAITS = range(20, 80, 5)
# When the rollout takes a place: three in a row.
PLACES = (40.0, 50.0, 60.0)


def passed_over(
    *,
    waits: Sequence[int] = WAITS,
    message: str = USED,
    pod: str = "zone-c-0",
    evicted: float = 0,
    in_vain: float = 0,
    allowed: bool = True,
    crashed: bool = False,
    healed_at: float = 10,
    **spec: object,
) -> list[float]:
    """Return when the judge objects, in a rollout of zone-a while an eviction waits."""
    told = Chronicle()
    told.zones()
    budget(told, 0, **spec)
    steps: list[tuple[float, str, int]] = [(at, "ask", 0) for at in waits]
    steps += [(at, "roll", ordinal) for ordinal, at in enumerate(PLACES)]
    if evicted:
        steps.append((evicted, "evict", 0))
    if in_vain:
        steps.append((in_vain, "grant", 0))
    for at, what, ordinal in sorted(steps):
        name = f"zone-a-{ordinal}"
        if what == "ask":
            told.number += 1
            ask(told, at, pod, told.number, status=429, message=message)
        elif what == "evict":
            evict(told, at, "zone-b-0")
            told.replace(at + 1, "zone-b-0")
        elif what == "grant":
            told.number += 1
            ask(told, at, pod, told.number, status=403, message="the quota is used")
            told.review(at + 0.1, pod, told.number, path=EVICTION_PATH, allowed=allowed)
        else:
            if crashed:
                told.pod(at - 1, name, ready=False)
            delete(told, at, name)
            told.replace(at + 1, name)
    promises = Promises(healed_at=s(healed_at), ended_at=s(100), quiet=s(0))
    found = find_violations(told.history, promises).violations
    return [one.at.total_seconds() for one in found if "in a row" in one.text]


def test_a_rollout_that_takes_each_place_is_told() -> None:
    """LI-01: one of two places is for the eviction that waits."""
    assert passed_over() == [50]
    assert passed_over(message=HELD) == [50]


@pytest.mark.parametrize("maximum", [2, 3])
def test_a_turn_has_as_many_places_as_the_zone_allows(maximum: int) -> None:
    """Zones of the chronicle may miss one pod at a time."""
    assert passed_over(maxUnavailable=maximum) == [50]


def test_an_eviction_in_between_is_its_turn() -> None:
    assert passed_over(evicted=45) == [60]
    assert passed_over(evicted=55) == [50]


def test_a_client_that_asks_no_more_is_passed_over() -> None:
    assert passed_over(waits=range(20, 40, 5)) == []
    assert passed_over(waits=range(47, 80, 5)) == []


def test_what_waits_for_something_else_has_no_turn() -> None:
    assert passed_over(message=REFUSED) == []
    assert passed_over(message="max unavailable = 0; budget ingester") == []


def test_li01_what_another_webhook_refused_after_it_was_allowed_has_no_turn() -> None:
    """LI-01, LI-09: also where the operator answers after the one that refuses."""
    assert passed_over(in_vain=15) == []
    assert passed_over(in_vain=15, allowed=False) == [50]


def test_a_pod_that_waits_itself_is_served() -> None:
    assert passed_over(pod="zone-a-1") == []


def test_pods_that_are_down_take_no_place() -> None:
    """LI-10."""
    assert passed_over(crashed=True) == []


def test_partitions_are_not_judged() -> None:
    assert passed_over(podNamePartitionRegex="zone-[a-z]-([0-9]+)") == []
