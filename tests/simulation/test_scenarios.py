"""Scenarios without faults: each ends at rest, clean, and did what its name says."""

from collections.abc import Container, Iterable
from itertools import count, pairwise
from pathlib import Path
from typing import Final, cast

import pytest
from _pytest.mark import ParameterSet
from rollout_lab.model.history import Called, Commit, History, PodCalled, Reviewed, Said

from rollout_operator.kube.api import JsonObject
from tests.judge.book import list_deletes, read_book
from tests.judge.budgets import EVICTION_PATH
from tests.judge.invariants_budgets import list_grants
from tests.judge.promises import Promises
from tests.simulation.runs import Outcome
from tests.simulation.scenarios import FULL, SMALL, Scenario, Size
from tests.simulation.scenarios_book import NAMES, get_scenario
from tests.simulation.schedule import is_healing, run

pytestmark = pytest.mark.thorough

NO_FAULTS: frozenset[int] = frozenset()
# Fifty groups take ten times as long as any other scenario.
COSTLY: Final = ("s11",)
LARGE: Final = tuple(name for name in NAMES if not name.endswith("-small"))
# Each has a test that plays it by `play_calmly`, under this name.
WITH_A_TEST: Final = frozenset(
    {
        *("s2", "s2-small", "s4", "s5", "s5-contested", "s5-tracked", "s6", "s6-small", "s7"),
        *("s7-tracked", "s7-wide", "s8", "s8-turns", "s8-two", "s9", "s9-two", "s10", "both-small"),
        *("walk", "r3"),
    }
)
WITHOUT: Final = tuple(name for name in NAMES if name not in WITH_A_TEST)


def mark_costly(names: Iterable[str], costly: Container[str] = COSTLY) -> list[ParameterSet]:
    """Return scenarios as parameters of a test: the costly ones are not for `make test-fast`."""
    return [pytest.param(name, marks=pytest.mark.slow if name in costly else ()) for name in names]


def play_calmly(scenario: Scenario, seed: int = 2) -> Outcome:
    """Run a scenario without faults, from a seed on with the first that heals.

    It ends at rest and clean.
    """
    outcome = run(scenario, next(filter(is_healing, count(seed))), only=NO_FAULTS)
    assert outcome.is_healed
    assert outcome.verdict.is_clean, outcome.verdict
    assert not outcome.faults
    return outcome


@pytest.mark.parametrize("name", mark_costly(WITHOUT, LARGE))
def test_without_faults_it_ends_at_rest_and_clean(name: str) -> None:
    play_calmly(get_scenario(name))


def test_the_other_scenarios_are_played_by_tests_of_their_own() -> None:
    here = Path(__file__).parent
    texts = "".join(path.read_text() for path in here.glob("test_scenarios_*.py"))
    texts += Path(__file__).read_text().partition("def test_s1_")[2]

    assert {name for name in WITH_A_TEST if f'"{name}"' not in texts} == set()


@pytest.mark.parametrize("size", [SMALL, FULL, Size(2, 3), Size(4, 2)], ids=lambda size: size.text)
def test_s1_replaces_each_pod_once_zone_after_zone(size: Size) -> None:
    deletes = list_deletes(play_calmly(get_scenario("s1", size)).history)

    zones = [name.rpartition("-")[0] for name in deletes]
    assert len(deletes) == len(set(deletes)) == size.zones * size.pods
    assert len({*zones}) == size.zones
    assert zones == sorted(zones, key=zones.index), "no zone is begun again"


def test_s2_pods_of_the_abandoned_revision_go_back() -> None:
    outcome = play_calmly(get_scenario("s2"))

    deletes = list_deletes(outcome.history)
    assert deletes, "the rollout had begun"
    assert images(outcome.history) == {"v1"}


def test_s4_the_broken_revision_is_met_and_left() -> None:
    outcome = play_calmly(get_scenario("s4"))

    assert len(list_deletes(outcome.history)) > 9, "some pods went twice"
    assert images(outcome.history) == {"v3"}


