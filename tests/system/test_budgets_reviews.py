"""Reviews that were not sent by an API server, or request nonsense: refused, nothing is written.

T-11 rows 1 to 3, T-12 for budgets, SEC-09, SI-13, W-23.
"""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.system.budgeted import Budgeted, hold
from tests.system.evictions import (
    BUDGET_PATH,
    EVICTION_PATH,
    budget_review,
    calling,
    eviction_review,
)
from tests.world.api import ApiError
from tests.world.budgets import ZONE_BUDGETS, DryRun, by_partition, grouped_zones, zone_budget
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


# Fields of the request, the code, and a part of the message.
NONSENSE: Final[dict[str, tuple[dict[str, Any], int, str]]] = {
    "T-11 row 1": ({"operation": "DELETE"}, 400, "request operation is not create, got: DELETE"),
    "T-11 row 2": ({"subResource": "foo"}, 400, "request SubResource is not eviction, got: foo"),
    "T-11 row 3": (
        {"name": "", "object": None},
        400,
        "request did not include both a namespace and a name",
    ),
    "no namespace": ({"namespace": ""}, 400, "request did not include both"),
    "SI-24: another namespace": ({"namespace": "kube-system"}, 400, "is not looked after by this"),
}


BROKEN: Final[Sequence[object]] = (
    {},
    {"kind": "AdmissionReview"},
    {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"},
    [],
    "text",
)
# Specs, and the message; nothing where it is allowed.
SPECS: Final[dict[str, tuple[object, str]]] = {
    "valid": (zone_budget("x", {"a": "b"}), ""),
    "valid with a delay": (by_partition("x", {"a": "b"}, crossZoneEvictionDelay="20m"), ""),
    "ZPDB-14": (
        zone_budget("x", {"a": "b"}, maxUnavailable=-1),
        "invalid value: max unavailable must be 0 <= val, got -1",
    ),
    "ZPDB-21": (
        zone_budget("x", {"a": "b"}, crossZoneEvictionDelay="20m"),
        "invalid value: crossZoneEvictionDelay requires podNamePartitionRegex to be set",
    ),
    "ZVAL-02": (None, "unexpected end of JSON input"),
}
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


async def test_t11_t12_reviews_of_evictions_and_budgets(world: World) -> None:
    """T-11, T-12, ZPDB-16, ZPDB-50 to 52, ZVAL-01, ZVAL-02, SI-24, SEC-09, W-28.

    Nothing is written; labels, phases and owners are those that the API server holds.
    """
    held = await hold(world, *grouped_zones("mock", replicas=2), budgets=[BUDGET])
    async with calling(world, held.operator) as caller:
        for name, (fields, code, text) in NONSENSE.items():
            review = eviction_review(world.namespace, POD, **fields)
            answer = await caller.send_request(EVICTION_PATH, review)
            assert (answer.is_allowed, answer.code) == (False, code), name
            assert text in answer.message, name
        for broken in BROKEN:
            for path in (EVICTION_PATH, BUDGET_PATH):
                assert (await caller.post(path, broken))[0] == 400, broken
        for name, (budget, text) in SPECS.items():
            answer = await caller.send_request(BUDGET_PATH, budget_review(world.namespace, budget))
            assert answer.is_allowed == (not text), name
            assert answer.message == text, name
            assert answer.code == (400 if text else 0), name
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
