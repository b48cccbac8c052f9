"""What is read of the status that a budget shows."""

from typing import Any

import msgspec
import pytest

from rollout_operator.model.budget import BudgetStatus, StatusCondition
from rollout_operator.model.decode.custom import decode_budget_status
from rollout_operator.model.names import DecodeError

STATUS = BudgetStatus(
    observed_generation=2,
    zones=3,
    pods=9,
    current_unavailable=1,
    allowed_disruptions=0,
    conditions=(StatusCondition(type="Ready", status="True", reason="BudgetHasRoom"),),
)


def read(status: object) -> BudgetStatus:
    body: dict[str, Any] = {"kind": "ZoneAwarePodDisruptionBudget", "status": status}
    body["metadata"] = {"name": "ingester", "namespace": "test", "uid": "u1"}
    shown = decode_budget_status(msgspec.json.encode(body))
    assert (shown.name, shown.uid) == ("ingester", "u1")
    return shown.status


def test_what_was_written_is_read_back() -> None:
    written = msgspec.to_builtins(STATUS)

    assert written["currentUnavailable"] == 1
    assert read(written) == STATUS
    assert read({**written, "more": {"a": [1]}}) == STATUS


@pytest.mark.parametrize(
    "status", [None, {}, [], "x", {"zones": "3"}, {"conditions": [{}]}, {"conditions": None}]
)
def test_what_is_no_status_is_an_empty_one(status: object) -> None:
    assert read(status) == BudgetStatus()


def test_what_has_no_name_is_no_budget() -> None:
    with pytest.raises(DecodeError, match="metadata"):
        decode_budget_status(b'{"status": {}}')
