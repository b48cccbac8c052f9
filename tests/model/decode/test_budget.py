"""Budgets that are none, and whatever else people write; cases are in budget.txt."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.kube.store import decides
from rollout_operator.model.budget import Budget
from rollout_operator.model.decode.custom import decode_budget, parse_budget
from rollout_operator.model.names import InvalidInput
from tests.model.budget_trees import as_json, budget_tree


@pytest.mark.parametrize("raw", [b"", b"null", b"  null "])
def test_zval_02_no_object(raw: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^unexpected end of JSON input$"):
        parse_budget(raw)


def test_w41_whether_absent_peers_are_forgiven_decides() -> None:
    budget = decode_budget(msgspec.Raw(as_json(budget_tree())))
    assert isinstance(budget, Budget)
    assert decides(budget, msgspec.structs.replace(budget, forgives_absent_peers=True))
    assert not decides(budget, msgspec.structs.replace(budget, resource_version="8"))


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
_FIELDS = st.sampled_from(
    ["maxUnavailable", "maxUnavailablePercentage", "podNamePartitionRegex", "podNameRegexGroup",
     "crossZoneEvictionDelay", "selector"]
)  # fmt: skip


@given(st.dictionaries(_FIELDS, _JSON) | _JSON)
def test_fp_40_whatever_is_written_is_read_or_named(spec: Any) -> None:
    found = decode_budget(as_json({**budget_tree(), "spec": spec}))
    assert isinstance(found, Budget) or found.problem
