"""What is not modelled of the kinds, said loudly; what they store is compared by the contract."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_lab.model.request import ApiRefusal, NotModelled
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES, ObjectKind, get_kind
from rollout_lab.schemas.tidy import copy_json

from rollout_operator.kube.api import PODS, STATEFULSETS, ZONE_BUDGETS, JsonObject, Resource
from rollout_operator.model.decode.custom import parse_budget
from rollout_operator.model.names import InvalidInput
from tests.contract.bodies import pod, replica_template, statefulset, zone_budget
from tests.contract.test_contract_zone_budgets import REFUSED
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


def contained(**fields: object) -> JsonObject:
    return {"metadata": {"labels": {"name": "a"}}, "spec": {"containers": [fields]}}


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        (STATEFULSETS, sts(selector=None)),
        (STATEFULSETS, sts(selector={"matchLabels": {"name": "b"}})),
        (STATEFULSETS, sts(serviceName="a@b")),
        (STATEFULSETS, sts(volumeClaimTemplates=[{}])),
        (STATEFULSETS, sts(template=contained(name="app", image="v1", ports=[{}]))),
        (STATEFULSETS, sts(template=contained(name="app"))),
        (STATEFULSETS, {**sts(), "metadata": {"name": "a.b"}}),
        (PODS, {**pod("a"), "spec": {"containers": []}}),
        (PODS, pod("a", labels={"a b": "c"})),
        (PODS, pod("a", annotations={"/": "c"})),
        (PODS, pod("a", ownerReferences=[{"kind": "X", "name": "x"}])),
        (REPLICA_TEMPLATES, replica_template("a", replicas="3")),
        (REPLICA_TEMPLATES, replica_template("a", replicas=-1)),
        (REPLICA_TEMPLATES, replica_template("a", replicas=2**31)),
        *((ZONE_BUDGETS, zone_budget("a", **spec)) for spec, _ in REFUSED),
    ],
)
def test_what_the_real_server_refuses_is_not_modelled(resource: Resource, body: JsonObject) -> None:
    with pytest.raises(NotModelled):
        get_kind(resource).prepare_create(body)


def test_what_is_not_modelled_names_object_and_field() -> None:
    body = sts()
    part(body, "spec")["selector"] = {"matchLabels": {"no": "pod"}}
    with pytest.raises(NotModelled, match=r"^StatefulSet \S+: the simulation .* of spec\.selector"):
        get_kind(STATEFULSETS).prepare_create(body)


@pytest.mark.parametrize(
    ("resource", "body", "part_of", "value"),
    [
        (STATEFULSETS, sts(), "serviceName", "other"),
        (STATEFULSETS, sts(), "podManagementPolicy", "Parallel"),
        (PODS, pod("a"), "hostname", "other"),
        (ZONE_BUDGETS, zone_budget("a"), "maxUnavailable", -1),
    ],
)
def test_a_change_that_the_real_server_refuses_is_not_modelled(
    resource: Resource, body: JsonObject, part_of: str, value: object
) -> None:
    kind = get_kind(resource)
    old = created(kind, body)
    new = {**old, "metadata": {**part(old, "metadata")}, "spec": {**part(old, "spec")}}
    part(new, "spec")[part_of] = value
    with pytest.raises(NotModelled, match="the refusal of"):
        kind.prepare_update(old, new, "")


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
