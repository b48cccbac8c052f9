"""Kinds: never narrower than the operator's parsers; what they store the contract compares."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_lab.model.request import ApiRefusal
from rollout_lab.schemas.kinds import ObjectKind, get_kind
from rollout_lab.schemas.tidy import copy_json

from rollout_operator.kube.api import STATEFULSETS, ZONE_BUDGETS, JsonObject
from rollout_operator.model.decode.custom import parse_budget
from rollout_operator.model.names import InvalidInput
from tests.contract.bodies import statefulset, zone_budget
from tests.model.budget_trees import REGEX, TWO_GROUPS, as_json
from tests.test_manifests_crds import fields_of_spec

DELAY = "crossZoneEvictionDelay"
PLAIN = {"selector": {"matchLabels": {"app": "x"}}}


def created(kind: ObjectKind, obj: JsonObject) -> JsonObject:
    """Return an object as it is stored."""
    stored = copy_json(obj)
    kind.prepare_create(stored)
    metadata = part(stored, "metadata")
    metadata |= {"uid": "u-1", "resourceVersion": "5", "creationTimestamp": "2026-01-02T03:04:05Z"}
    return stored


def part(obj: JsonObject, *path: str) -> JsonObject:
    """Return the object at a path, for a test to read or to change."""
    for key in path:
        inner = obj[key]
        assert isinstance(inner, dict), f"{key} is {inner!r}"
        obj = inner
    return obj


def sts(**spec: object) -> JsonObject:
    return statefulset("a", **spec)  # type: ignore[arg-type]  # any field, also a wrong one


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (sts(replicas="3"), "cannot unmarshal string into Go struct field .spec.replicas of type"),
        (sts(replicas=True), "cannot unmarshal bool into Go struct field .spec.replicas"),
        ({**sts(), "spec": []}, "cannot unmarshal array into Go struct field .spec of type struct"),
        ({**sts(), "metadata": {"labels": {"a": 1}}}, "number into Go struct field .metadata.labe"),
        ({**sts(), "metadata": {"labels": "a"}}, "string into Go struct field .metadata.labels"),
    ],
)
def test_what_cannot_be_read_is_a_bad_request(body: JsonObject, text: str) -> None:
    """Also for `simulate`, whose input is a person's."""
    with pytest.raises(ApiRefusal, match=text) as caught:
        get_kind(STATEFULSETS).default(body)
    assert (caught.value.status, caught.value.reason) == (400, "BadRequest")


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

    But for two fields that nothing reads: `podNameRegexGroup` without a pattern has to be one.
    """
    wanted = {key: value for key, value in spec.items() if value is not None}
    group = wanted.get("podNameRegexGroup", 1)
    if not wanted.get("podNamePartitionRegex") and (type(group) is not int or group < 1):
        return
    body = {**zone_budget("a"), "spec": {**PLAIN, **wanted}}
    try:
        parse_budget(as_json(body))
    except InvalidInput:
        return
    get_kind(ZONE_BUDGETS).prepare_create(body)


def test_the_sandbox_knows_the_fields_of_the_shipped_kind() -> None:
    known = {
        "selector": {"matchLabels": {"app": "x"}},
        "maxUnavailable": 1,
        "podNamePartitionRegex": TWO_GROUPS,
        "podNameRegexGroup": 2,
        DELAY: "1m",
    }
    stored = created(get_kind(ZONE_BUDGETS), zone_budget("a", **known, unknown=1))
    assert stored["spec"] == known
    assert set(fields_of_spec()) == {*known, "maxUnavailablePercentage"}
