"""Reviews that were not sent by an API server, or ask for nonsense: refused, nothing is written.

T-11 rows 1 to 3, T-12 for budgets, SEC-09, SI-13, W-23.
"""

from typing import Any, Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
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
from tests.world.scene import World

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "mock"}
BUDGET: Final = zone_budget("mock", LABELS)
POD: Final = "mock-zone-a-0"


async def begin(world: World) -> Budgeted:
    return await hold(world, *grouped_zones("mock", replicas=2), budgets=[BUDGET])


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


async def test_t11_requests_that_are_no_evictions(world: World) -> None:
    """ZPDB-50 to 52, SI-24, SEC-09."""
    held = await begin(world)
    async with calling(world, held.operator) as caller:
        for name, (fields, code, text) in NONSENSE.items():
            review = eviction_review(world.namespace, POD, **fields)
            answer = await caller.ask(EVICTION_PATH, review)
            assert (answer.is_allowed, answer.code) == (False, code), name
            assert text in answer.message, name
    await assert_untouched(held)


async def test_sec09_what_a_review_claims_does_not_count(world: World) -> None:
    """SEC-09: labels, phases and owners are those that the API server holds, not the sender's."""
    held = await begin(world)
    lie = {
        "metadata": {"name": POD, "labels": {}, "annotations": {"grafana.com/ready-time": "x"}},
        "status": {"phase": "Failed"},
    }
    async with calling(world, held.operator) as caller:
        await held.set_budget("mock", maxUnavailable=0)
        await held.wait_answer(POD, 403)
        for fields in (
            {"object": lie},
            {"oldObject": lie},
            {"userInfo": {"username": "system:node"}},
        ):
            answer = await caller.ask(
                EVICTION_PATH, eviction_review(world.namespace, POD, **fields)
            )
            assert (answer.is_allowed, answer.code) == (False, 403), fields
        absent = await caller.ask(EVICTION_PATH, eviction_review(world.namespace, "nobody-0"))
        assert absent.is_allowed, "the API server answers 404"
        await held.set_budget("mock", maxUnavailable=1)
    await held.wait_answer(POD, 201)
    await assert_untouched(held)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({}, id="no kind"),
        pytest.param({"kind": "AdmissionReview"}, id="no version"),
        pytest.param({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, id="empty"),
        pytest.param([], id="a list"),
        pytest.param("text", id="a text"),
    ],
)
async def test_t12_bodies_that_are_no_reviews(world: World, broken: object) -> None:
    """T-12: 400, whatever the path."""
    held = await _serving(world)
    async with calling(world, held.operator) as caller:
        for path in (EVICTION_PATH, BUDGET_PATH):
            status, _ = await caller.post(path, broken)
            assert status == 400
    assert held.operator.is_running


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


async def test_t12_budgets_under_review(world: World) -> None:
    """T-12, ZVAL-01, ZVAL-02: the parser's own words."""
    held = await _serving(world)
    async with calling(world, held.operator) as caller:
        for name, (budget, text) in SPECS.items():
            answer = await caller.ask(BUDGET_PATH, budget_review(world.namespace, budget))
            assert answer.is_allowed == (not text), name
            assert answer.message == text, name
            assert answer.code == (400 if text else 0), name


async def test_w28_what_only_the_webhook_refuses(world: World) -> None:
    """W-28, ZPDB-16: through the API server; a pattern, an overlap, an empty selector."""
    held = await begin(world)
    for body, text in (
        (zone_budget("two", LABELS), 'budget "two" selects pod mock-zone-a-0, which budget "mock"'),
        (zone_budget("all", {}), "selector is empty"),
        (
            zone_budget("x", {"a": "b"}, podNamePartitionRegex="(a)-(b)"),
            "regular expression has multiple subexpressions and requires podNameRegexGroup",
        ),
    ):
        with pytest.raises(ApiError, match="denied the request") as caught:
            await world.api.create(ZONE_BUDGETS, world.namespace, body)
        assert caught.value.status == 400
        assert text in str(caught.value)
    await assert_untouched(held)


async def _serving(world: World) -> Budgeted:
    return await hold(world, ZoneSpec(name="none", group=None, replicas=1))
