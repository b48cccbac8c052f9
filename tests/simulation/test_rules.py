"""Which budget a judge takes to be in force."""

from typing import Any

import msgspec
import pytest

from rollout_operator.kube.api import ZONE_BUDGETS, JsonObject
from rollout_operator.model.decode.budget import parse_budget
from rollout_operator.model.errors import InvalidInput
from tests.judge.book import read_book
from tests.judge.budgets import Rule, Timeline, read_rule, read_timeline
from tests.judge.objects import Set
from tests.judge.promises import Promises
from tests.simulation.chronicle import Chronicle, s
from tests.simulation.chronicle_drains import budget, unbudget


def rule_of(labels: dict[str, str] | None = None, **spec: Any) -> Rule | None:
    selector: JsonObject = {"matchLabels": labels or {}}
    return read_rule({"metadata": {"name": "b"}, "spec": {"selector": selector, **spec}})


SPECS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"maxUnavailable": 3}, True),
    ({"maxUnavailable": 0}, True),
    ({"maxUnavailablePercentage": 30}, True),
    ({"maxUnavailable": 1, "maxUnavailablePercentage": 30}, False),
    ({"podNamePartitionRegex": "a-([0-9]+)"}, True),
    ({"podNamePartitionRegex": "a-[0-9]+"}, False),
    ({"podNamePartitionRegex": "("}, False),
    ({"podNamePartitionRegex": "(a)-([0-9]+)"}, False),
    ({"podNamePartitionRegex": "(a)-([0-9]+)", "podNameRegexGroup": 2}, True),
    ({"podNamePartitionRegex": "(a)-([0-9]+)", "podNameRegexGroup": 3}, False),
    ({"podNamePartitionRegex": "(a)", "maxUnavailablePercentage": 30}, False),
    ({"podNamePartitionRegex": "(a)", "crossZoneEvictionDelay": "10s"}, True),
    ({"crossZoneEvictionDelay": "10s"}, False),
]


@pytest.mark.parametrize(("spec", "makes_sense"), SPECS, ids=[f"{spec}" for spec, _ in SPECS])
def test_the_judge_and_the_operator_read_budgets_alike(
    spec: dict[str, Any], makes_sense: bool
) -> None:
    """12.2: each in its own words."""
    rule = rule_of({"app": "x"}, **spec)
    raw: JsonObject = {
        "apiVersion": f"{ZONE_BUDGETS.group}/{ZONE_BUDGETS.version}",
        "kind": ZONE_BUDGETS.kind,
        "metadata": {"name": "b", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec},
    }
    assert (rule is not None) is makes_sense
    if rule is None:
        with pytest.raises(InvalidInput):
            parse_budget(msgspec.json.encode(raw))
        return
    theirs = parse_budget(msgspec.json.encode(raw))
    assert (rule.maximum, rule.pattern, rule.delay) == (
        *(theirs.max_unavailable, theirs.pattern),
        theirs.delay,
    )
    assert (rule.share, rule.group) == (theirs.percentage or 0, theirs.pattern_group)


@pytest.mark.parametrize(
    ("percent", "replicas", "limit"), [(50, 3, 1), (67, 3, 2), (1, 3, 1), (100, 4, 4), (50, 0, 0)]
)
def test_a_share_is_rounded_down_and_at_least_one(percent: int, replicas: int, limit: int) -> None:
    """ZPDB-81."""
    rule = rule_of(maxUnavailablePercentage=percent)

    assert rule is not None
    assert rule.limit([Set(name="z", uid="z", replicas=replicas)]) == limit


def timeline_of(told: Chronicle) -> Timeline:
    return read_timeline(read_book(told.history, Promises()))


def limits(told: Chronicle, since: float, until: float) -> list[int]:
    return [one.maximum for one in timeline_of(told).find({}, s(since), s(until))]


def test_all_that_was_in_force_in_a_span_counts() -> None:
    """FP-31."""
    told = Chronicle()
    budget(told, 10, maxUnavailable=1)
    budget(told, 20, maxUnavailable=2)
    unbudget(told, 30)
    budget(told, 40, maxUnavailable=3)

    assert limits(told, 5, 15) == [], "for a while there was none"
    assert limits(told, 12, 15) == [1]
    assert limits(told, 12, 25) == [1, 2]
    assert limits(told, 25, 35) == limits(told, 31, 35) == limits(told, 35, 45) == []
    assert limits(told, 41, 45) == [3]


def test_what_makes_no_sense_leaves_the_last_one_or_nothing() -> None:
    """W-52."""
    told = Chronicle()
    budget(told, 10, maxUnavailable=2)
    budget(told, 20, podNamePartitionRegex="(")

    assert limits(told, 21, 22) == [2, 0]


def test_only_what_is_selected_is_under_it_and_two_are_none() -> None:
    """ZPDB-35."""
    told = Chronicle()
    for name, labels in (("a", {"app": "x"}), ("b", {"tier": "y"})):
        told.write(
            1,
            ZONE_BUDGETS,
            name,
            {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}}},
        )
    found = timeline_of(told)

    assert [one.name for one in found.find({"app": "x"}, s(2), s(3))] == ["a"]
    assert found.find({"app": "z"}, s(2), s(3)) == []
    both = found.find({"app": "x", "tier": "y"}, s(2), s(3))
    assert [one.maximum for one in both] == [0]
