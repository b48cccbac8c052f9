"""What is beyond the fields of a budget under review (W-28, W-41, W-56)."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model.budget import Budget
from rollout_operator.model.names import ABSENT_PEERS, Uid
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.budgets import BudgetUnderReview, Overlap, assess_budget
from tests.builders import pod

SELECTOR = {"rollout-group": "ingester"}
BUDGET = Budget(
    namespace="prod", name="ingester", uid=Uid("u"), resource_version="1", selector=SELECTOR
)
ZONES = tuple(pod(letter, ordinal) for letter in "abc" for ordinal in range(3))


def warnings(draft: BudgetUnderReview) -> tuple[str, ...]:
    verdict = assess_budget(draft)
    assert verdict.is_allowed
    assert verdict.reason.code is Code.BUDGET_VALID
    assert (verdict.reason.severity is Severity.WARN) == bool(verdict.warnings)
    assert all(len(text) <= 256 for text in verdict.warnings), "kubectl cuts longer ones"
    return verdict.warnings


def test_a_budget_like_most() -> None:
    delayed = replace(BUDGET, pattern="x-([0-9]+)", delay=timedelta(minutes=1))
    for budget in (BUDGET, delayed):
        assert warnings(BudgetUnderReview(budget=budget, absent_peers="gone", pods=ZONES)) == ()


def test_w28_an_empty_selector_is_refused() -> None:
    verdict = assess_budget(BudgetUnderReview(budget=replace(BUDGET, selector={}), pods=ZONES))
    assert (verdict.is_allowed, verdict.code) == (False, 400)
    assert verdict.reason.code is Code.BUDGET_INVALID
    assert verdict.reason.text.startswith("invalid value: selector is empty")


def test_w28_an_overlap_is_refused_and_names_both() -> None:
    overlap = Overlap(pod="ingester-zone-a-0", other="store")
    verdict = assess_budget(BudgetUnderReview(budget=BUDGET, pods=ZONES, overlap=overlap))
    assert (verdict.is_allowed, verdict.code) == (False, 400)
    assert verdict.reason.code is Code.BUDGETS_OVERLAP
    assert verdict.reason.text == (
        'budget "ingester" selects pod ingester-zone-a-0, which budget "store" selects as well:'
        " a pod may be under one budget only"
    )


@pytest.mark.parametrize(
    ("pattern", "warns"), [("a-([0-9]+)", False), ("a-([0-9]+)|b", True), ("a-([0-9]|x)", False)]
)
def test_w28_an_alternation_at_the_top_is_reported(pattern: str, warns: bool) -> None:
    found = warnings(BudgetUnderReview(budget=replace(BUDGET, pattern=pattern)))
    assert [text.partition(":")[0] for text in found] == ["spec.podNamePartitionRegex"] * warns


@pytest.mark.parametrize(
    ("share", "message"),
    [
        pytest.param(33, "33% of 3 pods is less than one", id="W-56 99 % of a pod"),
        pytest.param(1, "1% of 3 pods is less than one", id="W-56 1 %"),
        pytest.param(34, "", id="one pod and a little"),
        pytest.param(100, "", id="all"),
        pytest.param(0, "", id="none at all"),
        pytest.param(None, "", id="a number of pods"),
    ],
)
def test_w56_a_share_that_is_rounded_up_is_reported(share: int | None, message: str) -> None:
    budget = replace(BUDGET, percentage=share, max_unavailable=0)
    found = warnings(BudgetUnderReview(budget=budget, pods=ZONES))
    assert [message in text for text in found] == [True] * bool(message)
    assert warnings(BudgetUnderReview(budget=budget)) == (), "of unknown zones nothing is certain"


def test_w56_the_smallest_zone_decides() -> None:
    budget = replace(BUDGET, percentage=50)
    orphan = replace(pod("z", 0), owner_uid=None)
    assert warnings(BudgetUnderReview(budget=budget, pods=(*ZONES, orphan))) == ()
    pair = (pod("d", 0), pod("d", 1))
    assert warnings(BudgetUnderReview(budget=budget, pods=(*ZONES, *pair))) == (), "exactly one"
    (text,) = warnings(BudgetUnderReview(budget=budget, pods=(*ZONES, pod("d", 0))))
    assert "50% of 1 pod is less than one" in text


@pytest.mark.parametrize(
    ("value", "warns"),
    [(None, 0), ("gone", 0), ("unknown", 0), ("", 1), ("Gone", 1), ("x" * 999, 1)],
)
def test_w41_an_unknown_word_is_reported(value: str | None, warns: int) -> None:
    found = warnings(BudgetUnderReview(budget=BUDGET, absent_peers=value))
    assert [ABSENT_PEERS in text for text in found] == [True] * warns


def test_all_warnings_at_once() -> None:
    budget = replace(BUDGET, percentage=1, pattern="(a)|b")
    assert len(warnings(BudgetUnderReview(budget=budget, absent_peers="x", pods=ZONES))) == 3
