"""Which reason of a group comes first, in whatever order they were found."""

from collections.abc import Sequence
from itertools import permutations

import pytest

from rollout_operator.model.outcome import Code, Reason, find_leading


@pytest.mark.parametrize(
    ("codes", "leading"),
    [
        pytest.param([], None, id="none"),
        pytest.param([Code.UP_TO_DATE], Code.UP_TO_DATE, id="nothing is due"),
        pytest.param(
            [Code.ANOTHER_ZONE_FIRST, Code.PAUSED, Code.BUDGET_USED, Code.OBJECT_UNREADABLE],
            Code.OBJECT_UNREADABLE,
            id="what holds the group",
        ),
        pytest.param(
            [Code.ANOTHER_ZONE_FIRST, Code.PAUSED, Code.SEVERAL_ZONES_NOT_READY],
            Code.SEVERAL_ZONES_NOT_READY,
            id="what the zone waits for whose turn it is",
        ),
        pytest.param([Code.UP_TO_DATE, Code.PAUSED], Code.PAUSED, id="what holds one zone"),
        pytest.param(
            [Code.UP_TO_DATE, Code.ANOTHER_ZONE_FIRST], Code.ANOTHER_ZONE_FIRST, id="any wait"
        ),
    ],
)
def test_d40_one_reason_leads_in_every_outlet(codes: Sequence[Code], leading: Code | None) -> None:
    """D-40: page, Events and the time in a state go by the same."""
    for order in permutations(codes):
        found = find_leading([Reason(code, "why") for code in order])
        assert (None if found is None else found.code) == leading
