"""What the judge says of histories that break a promise, and of some that nearly do."""

import re
from pathlib import Path

import msgspec
import pytest

from rollout_operator.model.decode.custom import parse_budget
from rollout_operator.model.names import InvalidInput
from tests.goldens import Golden
from tests.judge.batches import CHECKS
from tests.judge.budgets import read_rule
from tests.judge.stage import judge
from tests.judge.verdict import NOT_JUDGED
from tests.stories import Story, read_stories

PATHS = sorted(Path(__file__).parent.glob("*.txt"))
OTHERS = ("SCALE-05", "MIRR-04", "DELAY-08", "ROLL-39")
RELEASES = ("REL-01", "REL-50", "RELB-10", "RELB-15", "RELB-35", "RELB-42")
SPECS = """
{}
{"maxUnavailable": 3}
{"maxUnavailable": 0}
{"maxUnavailablePercentage": 30}
{"maxUnavailable": 1, "maxUnavailablePercentage": 30}
{"podNamePartitionRegex": "a-([0-9]+)"}
{"podNamePartitionRegex": "a-[0-9]+"}
{"podNamePartitionRegex": "("}
{"podNamePartitionRegex": "(a)-([0-9]+)"}
{"podNamePartitionRegex": "(a)-([0-9]+)", "podNameRegexGroup": 2}
{"podNamePartitionRegex": "(a)-([0-9]+)", "podNameRegexGroup": 3}
{"podNamePartitionRegex": "(a)", "maxUnavailablePercentage": 30}
{"podNamePartitionRegex": "(a)", "crossZoneEvictionDelay": "10s"}
{"crossZoneEvictionDelay": "10s"}
"""


@pytest.mark.parametrize("story", read_stories(*PATHS))
def test_verdict(story: Story, golden: Golden) -> None:
    story.check(judge(story), golden)


def test_each_promise_that_is_judged_is_broken_by_a_history() -> None:
    """And it is said of which none is."""
    texts = [path.read_text("utf-8") for path in PATHS]
    broken = {name for text in texts for name in re.findall(r"([A-Z]+-\d+) at \d", text)}
    wanted = {*(f"SI-{one:02}" for one in (*range(1, 25), 26))}
    wanted |= {f"LI-{one:02}" for one in range(1, 16)}
    assert wanted - broken == {*NOT_JUDGED}
    assert {*CHECKS, *OTHERS, *RELEASES} <= broken


@pytest.mark.parametrize("spec", SPECS.strip().splitlines())
def test_the_judge_and_the_operator_read_budgets_alike(spec: str) -> None:
    """12.2: each in its own words."""
    raw = msgspec.json.decode(
        b'{"apiVersion": "rollout-operator.grafana.com/v1", "kind":'
        b' "ZoneAwarePodDisruptionBudget", "metadata": {"name": "b", "namespace": "default",'
        b' "uid": "u", "resourceVersion": "1"}}'
    )
    raw["spec"] = {"selector": {"matchLabels": {}}, **msgspec.json.decode(spec)}
    rule = read_rule(raw)
    try:
        theirs = parse_budget(msgspec.json.encode(raw))
    except InvalidInput:
        assert rule is None
        return
    assert rule is not None
    limits = (theirs.max_unavailable, theirs.percentage or 0, theirs.delay)
    assert (rule.maximum, rule.share, rule.delay) == limits
    assert (rule.pattern, rule.group) == (theirs.pattern, theirs.pattern_group)
