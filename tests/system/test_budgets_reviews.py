"""Budgets that only the webhook refuses, and reviews of evictions that lie: nothing is written.

What is no review of an eviction or a budget: `tests/web/budgets`.
"""

from typing import Final

import pytest

from tests.system.budgeted import Budgeted, hold
from tests.system.evictions import EVICTION_PATH, calling, eviction_review
from tests.world.api import ApiError
from tests.world.budgets import ZONE_BUDGETS, DryRun, grouped_zones, zone_budget
from tests.world.drains import CREATED
from tests.world.world import World

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "mock"}
BUDGET: Final = zone_budget("mock", LABELS)
POD: Final = "mock-zone-a-0"


async def assert_untouched(held: Budgeted) -> None:
    """Raise AssertionError where anything of a review has stayed."""
    assert await held.list_recorded() == []
    assert held.operator.is_running
    writes = {"create", "update", "patch", "delete"}
    on_pods = [call for call in await held.world.judge.calls() if call.resource == "pods"]
    assert [call for call in on_pods if call.verb in writes] == []
    for pod in (POD, "mock-zone-b-0"):
        assert (await held.evict(pod, DryRun.QUERY)).status in CREATED


# What only the webhook refuses, through the API server: an overlap, an empty selector, a pattern.
REFUSED: Final = (
    (zone_budget("two", LABELS), 'budget "two" selects pod mock-zone-a-0, which budget "mock"'),
    (zone_budget("all", {}), "selector is empty"),
    (
        zone_budget("x", {"a": "b"}, podNamePartitionRegex="(a)-(b)"),
        "regular expression has multiple subexpressions and requires podNameRegexGroup",
    ),
)
LIE: Final = {
    "metadata": {"name": POD, "labels": {}, "annotations": {"grafana.com/ready-time": "x"}},
    "status": {"phase": "Failed"},
}
LIES: Final = ({"object": LIE}, {"oldObject": LIE}, {"userInfo": {"username": "system:node"}})


async def test_t11_reviews_of_evictions_and_budgets(world: World) -> None:
    """T-11, ZPDB-16, SEC-09, SI-13, W-28: labels, phases and owners are the API server's."""
    held = await hold(world, *grouped_zones("mock", replicas=2), budgets=[BUDGET])
    async with calling(world, held.operator) as caller:
        for body, text in REFUSED:
            with pytest.raises(ApiError, match="denied the request") as caught:
                await world.post(ZONE_BUDGETS, body)
            assert caught.value.status == 400
            assert text in str(caught.value)
        await assert_untouched(held)

        await held.set_budget("mock", maxUnavailable=0)
        await held.wait_answer(POD, 403)
        for fields in LIES:
            review = eviction_review(world.namespace, POD, **fields)
            answer = await caller.send_request(EVICTION_PATH, review)
            assert (answer.is_allowed, answer.code) == (False, 403), fields
        absent = await caller.send_request(
            EVICTION_PATH, eviction_review(world.namespace, "absent-0")
        )
        assert absent.is_allowed, "the API server answers 404"
        await held.set_budget("mock", maxUnavailable=1)
    await held.wait_answer(POD, 201)
    await assert_untouched(held)