def test_s7_zones_go_down_where_people_insist_and_the_third_never_does() -> None:
    """Over some seeds both are scaled down, and some clients give up."""
    ends, undone = set(), False
    for seed in range(0, 200, 20):
        history = play_calmly(get_scenario("s7"), seed).history
        assert set(counts(history, "ingester-zone-c")) == {3}
        assert {call.method for call in history.list_all(PodCalled)} >= {"POST"}
        assert any("dry run" in said.text for said in history.list_all(Said))
        undone |= "DELETE" in {call.method for call in history.list_all(PodCalled)}
        ends.add(tuple(counts(history, f"ingester-zone-{zone}")[-1] for zone in "ab"))
        if undone and {(2, 2)} < ends:
            break

    assert ends >= {(2, 2)}
    assert ends & {(2, 3), (3, 2), (3, 3)}
    assert undone, "pods of clients that gave up were told that they stay"


def test_s2_pods_must_stay_ready_for_a_while() -> None:
    history = play_calmly(get_scenario("s2-small")).history

    specs = [cast(JsonObject, one.after["spec"]) for one in sets(history) if one.after]
    assert {spec["minReadySeconds"] for spec in specs} == {5}


def test_s7_wide_people_want_different_counts_of_one_set() -> None:
    """Over some seeds one range holds several pods, some are undone, some are reverted midway."""
    ends, called, undone, is_raised = set(), set(), 0, False
    for seed in range(0, 400, 20):
        history = play_calmly(get_scenario("s7-wide"), seed).history
        calls = history.list_all(PodCalled)
        called |= {call.pod for call in calls if call.method == "POST"}
        undone += sum(call.method == "DELETE" for call in calls)
        for name in ("ingester-zone-a", "ingester-zone-b"):
            found = counts(history, name)
            is_raised |= any(now > old for old, now in pairwise(found))
            ends.add(found[-1])
        if undone and is_raised and ends >= {2, 3, 4} and len(called) > 2:
            break

    assert ends >= {2, 3, 4}
    assert {pod[-1] for pod in called} == {"1", "2", "3"}
    assert undone
    assert is_raised


def test_both_a_rollout_meets_the_downscales() -> None:
    """All are rolled out, two are scaled down; over some seeds each comes in the other's middle."""
    comes_first, comes_second = False, False
    for seed in range(0, 200, 20):
        history = play_calmly(get_scenario("both-small"), seed).history
        assert len(images(history)) == 1
        assert images(history) <= {"v2", "v3"}
        assert {counts(history, f"ingester-zone-{zone}")[-1] for zone in "ab"} == {1}
        deletes = [
            one.at
            for one in history.list_all(Called)
            if one.actor == "operator-1" and one.request.verb == "delete"
        ]
        refused = [one.at for one in history.list_all(Reviewed) if not one.allowed]
        comes_first |= any(min(deletes) < at < max(deletes) for at in refused)
        renewed = [said.at for said in history.list_all(Said) if "sets the image" in said.text]
        grants = list_grants(read_book(history, Promises()))
        comes_second |= any(one.read_at < at < one.ended_at for one in grants for at in renewed)
        if comes_first and comes_second:
            break

    assert comes_first
    assert comes_second


def evicted(history: History) -> list[str]:
    """Return the pods that were evicted in earnest, in order."""
    return [
        one.request.name
        for one in history.list_all(Called)
        if one.request.subresource == "eviction" and one.status == 201
        if not one.request.is_dry_run
    ]


@pytest.mark.slow
def test_s8_two_nodes_are_emptied_while_all_zones_are_rolled_out() -> None:
    """Over some seeds evictions are refused, a native budget refuses, the budget is changed."""
    zones, statuses, texts = set(), set(), ""
    for seed in (6, 40):
        history = play_calmly(get_scenario("s8"), seed).history
        assert images(history) == {"v2"}
        zones |= {name.rpartition("-")[0] for name in evicted(history)}
        requested = [
            one for one in history.list_all(Called) if one.request.subresource == "eviction"
        ]
        statuses |= {one.status for one in requested}
        texts += "\n".join(one.text for one in history.list_all(Said))
        assert any(one.request.is_dry_run for one in requested)

    assert zones >= {"ingester-zone-a", "ingester-zone-b"}
    assert statuses >= {201, 429}
    for each in ("has drained node-a-0", "has drained node-b-0", "and goes away"):
        assert each in texts
    for each in ("deletes the budget", "changes the budget", "creates the native budget"):
        assert each in texts


