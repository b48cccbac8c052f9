"""What the shipped kind of budgets refuses: checked on the real API server alone.

The sandbox does not model these refusals, and says so: see `tests/lab/not_modelled.txt`.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.bodies import zone_budget
from tests.world.api import Api, ApiError
from tests.world.budgets import ZONE_BUDGETS, install_kinds
from tests.world.plane import ControlPlane

GROUP = "ingester-zone-[a-z]-([0-9]+)"
DELAY = "crossZoneEvictionDelay"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"maxUnavailable": -1}, "spec.maxUnavailable in body should be greater than or equal to 0"),
    ({"maxUnavailablePercentage": -1}, "spec.maxUnavailablePercentage in body should be greater"),
    ({"maxUnavailablePercentage": 101}, "in body should be less than or equal to 100"),
    ({"podNameRegexGroup": 0}, "spec.podNameRegexGroup in body should be greater than or equal"),
    ({"maxUnavailable": "1"}, "spec.maxUnavailable in body must be of type integer"),
    ({"maxUnavailable": 1.5}, "must be of type integer"),
    ({DELAY: 20}, f"spec.{DELAY} in body must be of type string"),
    ({"selector": {}}, "spec.selector.matchLabels: Required value"),
    ({"selector": {"matchLabels": {"app": 1}}}, "must be of type string"),
    ({"maxUnavailable": 1, "maxUnavailablePercentage": 1}, "spec: Invalid value: only one of"),
    ({"maxUnavailablePercentage": 1, "podNamePartitionRegex": GROUP}, "partition awareness"),
    ({DELAY: "20m"}, "requires podNamePartitionRegex to be set"),
    ({DELAY: "1d", "podNamePartitionRegex": GROUP}, f"{DELAY} is not a valid duration"),
    ({DELAY: "-5m", "podNamePartitionRegex": GROUP}, f"{DELAY} must be >= 0"),
    ({"podNamePartitionRegex": "(["}, "missing closing ]"),
    ({"podNamePartitionRegex": "(?=a)"}, "invalid or unsupported Perl syntax"),
    ({"podNamePartitionRegex": "a(?:b)"}, "requires at least one subexpression"),
    ({"podNamePartitionRegex": f"({'x' * 1023})"}, "regex is longer than 1024"),
]


@pytest_asyncio.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    async with plane.api() as opened:
        await install_kinds(opened)
        yield opened


@pytest.mark.controlplane
async def test_zpdb_01_what_schema_and_rules_refuse(api: Api) -> None:
    """ZPDB-01, T-13 row 4: each by its own words, and nothing is stored."""
    for spec, said in REFUSED:
        with pytest.raises(ApiError) as caught:
            await api.create(ZONE_BUDGETS, "default", zone_budget("refused", **spec))
        assert caught.value.status == 422
        assert said in str(caught.value), spec
    assert (await api.list(ZONE_BUDGETS, "default"))["items"] == []
