"""Random rollouts of a policy under the invariants, and what a policy costs.

Where it requests nothing more, a policy chooses what a label group chooses (chapter 11).
"""

import time
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.budget import PlacedSet
from rollout_operator.model.names import TOPOLOGY_KEYS, Uid
from rollout_operator.model.objects import LabelSelector, SelectorTerm, StatefulSet, Zone
from rollout_operator.model.outcome import ReplacePods, find_leading
from rollout_operator.model.policy import PodOrder
from rollout_operator.model.units import IntOrPercent, parse_max_unavailable
from rollout_operator.planning.policies import plan_policy
from rollout_operator.planning.policy_zones import keep_zones, share_sets
from rollout_operator.planning.rollout import plan_group
from tests.builders import prev, zone
from tests.planning.policies.played import PlayedPolicy
from tests.planning.policies.snapshots import policy, seconds, snapshot

pytestmark = pytest.mark.thorough

KEY: Final = TOPOLOGY_KEYS[0]
RACK: Final = "example.com/rack"
# One zone per StatefulSet, named like it, in the order of names.
SHARED: Final = {"zone-a": "a", "zone-b": "b", "zone-c": "c"}
STATES: Final = ("lll", "ppp", "plp", "pPp", "PPl", "pwp", "ppL", "pp-", "ppt")
PAUSED: Final = ("Paused ppp", "Paused pPp")
LIMITS: Final = ("1", "2", "70%")


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


def test_of_a_template_nothing_is_kept_but_zones() -> None:
    """A tenant may write a megabyte of labels and values, in each of many StatefulSets."""
    many = {str(number): "x" for number in range(1000)}
    named = PlacedSet(name="db", pod_labels={KEY: "2a", "zone": "b"}, node_selector={KEY: "2c"})
    full = replace(
        named, pod_labels={**many, **named.pod_labels}, node_selector={RACK: "r", KEY: "2c"}
    )
    terms = ({KEY: ("2a", "2b"), RACK: (*many, "r1")}, {KEY: ("2b",), RACK: ("r1",)})

    assert keep_zones(full, KEY) == named
    one = PlacedSet(name="db", node_terms=({KEY: ("2a",), **dict.fromkeys(many, ("y",))},))
    assert keep_zones(one, KEY).node_terms == ({KEY: ("2a",)},)
    assert keep_zones(replace(full, node_terms=terms), KEY).node_terms == ()


def test_li_09_hundreds_of_policies_over_all_groups_take_no_time_from_others() -> None:
    """A tenant may write them, and each change of a label has them shared anew."""
    every = LabelSelector(terms=(SelectorTerm(key="rollout-group", operator="Exists"),))
    sets = [
        StatefulSet(
            namespace="prod",
            name=f"db-{number}",
            uid=Uid(f"{number}"),
            resource_version="1",
            labels={"rollout-group": f"group-{number}"},
        )
        for number in range(300)
    ]
    policies = [policy(f"db-{number}", age=number, selector=every) for number in range(200)]
    begin = time.process_time()
    found = share_sets(policies, sets)
    assert time.process_time() - begin < 1
    assert (len(found.scopes), len(found.refused)) == (1, 199)
