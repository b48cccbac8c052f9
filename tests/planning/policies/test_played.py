"""Whole rollouts of a policy, second by second, and random ones under the invariants.

Where it requests nothing more, a policy chooses what a label group chooses (chapter 11).
"""

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, Final

import pytest

from rollout_operator.model.objects import Zone
from rollout_operator.model.outcome import ReplacePods, find_leading
from rollout_operator.model.policy import PodOrder
from rollout_operator.model.units import IntOrPercent, parse_max_unavailable
from rollout_operator.planning.policies import plan_policy
from rollout_operator.planning.rollout import plan_group
from tests.builders import prev, zone
from tests.planning.policies.played import STARTS_IN, PlayedPolicy
from tests.planning.policies.snapshots import seconds, snapshot

pytestmark = pytest.mark.thorough

THREE = (("2a", "a"), ("2b", "b"), ("2c", "c"))

# One zone per StatefulSet, named like it, in the order of names.
SHARED: Final = {"zone-a": "a", "zone-b": "b", "zone-c": "c"}
STATES: Final = ("lll", "ppp", "plp", "pPp", "PPl", "pwp", "ppL", "pp-", "ppt")
PAUSED: Final = ("Paused ppp", "Paused pPp")
LIMITS: Final = ("1", "2", "70%")


def test_the_sample_of_the_page() -> None:
    """MT-20: 3 zones of 3 pods, nine batches of one, 30 s after each is complete."""
    played = PlayedPolicy(*THREE)
    played.change_template("v2")
    played.run(9 * (STARTS_IN + 30))

    each = STARTS_IN + 30
    expected = [f"{letter}-{ordinal}" for letter in "abc" for ordinal in (2, 1, 0)]
    assert played.deleted == [(place * each, name) for place, name in enumerate(expected)]
    assert played.batch is not None
    assert played.batch.number == 9


def test_two_stateful_sets_of_a_zone() -> None:
    """MT-25: one completely, then the other, though two may be down and nothing pauses."""
    two = IntOrPercent(2)
    played = PlayedPolicy(("2a", "xy"), ("2b", "b"), max_unavailable=two, interval=seconds(0))
    played.change_template("v2", "x", "y")
    played.run(40)

    assert [name for _, name in played.deleted] == ["x-2", "x-1", "x-0", "y-2", "y-1", "y-0"]
    assert played.deleted[3][0] == played.deleted[2][0] + STARTS_IN


def test_a_failure_in_the_pause() -> None:
    """MT-28: complete at 0, unready at 10, ready at 20, the next delete at 50."""
    played = PlayedPolicy(*THREE)
    played.change_template("v2")
    played.run(STARTS_IN + 10)
    broken = played.zones["c"].pods[0].uid
    played.down.add(broken)
    played.fields["is_paused"] = True  # or else it is replaced at once, being outdated
    played.run(STARTS_IN + 20)
    played.down.discard(broken)
    played.fields["is_paused"] = False
    played.run(100)

    assert played.deleted[1] == (STARTS_IN + 50, "a-1")


def test_a_rollback_of_a_revision_that_crashes() -> None:
    """MT-46, MT-47: it stalls and touches nothing else, then it goes back without a pause."""
    played = PlayedPolicy(*THREE, progress_deadline=seconds(30))
    played.crashing.add("v2")
    played.change_template("v2")
    played.run(100)
    assert played.deleted == [(0, "a-2")]
    assert played.tick().is_stalled

    played.change_template("last")
    played.run(200)
    assert played.deleted == [(0, "a-2"), (101, "a-2")]
    assert not played.tick().is_open


def test_a_process_that_ends_after_it_has_recorded() -> None:
    """Step 12: the next one carries the same batch out."""
    played = PlayedPolicy(*THREE, max_unavailable=IntOrPercent(2))
    played.change_template("v2")
    played.tick(is_killed=True)
    played.run(10)

    assert played.deleted == [(1, "a-2"), (1, "a-1")]
    assert played.batch is not None
    assert played.batch.number == 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "seeds", [range(125), pytest.param(range(125, 500), marks=pytest.mark.prove)]
)
def test_random_rollouts(seeds: range) -> None:
    """MT-52: readiness, templates, scales, crashes and kills; and in the end all is updated."""
    for seed in seeds:
        _play(Random(seed), seed)


def _play(rng: Random, seed: int) -> None:
    played = PlayedPolicy(
        ("one", "ab"), ("two", "c"), ("three", "d"),
        replicas=rng.choice([1, 2, 3]),
        max_unavailable=rng.choice([IntOrPercent(1), IntOrPercent(2), IntOrPercent(70, True)]),
        interval=seconds(rng.choice([0, 2, 4])),
    )  # fmt: skip
    played.starts_in = 2
    for _ in range(rng.choice([10, 30])):
        _disturb(played, rng)
        played.tick(is_killed=rng.random() < 0.1)
    played.down.clear()
    played.crashing.clear()
    for _ in range(400):
        if played.tick().waits and _is_updated(played):
            break
    assert _is_updated(played), f"seed {seed}"


def _disturb(played: PlayedPolicy, rng: Random) -> None:
    letter = rng.choice([*played.zones])
    match rng.randrange(12):
        case 0 | 1:
            played.change_template(rng.choice(["v1", "v2", "v3"]))
        case 2:
            played.change_template(rng.choice(["v1", "v2"]), letter)
        case 3:
            pods = played.zones[letter].pods
            played.down.update(one.uid for one in pods[: rng.choice([0, 1])])
        case 4:
            played.down.clear()
        case 5:
            played.crashing = {rng.choice(["v1", "v2"])} if rng.random() < 0.5 else set()
        case 6:
            played.scale(letter, rng.choice([0, 1, 2, 3]))
        case 7 if rng.random() < 0.3:
            played.batch = None
        case _:
            pass


def _is_updated(played: PlayedPolicy) -> bool:
    return all(
        one.is_ready and one.revision == member.sts.update_revision
        for member in played.zones.values()
        for one in member.pods
    )


def _make(letter: str, state: str, limit: str) -> Zone:
    is_paused = state.startswith("Paused ")
    pods = state.removeprefix("Paused ")
    if pods == "lll":
        return zone(letter, current="prev" if letter == "b" else "last", limit=limit)
    return prev(letter, pods, limit=limit, paused="true" if is_paused else None)


def _has_other_order(states: Sequence[str]) -> bool:
    """Return whether a zone that was begun comes after one that was not (MAZ-46)."""
    begun = ["l" in state.lower() for state in states if "p" in state.lower()]
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
        # Of several zones that are short, a policy replaces pods of one StatefulSet at a time.
        going = [each.pod for action in pods[:1] for each in action.going]

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
