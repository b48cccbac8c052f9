"""The judge's rules about budgets find each kind of violation, and nothing where there is none."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.judge.objects import Budget, Change, Eviction, Pod, Set
from tests.world.stories import NAMESPACE, Story, begin
from tests.world.verdicts import Allowances, Violation, find_violations, list_evicted

LABELS = {"rollout-group": "g"}
BUDGET = Budget(name="main", uid="budget", selector=LABELS)
BY_PARTITION = replace(BUDGET, pattern=r"[a-z]-([0-9]+)")
WALL = 1_000_000.0


class Drain(Story):
    """A story in which pods are evicted as well."""

    evictions: list[Eviction]

    def evict(self, name: str, *, is_recorded: bool = True) -> None:
        """Let somebody evict a pod, with our consent."""
        if is_recorded:
            self.change_pod(name, record=self.pod(name).uid)
        asked = self.at
        self.change_pod(name, is_terminating=True)
        self.evictions.append(
            Eviction(
                name=name,
                user="drainer",
                code=201,
                received=asked + WALL - 0.1,
                answered=asked + WALL + 0.1,
            )
        )

    def come_back(self, name: str, *, is_ready: bool = True) -> None:
        """Let the pod go and a new one take its place."""
        super().come_back(name, is_ready=False)
        now = replace(self.pod(name), labels=LABELS, is_ready=is_ready)
        self.write(f"pod/{name}", now)

    def verdict(self, allowances: Allowances | None = None) -> list[Violation]:
        return find_violations(
            self.changes,
            self.deletes,
            namespace=NAMESPACE,
            allowances=allowances or Allowances(),
            evicted=list_evicted(self.changes, self.evictions, WALL),
        )


@pytest.fixture
def story() -> Drain:
    return drain(BUDGET)


def drain(budget: Budget | None) -> Drain:
    """Return three zones of three pods that have been under a budget for a minute."""
    begun = begin()
    told = Drain(begun.at, begun.version, begun.changes, begun.deletes, begun.objects)
    told.evictions = []
    for key, found in list(told.objects.items()):
        if isinstance(found, Pod | Set):
            told.write(key, replace(found, labels=LABELS))
    if budget is not None:
        told.write("budget/main", budget)
    told.wait(60)
    return told


def change_budget(told: Drain, **changes: Any) -> None:
    found = told.objects["budget/main"]
    assert isinstance(found, Budget)
    told.write("budget/main", replace(found, **changes))


def one_after_the_other(told: Drain) -> None:
    for name in ("a-0", "a-1", "b-0", "c-2"):
        told.evict(name)
        told.wait(3)
        told.come_back(name)


def what_does_not_run_goes_always(told: Drain) -> None:
    told.evict("a-0")
    told.change_pod("b-0", is_ready=False, is_running=False)
    told.wait(6)
    told.evict("b-0")


def outsiders_are_not_judged(told: Drain) -> None:
    told.change_pod("a-0", is_terminating=True)
    told.wait(1)
    told.change_pod("b-0", is_terminating=True)


def what_failed_a_moment_ago_is_not_known(told: Drain) -> None:
    told.change_pod("b-0", is_ready=False)
    told.wait(1)
    told.evict("a-0")


def a_limit_lowered_a_moment_ago_is_not_known(told: Drain) -> None:
    change_budget(told, maximum=2)
    told.wait(10)
    told.evict("a-0")
    change_budget(told, maximum=1)
    told.wait(1)
    told.evict("a-1")


def a_rollout_under_a_budget_of_0(told: Drain) -> None:
    change_budget(told, maximum=0)
    told.wait(10)
    told.change_pod("a-0", record="a-0")
    told.ask("a-0")


@pytest.mark.parametrize(
    "happens",
    [
        one_after_the_other,
        what_does_not_run_goes_always,
        outsiders_are_not_judged,
        what_failed_a_moment_ago_is_not_known,
        a_limit_lowered_a_moment_ago_is_not_known,
        a_rollout_under_a_budget_of_0,
    ],
)
def test_what_is_allowed_is_clean(story: Drain, happens: Callable[[Drain], None]) -> None:
    happens(story)

    assert story.verdict() == []


def two_zones(told: Drain) -> None:
    told.evict("a-0")
    told.evict("b-0")


def drain_and_rollout(told: Drain) -> None:
    told.evict("a-0")
    told.change_pod("b-0", record="b-0")
    told.ask("b-0")


def rollout_and_drain(told: Drain) -> None:
    told.change_pod("b-0", record="b-0")
    told.ask("b-0")
    told.evict("a-0")


def other_zone_down(told: Drain) -> None:
    told.change_pod("b-1", is_ready=False)
    told.wait(6)
    told.evict("a-0")


def two_of_one_zone(told: Drain) -> None:
    told.evict("a-0")
    told.evict("a-1")


def one_down_and_one_evicted(told: Drain) -> None:
    told.change_pod("a-1", is_ready=False)
    told.wait(6)
    told.evict("a-0")


def budget_of_0(told: Drain) -> None:
    change_budget(told, maximum=0)
    told.wait(10)
    told.evict("a-0")


def no_record(told: Drain) -> None:
    told.evict("a-0", is_recorded=False)


def record_of_another_pod(told: Drain) -> None:
    told.change_pod("a-0", record="b-0")
    told.evict("a-0", is_recorded=False)


def overlapping(told: Drain) -> None:
    told.write("budget/second", replace(BUDGET, name="second", uid="second"))
    told.wait(10)
    told.evict("a-0")


@pytest.mark.parametrize(
    ("happens", "invariants"),
    [
        (two_zones, {"SI-01"}),
        (drain_and_rollout, {"SI-01"}),
        (rollout_and_drain, {"SI-01"}),
        (other_zone_down, {"SI-02"}),
        (two_of_one_zone, {"SI-03", "SI-04"}),
        (one_down_and_one_evicted, {"SI-03"}),
        (budget_of_0, {"SI-03", "SI-04"}),
        (no_record, {"SI-17"}),
        (record_of_another_pod, {"SI-17"}),
        (overlapping, {"SI-03"}),
    ],
)
def test_what_is_forbidden_is_found(
    story: Drain, happens: Callable[[Drain], None], invariants: set[str]
) -> None:
    happens(story)

    assert {each.invariant for each in story.verdict()} == invariants


def test_records_are_not_asked_of_who_may_not_write_them(story: Drain) -> None:
    no_record(story)

    assert story.verdict(Allowances(are_recorded=False)) == []


def test_no_budget_no_judgement() -> None:
    told = drain(None)
    two_zones(told)

    assert told.verdict() == []


def test_a_share_is_of_the_own_zone() -> None:
    told = drain(replace(BUDGET, maximum=0, percentage=67))
    told.evict("a-0")
    told.evict("a-1")
    assert told.verdict() == []
    told.evict("a-2")

    assert {each.invariant for each in told.verdict()} == {"SI-03", "SI-04"}


def test_si05_partitions_are_apart() -> None:
    """Pods of several zones may be down, one of each partition."""
    told = drain(BY_PARTITION)
    for name in ("a-0", "b-1", "c-2"):
        told.evict(name)

    assert told.verdict() == []


def test_si05_of_a_partition_one_goes() -> None:
    told = drain(BY_PARTITION)
    told.evict("a-0")
    told.evict("b-0")

    assert {each.invariant for each in told.verdict()} == {"SI-05"}


def test_si05_one_down_elsewhere_is_of_it() -> None:
    told = drain(BY_PARTITION)
    told.change_pod("c-0", is_ready=False)
    told.wait(6)
    told.evict("a-1")
    assert told.verdict() == []
    told.evict("a-0")

    assert {each.invariant for each in told.verdict()} == {"SI-05"}


def test_si05_a_limit_of_two() -> None:
    told = drain(replace(BY_PARTITION, maximum=2))
    told.evict("a-0")
    told.evict("b-0")
    assert told.verdict() == []
    told.evict("c-0")

    assert {each.invariant for each in told.verdict()} == {"SI-05"}


@pytest.mark.parametrize(("waited", "found"), [(5, {"SI-05"}), (16, set())])
def test_si05_copies_must_have_been_ready(waited: int, found: set[str]) -> None:
    told = drain(replace(BY_PARTITION, delay=timedelta(seconds=15)))
    told.evict("a-0")
    told.wait(2)
    told.come_back("a-0")
    told.wait(waited)
    told.evict("b-0")

    assert {each.invariant for each in told.verdict()} == found


def test_si05_a_name_without_a_partition() -> None:
    told = drain(replace(BY_PARTITION, pattern="other-([0-9]+)"))
    told.evict("a-0")

    assert {each.invariant for each in told.verdict()} == {"SI-05"}


def test_si05_rollouts_obey_partitions_too() -> None:
    told = drain(BY_PARTITION)
    told.evict("b-0")
    told.wait(1)
    told.change_pod("a-0", record="a-0")
    told.ask("a-0")

    assert "SI-05" in {each.invariant for each in told.verdict()}


def test_the_write_of_an_eviction_is_found_by_name_and_time(story: Drain) -> None:
    story.evict("a-0")
    pod = story.pod("b-0")
    story.wait(20)
    story.change_pod("a-1", is_terminating=True)
    (version,) = list_evicted(story.changes, story.evictions, WALL)

    (change,) = [each for each in story.changes if each.version == version]
    assert isinstance(change, Change)
    assert change.name == "a-0"
    assert pod.name == "b-0"


@pytest.mark.parametrize("changes", [{"code": 429}, {"is_dry_run": True}, {"name": "a-1"}])
def test_what_was_refused_has_no_write(story: Drain, changes: dict[str, Any]) -> None:
    story.evict("a-0")
    story.evictions[-1] = replace(story.evictions[-1], **changes)

    assert list_evicted(story.changes, story.evictions, WALL) == frozenset()
