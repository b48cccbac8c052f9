"""The documents about budgets: examples that would be stored, keys and numbers as in the code."""

import re
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest
import yaml

from rollout_operator.controllers.budgets import UNTOUCHED_FOR
from rollout_operator.guards.grants import QUARANTINE, RECORD_COUNTS
from rollout_operator.model.budget import Budget, BudgetStatus
from rollout_operator.model.decode.custom import parse_budget
from rollout_operator.model.names import ABSENT_PEERS, DISRUPTION_RECORD, READY_TIME
from tests.code_rules import ROOT

SPEC_FIELDS: Final = {
    "selector.matchLabels",
    "maxUnavailable",
    "maxUnavailablePercentage",
    "podNamePartitionRegex",
    "podNameRegexGroup",
    "crossZoneEvictionDelay",
}


def read(page: str) -> str:
    return (ROOT / page).read_text()


def list_examples(page: str) -> list[dict[str, Any]]:
    """Return the budgets of a page; where only the spec is shown the rest is as in the first."""
    blocks = [yaml.safe_load_all(one) for one in re.findall(r"```yaml\n(.*?)```", read(page), re.S)]
    found = [one for block in blocks for one in block]
    whole = next(one for one in found if one.get("kind") == "ZoneAwarePodDisruptionBudget")
    return [{**whole, **one} for one in found if "selector" in one.get("spec", {})]


def test_there_is_an_example_of_each_mode_that_would_be_stored() -> None:
    """ZPDB-10 to 26: read by the parser of watched budgets and of the webhook."""
    budgets: list[Budget] = [
        parse_budget(msgspec.json.encode(example)) for example in list_examples("docs/budgets.md")
    ]

    assert {one.by_partition for one in budgets} == {False, True}
    assert any(one.delay for one in budgets)


def test_every_field_is_explained() -> None:
    """ZPDB-01."""
    explained = re.findall(r"^\| `([\w.]+)`(?:, `\w+`)? \|", read("docs/budgets.md"), re.MULTILINE)

    assert set(explained) == SPEC_FIELDS | {*msgspec.to_builtins(BudgetStatus())}


@pytest.mark.parametrize("key", [DISRUPTION_RECORD, ABSENT_PEERS, READY_TIME])
def test_annotations_are_spelt_as_in_the_code(key: str) -> None:
    assert key in read("docs/budgets.md")


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (UNTOUCHED_FOR, "after `lasts`, and 8 s at least"),
        (RECORD_COUNTS, "One older than two minutes counts for nothing"),
        (QUARANTINE, "refuses all evictions of its first twelve seconds"),
    ],
)
def test_times_are_those_of_the_code(span: timedelta, words: str) -> None:
    numbers = {"8 s": 8, "two minutes": 120, "twelve seconds": 12}
    (documented,) = (seconds for word, seconds in numbers.items() if word in words)

    assert span == timedelta(seconds=documented)
    assert words in " ".join(read("docs/budgets.md").split())