@pytest.mark.slow
def test_s8_turns_pods_of_the_last_zone_go_before_the_rollout_comes_to_it() -> None:
    """LI-01: the drain has its turns, and the rollout goes on in between."""
    for seed in (0, 2, 4):
        outcome = play_calmly(get_scenario("s8-turns"), seed)
        deleted = [
            (one.at, one.request.name)
            for one in outcome.history.list_all(Called)
            if (one.request.verb, one.request.resource.plural) == ("delete", "pods")
            if one.actor.startswith("operator")
        ]
        went = evicted(outcome.history)
        assert went
        # Each of them was at the old revision, and back at the new one: the rollout spared it.
        assert not {name for _, name in deleted} & set(went)


def test_s9_pods_of_all_zones_are_evicted_and_of_two_partitions_at_a_time() -> None:
    zones, is_together = set(), False
    for seed in range(0, 100, 20):
        history = play_calmly(get_scenario("s9"), seed).history
        zones |= {name.rpartition("-")[0] for name in evicted(history)}
        going: set[str] = set()
        for commit in history.list_all(Commit):
            if commit.resource.plural != "pods" or commit.after is None:
                continue
            is_going = "deletionTimestamp" in cast(JsonObject, commit.after["metadata"])
            going = going | {commit.name} if is_going else going - {commit.name}
            is_together |= len({name.rpartition("-")[0] for name in going}) > 1
        if is_together and len(zones) == 3:
            break

    assert len(zones) == 3
    assert is_together, "pods of two zones go at the same time, of different partitions"


@pytest.mark.parametrize("name", ["s8-two", "s9-two"])
def test_two_processes_answer_the_evictions(name: str) -> None:
    """FP-20."""
    history = play_calmly(get_scenario(name)).history

    reviews = history.list_all(Reviewed)
    assert {one.actor for one in reviews if one.path == EVICTION_PATH} == {
        "operator-1",
        "operator-2",
    }


def test_s10_the_set_is_another_one_of_the_same_name() -> None:
    history = play_calmly(get_scenario("s10")).history

    gone = [one for one in sets(history) if one.after is None]
    assert len(gone) == 1
    made = [one for one in sets(history) if one.before is None and one.name == gone[0].name]
    assert len(made) == 2


@pytest.mark.slow
def test_the_walk_takes_at_least_eight_steps_some_of_them_wrong() -> None:
    texts: list[str] = []
    for seed in range(5):
        history = play_calmly(get_scenario("walk"), seed * 100).history
        said = [one.text for one in history.list_all(Said) if one.actor == "alice"]
        assert len(said) >= 8
        texts += said
    wrong = ("maybe", "RollingUpdate", "elsewhere", "80@example.com", "soon", "-1", "two")
    assert any(word in text for text in texts for word in wrong)


def test_the_walk_sometimes_ends_without_one_of_its_sets() -> None:
    ends = set()
    for seed in range(0, 160, 20):
        history = play_calmly(get_scenario("walk"), seed).history
        last = {one.name: one.after is not None for one in sets(history)}
        ends.add(sum(last.values()))
        if len(ends) > 1:
            break

    assert ends == {2, 3}


def images(history: History) -> set[str]:
    """Return the images of all pods that exist in the end."""
    pods: dict[str, JsonObject] = {}
    for commit in history.list_all(Commit):
        if commit.resource.plural == "pods":
            pods.pop(commit.name, None)
            if commit.after is not None:
                pods[commit.name] = commit.after
    specs = [cast(JsonObject, pod["spec"]) for pod in pods.values()]
    containers = [cast(list[JsonObject], spec["containers"]) for spec in specs]
    return {str(each[0]["image"]) for each in containers}


def sets(history: History) -> list[Commit]:
    """Return all changes of StatefulSets."""
    return [one for one in history.list_all(Commit) if one.resource.plural == "statefulsets"]


def counts(history: History, name: str) -> list[int]:
    """Return the wanted replicas of a set, after each change."""
    found = [one.after for one in sets(history) if one.name == name and one.after is not None]
    specs = [cast(JsonObject, each["spec"]) for each in found]
    return [cast(int, spec["replicas"]) for spec in specs]
