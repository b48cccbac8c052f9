"""Which budget a judge takes to be in force."""

from typing import Any

import msgspec
import pytest

from rollout_operator.kube.api import ZONE_BUDGETS, JsonObject
from rollout_operator.model.decode.custom import parse_budget
from rollout_operator.model.names import InvalidInput
from tests.judge.book import read_book
from tests.judge.budgets import Rule, Timeline, read_rule, read_timeline
from tests.judge.builder import HistoryBuilder, s
from tests.judge.objects import Set
from tests.judge.promises import Promises

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


def budget_of(labels: dict[str, str], **spec: Any) -> JsonObject:
    selector: JsonObject = {"matchLabels": labels}
    return {
        "apiVersion": f"{ZONE_BUDGETS.group}/{ZONE_BUDGETS.version}",
        "kind": ZONE_BUDGETS.kind,
        "metadata": {"name": "b", "namespace": "default", "uid": "u", "resourceVersion": "1"},
        "spec": {"selector": selector, **spec},
    }


@pytest.mark.parametrize(("spec", "makes_sense"), SPECS, ids=[f"{spec}" for spec, _ in SPECS])
def test_the_judge_and_the_operator_read_budgets_alike(
    spec: dict[str, Any], makes_sense: bool
) -> None:
    """12.2: each in its own words."""
    raw = budget_of({"app": "x"}, **spec)
    rule = read_rule(raw)
    assert (rule is not None) is makes_sense
    if rule is None:
        with pytest.raises(InvalidInput):
            parse_budget(msgspec.json.encode(raw))
        return
    theirs = parse_budget(msgspec.json.encode(raw))
    limits = (theirs.max_unavailable, theirs.percentage or 0, theirs.delay)
    assert (rule.maximum, rule.share, rule.delay) == limits
    assert (rule.pattern, rule.group) == (theirs.pattern, theirs.pattern_group)


@pytest.mark.parametrize(
    ("percent", "replicas", "limit"), [(50, 3, 1), (67, 3, 2), (1, 3, 1), (100, 4, 4), (50, 0, 0)]
)
def test_a_share_is_rounded_down_and_at_least_one(percent: int, replicas: int, limit: int) -> None:
    """ZPDB-81."""
    rule = read_rule(budget_of({}, maxUnavailablePercentage=percent))

    assert isinstance(rule, Rule)
    assert rule.limit([Set(name="z", uid="z", replicas=replicas)]) == limit


def timeline_of(t: HistoryBuilder) -> Timeline:
    return read_timeline(read_book(t.history, Promises()))


def test_all_that_was_in_force_in_a_span_counts() -> None:
    """FP-31, W-52: where there was none for a while, none counts; what makes no sense is none."""
    t = HistoryBuilder().budget(10, maxUnavailable=1).budget(20, maxUnavailable=2).unbudget(30)
    found = timeline_of(t.budget(40, maxUnavailable=3).budget(50, podNamePartitionRegex="("))

    def limits(since: float, until: float) -> list[int]:
        return [rule.maximum for rule in found.find({}, s(since), s(until))]

    assert limits(12, 15) == [1]
    assert limits(12, 25) == [1, 2]
    assert limits(5, 15) == limits(25, 35) == limits(31, 35) == limits(35, 45) == []
    assert limits(41, 45) == [3]
    assert limits(51, 55) == [3, 0]


def test_only_what_is_selected_is_under_it_and_two_are_none() -> None:
    """ZPDB-35."""
    t = HistoryBuilder()
    for name, labels in (("first", {"app": "x"}), ("second", {"tier": "y"})):
        t.write(1, ZONE_BUDGETS, name, {**budget_of(labels), "metadata": {"name": name}})
    found = timeline_of(t)

    assert [one.name for one in found.find({"app": "x"}, s(2), s(3))] == ["first"]
    assert found.find({"app": "z"}, s(2), s(3)) == []
    both = found.find({"app": "x", "tier": "y"}, s(2), s(3))
    assert [one.maximum for one in both] == [0]
