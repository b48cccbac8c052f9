"""A policy chooses what a label group chooses, where it requests nothing more (chapter 11)."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import pytest

from rollout_operator.model.group import Zone
from rollout_operator.model.outcome import ReplacePods
from rollout_operator.model.policy.policy import PodOrder
from rollout_operator.model.reasons.urgency import find_leading
from rollout_operator.model.units import parse_max_unavailable
from rollout_operator.planning.policies.plan import plan_policy
from rollout_operator.planning.rollout.plan import plan_group
from tests.builders import prev, zone
from tests.planning.policies.snapshots import seconds, snapshot

# One zone per StatefulSet, named like it, in the order of names.
SHARED: Final = {"zone-a": "a", "zone-b": "b", "zone-c": "c"}
STATES: Final = ("lll", "ppp", "plp", "pPp", "PPl", "ppL", "pp-", "ppt")
PAUSED: Final = ("Paused ppp", "Paused pPp")
LIMITS: Final = ("1", "2", "70%")


def _make(letter: str, state: str, limit: str) -> Zone:
    is_paused = state.startswith("Paused ")
    pods = state.removeprefix("Paused ")
    if pods == "lll":
        return zone(letter, current="prev" if letter == "b" else "last", limit=limit)
    return prev(letter, pods, limit=limit, paused="true" if is_paused else None)


def _has_other_order(states: Sequence[str]) -> bool:
    """Return whether a zone that was begun comes after one that was not (MAZ-46)."""
    begun = ["l" in state.lower() for state in states if "p" in state]
    return begun != sorted(begun, reverse=True)


def _list_cases(limit: str) -> Iterator[tuple[Zone, ...]]:
    for states in product((*STATES, *PAUSED), repeat=3):
        if not _has_other_order(states):
            yield tuple(
                _make(letter, state, limit) for letter, state in zip("abc", states, strict=True)
            )


@pytest.mark.parametrize("limit", LIMITS)
def test_the_same_pods_go_and_the_same_reasons_hold(limit: str) -> None:
    fields: dict[str, Any] = {
        "interval": seconds(0),
        "pod_order": PodOrder.ASCENDING,
        "max_unavailable": parse_max_unavailable(limit),
        "shared": SHARED,
    }
    for zones in _list_cases(limit):
        case = snapshot(*zones, **fields)
        one, other = plan_policy(case), plan_group(case.group)
        pods = [action for action in other.actions if isinstance(action, ReplacePods)]
        going = [each.pod for action in pods for each in action.going]

        assert [each.pod for each in (one.action.going if one.action else ())] == going
        recorded = [action.zone.name for action in other.actions if action not in pods]
        assert {*recorded} <= {each.zone.name for each in one.records}
        if not going and not recorded:
            leading = find_leading(other.waits)
            assert leading is not None
            assert one.leading is not None
            assert (one.leading.code, one.leading.zone) == (leading.code, leading.zone)
            assert {each.code for each in one.waits} == {each.code for each in other.waits}


def test_a_zone_that_was_begun_goes_first_only_under_a_policy() -> None:
    """MAZ-46: a label group goes by name alone."""
    case = snapshot(prev("a"), prev("b", "plp"), interval=seconds(0))
    one, other = plan_policy(case), plan_group(case.group)

    assert one.action is not None
    assert one.action.zone.name == "zone-b"
    assert [action.zone.name for action in other.actions] == ["zone-a"]
