"""Zone-aware budgets in the sandbox are as the shipped kind says; see the contract as well."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.kube.api import ZONE_BUDGETS, JsonObject
from rollout_operator.lab.model.fields import children, number, text
from rollout_operator.lab.model.request import JSON_PATCH, STRATEGIC_PATCH, NotModelled
from rollout_operator.model.decode.budget import parse_budget
from rollout_operator.model.errors import InvalidInput
from tests.contract.bodies import zone_budget
from tests.lab.server import Asked, Server
from tests.model.budget_trees import REGEX, TWO_GROUPS, as_json
from tests.test_manifests_zonebudgets import fields_of_spec

DELAY = "crossZoneEvictionDelay"
PLAIN = {"selector": {"matchLabels": {"app": "x"}}}


def create(**spec: Any) -> tuple[int, JsonObject]:
    answer = Server().ask("create", ZONE_BUDGETS, "", Asked(body=zone_budget("a", **spec)))
    return answer.status, answer.body


def test_t13_4_an_invalid_budget_is_refused_by_the_api_server() -> None:
    status, body = create(maxUnavailable=-1)
    assert (status, text(body, "reason")) == (422, "Invalid")
    assert text(body, "message") == (
        'ZoneAwarePodDisruptionBudget.rollout-operator.grafana.com "a" is invalid:'
        " spec.maxUnavailable: Invalid value: -1: spec.maxUnavailable in body should be greater"
        " than or equal to 0"
    )


@pytest.mark.parametrize(
    ("spec", "field", "told"),
    [
        ({"maxUnavailablePercentage": 101}, "spec.maxUnavailablePercentage", "less than or equal"),
        ({"podNameRegexGroup": 0}, "spec.podNameRegexGroup", "greater than or equal to 1"),
        ({"maxUnavailable": "1"}, "spec.maxUnavailable", "must be of type integer"),
        ({"selector": {}}, "spec.selector.matchLabels", "Required value"),
        ({"maxUnavailable": 1, "maxUnavailablePercentage": 1}, "spec", "only one of"),
        ({"maxUnavailablePercentage": 1, "podNamePartitionRegex": REGEX}, "spec", "partition"),
        ({DELAY: "20m"}, "spec", "requires podNamePartitionRegex"),
        ({DELAY: "1d", "podNamePartitionRegex": REGEX}, f"spec.{DELAY}", "not a valid duration"),
        ({DELAY: "-1s"}, f"spec.{DELAY}", "must be >= 0"),
        ({"podNamePartitionRegex": "(["}, "spec.podNamePartitionRegex", "missing closing ]"),
        ({"podNamePartitionRegex": "a"}, "spec.podNamePartitionRegex", "at least one"),
        ({"podNamePartitionRegex": f"({'a' * 1023})"}, "spec.podNamePartitionRegex", "longer"),
    ],
)
def test_zpdb_01_what_schema_and_rules_refuse(spec: dict[str, Any], field: str, told: str) -> None:
    status, body = create(**spec)
    causes = {
        text(one, "field"): text(one, "message") for one in children(body, "details", "causes")
    }
    assert status == 422
    assert told in causes[field]


def test_zpdb_22_nothing_of_a_partition_is_no_contradiction() -> None:
    status, _ = create(maxUnavailablePercentage=0, podNamePartitionRegex=REGEX)
    assert status == 201


_INTEGERS = st.integers(-2, 102) | st.sampled_from(["1", True, None, 1.5])
_PATTERNS = st.sampled_from(
    ["", REGEX, TWO_GROUPS, "a", "(a", "[", "a|(b)", "(?:a)", "(?P<x>a)", 5]
)
_DELAYS = st.sampled_from(["", "0s", "-0s", "1m", "-1m", "1d", "1.5h", ".5s", "x", "+1s", "5", 5])
_SELECTORS = st.sampled_from(
    [{"matchLabels": {"a": "b"}}, {"matchLabels": {}}, {}, {"matchLabels": {"a": 1}}]
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "maxUnavailable": _INTEGERS,
            "maxUnavailablePercentage": _INTEGERS,
            "podNamePartitionRegex": _PATTERNS,
            "podNameRegexGroup": _INTEGERS,
            DELAY: _DELAYS,
            "selector": _SELECTORS,
        },
    )
)
def test_dep_b_the_kind_is_never_narrower_than_the_parser(spec: dict[str, Any]) -> None:
    """What was accepted in all releases is: schema and rules refuse only what is refused anyway.

    But for two fields that nobody looks at: `podNameRegexGroup` without a pattern has to be one.
    """
    wanted = {key: value for key, value in spec.items() if value is not None}
    group = wanted.get("podNameRegexGroup", 1)
    if not wanted.get("podNamePartitionRegex") and (type(group) is not int or group < 1):
        return
    status, _ = create(**{**PLAIN, **wanted})
    body = zone_budget("a")
    body["spec"] = {**PLAIN, **wanted}
    try:
        parse_budget(as_json(body))
    except InvalidInput:
        return
    assert status == 201


def test_the_sandbox_knows_the_fields_of_the_shipped_kind() -> None:
    known = {
        "selector": {"matchLabels": {"app": "x"}},
        "maxUnavailable": 1,
        "podNamePartitionRegex": TWO_GROUPS,
        "podNameRegexGroup": 2,
        DELAY: "1m",
    }
    _, body = create(**known, unknown=1)
    assert body["spec"] == known
    assert set(fields_of_spec()) == {*known, "maxUnavailablePercentage"}


def test_zpdb_02_match_expressions_are_pruned() -> None:
    expressions: list[JsonObject] = [{"key": "a", "operator": "Exists"}]
    selector = {"matchLabels": {"app": "x"}, "matchExpressions": expressions}
    _, body = create(selector=selector)
    assert body["spec"] == PLAIN


def test_only_the_spec_counts_generations_and_status_is_nothing() -> None:
    server = Server()
    server.create(ZONE_BUDGETS, zone_budget("a", maxUnavailable=1))
    for patch, subresource, generation in (
        ({"spec": {"maxUnavailable": 2}}, "", 2),
        ({"metadata": {"annotations": {"x": "y"}}}, "", 2),
        ({"status": {"x": 1}, "spec": {"maxUnavailable": 9}}, "status", 2),
    ):
        asked = Asked(body=dict(patch), subresource=subresource)
        now = server.ask("patch", ZONE_BUDGETS, "a", asked).body
        assert number(now, "metadata", "generation") == generation
        assert "status" not in now
    assert number(now, "spec", "maxUnavailable") == 2


def test_an_update_is_judged_like_a_creation() -> None:
    server = Server()
    server.create(ZONE_BUDGETS, zone_budget("a", maxUnavailable=1))
    step: JsonObject = {"op": "replace", "path": "/spec/maxUnavailable", "value": -1}
    asked = Asked(body=[step], content_type=JSON_PATCH)
    assert server.ask("patch", ZONE_BUDGETS, "a", asked).status == 422
    assert server.ask("get", ZONE_BUDGETS, "a", Asked(subresource="scale")).status == 404


def test_what_would_be_guessed_is_not_modelled() -> None:
    with pytest.raises(NotModelled, match=r"the number 1\.0"):
        create(maxUnavailable=1.0)
    with pytest.raises(NotModelled, match="trailing"):
        create(podNamePartitionRegex="(a)\\")
    server = Server()
    server.create(ZONE_BUDGETS, zone_budget("a"))
    with pytest.raises(NotModelled, match="strategic merge patch of a custom resource"):
        server.ask("patch", ZONE_BUDGETS, "a", Asked(body={}, content_type=STRATEGIC_PATCH))
